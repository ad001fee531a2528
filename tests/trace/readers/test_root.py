"""Folders: one rank's output, many ranks as one Trace, npuscope's own folder."""

import json
from pathlib import Path

import polars as pl
import pytest
from builders import kernel_row, refused, write_events, write_kernel_table, x

import npuscope
from npuscope.trace.readers import root


def rank_folder(root: Path, rank: int, kernels: int) -> Path:
    out = root / f"host_{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    out.mkdir(parents=True)
    (out.parent / f"profiler_info_{rank}.json").write_text("{}")
    rows = [kernel_row(start=f"{n * 10}.000", device=str(rank)) for n in range(kernels)]
    write_kernel_table(out / "kernel_details.csv", rows)
    (out / "step_trace_time.csv").write_text("Step,Computing\n1,2\n")
    (out / "communication.json").write_text("{}")
    return out


def test_many_ranks_are_one_trace(tmp_path: Path) -> None:
    for rank, kernels in ((11, 4), (2, 3)):
        rank_folder(tmp_path, rank, kernels)
    trace = npuscope.read(tmp_path)
    counts = trace.slices.join(trace.lanes, on="lane").group_by("rank").len().sort("rank").rows()
    assert counts == [(2, 3), (11, 4)]
    assert trace.slices["task"].n_unique() == 7  # tasks of different ranks stay apart
    assert trace.meta.records == 7
    assert trace.meta.format == "profiler-root (kernel_details)"


def test_one_ranks_output_is_read_once_though_it_is_there_several_times(tmp_path: Path) -> None:
    out = rank_folder(tmp_path, 0, 2)
    write_events(out / "trace_view.json", [x("the same kernels", 0, 1)])
    assert npuscope.read(tmp_path).slices.height == 2


def test_captures_that_claim_one_rank_are_of_several_runs(tmp_path: Path) -> None:
    for run in ("before", "after"):
        for rank in (0, 1):
            (tmp_path / run).mkdir(exist_ok=True)
            text = {"distributedInfo": {"rank": rank}, "traceEvents": [x("k", 0, 1)]}
            (tmp_path / run / f"worker{rank}.json").write_text(json.dumps(text))
    said = refused(tmp_path, "it holds 2 runs")
    assert f"npuscope compare {tmp_path / 'after'} {tmp_path / 'before'}" in said
    assert npuscope.read(tmp_path / "before").lanes["rank"].to_list() == [0, 1]


def test_two_files_of_one_process_are_of_several_runs(tmp_path: Path) -> None:
    # GIVEN what torch.profiler writes when it records twice
    for time in (1623143089861, 1623143566756):
        write_events(tmp_path / f"worker0.{time}.pt.trace.json", [x("k", 0, 1, cat="cpu_op")])
    refused(tmp_path, "it holds 2 runs")


def test_a_real_ranks_folder_prefers_the_database(shared: Path) -> None:
    assert npuscope.read(shared / "ascend/msinsight_cnn_db").meta.format == "ascend-db"


def test_only_a_window_leaves_the_disk(tmp_path: Path) -> None:
    trace = npuscope.read(write_events(tmp_path / "t.json", [x(f"k{n}", n * 10, 5) for n in range(100)]))
    trace.write(tmp_path / "kept.npu")
    part = npuscope.read(tmp_path / "kept.npu", window=(500_000, 520_000))
    assert part.slices.equals(trace.window(500_000, 520_000).slices)
    assert part.slices["kernel"].to_list() == ["k50", "k51"]


@pytest.mark.parametrize("damage", ["lanes.parquet", "slices.parquet", "meta.json"])
def test_a_damaged_folder_is_refused(tmp_path: Path, damage: str) -> None:
    trace = npuscope.read(write_events(tmp_path / "t.json", [x("a", 0, 10)]))
    trace.write(tmp_path / "kept")
    (tmp_path / "kept" / damage).write_bytes(b"\x00\x01 not a table")
    refused(tmp_path / "kept", r"not a whole npuscope folder|not the meta\.json")


def test_a_newer_folder_version_is_reported(tmp_path: Path) -> None:
    npuscope.read(write_events(tmp_path / "t.json", [x("a", 0, 10)])).write(tmp_path / "kept")
    meta = json.loads((tmp_path / "kept/meta.json").read_text())
    (tmp_path / "kept/meta.json").write_text(json.dumps({**meta, "npuscope_trace": 99}))
    refused(tmp_path / "kept", "version 99")


def test_empty_columns_are_kept_typed(tmp_path: Path) -> None:
    npuscope.read(write_events(tmp_path / "t.json", [])).write(tmp_path / "kept")
    back = npuscope.read(tmp_path / "kept")
    assert back.slices.schema["dispatch"] == pl.Int64
    assert back.slices.height == 0


def test_a_trace_of_many_ranks_inside_a_root_keeps_its_ranks(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    for rank in (0, 1):
        rank_folder(inner, rank, 2 + rank)
    outer.mkdir()
    npuscope.read(inner).write(outer / "two_ranks.npu")
    (outer / "other").mkdir()
    rank_folder(outer / "other", 7, 7)
    trace = npuscope.read(outer)
    counts = trace.slices.join(trace.lanes, on="lane").group_by("rank").len().sort("rank").rows()
    assert counts == [(0, 2), (1, 3), (7, 7)]
    assert trace.meta.records == trace.slices.height == 12  # no capture's account is lost


def test_a_disk_is_no_profiler_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root, "MOST_FILES", 5)
    for number in range(9):
        (tmp_path / f"{number}.txt").write_text("x")
    refused(tmp_path, "more than 5 files")


@pytest.mark.parametrize("table", ["slices", "lanes", "edges", "counters"])
def test_one_flipped_bit_is_found_before_polars_sees_it(tmp_path: Path, table: str) -> None:
    # GIVEN a folder of which one bit has changed: some of them would end the whole process
    npuscope.read(write_kernel_table(tmp_path / "k.csv", [kernel_row()])).write(tmp_path / "k.npu")
    damaged = tmp_path / "k.npu" / f"{table}.parquet"
    data = bytearray(damaged.read_bytes())
    data[-20] ^= 4
    damaged.write_bytes(data)
    # WHEN / THEN reading names the file, also where only a window is asked for
    refused(tmp_path / "k.npu", rf"{table}\.parquet is not as it was written\. Copy")
    with pytest.raises(npuscope.NpuscopeError, match="not as it was written"):
        npuscope.read(tmp_path / "k.npu", window=(0, 1))


def test_a_folder_whose_metadata_polars_chokes_on_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # an older folder has no hashes: a flipped bit in the names of an Enum's values makes Polars panic
    npuscope.read(write_kernel_table(tmp_path / "k.csv", [kernel_row()])).write(tmp_path / "k.npu")

    def panic(*_: object, **__: object) -> None:
        raise pl.exceptions.PanicException("called `Result::unwrap()` on an `Err` value")

    monkeypatch.setattr("npuscope.trace.readers.parquet._scan", panic)
    refused(tmp_path / "k.npu", "not a whole npuscope folder")
