"""Two sequences of kernel calls laid side by side: matches in one order worth the most, then the fewest breaks.

A call is a symbol (what kernel it is) and up to three levels of detail (its shapes, coarse to fine). Only calls of
one symbol match. A match is worth `MATCH`, and 1 more for each level told on both sides and equal; between two
alignments of the same worth the one with fewer breaks (places where a call is skipped on either side) wins. That
optimum is found exactly, by dynamic programming in a band around the diagonal: a path that leaves a band of half
width k skips more than k calls, which bounds what it can be worth, so a band is wide enough as soon as its best path
is worth that much. Bands grow until then, or until one would have more than `cells`; `of_best` says what share of an
upper bound the result then reaches.

Turning the two sides around gives the same pairs turned around.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npuscope.trace.intervals import Ints

MATCH = 4  # more than all levels of a pair together: two matches outweigh one of equal shapes
CELLS = 2_000_000_000  # of one band: some ten seconds
NARROWEST = 64
UNTOLD = -1
_NEVER = -(2**62)
_NO_COLUMNS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Calls:
    """Symbols and levels as numbers that mean the same on both sides; UNTOLD where a level is not told."""

    symbol: Ints
    levels: tuple[Ints, ...] = ()

    def take(self, kept: Ints | NDArray[np.bool_] | slice) -> Calls:
        return Calls(self.symbol[kept], tuple(level[kept] for level in self.levels))

    def __len__(self) -> int:
        return len(self.symbol)


@dataclass(frozen=True)
class Pairs:
    """Positions of matched calls on either side, rising in both.

    `of_best` is 1 where no alignment is better, else what it is worth against a bound that none can exceed.
    """

    a: Ints
    b: Ints
    of_best: float


def align_calls(a: Calls, b: Calls, cells: int = CELLS) -> Pairs:
    """The best alignment of two sequences; `cells` bounds the work (time grows with it, memory with its root)."""
    if _goes_second(a, b):
        turned = align_calls(b, a, cells)
        return Pairs(turned.b, turned.a, turned.of_best)
    # what only one side has can never match; without it both lie closer to the diagonal
    in_a, in_b = np.flatnonzero(np.isin(a.symbol, b.symbol)), np.flatnonzero(np.isin(b.symbol, a.symbol))
    x, y = a.take(in_a), b.take(in_b)
    head = _alike(x, y)
    tail = _alike(_turned(x.take(slice(head, None))), _turned(y.take(slice(head, None))))
    middle_x, middle_y = (np.arange(head, len(side) - tail) for side in (x, y))
    found, of_best = _middle(x.take(middle_x), y.take(middle_y), cells)
    pairs = [
        np.stack([np.arange(head), np.arange(head)]),
        found + head,
        np.stack([np.arange(len(x) - tail, len(x)), np.arange(len(y) - tail, len(y))]),
    ]
    both = np.concatenate(pairs, axis=1)
    return Pairs(in_a[both[0]], in_b[both[1]], of_best)


def _goes_second(a: Calls, b: Calls) -> bool:
    """One order of the two sides, whichever way they are given, so that ties fall alike."""
    if len(a) != len(b):
        return len(a) > len(b)
    for x, y in zip((a.symbol, *a.levels), (b.symbol, *b.levels), strict=True):
        differ = np.flatnonzero(x != y)
        if len(differ):
            return bool(x[differ[0]] > y[differ[0]])
    return False


def _turned(calls: Calls) -> Calls:
    return calls.take(slice(None, None, -1))


def _alike(x: Calls, y: Calls) -> int:
    """How many calls from the beginning are alike in everything; to match them is always best."""
    n = min(len(x), len(y))
    same = np.ones(n, dtype=bool)
    for one, other in zip((x.symbol, *x.levels), (y.symbol, *y.levels), strict=True):
        same &= one[:n] == other[:n]
    return n if bool(np.all(same)) else int(np.argmin(same))


def _middle(x: Calls, y: Calls, cells: int) -> tuple[Ints, float]:
    """Pairs (two rows of positions) of the best path in a band that is wide enough, or as wide as can be afforded."""
    if not len(x) or not len(y):
        return np.empty((2, 0), dtype=np.int64), 1.0
    most = _most(x, y)
    half = NARROWEST
    while True:
        band = _Band(x, y, half)
        score = band.run()
        # a path that leaves the band leaves more than `half` calls of the shorter side without a partner
        enough = int(np.searchsorted(most * band.scale - 1, score, side="right")) - 1
        needed = len(most) - 1 - enough - 1
        if half >= needed:
            return band.path(), 1.0
        half = needed if needed <= 16 * half else 4 * half
        if len(x) * min(abs(len(y) - len(x)) + 2 * half, len(y)) > cells:
            return band.path(), -(-score // band.scale) / int(most[-1])


class _Band:
    """Row by row, the best score of an alignment that ends in each match (row of x, column of y) near the diagonal.

    A score is the worth times `scale`, less one per break; both sides begin with an imagined match, worth nothing.
    """

    def __init__(self, x: Calls, y: Calls, half: int) -> None:
        self.x, self.y = x, y
        slack = len(y) - len(x)
        self.low, self.high = min(slack, 0) - half, max(slack, 0) + half  # of column - row
        self.scale = len(x) + len(y) + 2  # all breaks together are worth less than one level
        self.block = 2 * int(len(x) ** 0.5) + 1
        order = np.argsort(y.symbol, kind="stable")
        symbols, first = np.unique(y.symbol[order], return_index=True)
        self.columns = dict(zip(symbols.tolist(), np.split(order, first[1:]), strict=True))
        self.saved: list[tuple[int, Ints, Ints, Ints]] = []  # the state before every block of rows
        self.kept: tuple[int, list[tuple[Ints, Ints]]] = (-1, [])  # the rows of one block

    def run(self) -> int:
        """The best score; what is needed to walk the path back is kept at intervals."""
        state = _State(len(self.y))
        for row in range(len(self.x)):
            if row % self.block == 0:
                low, high = self._reach(row)
                at = slice(low, high + 2)
                self.saved.append((low, state.best[at].copy(), state.at.copy(), state.score.copy()))
            self._advance(row, state)
        self.end = int(state.ends[-1]), int(state.best[-1])
        return max(self.end[0], self.end[1] - 1)

    def _reach(self, row: int) -> tuple[int, int]:
        """First and last column of the band."""
        return max(row + self.low, 0), min(row + self.high, len(self.y) - 1)

    def _advance(self, row: int, state: _State) -> None:
        low, high = self._reach(row)
        columns = self.columns.get(int(self.x.symbol[row]), _NO_COLUMNS)
        at = columns[np.searchsorted(columns, low) : np.searchsorted(columns, high, side="right")]
        score = np.maximum(state.ends[at], state.best[at] - 1) + self._weight(row, at) * self.scale
        state.ends[state.at + 1] = _NEVER
        state.ends[0] = _NEVER
        state.ends[at + 1] = score
        state.at, state.score = at, score
        best = state.best
        if len(at):
            rise = np.full(high + 1 - int(at[0]), _NEVER, dtype=np.int64)
            rise[at - at[0]] = score
            here = best[at[0] + 1 : high + 2]
            np.maximum(here, np.maximum.accumulate(rise), out=here)
        best[high + 1] = max(best[high + 1], best[high])  # a column the band has just reached

    def _weight(self, row: int, at: Ints) -> Ints:
        weight = np.full(len(at), MATCH, dtype=np.int64)
        for one, other in zip(self.x.levels, self.y.levels, strict=True):
            if one[row] != UNTOLD:
                weight += other[at] == one[row]
        return weight

    def path(self) -> Ints:
        """The matches of the best alignment."""
        row, column = len(self.x), len(self.y)  # the imagined match after both ends
        adjacent, anywhere = self.end
        pairs = []
        while True:
            if adjacent >= anywhere - 1:
                row, column = row - 1, column - 1
            else:
                row, column = self._nearest(row, column, anywhere)
            if row < 0 or column < 0:
                break
            pairs.append((row, column))
            at, score = self._rows(row)
            place = int(np.searchsorted(at, column))
            before = int(score[place]) - int(self._weight(row, at[place : place + 1])[0]) * self.scale
            adjacent = before if self._ends_with(row - 1, column - 1, before) else _NEVER
            anywhere = before + 1
        return np.array(pairs[::-1], dtype=np.int64).reshape(-1, 2).T

    def _ends_with(self, row: int, column: int, score: int) -> bool:
        if row < 0 or column < 0:
            return row == column and score == 0
        at, scores = self._rows(row)
        place = int(np.searchsorted(at, column))
        return place < len(at) and int(at[place]) == column and int(scores[place]) == score

    def _nearest(self, row: int, column: int, score: int) -> tuple[int, int]:
        """The latest match before a row and a column that has the score; the imagined first one for a score of 0."""
        while score and row > 0:
            row -= 1
            at, scores = self._rows(row)
            found = np.flatnonzero(scores[: np.searchsorted(at, column)] == score)
            if len(found):
                return row, int(at[found[-1]])
        return -1, -1

    def _rows(self, row: int) -> tuple[Ints, Ints]:
        """Columns and scores of a row's matches, computed again block by block."""
        number, rows = self.kept
        if number != row // self.block:
            number, rows = row // self.block, []
            low, best, at, score = self.saved[number]
            state = _State(len(self.y))
            state.best[low : low + len(best)] = best
            if number:
                state.ends[0] = _NEVER
            state.at, state.score = at, score
            state.ends[at + 1] = score
            for again in range(number * self.block, min((number + 1) * self.block, len(self.x))):
                self._advance(again, state)
                rows.append((state.at, state.score))
            self.kept = (number, rows)
        return rows[row % self.block]


class _State:
    """Between two rows. `best[j]`: of all matches so far in columns before j; `ends[j]`: of the row above in j - 1."""

    def __init__(self, columns: int) -> None:
        self.best = np.zeros(columns + 1, dtype=np.int64)
        self.ends = np.full(columns + 1, _NEVER, dtype=np.int64)
        self.ends[0] = 0
        self.at = self.score = np.empty(0, dtype=np.int64)  # what `ends` holds


def _most(x: Calls, y: Calls) -> Ints:
    """The most that 0, 1, … matches can be worth, whatever their order; up to as many as the shorter side has."""
    matches = np.arange(min(len(x), len(y)) + 1)
    total: Ints = MATCH * np.minimum(matches, _shared(x.symbol, y.symbol))
    for one, other in zip(x.levels, y.levels, strict=True):
        total += np.minimum(matches, _shared(one[one != UNTOLD], other[other != UNTOLD]))
    return total


def _shared(one: Ints, other: Ints) -> int:
    """How many of two bags meet."""
    names, counts = np.unique(one, return_counts=True)
    others, more = np.unique(other, return_counts=True)
    _, here, there = np.intersect1d(names, others, assume_unique=True, return_indices=True)
    return int(np.sum(np.minimum(counts[here], more[there])))
