"""Every capture reads, and its records are slices or accounted for; unknown things are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import balanced
from real_data import DATA
from small import SMALL

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


@pytest.mark.parametrize("name", [*SMALL, *CAPTURES])
def test_records_in_are_slices_out_or_accounted_for(small: dict[str, Path], name: str) -> None:
    trace = npuscope.read(small.get(name, DATA / name))
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
        (b"\x0a\x20\x08\x01\x12\x0d/device:TPU:0\x1a", "XPlane.*trace.json.gz"),
        (b"\x0a\x20\x08\x01", "perhaps a Perfetto protobuf"),
    ],
)
def test_what_is_no_capture_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "what.bin"
    path.write_bytes(content)
    with pytest.raises(npuscope.NpuscopeError, match=message) as error:
        npuscope.read(path)
    assert "what.bin" in str(error.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [("r.nsys-rep", "nsys export --type sqlite"), ("r.ncu-rep", "Nsight Compute"), ("r.rpd", "rocprofv3")],
)
def test_reports_of_other_profilers_say_how_to_export_them(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name).write_bytes(b"\x07\x00\x01binary")
    with pytest.raises(npuscope.NpuscopeError, match=message):
        npuscope.read(tmp_path / name)


def test_raw_data_of_msprof_says_how_to_export_it(tmp_path: Path) -> None:
    (tmp_path / "PROF_000001_2026/device_0/data").mkdir(parents=True)
    (tmp_path / "PROF_000001_2026/device_0/data/stars.slice_0").write_bytes(b"\x00\x01")
    for path in (tmp_path, tmp_path / "PROF_000001_2026"):
        with pytest.raises(npuscope.NpuscopeError, match=r"raw data of msprof.*--export=on"):
            npuscope.read(path)


def test_a_path_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(npuscope.NpuscopeError, match="no such file"):
        npuscope.read(tmp_path / "nowhere")
