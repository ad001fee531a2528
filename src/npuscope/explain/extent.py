"""What of a window is the run itself, and what of a step is the step: a stray kernel can stretch either many times.

A pause that takes a quarter of the window and cuts off less than a tenth of the work ends the run there, unless the
host is known to have launched nothing meanwhile: then the pause is the host's, and part of the run.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from npuscope.explain.work import NEVER
from npuscope.trace.intervals import Ints, gaps, one_group, union

PAUSE = 0.25  # of the window
STRAY = 0.1  # of the work
MOST_CUTS = 4


def extent(start: Ints, end: Ints, launched: Ints, window: tuple[int, int]) -> tuple[int, int]:
    """The window without pauses that cut off next to nothing; `launched` is when each piece of work was, or NEVER."""
    first, last = window
    ran = union(one_group(start, end))
    if ran.length == 0:
        return first, last
    done = np.append(0, np.cumsum(ran.end - ran.start))  # work before each piece
    for _ in range(MOST_CUTS):
        idle = gaps(ran, 1, window)
        inside = idle.where((idle.start >= first) & (idle.end <= last))
        if len(inside.start) == 0:
            break
        longest = int(np.argmax(inside.end - inside.start))
        begin, stop = int(inside.start[longest]), int(inside.end[longest])
        before = done[np.searchsorted(ran.start, begin)] - done[np.searchsorted(ran.start, first)]
        after = done[np.searchsorted(ran.start, last)] - done[np.searchsorted(ran.start, stop)]
        if stop - begin < PAUSE * (last - first) or min(before, after) > STRAY * (before + after):
            break
        following = np.flatnonzero(start == stop)
        at = int(launched[following[0]]) if len(following) else NEVER
        if not (min(before, after) > 0 if at == NEVER else at < (begin + stop) / 2):
            break
        first, last = (stop, last) if before <= after else (first, begin)
    return first, last


def marked_steps(rows: pl.DataFrame, launched: Ints) -> pl.Series:
    """The step of each row that has a start and a dur, perhaps a step: one without a step that begins inside a step
    belongs to it, and what a long pause parts from the step's work belongs to none. Several dispatches of a run are one
    step, the run."""
    step = rows["step"]
    if "run" in rows.columns and step.n_unique() > rows["run"].n_unique():
        return rows["run"].alias("step")
    if step.null_count() == len(step):
        return step
    timed = rows.select("start", "step", end=pl.col("start") + pl.col("dur")).with_row_index("row")
    if step.null_count():
        spans = timed.drop_nulls("step").group_by("step").agg(pl.col("start").min(), pl.col("end").max()).sort("start")
        place = np.searchsorted(spans["start"].to_numpy(), timed["start"].to_numpy(), side="right") - 1
        inside = (place >= 0) & (timed["start"].to_numpy() < spans["end"].to_numpy()[place])
        step = step.zip_with(step.is_not_null() | ~pl.Series(inside), spans["step"].gather(np.maximum(place, 0)))
        timed = timed.with_columns(step.alias("step"))
    known = timed.drop_nulls("step").sort("step", "start")
    pause = pl.col("start") - pl.col("end").cum_max().shift(1)
    spans = known.group_by("step", maintain_order=True).agg(
        pl.col("row"),
        pl.col("start").min().alias("first"),
        pl.col("end").max().alias("last"),
        pause.max().alias("pause"),
    )
    stray: list[int] = []
    suspects = spans.filter(pl.col("pause") >= PAUSE * (pl.col("last") - pl.col("first")))
    start, end = timed["start"].to_numpy(), timed["end"].to_numpy()
    for row, first, last in suspects.select("row", "first", "last").iter_rows():
        here = np.array(row)
        begin, stop = extent(start[here], end[here], launched[here], (first, last))
        stray += here[(start[here] < begin) | (start[here] >= stop)].tolist()
    return step.scatter(stray, [None] * len(stray)) if stray else step
