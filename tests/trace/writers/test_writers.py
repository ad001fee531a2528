"""What is written can be read again, appears whole or not at all, and says what it has no room for."""

import gzip
import json
import os
from pathlib import Path

import polars as pl
import pytest
from builders import (
    FLOW_END,
    FLOW_START,
    NONE,
    RESET,
    flow,
    kernel_row,
    point,
    write_bundle,
    write_events,
    write_kernel_table,
    x,
)
from hypothesis import given
from hypothesis import strategies as st

import npuscope
from npuscope import Trace

EVENTS = [
    x("outer", 0, 100, args={"a": 1, "b": [1, 2], "c": 'say "hi"\n'}),
    x("inner", 10, 20),
    x("zero", 30, 0),
    x("other <lane>", 50, 5.125, tid=2),
    *flow((1, 1, 15), (1, 2, 50)),
]


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return npuscope.read(write_events(tmp_path / "in.json", EVENTS))


def same_slices(a: Trace, b: Trace) -> bool:
    columns = ["start", "dur", "kernel"]
    return a.slices.select(columns).sort(columns).equals(b.slices.select(columns).sort(columns))


@pytest.mark.parametrize("name", ["out.json", "out.json.gz", "out.json.zst", "tracr", "kept", "kept.npu"])
def test_slices_come_back_the_same(trace: Trace, tmp_path: Path, name: str) -> None:
    trace.write(tmp_path / name)
    back = npuscope.read(tmp_path / name)
    assert same_slices(trace, back)
    assert back.edges.select("src", "dst").drop_nulls().height == 1


def test_chrome_json_keeps_nanoseconds_arguments_and_edges(trace: Trace, tmp_path: Path) -> None:
    trace.write(tmp_path / "out.json")
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    by_name = {e["name"]: e for e in events if e["ph"] == "X"}
    assert by_name["other <lane>"]["dur"] == 5.125
    assert by_name["outer"]["args"] == {"a": 1, "b": "[1,2]", "c": 'say "hi"\n'}
    begin, end = (next(e for e in events if e["ph"] == ph) for ph in "sf")
    assert begin["id"] == end["id"]
    assert (begin["tid"], end["tid"], end["bp"]) == (1, 2, "e")


def test_packed_output_is_packed(trace: Trace, tmp_path: Path) -> None:
    trace.write(tmp_path / "out.json.gz")
    assert json.loads(gzip.decompress((tmp_path / "out.json.gz").read_bytes()))["traceEvents"]


def test_a_trace_of_another_origin_becomes_a_kernel_table_of_its_device_tasks(tmp_path: Path) -> None:
    events = [x("cpu", 0, 9, cat="cpu_op"), x("gemm", 1.5, 2.25, pid=0, tid=7, cat="kernel")]
    trace = npuscope.read(write_events(tmp_path / "t.json", events))
    left_out = trace.write(tmp_path / "k.csv")
    assert left_out == {"slice that is no device task": 1}
    back = npuscope.read(tmp_path / "k.csv")
    assert back.slices.select("kernel", "start", "dur").rows() == [("gemm", 1_500, 2_250)]
    with pytest.raises(npuscope.NpuscopeError, match="no device tasks"):
        trace.select(kind="host").write(tmp_path / "none.csv")


def test_a_window_of_a_kernel_table_keeps_its_text(tmp_path: Path) -> None:
    rows = [kernel_row(start=f"{n}.5\t") for n in (10, 20, 30)]
    path = write_kernel_table(tmp_path / "k.csv", rows, end="\r\n")
    npuscope.read(path).window(16_000, 26_000).write(tmp_path / "part.csv")
    lines = path.read_bytes().splitlines(keepends=True)
    assert (tmp_path / "part.csv").read_bytes() == lines[0] + lines[2]


def test_a_failed_write_leaves_the_old_file_and_no_crumbs(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out" / "t.json"
    out.parent.mkdir()
    out.write_text("old")
    monkeypatch.setattr("npuscope.trace.writers.chrome._edge_events", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trace.write(out)
    assert out.read_text() == "old"
    assert list(out.parent.iterdir()) == [out]


def test_a_folder_is_replaced_only_if_it_is_ours(trace: Trace, tmp_path: Path) -> None:
    for name in ("kept", "kept.npu", "tracr"):
        trace.write(tmp_path / name)
        trace.write(tmp_path / name)  # ours: replaced
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("do not lose")
    for name in ("mine", "mine/thesis.txt"):
        with pytest.raises(npuscope.NpuscopeError, match="already"):
            trace.write(tmp_path / name, format="parquet")
    assert (mine / "thesis.txt").read_text() == "do not lose"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.json", "kept", "kept.npu", "mine", "tracr"]


def test_files_of_the_user_inside_a_folder_of_ours_are_not_lost(trace: Trace, tmp_path: Path) -> None:
    for name in ("kept", "my_tracr"):
        trace.write(tmp_path / name)
        (tmp_path / name / "thesis.txt").write_text("do not lose")
        with pytest.raises(npuscope.NpuscopeError, match="already"):
            trace.write(tmp_path / name)
        assert (tmp_path / name / "thesis.txt").read_text() == "do not lose"


def test_a_link_keeps_pointing_and_a_device_stays_a_device(trace: Trace, tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    trace.write(tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert npuscope.read(tmp_path / "real.json").slices.height == 4
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(npuscope.NpuscopeError, match="no regular file"):
        trace.write(tmp_path / "pipe.json")


def test_a_key_per_event_does_not_become_a_table_of_rows_times_rows(tmp_path: Path) -> None:
    events = [x("k", i, 1, args={f"key{i}": i, "common": i}) for i in range(3000)]
    trace = npuscope.read(write_events(tmp_path / "t.json", events))
    trace.write(tmp_path / "o.json")
    said = [e["args"] for e in json.loads((tmp_path / "o.json").read_text())["traceEvents"] if e["ph"] == "X"]
    assert said[2999]["common"] == 2999
    assert json.loads(said[2999]["further args"]) == {"key2999": 2999}


def test_numbers_json_can_write_and_nobody_can_hold(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(
        '[{"ph":"X","name":"k","ts":1,"dur":1,"args":{"a":1e999}},{"ph":"X","ts":2,"args":{"b":18446744073709551616}}]'
    )
    npuscope.read(tmp_path / "t.json").write(tmp_path / "o.json")
    said = [e["args"] for e in json.loads((tmp_path / "o.json").read_text())["traceEvents"] if e["ph"] == "X"]
    assert said == [{"args": '{"a":1e999}'}, {"b": "18446744073709551616"}]


@pytest.mark.parametrize(
    ("name", "message"),
    [("x.xlsx", "no format ends in .xlsx"), ("x.gz", "of which format"), ("nowhere/x.json", "No such file")],
)
def test_a_place_that_cannot_be_written_is_reported(trace: Trace, tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(npuscope.NpuscopeError, match=message):
        trace.write(tmp_path / name)


def test_an_unknown_format_is_reported(trace: Trace, tmp_path: Path) -> None:
    with pytest.raises(npuscope.NpuscopeError, match="no format is called sketch"):
        trace.write(tmp_path / "x", format="sketch")


@pytest.mark.parametrize("name", ["out.json", "out.pftrace", "tracr", "kept"])
def test_an_empty_trace_is_still_a_file(tmp_path: Path, name: str) -> None:
    npuscope.read(write_events(tmp_path / "t.json", [])).write(tmp_path / name)
    if name != "out.pftrace":
        assert npuscope.read(tmp_path / name).slices.height == 0


# ---- bundles

RUNS = {
    "markerLabels": ["Scheduling", "Running_Task_Single", "Running_Task_Pair"],
    "channel_names": ["AICPU_0", "AICube_0", "AIVector_0"],
}
USUAL = {"markerLabels": ["A", "B", "C"], "num_channels": 3, "start_time": 5, "end_time": 10**6}
points = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from([0, 1, 2, RESET, RESET, FLOW_START, FLOW_END]),
        st.integers(0, 60),
        st.sampled_from([0, 1, NONE]),
    ),
    max_size=40,
)


@given(points, st.sampled_from([USUAL, RUNS]))
def test_a_bundle_reads_back_equal(tmp_path_factory, rows, metadata) -> None:
    folder = tmp_path_factory.mktemp("bundle")
    if metadata is RUNS:  # schedulers schedule, cores run tasks: the runtime writes no other markers there
        rows = [(c, e if e > 2 else 0 if c == 0 else max(e, 1), t, x) for c, e, t, x in rows]
    points = b"".join(point(c, e, t, x) for c, e, t, x in rows)
    trace = npuscope.read(write_bundle(folder / "in", {1: points}, **metadata))
    trace.write(folder / "tracr")
    back = npuscope.read(folder / "tracr")
    columns = ["name", "start", "dur", "kernel", "marker", "extra"]
    first, second = (
        t.slices.join(t.lanes, on="lane").select(columns).sort(columns, nulls_last=True) for t in (trace, back)
    )
    assert first.equals(second)
    ends = ["flow", "src_time", "dst_time", "src_lane", "dst_lane"]
    if trace.edges.height:
        assert trace.edges.select(ends).sort(ends).equals(back.edges.select(ends).sort(ends))


@pytest.mark.parametrize(
    "name",
    [
        "tracr/simple",
        "tracr/pthread",
        "tracr/flow",
        "simpler/tracr/bgemm0_both_quiet/tracr",
        "simpler/tracr/l3_group_tracr",
    ],
)
def test_a_real_bundle_reads_back_equal(shared: Path, tmp_path: Path, name: str) -> None:
    trace = npuscope.read(shared / name)
    trace.write(tmp_path / "tracr")
    back = npuscope.read(tmp_path / "tracr")
    columns = ["pid", "name", "start", "dur", "marker", "extra"]
    first, second = (t.slices.join(t.lanes, on="lane").select(columns).sort(columns) for t in (trace, back))
    assert first.equals(second)
    assert trace.edges.height == back.edges.height


slices = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-20, 40), st.integers(0, 15), st.sampled_from("abc")), max_size=25
)


@given(slices)
def test_slices_that_overlap_on_a_lane_survive_every_format(tmp_path_factory, rows) -> None:
    folder = tmp_path_factory.mktemp("over")
    trace = npuscope.read(
        write_events(folder / "t.json", [x(name, start, dur, tid=lane) for lane, start, dur, name in rows])
    )
    for out in ("o.json", "tracr"):
        trace.write(folder / out)
        back = npuscope.read(folder / out)
        shift = min([0, *trace.slices["start"]]) if out == "tracr" else 0  # trace points have no time before zero
        moved = back.slices.with_columns(pl.col("start") + shift)
        columns = ["start", "dur", "kernel"]
        assert moved.select(columns).sort(columns).equals(trace.slices.select(columns).sort(columns))


@pytest.mark.parametrize("out", ["o.pftrace", "o.json", "o.csv", "tracr", "o.npu"])
def test_a_bundle_joined_with_its_swimlane_goes_everywhere(shared: Path, tmp_path: Path, out: str) -> None:
    trace = npuscope.read(shared / "simpler/tracr/pa_varseq4_both")
    trace.write(tmp_path / out)
    if out not in ("o.pftrace", "o.csv"):  # not read, or device tasks only
        assert npuscope.read(tmp_path / out).slices.height == trace.slices.height
