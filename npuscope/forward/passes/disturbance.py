"""Passes that something held up: one kernel or one pause far beyond the usual, or a pass slow all over.

Usual is the median over the same kernel with the same shapes in passes of the same kind. What counts is the excess as a
share of a typical pass, so that a kernel ten times its usual few microseconds disturbs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from npuscope.analysis.repetition import OUTLIER
from npuscope.analysis.table import microseconds
from npuscope.trace.intervals import Ints

SHARE = 0.2  # of a typical pass of its kind
FEWEST = 3  # passes of a kind from which on their pauses and totals can be compared


@dataclass(frozen=True)
class PassTotals:
    """With an entry per pass: its kind (phase and size), device time and longest pause."""

    kind: list[str]
    union: Ints
    longest_pause: Ints


def disturbances(rows: pl.DataFrame, totals: PassTotals) -> list[list[str]]:
    """For each pass what disturbed it, in sentences. `rows`: in_pass, kernel, shapes, dur of device rows."""
    kinds = pl.Series("kind", totals.kind, dtype=pl.String)
    passes = pl.DataFrame({"kind": kinds, "union": totals.union, "pause": totals.longest_pause}).with_row_index("at")
    passes = passes.with_columns(pl.col("union", "pause").median().over("kind").name.prefix("usual_"))
    reasons: list[list[str]] = [[] for _ in totals.kind]
    for at, kernel, dur, usual in _slow_kernels(rows, passes).iter_rows():
        reasons[at].append(f"{kernel} took {microseconds(dur)} µs, usually {microseconds(usual)}")
    like = pl.len().over("kind") >= FEWEST
    paused = passes.filter(like & (pl.col("pause") - pl.col("usual_pause") > SHARE * pl.col("usual_union")))
    for at, pause, usual in paused.select("at", "pause", "usual_pause").iter_rows():
        reasons[at].append(f"nothing ran for {microseconds(pause)} µs, usually at most {microseconds(usual)}")
    slow = passes.filter(like & (pl.col("union") > OUTLIER * pl.col("usual_union")))
    for at, union, usual in slow.select("at", "union", "usual_union").iter_rows():
        if not reasons[at]:
            reasons[at].append(f"all in all {union / usual:.2f} times the usual {microseconds(usual)} µs")
    return reasons


def _slow_kernels(rows: pl.DataFrame, passes: pl.DataFrame) -> pl.DataFrame:
    limit = int(SHARE * np.min(passes["usual_union"].to_numpy(), initial=np.inf)) if passes.height else 0
    if not (rows["dur"] > limit).any():  # nothing is long enough, whatever is usual for it
        return pl.DataFrame(schema={"at": pl.UInt32, "kernel": pl.String, "dur": pl.Int64, "usual": pl.Float64})
    suspects = rows.filter(pl.col("dur") > limit).select("kernel").unique()
    rows = rows.join(suspects, on="kernel", how="semi").with_columns(pl.col("in_pass").cast(pl.UInt32).alias("at"))
    of_kind = ["kind", "kernel", "shapes"]
    # a collective of which its kind of pass has few is held against those of other passes: it tells no shapes
    alone = (pl.len().over(of_kind) < FEWEST) & pl.col("shapes").is_in(["", "N/A"])
    usual = pl.when(alone).then(pl.col("dur").median().over("kernel", "shapes"))
    rows = rows.join(passes, on="at").with_columns(usual=usual.otherwise(pl.col("dur").median().over(of_kind)))
    excess = pl.col("dur") - pl.col("usual") > SHARE * pl.col("usual_union")
    return rows.filter(excess).sort("dur", descending=True).select("at", "kernel", "dur", "usual")
