"""One run captured twice, by TraCR and by the chip swimlane, as one Trace.

The swimlane knows each task's id, start and end on its core; the bundle knows when the AICPU dispatched and
retired it, and what the AICPU threads did all the while. The nth task dispatched to a core is the nth in
both. The two clocks differ by one offset and a drift of some parts per million, fitted over all tasks.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from npuscope.base.errors import BadInput
from npuscope.trace.core import Trace
from npuscope.trace.meta import combine


def join(bundle: Trace, swimlane: Trace) -> Trace:
    """The swimlane's trace, with `retired` on its tasks and the bundle's AICPU lanes on the swimlane's clock.

    Raises BadInput when a core ran another number of tasks in one capture than in the other.
    """
    recorded, ran = _in_order(bundle, "start"), _in_order(swimlane, "dispatch")
    both = ran.join(
        recorded.rename({"task": "bundle task"}), on=["unit", "nth core", "nth"], how="full", suffix=" bundle"
    )
    lonely = both.filter(pl.col("task").is_null() | pl.col("bundle task").is_null()).height
    if lonely or both.is_empty():
        what = f"{lonely} tasks are in only one of the two captures" if lonely else "no task to match"
        raise BadInput(f"not the same run: {what}", path=bundle.meta.files[0] if bundle.meta.files else None)
    there, here = both["begin bundle"].to_numpy(), both["begin"].to_numpy()
    clock = _fit(there, here)
    slices = swimlane.slices.join(
        both.select("task", "lane", "begin", clock.expr(pl.col("stop bundle")).alias("retired")).rename(
            {"begin": "dispatch"}
        ),
        on=["task", "lane", "dispatch"],
        how="left",
        maintain_order="left",
    )
    threads = bundle.lanes.filter(~pl.col("unit").is_in(["AIC", "AIV"]))
    first = swimlane.lanes.height
    threads = threads.with_columns(
        pl.col("lane").alias("old"),
        pl.int_range(first, first + pl.len(), dtype=pl.UInt32).alias("lane"),
        pl.concat_str(pl.lit("TraCR "), "name").alias("name"),
    )
    moved = bundle.slices.join(threads.select(pl.col("lane").alias("new"), pl.col("old").alias("lane")), on="lane")
    moved = moved.with_columns(
        pl.col("new").alias("lane"),
        clock.expr(pl.col("start")).alias("start"),
        (clock.expr(pl.col("start") + pl.col("dur")) - clock.expr(pl.col("start"))).alias("dur"),
        pl.lit(None, dtype=pl.Int64).alias("task"),  # a bundle has no task ids of its own
    ).drop("new")
    residual = np.abs(clock.apply(there) - here)
    told = {
        "tasks": both.height,
        "offset_ns": int(clock.offset),
        "drift_ppm": round((clock.rate - 1) * 1e6, 3),
        "residual_ns_median": int(np.median(residual)),
        "residual_ns_max": int(residual.max()),
    }
    joined = {"TraCR slice joined to its task": both.height}
    metas = {"swimlane": swimlane.meta, "tracr": bundle.meta}
    meta = combine(metas, "swimlane+tracr", records_merged=joined, **{**swimlane.meta.notes, "join": told})
    meta = replace(meta, clock=swimlane.meta.clock)
    return Trace.of(
        pl.concat([slices, moved], how="diagonal_relaxed"),
        pl.concat([swimlane.lanes, threads.drop("old")], how="diagonal_relaxed"),
        meta,
        swimlane.edges,
        swimlane.counters,
    )


def _in_order(trace: Trace, begin: str) -> pl.DataFrame:
    """The tasks of every core lane, numbered in the order they were dispatched; cores numbered within their unit."""
    cores = trace.lanes.filter(pl.col("unit").is_in(["AIC", "AIV"])).sort("unit", "core")
    cores = cores.select("lane", "unit", pl.int_range(pl.len()).over("unit").alias("nth core"))
    tasks = trace.slices.filter(pl.col("kind") == "task").join(cores, on="lane")
    if tasks[begin].null_count():
        path = trace.meta.files[0] if trace.meta.files else None
        raise BadInput("a task without a dispatch time: this swimlane cannot be joined with a bundle", path=path)
    return tasks.select(
        "unit",
        "nth core",
        pl.int_range(pl.len()).over("lane", order_by=begin).alias("nth"),
        "task",
        "lane",
        pl.col(begin).alias("begin"),
        (pl.col("start") + pl.col("dur")).alias("stop"),
    )


class _Clock:
    """here = there * rate + offset, computed around a middle so that large numbers keep their nanoseconds."""

    def __init__(self, middle_there: int, middle_here: int, rate: float) -> None:
        self.there, self.here, self.rate = middle_there, middle_here, rate
        self.offset = middle_here - middle_there

    def apply(self, times: np.ndarray) -> np.ndarray:
        return self.here + np.rint((times - self.there) * self.rate).astype(np.int64)

    def expr(self, times: pl.Expr) -> pl.Expr:
        return self.here + ((times - self.there) * self.rate).round(0).cast(pl.Int64)


def _fit(there: np.ndarray, here: np.ndarray) -> _Clock:
    """Least squares, then once more without the tasks a descheduled thread stamped late."""
    keep = np.ones(len(there), dtype=bool)
    for _ in range(2):
        x, y = there[keep], here[keep]
        middle_x, middle_y = int(x.mean()), int(y.mean())
        dx, dy = (x - middle_x).astype(float), (y - middle_y).astype(float)
        rate = float((dx * dy).sum() / (dx * dx).sum()) if dx.any() else 1.0
        clock = _Clock(middle_x, middle_y, rate)
        off = np.abs(clock.apply(there) - here)
        keep = off <= max(3 * float(np.median(off)), 1.0)
    return clock
