"""A trace written as simpler's own folder comes back as it was, and its files say what simpler's tools look for."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import npuscope
from npuscope.base.errors import CannotWrite
from npuscope.trace import Meta, Trace

CORES = pl.DataFrame(
    {"lane": [0, 1, 2, 3], "name": ["AIV_2", "AIC_0", "AIC_1", "AICPU_0"], "unit": ["AIV", "AIC", "AIC", "AICPU"],
     "core": [2, 0, 1, 0], "role": [None, None, None, "scheduler 0"]}
)  # fmt: skip


def small(first: int = 0) -> Trace:
    """mm on two cube cores, then add on the vector core behind both and a barrier (task 9), which never runs."""
    rows: list[dict[str, Any]] = [
        {"lane": 1, "start": 0, "dur": 100, "kernel": "mm", "task": 1, "dispatch": None, "finish": 120},
        {"lane": 2, "start": 10, "dur": 40, "kernel": "mm", "task": 2, "dispatch": 5, "finish": 60},
        {"lane": 0, "start": 200, "dur": 30, "kernel": "add", "task": 3, "dispatch": 180, "finish": 250},
        {"lane": 2, "start": 60, "dur": 20, "kernel": "mm", "task": 4, "dispatch": 55, "finish": 90},
    ]
    slices = pl.DataFrame([{**row, "kind": "task"} for row in rows])
    phase = pl.DataFrame(
        {"lane": [3], "start": [0], "dur": [50], "kernel": ["Phase4"], "kind": ["schedule"], "phase": ["dispatch"]}
    )
    both = pl.concat([slices, phase], how="diagonal")
    both = both.with_columns(pl.col("start", "dispatch", "finish") + first)
    edges = pl.DataFrame({"src": [1, 2, 9], "dst": [9, 9, 3], "source": ["tensormap", "creator", "explicit"]})
    direct = pl.DataFrame({"src": [1], "dst": [3], "source": ["tensormap"]})
    return Trace.of(both, CORES, Meta("made"), pl.concat([edges, direct]))


def tasks(trace: Trace) -> list[tuple[Any, ...]]:
    """Unit, kernel, task and times since the first start."""
    rows = trace.slices.filter(pl.col("kind") == "task").join(trace.lanes.select("lane", "unit"), on="lane")
    first = rows["start"].min()
    since = [pl.col(name) - first for name in ("start", "dispatch", "finish")]
    return sorted(rows.select(pl.col("unit").cast(pl.String), "kernel", "task", "dur", *since).rows(), key=str)


@pytest.mark.parametrize("first", [0, 5_000])
def test_what_is_written_comes_back(tmp_path: Path, first: int) -> None:
    trace = small(first)
    left = trace.write(tmp_path / "run", "simpler")
    back = npuscope.read(tmp_path / "run")
    assert tasks(back) == tasks(trace)
    assert set(back.edges.select("src", "dst", "source").rows()) == set(
        trace.edges.select("src", "dst", "source").rows()
    )
    assert back.lanes["name"].to_list() == ["AIC_0", "AIC_1", "AIV_2", "Sched_0"]
    assert ("time moved, since a stamp is above zero" in left) == (first == 0)
    assert left["name of a phase, for which the runtime has another"] == 1
    assert back.slices.filter(pl.col("kind") == "schedule")["kernel"].to_list() == ["dispatch"]
    assert back.meta.unknown == {}


def test_the_layout_is_the_runtimes(tmp_path: Path) -> None:
    small(1000).write(tmp_path / "simpler", "simpler")
    written = json.loads((tmp_path / "simpler/chip_swimlane_records.json").read_text())
    assert {len(row) for row in written["aicore_tasks"]} == {7}
    assert {len(row) for row in written["scheduler_tasks"]["records"]} == {5}
    assert written["metadata"]["runtime"] == "tensormap_and_ringbuffer"
    assert [stream["scheduler_id"] for stream in written["scheduler_records"]["streams"]] == [0]
    deps = json.loads((tmp_path / "simpler/deps.json").read_text())
    names = json.loads((tmp_path / "simpler/name_map_npuscope.json").read_text())["callable_id_to_name"]
    functions = {one["task_id"]: one["kernel_ids"] for one in deps["tasks"]}
    assert functions["9"] == [-1, -1, -1]  # the barrier
    assert (names[str(functions["1"][0])], names[str(functions["3"][1])]) == ("mm", "add")


def test_the_critical_paths_name_their_tasks_only(tmp_path: Path) -> None:
    small(1000).write(tmp_path / "run.simpler")
    for file in ("CPM_static.json", "CPM_observed.json"):
        events = json.loads((tmp_path / "run.simpler" / file).read_text())["traceEvents"]
        shown = {event["args"]["taskId"]: event["name"] for event in events if event["ph"] == "X"}
        # of the edges between tasks that ran there is one: mm (task 1), then add
        assert shown == {1: "mm(r0t1)", 2: "·(r0t2)", 3: "add(r0t3)", 4: "·(r0t4)"}
        assert {event["pid"] for event in events} == {4}


def test_a_window_and_a_device_have_no_place(tmp_path: Path) -> None:
    trace = small(1000).window(1000, 1100)
    left = replace(trace, meta=replace(trace.meta, device="a3")).write(tmp_path / "run.simpler")
    assert (left["note of the window"], left["name of the device"]) == (1, 1)


def test_without_cores_nothing_is_written(tmp_path: Path) -> None:
    lanes = pl.DataFrame({"lane": [0], "name": ["stream 1"], "unit": ["stream"]})
    slices = pl.DataFrame({"lane": [0], "start": [0], "dur": [1], "kernel": ["k"], "kind": ["task"]})
    with pytest.raises(CannotWrite, match="no task on a core"):
        Trace.of(slices, lanes, Meta("made")).write(tmp_path / "run.simpler")
    assert not (tmp_path / "run.simpler").exists()


@pytest.mark.parametrize("case", ["paged_attention_CaseVarSeq4", "spmd_multiblock_mix", "dummy_DenseFanoutFanin"])
def test_real_runs_come_back(shared: Path, tmp_path: Path, case: str) -> None:
    trace = npuscope.read(shared / "simpler/swimlane" / case)
    left = trace.write(tmp_path / "run.simpler")
    back = npuscope.read(tmp_path / "run.simpler")
    assert left == {"sample of a counter": trace.counters.height}
    assert tasks(back) == tasks(trace)
    assert set(back.edges.select("src", "dst").rows()) == set(trace.edges.select("src", "dst").rows())
