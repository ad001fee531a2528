"""Swimlanes in every layout of 2026: what one says, the others say too, and what none knows is reported."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import swimlanes
from builders import balanced
from hypothesis import given
from hypothesis import strategies as st

import npuscope
from npuscope import Trace
from npuscope.explain.doctor import symptoms_of


def read(folder: Path, layout: swimlanes.Layout) -> Trace:
    trace = npuscope.read(swimlanes.write(folder, layout))
    assert balanced(trace)
    return trace


def findings(trace: Trace) -> dict[str, int]:
    return {f.what: f.count for f in symptoms_of(trace).symptoms if f.severity == "warning" or f.id == "unknown"}


@pytest.mark.parametrize("case", ["qwen3_layer_L2", "qwen3_layer_L3"])
def test_real_rows_in_both_layouts_of_september(shared: Path, case: str) -> None:
    trace = npuscope.read(shared / "simpler/swimlane_2026_09" / case)
    tasks = trace.slices.filter(pl.col("kind") == "task")
    assert tasks.height == 186
    assert tasks["dispatch"].null_count() == tasks["finish"].null_count() == 0
    control = trace.slices.join(trace.lanes.drop_nulls("role"), on="lane").group_by("name").len()
    assert dict(control.iter_rows()) == {"Sched_0": 183, "Orch_0": 69}
    assert trace.meta.notes["capture"]["Sched_0"] == {
        "committed": 183, "dropped": 0, "truncated": False, "records": 183,
    }  # fmt: skip
    # 168 metrics with three queues each at the start, 60 of them with a hit and a miss
    assert trace.counters.height == 168 * 3 + 60 * 2
    assert trace.meta.unknown == {}
    assert balanced(trace)


def test_real_rows_read_alike_in_both_layouts(shared: Path) -> None:
    a, b = (npuscope.read(shared / f"simpler/swimlane_2026_09/qwen3_layer_{n}") for n in ("L2", "L3"))
    assert a.slices.equals(b.slices.drop("run_epoch"))
    assert a.lanes.equals(b.lanes)
    assert a.counters.equals(b.counters)


def test_queue_depths_are_those_of_upstreams_own_timeline(shared: Path) -> None:
    # GIVEN records and the timeline that the runtime's converter made of them
    folder = shared / "simpler/swimlane/bgemm_Case1_L4"
    records, merged = npuscope.read(folder), npuscope.read(folder / "merged_swimlane.json.gz")
    zero = records.span[0] - merged.span[0]
    # THEN every sample of the timeline is one of the records', in the same queue at the same moment
    ours = set(records.counters.select("name", "time", "value").rows())
    queues = merged.counters.filter(pl.col("name").str.starts_with("shared_ready_queue"))
    theirs = set(queues.select("name", pl.col("time") + zero, "value").rows())
    assert len(theirs) > 300
    assert theirs <= ours


def test_three_layouts_of_one_run_read_alike(tmp_path: Path) -> None:
    august, early, late = (
        read(tmp_path / name, swimlanes.LAYOUTS[name]()) for name in ("august", "early_september", "late_september")
    )
    columns = ["name", "start", "dur", "kernel", "task", "block", "dispatch", "finish", "receive", "phase"]
    shown = [t.slices.join(t.lanes, on="lane").select(columns).sort(columns) for t in (august, early, late)]
    assert shown[0].equals(shown[1])
    assert shown[0].equals(shown[2])
    names = pl.col("lane", "name")
    assert set(august.lanes["name"]) - set(early.lanes["name"]) == {"Sched_1", "Sched_3"}  # idle threads are left out
    assert early.lanes.select(names).equals(late.lanes.select(names))
    for trace in (august, early, late):
        samples = trace.counters.join(trace.lanes.select("lane", place="name"), on="lane", how="left")
        counted = samples.select("place", "name", "time", "value")
        assert counted.height == swimlanes.SAMPLES
        assert ("Sched_0", "pop_miss", 965 * 20, 4.0) in counted.rows()
        assert (None, "shared_ready_queue AIV", 1575 * 20, 1.0) in counted.rows()
        assert trace.meta.unknown == {}
        assert trace.meta.merged == {"dispatch and finish joined to a task": 3}
    assert late.slices["run_epoch"].unique().to_list() == [5]
    assert late.slices["step"].null_count() == late.slices.height  # one run is no step


def test_a_scheduler_that_recorded_nothing_moves_nobody(tmp_path: Path) -> None:
    layout = swimlanes.early_september()
    layout["scheduler_records"]["streams"].reverse()
    trace = read(tmp_path, layout)
    phases = trace.slices.join(trace.lanes.filter(pl.col("role") == "scheduler"), on="lane")
    assert dict(phases.group_by("name").len().iter_rows()) == {"Sched_0": 3, "Sched_2": 1}


def test_several_runs_in_one_file_are_steps_with_tasks_of_their_own(tmp_path: Path) -> None:
    # GIVEN two runs of one program, with the same registers and ids, and its dependencies
    first, second = swimlanes.late_september(5), swimlanes.late_september(6)
    for row in second["aicore_tasks"]:
        row[3], row[4] = row[3] + 10_000, row[4] + 10_000
    for row in second["scheduler_tasks"]["records"]:
        row[2], row[3] = row[2] + 10_000, row[3] + 10_000
    first["aicore_tasks"] += second["aicore_tasks"]
    first["scheduler_tasks"]["records"] = second["scheduler_tasks"]["records"] + first["scheduler_tasks"]["records"]
    ids = [str((2 << 32) + n) for n in range(3)]
    edges = [{"pred": ids[0], "succ": ids[1]}, {"pred": ids[1], "succ": ids[2]}]
    path = swimlanes.write(tmp_path, first)
    tasks = [{"task_id": id, "kernel_ids": [0, 0, -1]} for id in ids]
    (tmp_path / "deps.json").write_text(json.dumps({"tasks": tasks, "edges": edges}))
    # WHEN
    trace = npuscope.read(path)
    # THEN
    ran = trace.slices.filter(pl.col("kind") == "task")
    assert ran.group_by("step").len().sort("step").rows() == [(5, 3), (6, 3)]
    assert ran["task"].n_unique() == 6
    assert (ran["block"] == 0).all()
    assert ((ran["finish"] >= ran["start"] + ran["dur"]) & (ran["dispatch"] < ran["start"])).all()
    assert trace.edges.height == 4
    ends = set(trace.edges["src"]) | set(trace.edges["dst"])
    assert ends == set(ran["task"])


def test_cores_that_schedule(tmp_path: Path) -> None:
    trace = read(tmp_path, swimlanes.scheduled_by_cores())
    lane = trace.lanes.filter(pl.col("name") == "Sched_1").row(0, named=True)
    assert (lane["unit"], lane["role"], lane["producer"], lane["physical_core"]) == ("AICPU", "scheduler", "aicore", 2)
    phases = trace.slices.filter(pl.col("lane") == lane["lane"])
    assert phases["phase"].to_list() == [
        "bootstrap", "complete", "resolve", "probe", "refill", "steal", "idle", "dispatch",
    ]  # fmt: skip
    assert phases["task"].to_list() == list(range(8))
    # what AICPU threads did around the run
    life = trace.slices.join(trace.lanes.filter(pl.col("name") == "AICPU_3"), on="lane")
    assert life.select("kernel", "start", "dur").rows() == [("handshake", 100, 10), ("config", 120, 10)]
    assert trace.meta.dropped == {"part of an AICPU thread's life without both stamps": 1}
    # one record dropped, and one of nine written that is not in the file
    assert findings(trace) == {"scheduler record lost by the profiler": 2}
    assert trace.meta.unknown == {}


def test_a_graph_that_the_host_built(tmp_path: Path) -> None:
    trace = read(tmp_path, swimlanes.built_by_the_host())
    host = trace.slices.filter(pl.col("kind") == "host")
    assert host.select("start", "dur").rows() == [(1_000, 50), (1_100, 50)]  # 580,000 ns earlier on the device's clock
    assert trace.meta.notes["host_clock"] == "aligned by a clock anchor, within 20 ns"
    assert trace.meta.notes["orchestrator"] == "host"
    assert findings(trace) == {"host record lost by the profiler": 1}
    assert trace.meta.unknown == {}


# ---- what no layout has


def stream(layout: swimlanes.Layout) -> dict[str, Any]:
    return layout["scheduler_records"]["streams"][0]


UNKNOWN = {
    "top-level key 'gpu_tasks'": lambda d: d.update(gpu_tasks=[1, 2, 3]),
    "key of metadata 'mood'": lambda d: d["metadata"].update(mood="good"),
    "key of scheduler_tasks 'mood'": lambda d: d["scheduler_tasks"].update(mood=1),
    "key of scheduler_records 'mood'": lambda d: d["scheduler_records"].update(mood={}),
    "key of a scheduler's stream 'mood'": lambda d: stream(d).update(mood=1),
    "kind of scheduler record 'dance'": lambda d: stream(d)["records"][0].update(kind="dance"),
    "key of records of Sched_* 'mood'": lambda d: stream(d)["records"][0].update(mood=1),
    "metric 'mood'": lambda d: stream(d)["metrics"][0].update(mood=1),
    "column 8 of aicore_tasks": lambda d: [row.append(9) for row in d["aicore_tasks"]],
    "column 6 of scheduler_tasks": lambda d: d["scheduler_tasks"]["records"][0].append(9),
}  # fmt: skip


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_no_layout_has_is_counted_and_a_finding(tmp_path: Path, what: str) -> None:
    layout = swimlanes.late_september()
    UNKNOWN[what](layout)
    trace = read(tmp_path, layout)
    assert list(trace.meta.unknown) == [what]
    assert trace.meta.unknown[what] == (3 if "gpu_tasks" in what or "column 8" in what else 1)
    assert findings(trace)[f"unknown {what}"] == trace.meta.unknown[what]
    assert trace.slices.filter(pl.col("kind") == "task")["finish"].null_count() == 0  # what is known is read


def test_an_unknown_key_of_the_dependencies_is_reported(tmp_path: Path) -> None:
    path = swimlanes.write(tmp_path, swimlanes.august())
    tasks = [{"task_id": str((2 << 32) + n), "kernel_ids": [0]} for n in range(3)]
    (tmp_path / "deps.json").write_text(json.dumps({"tasks": tasks, "edges": [], "runtime": "x", "moods": [1, 2]}))
    assert npuscope.read(path).meta.unknown == {"key of deps.json 'moods'": 2}


# ---- property: whatever is in the lists, all of it is accounted for

stamp = st.integers(1, 10**6)
rows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(1, 3), stamp, stamp, st.integers(0, 9)))
seen = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), stamp, stamp))
phases = st.lists(st.tuples(st.sampled_from(["dispatch", "complete", "dance"]), stamp, stamp, st.integers(0, 4)))
values = st.one_of(st.integers(-5, 99), st.none(), st.text(max_size=2), st.integers(2**63, 2**70))
metrics = st.lists(
    st.fixed_dictionaries(
        {"record_index": st.one_of(st.integers(-1, 5), st.none())},
        optional={
            "pop_hit": values,
            "shared_at_start": st.lists(values, max_size=4),
            "shared_at_end": st.lists(values, max_size=4),
        },
    )
)


@given(rows, seen, phases, metrics, st.booleans())
def test_every_row_record_and_number_is_accounted_for(
    tmp_path_factory: pytest.TempPathFactory, ran: Any, seen: Any, phases: Any, metrics: Any, late: bool
) -> None:
    layout = swimlanes.late_september() if late else swimlanes.early_september()
    layout["aicore_tasks"] = [[*row, *([5] if late else [])] for row in ran]
    layout["scheduler_tasks"]["records"] = [[*row, *([5] if late else [])] for row in seen]
    stream = layout["scheduler_records"]["streams"][0]
    stream["records"] = [swimlanes._record(*phase) for phase in phases]
    stream["metrics"] = metrics
    trace = read(tmp_path_factory.mktemp("s"), layout)
    others = len(swimlanes.PHASES[2]) + len(swimlanes.SUBMITS)
    numbers = sum(len(v) if isinstance(v, list) else 1 for m in metrics for k, v in m.items() if k != "record_index")
    assert trace.meta.records == len(ran) + len(seen) + len(phases) + others + numbers
    assert trace.meta.unknown.get("kind of scheduler record 'dance'", 0) == sum(p[0] == "dance" for p in phases)
