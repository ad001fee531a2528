"""Counters: samples of numbers over time. A value holds from its time until the next sample of its lane and name."""

from __future__ import annotations

import polars as pl

SERIES = ("lane", "name")  # one counter
WHOLE_DEVICE = "whole device"  # the name of a place for counters without a lane, where a format asks for one
# depths of the scheduler's queues of ready tasks, by what the tasks run on: in the order that swimlanes list them,
# under the names that the runtime's own converter gives them
READY_QUEUES = ("shared_ready_queue AIC", "shared_ready_queue AIV", "shared_ready_queue MIX")


def lane_id(lane: str) -> str:
    """What tells counters of several lanes apart, where a format knows counters by name and id alone."""
    return f"lane {lane}"


def within(counters: pl.LazyFrame, start: int, end: int) -> pl.LazyFrame:
    """The samples of [start, end), and of each counter the last one before, which holds when it begins."""
    rows = counters.with_row_index("row")
    inside = rows.filter(pl.col("time") >= start, pl.col("time") < end)
    # of samples at one moment the last in the table counts
    held = rows.filter(pl.col("time") < start).sort("time", "row").unique(SERIES, keep="last")
    return pl.concat([inside, held]).sort("row").drop("row")


def by_time(counters: pl.DataFrame) -> pl.DataFrame:
    """Sorted by lane, name and time; samples of one moment keep their order, and of them only the last holds."""
    return counters.sort(*SERIES, "time", maintain_order=True, nulls_last=True)
