"""The reasons for which work waits, and how the stamps of a slice cut the wait before it.

Used twice: for the idle gaps of every lane (`idle_reasons`) and for the waits on the critical path (`path`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from npuscope.explain.readiness import Readiness
from npuscope.explain.work import NEVER, NONE, Work
from npuscope.table.formats import worded
from npuscope.trace.interval_sets import Intervals
from npuscope.trace.intervals import Ints

REASONS = (
    "dependency",
    "FIN",
    "dispatch",
    "pickup",
    "starved",
    "edge",
    "FIN+dispatch+pickup",  # edges, no dispatch times
    "dependency+FIN+dispatch+starved",  # dispatch times, no edges
    "dependency+pickup",  # a stream whose work was launched
    "dependency+dispatch+pickup",  # a stream, launch unknown
    "dependency+FIN+dispatch+pickup+starved",  # neither
)
SCHEDULING = ("FIN", "dispatch", "pickup", "FIN+dispatch+pickup")  # what a faster scheduler would shorten
PARTS = ("run", *REASONS)
IN_WORDS = {  # what people read; programs rely on the reasons
    "run": "running tasks",
    "dependency": "waiting for a task that still runs",
    "FIN": "waiting for the scheduler to notice an end",
    "dispatch": "ready, not handed out yet",
    "pickup": "handed out, not started yet",
    "starved": "nothing ready to run",
    "edge": "before the first or after the last task",
    "FIN+dispatch+pickup": "waiting for the scheduler",
    "dependency+FIN+dispatch+starved": "not handed out yet, why is not recorded",
    "dependency+pickup": "launched, not started yet",
    "dependency+dispatch+pickup": "idle, when it was launched is not recorded",
    "dependency+FIN+dispatch+pickup+starved": "idle, why is not recorded",
}
REASON = worded(IN_WORDS)  # a reason, or run
WAIT = worded({f"wait: {reason}": words for reason, words in IN_WORDS.items()})  # a wait among other things
_ON_CORES = ("dependency+FIN+dispatch+starved", "pickup", "dependency+FIN+dispatch+pickup+starved")
_ON_STREAMS = ("dispatch", "dependency+pickup", "dependency+dispatch+pickup")


class PieceArrays(NamedTuple):
    """Pieces of time: a group (a lane, say), start, end, the row of the slice it belongs to, the part's number, and the
    row of the slice that was waited for (NONE where nobody was)."""

    group: Ints
    start: Ints
    end: Ints
    row: Ints
    part: Ints
    blocker: Ints

    def parts(self) -> pl.Series:
        """The parts by name."""
        return pl.Series(PARTS, dtype=pl.Enum(PARTS)).gather(self.part)


class Pieces:
    """Pieces of time, gathered as they are found. Empty ones are left out."""

    def __init__(self) -> None:
        self._found: list[PieceArrays] = []

    def add(self, part: str, group: Ints, start: Ints, end: Ints, row: Ints, blocker: Ints | None = None) -> None:
        kept = end > start
        number = np.full(int(kept.sum()), PARTS.index(part))
        blocking = np.full(len(number), NONE) if blocker is None else blocker[kept]
        self._found.append(PieceArrays(group[kept], start[kept], end[kept], row[kept], number, blocking))

    def in_order(self) -> PieceArrays:
        """All pieces by group, then start."""
        columns = [np.concatenate(column) for column in zip(*self._found, strict=True)]
        order = np.lexsort((columns[1], columns[0]))
        return PieceArrays(*(column[order] for column in columns))


def add_after_data(pieces: Pieces, ready: Readiness, group: Ints, start: Ints, end: Ints, row: Ints) -> None:
    """The waits of slices whose producers have ended: FIN, then not submitted, then dispatch, then pickup."""
    told = ready.dispatch[row] != NEVER
    pieces.add("FIN+dispatch+pickup", group[~told], start[~told], end[~told], row[~told])
    group, start, end, row = group[told], start[told], end[told], row[told]
    seen = np.clip(ready.seen[row], start, end)
    submitted = np.clip(ready.submitted[row], seen, end)
    handed = np.clip(ready.dispatch[row], submitted, end)
    pieces.add("FIN", group, start, seen, row, ready.seen_row[row])
    pieces.add("starved", group, seen, submitted, row)
    pieces.add("dispatch", group, submitted, handed, row)
    pieces.add("pickup", group, handed, end, row)


def add_without_edges(
    pieces: Pieces, work: Work, ready: Readiness, group: Ints, start: Ints, end: Ints, row: Ints
) -> None:
    """Waits of which only the moment of handing out may be known."""
    before, after, untold = coarse_reasons(work)
    told = ready.dispatch[row] != NEVER
    pieces.add(untold, group[~told], start[~told], end[~told], row[~told])
    group, start, end, row = group[told], start[told], end[told], row[told]
    handed = np.clip(ready.dispatch[row], start, end)
    pieces.add(before, group, start, handed, row)
    pieces.add(after, group, handed, end, row)


def add_nothing_runs(pieces: Pieces, work: Work, ready: Readiness, idle: Intervals) -> None:
    """Idle time of all lanes at once, each piece with the slice that ends it."""
    order = np.append(np.argsort(work.start, kind="stable"), NONE)
    row = order[np.searchsorted(work.start[order[:-1]], idle.end, side="left")]
    # before the first kernel of a window the host may not have launched it yet; the edge of a capture tells nothing
    untold = (ready.dispatch[row] == NEVER) | work.on_cores if len(work.lane) else np.ones(len(row), dtype=bool)
    at_edge = ((idle.start == work.window[0]) & untold) | (row == NONE)
    pieces.add("edge", *idle.where(at_edge), np.full(int(at_edge.sum()), NONE))
    add_without_edges(pieces, work, ready, *idle.where(~at_edge), row[~at_edge])


def coarse_reasons(work: Work) -> tuple[str, str, str]:
    """Reasons without edges: before a slice was handed out, after that, and where nobody says when it was."""
    return _ON_CORES if work.on_cores else _ON_STREAMS


def kernel_names(work: Work, rows: Ints) -> pl.Series:
    """The kernels of rows; null for NONE, which is -1 and so finds the entry at the end."""
    names = pl.Series([*work.kernels, None], dtype=pl.String)
    return names.gather(np.append(work.kernel, len(work.kernels))[rows])
