"""Which predicted call is which measured call: in order where both sides have one, then those that only moved.

Calls of one family match (the table of kernels has the names that frameworks share; pairs given by the user come
first), those of equal shapes before others. Two sequences are laid side by side by dynamic programming in a band around
the diagonal. A match is worth `MATCH`, and 1 more for each level of shapes (coarse to fine) that both sides tell and
that is equal; between two alignments of the same worth the one with fewer breaks wins. A path that leaves a band of
half width k skips more than k calls, which bounds what it can be worth: bands grow until the best path is worth that
much, or until one would have more than `cells`; `of_best` says what share of an upper bound the result then reaches.
Turning the two sides around gives the same pairs turned around.

A call that is left over on both sides, with equal shapes and no further apart than `REACH` matches, runs at another
place of the same neighbourhood: it is matched too, and marked as moved. Where a side has counts and no order, calls
match by family and shapes alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.forward.align.sides import PassSide, families_of
from npuscope.trace.intervals import Ints

REACH = 48  # matches between the two places of a call that moved: about a layer
RENAMED = 0.8  # of both families' unmatched calls stand in each other's place


@dataclass(frozen=True)
class Pairing:
    """Positions in the calls of either side; `moved` for pairs out of order. Families are per call."""

    predicted: Ints
    measured: Ints
    moved: NDArray[np.bool_]
    same_shapes: NDArray[np.bool_]  # False also where a side does not tell them
    of_best: float
    ordered: bool  # False where there was no order to go by
    predicted_families: list[str]
    measured_families: list[str]

    @property
    def missing(self) -> Ints:
        """Measured calls without a predicted one."""
        return np.setdiff1d(np.arange(len(self.measured_families)), self.measured)

    @property
    def extra(self) -> Ints:
        """Predicted calls without a measured one."""
        return np.setdiff1d(np.arange(len(self.predicted_families)), self.predicted)


def pair_calls(predicted: PassSide, measured: PassSide, pairs: Mapping[str, str] | None = None) -> Pairing:
    """Match the calls of two sides; `pairs` maps predicted kernels or families to measured ones."""
    names, others = predicted.calls["kernel"].to_list(), measured.calls["kernel"].to_list()
    families = families_of(names, others)
    own = mapped(families, names, others, pairs or {})
    ours, theirs = [own[name] for name in names], [families[name] for name in others]
    a, b = _calls(predicted.calls, ours, measured.calls, theirs)
    ordered = predicted.ordered and measured.ordered
    nothing = np.empty(0, dtype=np.int64)
    found = align_calls(a, b) if ordered else AlignedPairs(nothing, nothing, 1.0)
    also = _moved(a, b, found, REACH if ordered else len(a) + len(b))
    both = np.concatenate([np.stack([found.a, found.b]), also], axis=1)
    order = np.argsort(both[1], kind="stable")
    p, m = both[0][order], both[1][order]
    finest = a.levels[-1][p]
    moved = np.isin(m, also[1]) & ordered
    alike = (finest == b.levels[-1][m]) & (finest != NOT_GIVEN)
    return Pairing(p, m, moved, alike, found.of_best, ordered, ours, theirs)


def _calls(a: pl.DataFrame, families_a: list[str], b: pl.DataFrame, families_b: list[str]) -> tuple[Calls, Calls]:
    """Families and shapes as numbers, equal where they are, and in an order that no side decides."""
    sides = [(families_a, level_texts(a["shapes"], a["formats"])), (families_b, level_texts(b["shapes"], b["formats"]))]
    found: list[list[Ints]] = [[], []]
    for level in range(-1, len(LEVELS)):
        # one text of shapes means the same only within a family
        texts = [
            [
                f"{family} {text}" if text is not None else None
                for family, text in zip(families, levels[level], strict=True)
            ]
            if level >= 0
            else families
            for families, levels in sides
        ]
        numbers = {text: n for n, text in enumerate(sorted({t for side in texts for t in side if t is not None}))}
        for side, row in zip(found, texts, strict=True):
            side.append(np.array([NOT_GIVEN if t is None else numbers[t] for t in row], dtype=np.int64))
    first, second = (Calls(side[0], tuple(side[1:])) for side in found)
    return first, second


def _moved(a: Calls, b: Calls, found: AlignedPairs, reach: int) -> Ints:
    """Calls left over on both sides that are alike; the nth of a kind meets the nth within reach.

    With no order to go by (`reach` spans everything), what is left then meets by family alone.
    """
    left_a, left_b = np.setdiff1d(np.arange(len(a)), found.a), np.setdiff1d(np.arange(len(b)), found.b)
    pairs: list[tuple[int, int]] = []
    keys = [np.stack([a.symbol, a.levels[-1]]), np.stack([b.symbol, b.levels[-1]])]
    pairs += _meet(keys, left_a, left_b, found, reach)
    if reach >= len(a) + len(b) and len(left_a) and len(left_b):
        taken = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        left_a, left_b = np.setdiff1d(left_a, taken[:, 0]), np.setdiff1d(left_b, taken[:, 1])
        pairs += _meet([a.symbol[None], b.symbol[None]], left_a, left_b, found, reach)
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T


def _meet(keys: list[Ints], left_a: Ints, left_b: Ints, found: AlignedPairs, reach: int) -> list[tuple[int, int]]:
    waiting: dict[tuple[int, ...], list[int]] = {}
    for place in left_b.tolist():
        waiting.setdefault(tuple(keys[1][:, place].tolist()), []).append(place)
    rank_a = np.searchsorted(found.a, left_a)
    rank_b = dict(zip(left_b.tolist(), np.searchsorted(found.b, left_b).tolist(), strict=True))
    pairs = []
    for place, rank in zip(left_a.tolist(), rank_a.tolist(), strict=True):
        queue = waiting.get(tuple(keys[0][:, place].tolist()), [])
        while queue and rank_b[queue[0]] < rank - reach:
            queue.pop(0)
        if queue and rank_b[queue[0]] <= rank + reach:
            pairs.append((place, queue.pop(0)))
    return pairs


def perhaps_renamed(pairing: Pairing) -> list[tuple[str, str, int]]:
    """Families of which nearly all unmatched calls stand in each other's place: (predicted, measured, calls)."""
    in_order = ~pairing.moved
    if 2 * len(pairing.measured) < len(pairing.measured_families):
        return []  # two unlike models: what stands where says nothing
    extra, missing = pairing.extra, pairing.missing
    here, there = (
        pl.DataFrame({"gap": np.searchsorted(np.sort(matched), left), "family": [families[n] for n in left.tolist()]})
        for matched, left, families in (
            (pairing.predicted[in_order], extra, pairing.predicted_families),
            (pairing.measured[in_order], missing, pairing.measured_families),
        )
    )
    total_a, total_b = Counter(here["family"]), Counter(there["family"])
    here, there = (side.group_by("gap", "family").len() for side in (here, there))
    pairs = (
        here.join(there, on="gap")
        .group_by("family", "family_right")
        .agg(count=pl.min_horizontal("len", "len_right").sum())
    )
    return [
        (family, other, count)
        for family, other, count in pairs.sort(
            "count", "family", "family_right", descending=[True, False, False]
        ).rows()
        if family != other and count >= 2 and count >= RENAMED * max(total_a[family], total_b[other])
    ]


MATCH = 4  # more than all levels of a pair together: two matches outweigh one of equal shapes
CELLS = 400_000_000  # of one band: some seconds, and 16 bytes for each that is a match
NARROWEST = 64
NOT_GIVEN = -1
_NEVER = -(2**62)


@dataclass(frozen=True)
class Calls:
    """Symbols and levels as numbers that mean the same on both sides; NOT_GIVEN where a level is not told."""

    symbol: Ints
    levels: tuple[Ints, ...] = ()

    def take(self, kept: Ints | NDArray[np.bool_] | slice) -> Calls:
        return Calls(self.symbol[kept], tuple(level[kept] for level in self.levels))

    def __len__(self) -> int:
        return len(self.symbol)


@dataclass(frozen=True)
class AlignedPairs:
    """Positions of matched calls on either side, rising in both.

    `of_best` is 1 where no alignment is better, else what it is worth against a bound that none can exceed.
    """

    a: Ints
    b: Ints
    of_best: float


def align_calls(a: Calls, b: Calls, cells: int = CELLS) -> AlignedPairs:
    """The best alignment of two sequences; `cells` bounds the work."""
    if _goes_second(a, b):
        turned = align_calls(b, a, cells)
        return AlignedPairs(turned.b, turned.a, turned.of_best)
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
    return AlignedPairs(in_a[both[0]], in_b[both[1]], of_best)


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
        self.rows: list[tuple[Ints, Ints]] = []  # columns and scores of every row's matches

    def run(self) -> int:
        """The best score."""
        order = np.argsort(self.y.symbol, kind="stable")
        symbols, first = np.unique(self.y.symbol[order], return_index=True)
        places = dict(zip(symbols.tolist(), np.split(order, first[1:]), strict=True))
        # best[j]: of all matches so far in columns before j; ends[j]: of the row above in j - 1
        best = np.zeros(len(self.y) + 1, dtype=np.int64)
        ends = np.full(len(self.y) + 1, _NEVER, dtype=np.int64)
        ends[0] = 0
        before = np.empty(0, dtype=np.int64)
        for row in range(len(self.x)):
            low, high = max(row + self.low, 0), min(row + self.high, len(self.y) - 1)
            columns = places.get(int(self.x.symbol[row]), before[:0])
            at = columns[np.searchsorted(columns, low) : np.searchsorted(columns, high, side="right")]
            score = np.maximum(ends[at], best[at] - 1) + self._weight(row, at) * self.scale
            ends[before + 1] = _NEVER
            ends[0] = _NEVER
            ends[at + 1] = score
            before = at
            self.rows.append((at, score))
            if len(at):
                rise = np.full(high + 1 - int(at[0]), _NEVER, dtype=np.int64)
                rise[at - at[0]] = score
                here = best[at[0] + 1 : high + 2]
                np.maximum(here, np.maximum.accumulate(rise), out=here)
            best[high + 1] = max(best[high + 1], best[high])  # a column the band has just reached
        self.end = int(ends[-1]), int(best[-1])
        return max(self.end[0], self.end[1] - 1)

    def _weight(self, row: int, at: Ints) -> Ints:
        weight = np.full(len(at), MATCH, dtype=np.int64)
        for one, other in zip(self.x.levels, self.y.levels, strict=True):
            if one[row] != NOT_GIVEN:
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
            at, score = self.rows[row]
            place = int(np.searchsorted(at, column))
            before = int(score[place]) - int(self._weight(row, at[place : place + 1])[0]) * self.scale
            adjacent = before if self._ends_with(row - 1, column - 1, before) else _NEVER
            anywhere = before + 1
        return np.array(pairs[::-1], dtype=np.int64).reshape(-1, 2).T

    def _ends_with(self, row: int, column: int, score: int) -> bool:
        if row < 0 or column < 0:
            return row == column and score == 0
        at, scores = self.rows[row]
        place = int(np.searchsorted(at, column))
        return place < len(at) and int(at[place]) == column and int(scores[place]) == score

    def _nearest(self, row: int, column: int, score: int) -> tuple[int, int]:
        """The latest match before a row and a column that has the score; the imagined first one for a score of 0."""
        while score and row > 0:
            row -= 1
            at, scores = self.rows[row]
            found = np.flatnonzero(scores[: np.searchsorted(at, column)] == score)
            if len(found):
                return row, int(at[found[-1]])
        return -1, -1


def _most(x: Calls, y: Calls) -> Ints:
    """The most that 0, 1, … matches can be worth, whatever their order; up to as many as the shorter side has."""
    matches = np.arange(min(len(x), len(y)) + 1)
    total: Ints = MATCH * np.minimum(matches, _shared(x.symbol, y.symbol))
    for one, other in zip(x.levels, y.levels, strict=True):
        total += np.minimum(matches, _shared(one[one != NOT_GIVEN], other[other != NOT_GIVEN]))
    return total


def _shared(one: Ints, other: Ints) -> int:
    """How many of two bags meet."""
    names, counts = np.unique(one, return_counts=True)
    others, more = np.unique(other, return_counts=True)
    _, here, there = np.intersect1d(names, others, assume_unique=True, return_indices=True)
    return int(np.sum(np.minimum(counts[here], more[there])))


def mapped(families: Mapping[str, str], predicted: Iterable[str], measured: Iterable[str],
           pairs: Mapping[str, str]) -> dict[str, str]:  # fmt: skip
    """The families of predicted names, where the user's pairs (predicted name or family = measured one) come first."""
    asked = dict.fromkeys(predicted)
    there = {*measured} | {families[name] for name in measured}
    given: dict[str, str] = {}
    for ours, theirs in pairs.items():
        found = [name for name in asked if ours in (name, families[name])]
        if not found or theirs not in there:
            side, name = ("prediction", ours) if not found else ("measured pass", theirs)
            raise NpuscopeError(f"--map: '{name}' is no kernel of the {side}", remedy="It takes predicted=measured.")
        given |= dict.fromkeys(found, families.get(theirs, theirs))
    return {name: given.get(name, families[name]) for name in asked}


Form = tuple[tuple[int, ...], ...]
LEVELS = (1, 2, None)  # tensors that count: the first, the first two, all of them
_LISTED = re.compile(r"[\[(]([\d,\sx]*)[\])]")
_TILES = ((16, 16), (16, 32))


@lru_cache(maxsize=65536)
def form_of(shapes: str, formats: str = "") -> Form:
    """The form of a call's input shapes; empty where nothing is told, or nothing that can be read."""
    text = shapes.strip().strip('"')
    slots = _LISTED.findall(text) if "[" in text or "(" in text else text.split(";")
    words = formats.strip().strip('"').split(";")
    found = []
    for number, slot in enumerate(slots):
        numbers = re.split(r"[,x\s]+", slot.strip())
        if not slot.strip() or not all(n.isdecimal() and len(n) < 19 for n in numbers if n):
            continue
        dims = tuple(int(n) for n in numbers if n)
        word = words[number] if number < len(words) else ""
        found.append(tuple(sorted(d for d in _logical(dims, word) if d != 1)))
    return tuple(found)


def _logical(dims: tuple[int, ...], word: str) -> tuple[int, ...]:
    """The matrix behind an NZ storage shape (…, columns/n0, rows/m0, m0, n0)."""
    layout = word.removeprefix("FORMAT_")
    is_nz = layout in ("FRACTAL_NZ", "NZ") or (layout in ("", "N/A") and dims[-2:] in _TILES)
    if not is_nz or len(dims) < 4:
        return dims
    *batch, columns, rows, m0, n0 = dims
    return (*batch, rows * m0, columns * n0)


def level_texts(shapes: pl.Series, formats: pl.Series) -> list[list[str | None]]:
    """For each level a text per call, equal where the calls are alike on that level; None where it is not told."""
    forms = [form_of(s, f or "") if s else () for s, f in zip(shapes.to_list(), formats.to_list(), strict=True)]
    return [[str(form[:count]) if form else None for form in forms] for count in LEVELS]
