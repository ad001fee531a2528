"""Ascend's timeline JSON: text times, known processes, flows from host to device."""

from pathlib import Path

import polars as pl
import pytest
from builders import named, write_events, x

import npuscope

REAL = {
    # level: events, X, Ascend Hardware, HCCL, CANN, counter events; from the captures' README and counting
    0: (8375, 3379, 533, 4, 0, 3716),
    1: (10_112, 4384, 535, 300, 707, 4431),
    2: (10_476, 4811, 535, 300, 1134, 4368),
}


@pytest.mark.parametrize("level", REAL)
def test_real_timelines_have_their_known_processes(shared: Path, level: int) -> None:
    events, slices, hardware, hccl, cann, counted = REAL[level]
    folder = shared / f"ascend/msinsight_cnn/level{level}/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT"
    trace = npuscope.read(folder / "trace_view.json")
    counts = dict(trace.slices.join(trace.lanes, on="lane")["process"].value_counts().iter_rows())
    assert trace.meta.format == "trace_view"
    assert (trace.meta.records, trace.slices.height, trace.counters.height) == (events, slices, counted)
    places = trace.counters.join(trace.lanes, on="lane").group_by("process").agg(pl.col("name").n_unique())
    assert dict(places.iter_rows())["HBM"] == 8  # four stacks, read and written
    assert set(trace.lanes.filter(pl.col("unit") == "counter")["device"]) == {0}
    assert (counts["Ascend Hardware"], counts["HCCL"], counts.get("CANN", 0)) == (hardware, hccl, cann)
    assert (counts["Python"], counts["Overlap Analysis"]) == (2460, 382)
    assert trace.meta.notes["times_as_text"] > 0


def test_the_timeline_and_the_kernel_table_agree_to_the_nanosecond(shared: Path) -> None:
    folder = shared / "ascend/msinsight_cnn/level2/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT"
    view = npuscope.read(folder / "trace_view.json").slices.filter(pl.col("kind") == "task")
    table = npuscope.read(folder / "kernel_details.csv").slices.filter(pl.col("kind") == "task")
    joined = table.join(view, on=["start", "kernel"], suffix="_view")
    assert joined.height == table.height
    assert ((joined["dur"] - joined["dur_view"]).abs() <= 1).all()  # the timeline has digits below the nanosecond


def test_parts_of_a_collective_point_at_the_whole(shared: Path) -> None:
    folder = shared / "ascend/msinsight_cnn/level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT"
    trace = npuscope.read(folder / "trace_view.json")
    # README: HCCL has 300 events, four of which are the collectives
    assert trace.meta.marked["part of a collective that is listed whole"] == 296
    whole = trace.slices.filter(pl.col("task").is_in(trace.slices["duplicate_of"].drop_nulls().implode()))
    assert whole["kernel"].str.starts_with("hcom_allReduce").all()


def test_ai_cpu_tasks_with_the_name_of_their_kernel_tell_it_again(tmp_path: Path) -> None:
    """PyPTO's schedulers run as KERNEL_AICPU under the kernel's name; other AI CPU work is its own."""

    def task(name: str, start: int, dur: int, stream: int, kind: str) -> dict[str, object]:
        return x(name, f"{start}.0", dur, pid=96, tid=stream, args={"Task Type": kind})

    events = [
        *named("Ascend Hardware", "Stream 42", pid=96, tid=42),
        task("PYPTO_add", 0, 40, 42, "KERNEL_AICPU"), task("PYPTO_add", 2, 50, 43, "KERNEL_AICPU"),
        task("PYPTO_add", 10, 30, 46, "KERNEL_MIX_AIC"),
        task("aclnnCumsum_CumsumAiCpu_Cumsum", 12, 5, 47, "KERNEL_AICPU"),
    ]  # fmt: skip
    trace = npuscope.read(write_events(tmp_path / "msprof_1.json", events))
    assert trace.slices["duplicate_of"].to_list() == [2, 2, None, None]
    assert trace.meta.marked == {"AI_CPU row with the name of its kernel": 2}
