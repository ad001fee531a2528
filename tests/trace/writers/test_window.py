"""A trace that is written and read again took as long as before, or the writer says that it lost the window."""

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from builders import write_events, x
from command import npuscope as entry
from hypothesis import given
from hypothesis import strategies as st
from made import Task, made
from runs import launches

import npuscope
from npuscope.explain.work import Work
from npuscope.trace import Trace

NAMES = ("out.json", "out.json.gz", "tracr", "kept.npu", "out.csv", "out.pftrace")
LOST = "note of the window"
MODELS = Path(__file__).resolve().parents[3] / "models"


def noted(trace: Trace, before: int, after: int) -> Trace:
    """The same run, seen from so many nanoseconds before its first start until so many after its last end."""
    start, end = trace.span
    window = {"window_ns": [start - before, end + after]}
    return replace(trace, meta=replace(trace.meta, notes={**trace.meta.notes, **window}))


@given(launches(), st.integers(0, 3), st.integers(0, 3))
def test_a_noted_window_comes_back_in_every_format_that_is_read(trace: Trace, before: int, after: int) -> None:
    # GIVEN a run whose window reaches beyond its slices, as a simulated one's does
    trace = noted(trace, before, after)
    wall = Work.of(trace).wall
    with TemporaryDirectory() as folder:
        for name in NAMES:
            left_out = trace.write(Path(folder) / name)
            # THEN a format that has no place for the note says so
            assert (LOST in left_out) == (name in ("out.csv", "out.pftrace")), name
            if LOST not in left_out:
                assert Work.of(npuscope.read(Path(folder) / name)).wall == wall, name


@given(launches(), st.integers(0, 9))
def test_without_a_note_the_wall_is_still_that_of_the_work(trace: Trace, early: int) -> None:
    # GIVEN a run with something on the host before its first task
    first = trace.span[0]
    host = made([Task(99, "prepare", "host_0", (first - early) / 1000, first / 1000)])
    lane = pl.lit(trace.lanes.height, pl.UInt32).alias("lane")
    both = replace(
        trace,
        slices=trace.slices.vstack(host.slices.with_columns(lane).select(trace.slices.columns)),
        lanes=trace.lanes.vstack(host.lanes.with_columns(lane).select(trace.lanes.columns)),
    )
    wall = Work.of(both).wall
    assert wall == Work.of(trace).wall
    with TemporaryDirectory() as folder:
        for name in ("out.json", "kept.npu"):
            both.write(Path(folder) / name)
            back = npuscope.read(Path(folder) / name)
            assert Work.of(back).wall == wall, name
            assert sorted(back.slices["kind"].to_list()) == sorted(both.slices["kind"].to_list())


def test_a_simulated_run_takes_as_long_when_its_file_is_explained(tmp_path: Path) -> None:
    # GIVEN a simulated run, written for viewers WHEN the file is explained
    out = tmp_path / "gemm.json"
    shown = json.loads(entry("simulate", MODELS / "basics/gemm.py", "-o", out, "--json").stdout)
    read = json.loads(entry("report", out, "--json").stdout)
    # THEN both name one wall
    assert read["wall_ns"] == shown["wall_ns"]


@pytest.mark.parametrize("note", [[5, 1], [0], ["0", 1], [0.5, 1], None, [0, 2**80], {"a": 1}])
def test_a_note_that_makes_no_sense_is_counted_and_not_believed(tmp_path: Path, note: object) -> None:
    path = write_events(tmp_path / "t.json", [x("a", 0, 10)])
    events = json.loads(path.read_text())
    listed = events if isinstance(events, list) else events["traceEvents"]
    path.write_text(json.dumps({"otherData": {"npuscope": {"window_ns": note, "more": 1}}, "traceEvents": listed}))
    trace = npuscope.read(path)
    assert trace.window_ns == (0, 10_000)
    assert trace.meta.unknown == {"note of npuscope 'window_ns'": 1, "note of npuscope 'more'": 1}
