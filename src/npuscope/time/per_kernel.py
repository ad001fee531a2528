"""A simulated run by kernel: how often it was launched, and how busy it kept the cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from npuscope.explain import busy_idle
from npuscope.explain.busy_idle import Busy
from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import COUNT
from npuscope.time.estimate_forms import SPAN
from npuscope.time.run import Simulated
from npuscope.time.uncertainty import time_estimate

NAME, *TIMES = busy_idle.KERNELS
PER_KERNEL = Columns(
    "simulate.per_kernel",
    "A kernel, the one with most core time first. A block on a cube and two vector cores has three slices.",
    (
        replace(NAME, json=""),
        Column("tasks", COUNT, "submitted"),
        Column("blocks", COUNT, "run"),
        *TIMES,
        Column("mean_interval_ns", SPAN, "where 80% of measured means lie", title="mean, 80%,"),
    ),
)


def per_kernel(simulated: Simulated, busy: Busy, spread: Mapping[str, tuple[float, float]] | None = None) -> Table:
    """`spread`: of a kernel the ends of its interval as multiples of its mean, where a capture makes them its own."""
    tasks = simulated.prepared.program.recording.tasks
    counts = pl.DataFrame(
        {"kernel": [t.kernel for t in tasks], "blocks": simulated.prepared.job.blocks},
        schema={"kernel": pl.String, "blocks": pl.Int64},
    )
    launched = counts.group_by("kernel").agg(pl.len().alias("tasks"), pl.col("blocks").sum())
    likely = time_estimate(1.0, "kernel", simulated.bound.kind)
    ends = {**(spread or {})}
    factors = [ends.get(name, (likely.low, likely.high)) for name in busy.kernels["kernel"].to_list()]
    low, high = ((pl.col("mean_ns") * pl.Series([pair[n] for pair in factors], dtype=pl.Float64)) for n in range(2))
    low, high = (end.round().cast(pl.Int64) for end in (low, high))
    kernels = busy.kernels.join(launched, on="kernel", how="left", maintain_order="left")
    return Table(PER_KERNEL, kernels.with_columns(pl.concat_list(low, high).alias("mean_interval_ns")))
