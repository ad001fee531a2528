"""Counters: how high each one was, over the window. A value holds until the counter's next sample."""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from npuscope.table.columns import Column, Columns, Table, Tabular, all_rows
from npuscope.table.formats import COUNT, NUMBER, SHARE, TEXT, many
from npuscope.trace.core import Trace
from npuscope.trace.counters import SERIES, WHOLE_DEVICE, by_time

LEVEL = replace(NUMBER, show=lambda value: f"{value:,.4g}" if isinstance(value, int | float) else str(value))
COUNTERS = Columns(
    "info.counters",
    "A counter of a lane. A value holds until the next sample.",
    (
        Column("name", TEXT, "as the capture calls it", title="counter"),
        Column("lane", TEXT, "its lane, or whole device"),
        Column("samples", COUNT, "in the window"),
        Column("least", LEVEL, "the lowest value"),
        Column("mean", LEVEL, "over time"),
        Column("most", LEVEL, "the highest value"),
        Column("share", SHARE, "of the window that it covers", title="of window", wide=True),
    ),
)


@dataclass(frozen=True, repr=False)
class Counters(Tabular):
    """A row per counter and lane."""

    table: pl.DataFrame

    def tables(self) -> dict[str, Table]:
        return {"counters": Table(COUNTERS, self.table)}

    def title(self) -> str:
        return f"counters: {many(int(self.table['samples'].sum()), 'sample')} of {self.table.height:,}"

    def as_dict(self) -> dict[str, object]:
        return all_rows(self.tables())


def counters(trace: Trace) -> Counters:
    """Least, mean and most of every counter. The mean is over the time since its first sample in the window, or the
    one before, up to the window's end; without such time (all samples at one moment) it is the last value."""
    start, end = trace.window_ns
    samples = by_time(trace.counters)
    until = pl.col("time").shift(-1).over(SERIES).fill_null(pl.max_horizontal(pl.lit(end), "time"))
    held = (until.clip(start, end) - pl.col("time").clip(start, end)).alias("held")
    samples = samples.with_columns(held)
    time = pl.col("held").sum()
    table = samples.group_by(SERIES, maintain_order=True).agg(
        samples=pl.len(),
        least=pl.col("value").min(),
        mean=pl.when(time > 0).then((pl.col("value") * pl.col("held")).sum() / time).otherwise(pl.col("value").last()),
        most=pl.col("value").max(),
        share=time / max(end - start, 1),
    )
    names = trace.lanes.select("lane", place="name")
    table = table.join(names, on="lane", how="left", maintain_order="left")
    place = pl.col("place").fill_null(WHOLE_DEVICE).alias("lane")
    return Counters(table.select(place, "name", "samples", "least", "mean", "most", "share"))
