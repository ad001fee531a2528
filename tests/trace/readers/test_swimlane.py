"""simpler's swimlane records, joined with dependencies and names, against upstream's own converter."""

import json
from pathlib import Path

import polars as pl
import pytest
from builders import refused, write_swimlane

import npuscope
from npuscope import Trace

REAL = {
    # case: level, AICore rows, AICPU rows, unique edges; from the captures' README
    "bgemm_Case1_L1": (1, 128, 0, 0),
    "bgemm_Case1_L2": (2, 128, 128, 0),
    "bgemm_Case1_L4": (4, 128, 128, 96),
    "paged_attention_CaseVarSeq4": (4, 64, 64, 92),
    "spmd_multiblock_mix": (4, 282, 282, 4),
    "sync_start_drain": (4, 15, 15, 3),
    "dummy_DenseFanoutFanin": (4, 2, 2, 37),
    "hbg_paged_attention_small1": (4, 4, 4, 5),
}


@pytest.mark.parametrize("case", REAL)
def test_real_swimlanes_have_their_known_rows(shared: Path, case: str) -> None:
    level, rows, scheduled, edges = REAL[case]
    trace = npuscope.read(shared / "simpler/swimlane" / case)
    tasks = trace.slices.filter(pl.col("kind") == "task")
    assert trace.meta.notes["level"] == level
    assert tasks.height == rows
    assert tasks["dispatch"].is_not_null().sum() == scheduled
    assert trace.edges.height == edges
    assert trace.lanes.filter(pl.col("unit").is_in(["AIC", "AIV"])).height == 24


def core_tasks(trace: Trace) -> pl.DataFrame:
    cores = trace.lanes.filter(pl.col("unit").is_in(["AIC", "AIV"])).select("lane", "core")
    tasks = trace.slices.filter(pl.col("kind") == "task").join(cores, on="lane").sort("task", "start", "core")
    zero = pl.col("start").first()
    return tasks.select("core", "task", "kernel", "dur", pl.col("start", "dispatch", "finish") - zero)


@pytest.mark.parametrize("case", [case for case in REAL if not case.startswith("hbg")])
def test_records_and_upstreams_merged_timeline_agree_to_the_nanosecond(shared: Path, case: str) -> None:
    folder = shared / "simpler/swimlane" / case
    ours, merged = core_tasks(npuscope.read(folder)), core_tasks(npuscope.read(folder / "merged_swimlane.json.gz"))
    if case == "spmd_multiblock_mix":
        # upstream names every vector part after vector 0; the second vector core of a cluster runs AIV1
        merged = merged.with_columns(ours["kernel"])
    assert ours.equals(merged)


def test_the_host_clock_is_aligned_by_its_anchor(shared: Path) -> None:
    trace = npuscope.read(shared / "simpler/swimlane/hbg_paged_attention_small1")
    host = trace.slices.join(trace.lanes.filter(pl.col("unit") == "host"), on="lane")
    first_task = trace.slices.filter(pl.col("kind") == "task")["start"].min()
    # host_orchestration_precedes_device, and the whole run took some 34 ms
    assert host.height == 7
    assert 0 < first_task - host["start"].max() < 40_000_000  # type: ignore[operator]


def test_cycles_become_exact_nanoseconds_and_times_join_by_register(tmp_path: Path) -> None:
    tasks = [
        [0, (2 << 32) + 5, 1, 8_340_134_286_060, 8_340_134_287_396, 113],
        [4, 7, 1, 8_340_134_286_100, 8_340_134_286_200, 0],
    ]
    aicpu = [[0, 1, 8_340_134_285_000, 8_340_134_288_000], [3, 9, 1, 2]]
    trace = npuscope.read(write_swimlane(tmp_path, tasks, aicpu))
    row = trace.slices.select("start", "dur", "dispatch", "finish", "receive", "ring", "block").row(0)
    assert row == (166_802_685_721_200, 26_720, 166_802_685_700_000, 166_802_685_760_000, 166_802_685_718_940, 2, 0)
    assert trace.lanes["name"].to_list()[:3] == ["AIC_0", "AIC_1", "AIV_2"]
    assert trace.meta.marked == {"task without dispatch and finish": 1}
    assert trace.meta.dropped == {"dispatch and finish of a task no core recorded": 1}


def test_mixed_tasks_are_named_by_the_part_that_ran(tmp_path: Path) -> None:
    path = write_swimlane(
        tmp_path, [[0, 9, 1, 10, 20, 0], [2, 9, 1, 10, 20, 0], [3, 9, 1, 10, 20, 0], [4, 8, 1, 30, 40, 0]]
    )
    tasks = [{"task_id": "9", "kernel_ids": [0, 1, 2]}, {"task_id": "8", "kernel_ids": [-1, 5, -1]}]
    edge = {"pred": "9", "succ": "8", "source": "tensormap"}
    (tmp_path / "deps.json").write_text(json.dumps({"tasks": tasks, "tensors": [], "edges": [edge, edge]}))
    (tmp_path / "name_map_x.json").write_text(
        json.dumps({"callable_id_to_name": {"0": "mix_aic", "1": "mix_aiv0", "2": "mix_aiv1"}})
    )
    trace = npuscope.read(path)
    assert trace.slices["kernel"].to_list() == ["mix_aic", "mix_aiv0", "mix_aiv1", "func_5"]
    assert trace.edges.rows() == [(9, 8, "tensormap")]


def test_dependencies_of_another_program_are_refused(tmp_path: Path) -> None:
    path = write_swimlane(tmp_path, [[0, 9, 1, 10, 20, 0]])
    (tmp_path / "deps.json").write_text(json.dumps({"tasks": [{"task_id": "1"}], "edges": []}))
    trace = npuscope.read(path)
    assert trace.edges.height == 0
    assert "another program" in trace.meta.notes["deps_refused"]
    assert trace.slices["kernel"].to_list() == ["task"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"aicore_tasks": [[0, 1, 1]]}, "row 0 of aicore_tasks has 3 numbers"),
        ({"aicore_tasks": [[77, 1, 1, 2, 3]]}, "names core 77 of 6"),
        ({"aicore_tasks": [[0, 1, 1, -2, 3]]}, "outside 0 to"),
        ({"aicore_tasks": [[0, 1, 1, "two", 3]]}, "Expected `int`"),
        ({"metadata": {"clock_freq_hz": 0, "core_types": []}}, "must be positive"),
        ({"metadata": {}}, "missing required field"),
        ({"aicpu_scheduler_phases": [[{"kind": "dispatch"}]]}, "no usable start_cycles"),
    ],
)
def test_broken_records_are_refused(tmp_path: Path, change: dict, message: str) -> None:
    path = write_swimlane(tmp_path, [[0, 9, 1, 10, 20, 0]], **change)
    refused(path, message)


def test_rows_without_times_and_backward_rows_are_counted(tmp_path: Path) -> None:
    trace = npuscope.read(write_swimlane(tmp_path, [[0, 1, 1, 0, 20, 0], [0, 2, 2, 30, 20, 0], [0, 3, 3, 40, 50, 0]]))
    assert trace.meta.dropped == {"task without start or end": 1}
    assert trace.meta.repaired == {"end before start, duration set to zero": 1}
    assert trace.slices["dur"].to_list() == [0, 200]
