"""Passes that something held up: one kernel or one pause far beyond the usual, or a pass slow all over.

Usual is the median over the same kernel with the same shapes at the same position in passes of the same kind. What
counts is the excess as a share of a typical pass, so that a kernel ten times its usual few microseconds disturbs
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from npuscope.explain.repetition import OUTLIER
from npuscope.table.formats import duration
from npuscope.trace.intervals import Ints

SHARE = 0.2  # of a typical pass of its kind
WAIT_TIMES, WAIT_SHARE = 10, 0.02  # a collective that takes so many times its usual, and that share of a pass more
FEWEST = 3  # passes of a kind from which on their pauses and totals can be compared


@dataclass(frozen=True)
class PassTotals:
    """With an entry per pass: its kind (phase and size), device time and longest pause."""

    kind: list[str]
    union: Ints
    longest_pause: Ints


def disturbances(rows: pl.DataFrame, totals: PassTotals) -> list[list[str]]:
    """For each pass what disturbed it, in sentences. `rows`: device rows, see `found._narrow`."""
    kinds = pl.Series("kind", totals.kind, dtype=pl.String)
    passes = pl.DataFrame({"kind": kinds, "union": totals.union, "pause": totals.longest_pause}).with_row_index("at")
    passes = passes.with_columns(
        pl.col("union", "pause").median().over("kind").name.prefix("usual_"),
        pl.col("kind").str.split(" ").list.first().alias("phase"),
    )
    reasons: list[list[str]] = [[] for _ in totals.kind]
    for at, kernel, dur, usual in _slow_kernels(rows, passes).iter_rows():
        reasons[at].append(f"{kernel} took {duration(dur)}, usually {duration(usual)}")
    like = pl.len().over("kind") >= FEWEST
    paused = passes.filter(like & (pl.col("pause") - pl.col("usual_pause") > SHARE * pl.col("usual_union")))
    for at, pause, usual in paused.select("at", "pause", "usual_pause").iter_rows():
        reasons[at].append(f"nothing ran for {duration(pause)}, usually at most {duration(usual)}")
    slow = passes.filter(like & (pl.col("union") > OUTLIER * pl.col("usual_union")))
    for at, union, usual in slow.select("at", "union", "usual_union").iter_rows():
        if not reasons[at]:
            reasons[at].append(f"all in all {union / usual:.2f} times the usual {duration(usual)}")
    return reasons


def _slow_kernels(rows: pl.DataFrame, passes: pl.DataFrame) -> pl.DataFrame:
    limit = int(WAIT_SHARE * np.min(passes["usual_union"].to_numpy(), initial=np.inf)) if passes.height else 0
    if not (rows["dur"] > limit).any():  # nothing is long enough, whatever is usual for it
        return pl.DataFrame(schema={"at": pl.UInt32, "kernel": pl.String, "dur": pl.Int64, "usual": pl.Float64})
    suspects = rows.filter(pl.col("dur") > limit).select("kernel").unique()
    # collectives all stay: the only one of its name may be held against them
    wanted = pl.col("is_comm") | pl.col("kernel").is_in(suspects["kernel"].implode())
    rows = rows.filter(wanted).with_columns(pl.col("in_pass").cast(pl.UInt32).alias("at"))
    nth = pl.int_range(pl.len()).over("at", "layer", "kernel")
    rows = rows.with_columns(nth.alias("nth"), pl.col("layer").clip(upper_bound=0).alias("part"))
    rows = rows.join(passes, on="at").with_columns(usual=_usual())
    excess = pl.col("dur") - pl.col("usual")
    waited = pl.col("is_comm") & (pl.col("dur") > WAIT_TIMES * pl.col("usual"))
    held_up = (excess > SHARE * pl.col("usual_union")) | (waited & (excess > WAIT_SHARE * pl.col("usual_union")))
    return rows.filter(held_up).sort("dur", descending=True).select("at", "kernel", "dur", "usual")


def _usual() -> pl.Expr:
    """The median at the same position; of the kernel in like passes, or of collectives of the phase, where too few."""
    dur, told = pl.col("dur"), pl.lit(None, dtype=pl.Float64)
    for keys in (["kind", "kernel", "shapes", "part", "nth"], ["kind", "kernel", "shapes"]):
        told = pl.coalesce(told, pl.when(pl.len().over(keys) >= FEWEST).then(dur.median().over(keys)))
    return pl.coalesce(told, pl.when("is_comm").then(dur.median().over("phase", "is_comm")), dur)
