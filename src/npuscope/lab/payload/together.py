"""Short slices drawn as one, where a timeline has more than a browser holds."""

from __future__ import annotations

import polars as pl

BUCKETS = 20_000  # of the window, to begin with


def drawn_together(table: pl.DataFrame, wall: int, most: int) -> pl.DataFrame:
    """At most about `most` rows: slices shorter than a bucket that begin in the same bucket of a row become one.

    `drawn` then says how many each stands for; one that stands for several has no task and no place in the trace.
    """
    table, bucket = table.with_columns(pl.lit(1).alias("drawn")), max(wall // BUCKETS, 1)
    while table.height > most and bucket < 2 * wall:
        short = (pl.col("end") - pl.col("start")) < bucket
        key = pl.when(short).then(pl.col("start") // bucket).otherwise(-1 - pl.int_range(pl.len()))
        alone = pl.len() == 1
        table = table.group_by("lane", "depth", key.alias("bucket"), maintain_order=True).agg(
            pl.col("start").min(), pl.col("end").max(), pl.col("kernel").first(),
            *(pl.when(alone).then(pl.col(name).first()).alias(name) for name in ("row", "task", "block")),
            pl.col("drawn").sum(),
        )  # fmt: skip
        table = table.drop("bucket").sort("lane", "depth", "start")
        bucket *= 2
    return table.with_columns(pl.col("row").fill_null(-1))
