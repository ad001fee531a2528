"""Every real capture reads, and its records are slices or accounted for; unknown things are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import balanced
from conftest import DATA

import npuscope

CAPTURES = sorted(
    str(path.relative_to(DATA))
    for pattern in (
        "ascend/**/kernel_details.csv", "ascend/**/trace_view.json", "ascend/**/*.db", "gpu/*.json.gz", "pypto/*.json",
        "simpler/swimlane*/*/*swimlane_records.json", "simpler/swimlane/*/merged_swimlane.json.gz",
        "simpler/swimlane/*", "simpler/tracr/*", "simpler/tracr/*/tracr", "simpler/tracr/*/tracr/perfetto.json*",
        "tracr/*/tracr", "tracr/edge_cases/*/tracr",
        "tracr/*/tracr/perfetto.json",
    )
    for path in DATA.glob(pattern)
) if DATA.is_dir() else []  # fmt: skip


@pytest.mark.skipif(not CAPTURES, reason=f"the real captures are not on this machine ({DATA})")
@pytest.mark.parametrize("name", CAPTURES)
def test_records_in_are_slices_out_or_accounted_for(name: str) -> None:
    trace = npuscope.read(DATA / name)
    assert trace.slices.height > 0
    assert balanced(trace)
    assert trace.slices["lane"].is_in(trace.lanes["lane"].implode()).all()
    assert (trace.slices["dur"] >= 0).all()
    for column in ("start", "dur", "kernel", "kind"):
        assert trace.slices[column].null_count() == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"PK\x03\x04rest", "zip archive"),
        (b"PAR1....", "Parquet file"),
        (b"\x00\x01\x02\x03", "binary data"),
        (b"hello world\n", "begins with 'hello world'"),
        (b"a,b\n1,2\n", "begins with 'a,b'"),
        (b"\x1f\x8b\x08\x00garbage", "damaged|too early"),
    ],
)
def test_what_is_no_capture_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "what.bin"
    path.write_bytes(content)
    with pytest.raises(npuscope.NpuscopeError, match=message) as error:
        npuscope.read(path)
    assert "what.bin" in str(error.value)


def test_a_path_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(npuscope.NpuscopeError, match="no such file"):
        npuscope.read(tmp_path / "nowhere")
