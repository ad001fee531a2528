"""Small captures of our own making, each format with numbers that follow from how it was written (tests/small.py)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

import npuscope
from npuscope.trace.intervals import one_group, union
from npuscope.trace.schema import counts_once


class Truth(NamedTuple):
    """Of the device's work that counts once, or of all slices where there is none; nanoseconds."""

    format: str
    slices: int
    work: int
    lanes: int  # that the work is on
    span: int
    total: int
    union: int
    edges: int = 0


TRUTHS = {
    # twelve rows of 5.25 µs, each 7.001 µs after the one before, on two streams
    "op_summary": Truth("op_summary", 12, 12, 2, 11 * 7001 + 5250, 12 * 5250, 12 * 5250),
    # two kernels of 2.5 µs, 20 µs apart; the wait between them is the queue's
    "task_time": Truth("task_time", 3, 2, 1, 20_000 + 2500, 5000, 5000),
    # three steps 1 ms apart; in each four kernels of 40 µs every 50 µs and a copy of 8 µs
    "kineto": Truth("kineto", 42, 15, 2, 2_000_000 + 300_000 + 8000 - 30_000, 3 * (4 * 40 + 8) * 1000,
                    3 * (4 * 40 + 8) * 1000, 12),
    # two kernels of 8 µs, 10 µs apart; orders of the queue, host and analysis are no work
    "trace_view": Truth("trace_view", 5, 2, 1, 18_000, 16_000, 16_000),
    # 5 µs on the cube core from 2 µs, 2 µs on the vector core from 8 µs
    "merged_swimlane": Truth("merged-swimlane", 4, 2, 2, 8000, 7000, 7000, 1),
    # each thread hands its core three tasks, two points of 100 ns long, every 400 ns; the threads are 1 ns apart
    "tracr": Truth("tracr", 12, 6, 2, 2 * 400 + 200 + 1, 6 * 200, 3 * 201),
    # four kernels of 60 ns every 100 ns, each launched by a call
    "nsys": Truth("nsys", 8, 4, 1, 360, 240, 240, 4),
    # nine tasks of 700 ns every microsecond, on two streams
    "ascend_db": Truth("ascend-db", 9, 9, 2, 8700, 9 * 700, 9 * 700),
    # four dispatches of 400 ns every microsecond
    "rocprof": Truth("rocprofv3", 4, 4, 1, 3400, 1600, 1600),
    # at 50 MHz a cycle is 20 ns: cycles 1000 to 2000, and 2500 to 3000
    "npu": Truth("swimlane", 2, 2, 2, 40_000, 30_000, 30_000),
}  # fmt: skip


@pytest.mark.parametrize("name", TRUTHS)
def test_a_capture_of_our_own_has_the_numbers_it_was_written_with(small: dict[str, Path], name: str) -> None:
    trace = npuscope.read(small[name])
    work = trace.slices.filter(counts_once())
    start, dur = work["start"].to_numpy(), work["dur"].to_numpy()
    span = int((start + dur).max() - start.min())
    covered = union(one_group(start, start + dur)).length
    told = (trace.meta.format, trace.slices.height, work.height, work["lane"].n_unique(), span, int(dur.sum()), covered)
    assert Truth(*told, trace.edges.height) == TRUTHS[name]


def test_a_root_of_ranks_has_the_work_of_each(small: dict[str, Path]) -> None:
    trace = npuscope.read(small["ranks"])
    found = trace.slices.join(trace.lanes.select("lane", "rank"), on="lane").group_by("rank").agg(
        pl.len(), pl.col("dur").sum(), pl.col("start").min()
    )  # fmt: skip
    # six rows of 7.25 µs from 1000.5 µs on, the second rank's a microsecond later
    assert sorted(found.rows()) == [(rank, 6, 6 * 7250, 1_000_500 + 1000 * rank) for rank in (0, 1)]


def test_every_layout_of_a_swimlane_has_its_tasks(small: dict[str, Path]) -> None:
    layouts = [name for name in small if name.startswith("swimlane_")]
    assert len(layouts) == 5
    for name in layouts:
        trace = npuscope.read(small[name])
        tasks = trace.slices.filter(pl.col("kind") == "task")
        assert tasks.height > 0
        assert tasks["dispatch"].null_count() == 0 or "host" in name


def test_a_decode_run_is_whole(small: dict[str, Path]) -> None:
    trace = npuscope.read(small["decode_run"])
    tasks = trace.slices.filter(pl.col("kind") == "task")
    assert tasks.select(pl.col("dispatch", "finish").null_count()).row(0) == (0, 0)
    ends = dict(tasks.group_by("task").agg((pl.col("start") + pl.col("dur")).max()).iter_rows())
    starts = dict(tasks.group_by("task").agg(pl.col("start").min()).iter_rows())
    edges = trace.edges.select("src", "dst").rows()
    assert edges
    assert all(ends[src] <= starts[dst] for src, dst in edges)  # nobody began before what it waits for had ended
