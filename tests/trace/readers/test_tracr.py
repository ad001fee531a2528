"""TraCR bundles, against the real post-processor's output and on the defects where it fails."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import FLOW_END, FLOW_START, NONE, RESET, balanced, point, refused, write_bundle
from hypothesis import given
from hypothesis import strategies as st

import npuscope
from npuscope import Trace
from npuscope.trace.readers.tracr import first_in_first_out, one_open_slice

LABELS = ["A", "B", "C"]
USUAL = {"markerLabels": LABELS, "num_channels": 2, "start_time": 1000, "end_time": 9000}
RUNS: dict[str, Any] = {
    "markerLabels": ["Scheduling", "Running_Task_Single", "Running_Task_Pair"],
    "channel_names": ["AICPU_0", "AICube_0", "AIVector_0", "INVALID"],
}
REFERENCE_IS_RIGHT = [
    "simple", "pthread", "flow",
    *(f"edge_cases/{name}" for name in (
        "cross_thread_channel", "empty_thread", "extra_labels", "flow_backwards", "flow_unmatched",
        "legacy_markertypes", "nested_set", "no_anchors", "same_ts", "truncated_file", "ts_before_start",
        "unclosed_last", "unmatched_reset",
    )),
]  # fmt: skip


def relative(trace: Trace, bundle: Path) -> pl.DataFrame:
    """Slices as the reference writes them: times from each process's own origin."""
    origin = {}
    for process in bundle.glob("proc.*"):
        first = [np.fromfile(f, "<u8")[1] for f in process.glob("thread.*/traces.bts") if f.stat().st_size >= 16]
        start = json.loads((process / "metadata.json").read_text()).get("start_time")
        origin[int(process.name[5:])] = int(min([*first, *([start] if start is not None else [])]))
    rows = trace.slices.join(trace.lanes.select("lane", "name", "pid"), on="lane")
    return rows.with_columns(pl.col("start") - pl.col("pid").replace_strict(origin, return_dtype=pl.Int64))


@pytest.mark.parametrize("name", REFERENCE_IS_RIGHT)
def test_slices_and_flows_equal_the_real_tools(shared: Path, name: str) -> None:
    bundle = shared / "tracr" / name / "tracr"
    ours, reference = npuscope.read(bundle), npuscope.read(bundle / "perfetto.json")
    columns = ["pid", "name", "kernel", "start", "dur"]
    mine = relative(ours, bundle).select(pl.col("pid").cast(pl.String), *columns[1:]).sort(columns)
    theirs = (
        reference.slices.join(reference.lanes.select("lane", "name", "pid"), on="lane").select(columns).sort(columns)
    )
    assert mine.equals(theirs)
    # ends of flows, with the side an unmatched one lacks as null
    sides = (
        [
            frame.select("flow", src=pl.col("src_time").is_not_null(), dst=pl.col("dst_time").is_not_null())
            for frame in (ours.edges, reference.edges)
        ]
        if ours.edges.height
        else []
    )
    assert reference.edges.height == ours.edges.height
    if sides:
        assert sides[0].sort(pl.all()).equals(sides[1].sort(pl.all()))


EDGE_CASES = {
    # case: slices (kernel, dur), what is counted
    "channel_oob": ([("A", 1000)], {"trace point on a channel beyond the declared ones": 1, "slice never closed": 1}),
    "event_oob": ([("event_9", 1000)], {"unknown marker named by its number": 1}),
    # SET A 3000, RESET 2500, SET B 2000, RESET 4000 in the file: in time B lasts 2000 to 2500, A 3000 to 4000
    "unsorted": ([("B", 500), ("A", 1000)], {"trace point out of order, sorted": 2}),
    "truncated_file": ([("A", 1000)], {"file with an incomplete last record, its bytes ignored": 1}),
    "unclosed_last": ([("A", 1000)], {"slice never closed": 1}),
    "unmatched_reset": ([("A", 500)], {"RESET with nothing open": 2}),
}


@pytest.mark.parametrize("name", EDGE_CASES)
def test_where_the_real_tool_breaks_ours_repairs_and_counts(shared: Path, name: str) -> None:
    trace = npuscope.read(shared / "tracr/edge_cases" / name / "tracr")
    slices, counts = EDGE_CASES[name]
    assert trace.slices.select("kernel", "dur").rows() == slices
    shown = {**trace.meta.marked, **trace.meta.repaired, **trace.meta.dropped}
    assert shown.items() >= counts.items()


@pytest.mark.parametrize(("name", "tasks"), [("bgemm0_both_quiet", 1000), ("pa_varseq4_both", 64)])
def test_a_simpler_bundle_has_every_task_of_the_swimlane_of_its_run(shared: Path, name: str, tasks: int) -> None:
    folder = shared / "simpler/tracr" / name
    bundle, swimlane = npuscope.read(folder / "tracr"), npuscope.read(folder / "l2_swimlane_records.json")
    ours, theirs = (in_order(trace, begin) for trace, begin in ((bundle, "start"), (swimlane, "dispatch")))
    assert ours.height == theirs.height == tasks
    assert ours.select("unit", "nth core", "kernel").equals(theirs.select("unit", "nth core", "kernel"))
    # each interval covers its task's run: dispatch to retired, apart from the clocks' offset and drift
    assert (ours["dur"] > theirs["dur"]).all()


def in_order(trace: Trace, begin: str) -> pl.DataFrame:
    cores = trace.lanes.filter(pl.col("unit").is_in(["AIC", "AIV"])).sort("unit", "core")
    cores = cores.with_columns(pl.int_range(pl.len()).over("unit").alias("nth core")).select("lane", "unit", "nth core")
    return trace.slices.filter(pl.col("kind") == "task").join(cores, on="lane").sort("unit", "nth core", begin)


def test_the_reference_reading_loses_a_third_of_the_busy_time(shared: Path) -> None:
    folder = shared / "simpler/tracr/bgemm0_both_quiet"
    ours = npuscope.read(folder / "tracr").select(kind="task").slices["dur"].sum()
    path = folder / "tracr/perfetto.json.gz"
    reference = sum(
        e["dur"]
        for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        if e.get("name", "").startswith("Running_Task")
    )
    assert reference * 1000 < 0.7 * int(ours)


def test_roles_come_from_markers_not_from_names(shared: Path) -> None:
    lanes = npuscope.read(shared / "simpler/tracr/bgemm0_both_quiet/tracr").lanes
    roles = lanes.filter(pl.col("unit") == "AICPU").sort("name")["role"].to_list()
    assert sorted(roles) == ["orchestrator 3", "scheduler 0", "scheduler 1", "scheduler 2"]
    assert lanes.height == 77  # idle cores are lanes too


def test_two_devices_are_two_processes(shared: Path) -> None:
    trace = npuscope.read(shared / "simpler/tracr/l3_group_tracr")
    assert sorted(trace.lanes["device"].unique().to_list()) == [0, 1]
    assert trace.meta.dropped == {"RESET with nothing open": 144}  # shutdown resets 72 cores per device


def test_a_run_captured_both_ways_joins_on_one_clock(shared: Path) -> None:
    trace = npuscope.read(shared / "simpler/tracr/pa_varseq4_both")
    shown = trace.meta.notes["join"]
    assert (trace.meta.format, shown["tasks"]) == ("swimlane+tracr", 64)
    assert abs(shown["drift_ppm"]) < 100
    assert shown["residual_ns_median"] < 5_000
    tasks = trace.slices.filter(pl.col("kind") == "task")
    share: Any = (tasks["retired"] > tasks["finish"]).mean()
    assert share > 0.95  # RESET trails finish by some microseconds
    assert balanced(trace)


def test_captures_of_two_runs_do_not_join(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "tracr").symlink_to(shared / "simpler/tracr/pa_varseq4_both/tracr")
    (tmp_path / "l2_swimlane_records.json").symlink_to(
        shared / "simpler/tracr/bgemm0_both_quiet/l2_swimlane_records.json"
    )
    refused(tmp_path, "not the same run")


def test_a_pipelined_core_pairs_first_in_first_out(tmp_path: Path) -> None:
    # core:  S0 [100 -------- 300)          single, dispatched to an idle core
    #        P1      [200 --------- 400)    pending behind it
    points = [
        point(1, 1, 100, 0),
        point(1, 2, 200, 1),
        point(1, RESET, 300),
        point(1, RESET, 400),
        point(1, RESET, 900),
    ]
    trace = npuscope.read(write_bundle(tmp_path, {1: b"".join(points)}, **RUNS))
    assert trace.slices.select("start", "dur", "kernel", "marker", "kind").rows() == [
        (100, 200, "func_0", "Running_Task_Single", "task"),
        (200, 200, "func_1", "Running_Task_Pair", "task"),
    ]
    assert trace.meta.dropped == {"RESET with nothing open": 1}


def test_other_builds_name_their_phases_differently(tmp_path: Path) -> None:
    labels = ["Phase1", "Retiring", "Dispatching", "Drain_Sync_Start", "MyMarker"]
    points = b"".join(point(0, n, n * 10) for n in range(5)) + point(0, RESET, 50)
    trace = npuscope.read(write_bundle(tmp_path, {1: points}, markerLabels=labels))
    assert trace.slices["phase"].to_list() == ["complete", "complete", "dispatch", "drain_sync", None]


def test_labels_of_extra_ids_name_kernels_on_cores_only(tmp_path: Path) -> None:
    points = point(1, 1, 10, 7) + point(1, RESET, 20) + point(0, 0, 10, 7) + point(0, RESET, 20)
    trace = npuscope.read(write_bundle(tmp_path, {1: points}, **RUNS, extraIdLabels={"7": "qk_matmul"}))
    assert sorted(trace.slices["kernel"].to_list()) == ["Scheduling", "qk_matmul"]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ("{", "not a TraCR metadata file"),
        ('{"markerLabels": "A"}', "Expected `array"),
        ("[1]", "not a TraCR"),
        ("\x00\xff", "not a TraCR"),
    ],
)
def test_broken_metadata_is_refused(tmp_path: Path, metadata: str, message: str) -> None:
    write_bundle(tmp_path, {1: point(0, 0, 1)})
    (tmp_path / "proc.1000/metadata.json").write_text(metadata, encoding="latin-1")
    refused(tmp_path, message)


def test_a_process_without_metadata_is_refused(tmp_path: Path) -> None:
    (tmp_path / "proc.7").mkdir()
    refused(tmp_path, "No such file")


# ---- the pairing, against slow and obvious versions

sets_and_resets = st.lists(st.booleans(), max_size=40)


@given(sets_and_resets)
def test_fifo_pairing_equals_a_queue(is_set: list[bool]) -> None:
    queue, expected, idle = [], [], 0
    for i, opens in enumerate(is_set):
        if opens:
            queue.append(i)
        elif queue:
            expected.append((queue.pop(0), i))
        else:
            idle += 1
    pairs = first_in_first_out(np.array(is_set, dtype=bool))
    assert list(zip(pairs.begin.tolist(), pairs.end.tolist(), strict=True)) == expected
    assert (pairs.unclosed, pairs.idle_resets) == (len(queue), idle)


@given(sets_and_resets)
def test_single_slice_pairing_equals_the_reference_rule(is_set: list[bool]) -> None:
    expected, open_at, idle = [], None, 0
    for i, opens in enumerate(is_set):
        if open_at is not None:
            expected.append((open_at, i))
        elif not opens:
            idle += 1
        open_at = i if opens else None
    pairs = one_open_slice(np.array(is_set, dtype=bool))
    assert list(zip(pairs.begin.tolist(), pairs.end.tolist(), strict=True)) == expected
    assert (pairs.unclosed, pairs.idle_resets) == (open_at is not None, idle)


points = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from([0, 1, 2, 5, RESET, FLOW_START, FLOW_END]),
        st.integers(0, 2**64 - 1) | st.integers(0, 50),
        st.sampled_from([0, 1, NONE]),
    ),
    max_size=30,
)


@given(st.lists(points, min_size=1, max_size=3), st.sampled_from([USUAL, RUNS, {}]), st.integers(0, 15))
def test_every_trace_point_is_accounted_for(tmp_path_factory, threads, metadata, tail) -> None:
    root = tmp_path_factory.mktemp("bundle")
    files = {n: b"".join(point(c, e, t, x) for c, e, t, x in rows) + b"\x01" * tail for n, rows in enumerate(threads)}
    trace = npuscope.read(write_bundle(root, files, **metadata))
    assert trace.meta.records == sum(map(len, threads))
    assert balanced(trace)
    assert (trace.slices["dur"] >= 0).all()
