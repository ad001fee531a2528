"""What of the window belongs to the run: a stray kernel before or after it can stretch the window many times over.

A pause that takes a quarter of the window and cuts off less than a tenth of the work ends the run there, unless the
host is known to have launched nothing meanwhile: then the host is the cause. What is cut off is told as a cause of its
own, and everything else is judged without it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from npuscope.explain.diagnosis.known import Known
from npuscope.explain.diagnosis.shape import Cause, Span
from npuscope.explain.waits import Readiness
from npuscope.explain.work import NEVER, Work
from npuscope.table.formats import duration, percent, short
from npuscope.trace.intervals import gaps, one_group, union

PAUSE = 0.25  # of the window
STRAY = 0.1  # of the work
MOST_CUTS = 4


def scope_of(work: Work, ready: Readiness) -> tuple[int, int]:
    """The window without pauses that cut off next to nothing."""
    start, end = work.window
    ran = union(one_group(work.start, work.end))
    if ran.length == 0:
        return start, end
    done = np.append(0, np.cumsum(ran.end - ran.start))  # work before each piece
    for _ in range(MOST_CUTS):
        idle = gaps(ran, 1, work.window)
        inside = idle.where((idle.start >= start) & (idle.end <= end))
        if len(inside.start) == 0:
            break
        longest = int(np.argmax(inside.end - inside.start))
        begin, stop = int(inside.start[longest]), int(inside.end[longest])
        before = done[np.searchsorted(ran.start, begin)] - done[np.searchsorted(ran.start, start)]
        after = done[np.searchsorted(ran.start, end)] - done[np.searchsorted(ran.start, stop)]
        if stop - begin < PAUSE * (end - start) or min(before, after) > STRAY * (before + after):
            break
        if not _cuts(work, ready, begin, stop, stray=min(before, after) > 0):
            break
        start, end = (stop, end) if before <= after else (start, begin)
    return start, end


def _cuts(work: Work, ready: Readiness, begin: int, stop: int, *, stray: bool) -> bool:
    """Whether a pause is the end of a run and not a host that launches nothing."""
    following = np.flatnonzero(work.start == stop)
    launched = None if len(following) == 0 else _launched(ready, int(following[0]))
    return stray if launched is None else launched < (begin + stop) / 2


def outside(known: Known) -> Iterator[Cause]:
    """What was cut off, as a cause each side."""
    (first, last), (start, end) = known.work.window, known.scope
    if start > first:
        yield _before(known, first, start)
    if end < last:
        ns = last - end
        stray = int((known.work.start >= end).sum())
        what = f"{stray:,} stray kernels" if stray != 1 else "a stray kernel"
        told = f"{what} after it" if stray else "the end of the window"
        yield Cause(
            "outside",
            f"The run is over after {duration(end - first)}; the window goes on for {duration(ns)} to {told}.",
            known.share(ns),
            where=(Span(end, last),),
            remedy="Cut the window to the run, so that shares are of it.",
        )


def _before(known: Known, first: int, start: int) -> Cause:
    work, ready = known.work, known.ready
    ns = start - first
    row = int(np.flatnonzero(work.start == start)[0])
    name = f"`{short(work.kernels[int(work.kernel[row])], 48)}`"
    stray = int((work.start < start).sum())
    what = {0: "nothing runs", 1: "one stray kernel runs"}.get(stray, f"{stray:,} stray kernels run")
    part = f"{percent(ns / max(work.wall, 1))} of the window"
    evidence = [f"{what} in the {duration(ns)} before the run begins"]
    launched = _launched(ready, row)
    where = (Span(first, start),)
    if launched is not None and start - launched > ns / 2:
        waited = duration(start - launched)
        return Cause(
            "unrecorded",
            f"{name} was launched {waited} before it began, and nothing that was recorded ran meanwhile: it waited for "
            f"work that this capture lacks ({part}).",
            known.share(ns),
            tuple(evidence),
            where=where,
            remedy="Start the profiler a step earlier, or wait for the device before it starts; then cut the window.",
            confidence="likely",
        )
    return Cause(
        "outside",
        f"The run begins only after {duration(ns)} ({part}), in which {what}.",
        known.share(ns),
        where=where,
        remedy="Cut the window to the run, so that shares are of it.",
    )


def _launched(ready: Readiness, row: int) -> int | None:
    at = int(ready.dispatch[row])
    return None if at == NEVER else at
