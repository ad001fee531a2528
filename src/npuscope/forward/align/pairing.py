"""Which predicted call is which measured call: in order where both sides have one, then those that only moved.

Calls of one family match, those of equal shapes before others (see `in_order` and `shape_forms`). A call that is left
over on both sides, with equal shapes and no further apart than `REACH` matches, runs at another place of the same
neighbourhood (another stream, another order): it is matched too, and marked as moved. Where a side has counts and no
order, calls match by family and shapes alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.forward.align.in_order import UNTOLD, Calls, Pairs, align_calls
from npuscope.forward.align.kernel_names import families_of, mapped
from npuscope.forward.align.shape_forms import level_texts
from npuscope.forward.align.sides import Side
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


def pair_calls(predicted: Side, measured: Side, pairs: Mapping[str, str] | None = None) -> Pairing:
    """Match the calls of two sides; `pairs` maps predicted kernels or families to measured ones."""
    names, others = predicted.calls["kernel"].to_list(), measured.calls["kernel"].to_list()
    families = families_of(names, others)
    own = mapped(families, names, others, pairs or {})
    ours, theirs = [own[name] for name in names], [families[name] for name in others]
    a, b = _calls(predicted.calls, ours, measured.calls, theirs)
    ordered = predicted.ordered and measured.ordered
    nothing = np.empty(0, dtype=np.int64)
    found = align_calls(a, b) if ordered else Pairs(nothing, nothing, 1.0)
    also = _moved(a, b, found, REACH if ordered else len(a) + len(b))
    both = np.concatenate([np.stack([found.a, found.b]), also], axis=1)
    order = np.argsort(both[1], kind="stable")
    p, m = both[0][order], both[1][order]
    finest = a.levels[-1][p]
    moved = np.isin(m, also[1]) & ordered
    alike = (finest == b.levels[-1][m]) & (finest != UNTOLD)
    return Pairing(p, m, moved, alike, found.of_best, ordered, ours, theirs)


def _calls(a: pl.DataFrame, families_a: list[str], b: pl.DataFrame, families_b: list[str]) -> tuple[Calls, Calls]:
    """Families and shapes as numbers, equal where they are, and in an order that no side decides."""
    texts_a, texts_b = (level_texts(side["shapes"], side["formats"]) for side in (a, b))
    symbols = _numbered(families_a, families_b)
    levels = [
        # one text of shapes means the same only within a family
        _numbered(*(_within(family, level) for family, level in ((families_a, one), (families_b, other))))
        for one, other in zip(texts_a, texts_b, strict=True)
    ]
    first, second = ((symbols[n], tuple(level[n] for level in levels)) for n in (0, 1))
    return Calls(*first), Calls(*second)


def _within(families: list[str], texts: list[str | None]) -> list[str | None]:
    return [None if text is None else f"{family} {text}" for family, text in zip(families, texts, strict=True)]


def _numbered(a: list[str | None] | list[str], b: list[str | None] | list[str]) -> tuple[Ints, Ints]:
    numbers = {text: number for number, text in enumerate(sorted({t for t in (*a, *b) if t is not None}))}
    one, other = (np.array([UNTOLD if t is None else numbers[t] for t in side], dtype=np.int64) for side in (a, b))
    return one, other


def _moved(a: Calls, b: Calls, found: Pairs, reach: int) -> Ints:
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


def _meet(keys: list[Ints], left_a: Ints, left_b: Ints, found: Pairs, reach: int) -> list[tuple[int, int]]:
    waiting: dict[tuple[int, ...], list[int]] = {}
    for place in left_b.tolist():
        waiting.setdefault(tuple(keys[1][:, place].tolist()), []).append(place)
    rank_a, rank_b = (
        np.searchsorted(found.a, left_a),
        dict(zip(left_b.tolist(), np.searchsorted(found.b, left_b).tolist(), strict=True)),
    )
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
    gap_a = np.searchsorted(np.sort(pairing.predicted[in_order]), extra)
    gap_b = np.searchsorted(pairing.measured[in_order], missing)
    left: dict[int, Counter[str]] = {}
    for gap, place in zip(gap_b.tolist(), missing.tolist(), strict=True):
        left.setdefault(gap, Counter())[pairing.measured_families[place]] += 1
    here: dict[int, Counter[str]] = {}
    for gap, place in zip(gap_a.tolist(), extra.tolist(), strict=True):
        here.setdefault(gap, Counter())[pairing.predicted_families[place]] += 1
    together: Counter[tuple[str, str]] = Counter()
    for gap, ours in here.items():
        for family, count in ours.items():
            for other, more in left.get(gap, {}).items():
                together[family, other] += min(count, more)
    total_a = Counter(pairing.predicted_families[place] for place in extra.tolist())
    total_b = Counter(pairing.measured_families[place] for place in missing.tolist())
    return [
        (family, other, count)
        for (family, other), count in together.most_common()
        if family != other and count >= 2 and count >= RENAMED * max(total_a[family], total_b[other])
    ]
