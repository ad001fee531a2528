"""Which instructions decide how long a block takes: a chain from its end back to its beginning, without a hole.

The chain begins with the instruction whose result arrives last. Before it comes the instruction whose end let it start:
the one before on its pipe, the maker of an operand, the last reader of its slot. What waited to be issued is preceded
by what the scalar unit issued since it last waited; that time is shared among those by what issuing them costs. So
every moment of a block belongs to one instruction, and the lines of a program add up to the time of its blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuscope.time.core.pipes import CUBE_SCALAR, ISSUING, BlockTrace, Timing
from npuscope.time.core.stream import BARRIER, ISSUE, LATENCY, PIPES, UNITS, Floats, Ints, Stream

# in place of a pipe: the scalar unit handed instructions out, or a barrier was passed; a result was on its way
ISSUED, ARRIVING = len(PIPES), len(PIPES) + 1
PLACES = (*(f"{unit} {pipe}" for unit, pipe in zip(UNITS, PIPES, strict=True)), "issue", "arrival")


@dataclass(frozen=True)
class Chain:
    """Pieces of a block's time, the last first: from when to when, whose, and on which place."""

    start: Floats
    end: Floats
    site: Ints
    place: Ints
    instruction: Ints  # row of the trace; -1 for time that no traced instruction has

    def by_site(self, sites: int) -> Floats:
        """Nanoseconds of every site on every place."""
        found = np.zeros((sites, len(PLACES)))
        np.add.at(found, (self.site, self.place), self.end - self.start)
        return found


Piece = tuple[float, float, int, int, int]


def chain_of(stream: Stream, timing: Timing, lane: BlockTrace) -> Chain:
    """The chain of a block whose instructions were all traced."""
    arrived = lane.end + stream.costs[lane.row, LATENCY]
    pieces: list[Piece] = []
    until = timing.duration
    now = int(np.argmax(arrived)) if len(arrived) else -1
    if now >= 0 and arrived[now] < until:  # a barrier comes last, and nothing after it
        pieces.append((float(arrived[now]), until, _barrier(stream, int(lane.row[now])), ISSUED, -1))
        until = float(arrived[now])
    while now >= 0:
        start, end, site = float(lane.start[now]), float(lane.end[now]), int(lane.site[now])
        if end < until:
            pieces.append((end, until, site, ARRIVING, now))
            until = end
        pieces.append((start, until, site, int(lane.pipe[now]), now))
        until, before = start, int(lane.because[now])
        if lane.reason[now] == ISSUING:
            base = 0.0 if before < 0 else _left(lane, arrived, before, until)
            pieces += _issued(stream, timing, lane, now, before, base, until)
            until = base
        now = before
    if until > 0.0:  # nothing was traced
        pieces.append((0.0, until, int(stream.sites[0]), ISSUED, -1))
    times = np.array([piece[:2] for piece in pieces], np.float64).reshape(-1, 2)
    whose = np.array([piece[2:] for piece in pieces], np.int64).reshape(-1, 3)
    return Chain(times[:, 0], times[:, 1], *whose.T)


def _left(lane: BlockTrace, arrived: Floats, before: int, until: float) -> float:
    """When the scalar unit went on after an instruction: at its end, or when its result was there (at a barrier)."""
    return float(arrived[before]) if arrived[before] <= until else float(lane.end[before])


def _issued(
    stream: Stream, timing: Timing, lane: BlockTrace, now: int, before: int, base: float, until: float
) -> list[Piece]:
    """The stretch in which the scalar unit issued one after another up to `now`, the last first."""
    vector = lane.pipe[now] > CUBE_SCALAR
    rows = np.arange(before + 1, now + 1)
    if len(timing.met):  # an instruction of before the barrier is none of these
        rows = rows[lane.start[rows] >= base]
    rows = rows[(lane.pipe[rows] > CUBE_SCALAR) == vector]
    costs = stream.costs[lane.row[rows], ISSUE]
    ends = base + np.cumsum(costs) / max(float(np.sum(costs)), 1e-12) * (until - base)
    ends[-1] = until
    starts = np.concatenate([[base], ends[:-1]])
    numbers = zip(starts.tolist(), ends.tolist(), lane.site[rows].tolist(), rows.tolist(), strict=True)
    return [(first, last, site, ISSUED, row) for first, last, site, row in numbers][::-1]


def _barrier(stream: Stream, row: int) -> int:
    """The site of the barrier after a row, or of the row where there is none."""
    later = np.flatnonzero(stream.code[row:, 0] == BARRIER)
    return int(stream.sites[row + later[0]] if len(later) else stream.sites[row])
