"""Which stretches between two anchors hold the end of one forward pass and the begin of the next.

Tried in this order, and the answer says which one it was:

* steps: the two anchors are in different steps;
* sampling or embedding: a kernel ran that ends or begins a pass. Types that run in most stretches are a layer's;
* novelty: the stretch is of a kind that does not recur every few layers, and holds kernels a layer does not have;
* pause: the device stood still far longer than between any other anchors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from npuscope.chip.kernels import landmark_of, rule_of
from npuscope.explain.passes.sequence import Flags, Keys, Sequence, main_lane
from npuscope.trace.intervals import Ints, largest

NEAR = 4  # stretches of one kind this close to one another belong to layers
NOVEL = 3  # kernels that no layer has
LONGER = 3.0  # times the pauses of layers
MOST_LAYERS = 0.5  # share of stretches above which a mark is a layer's own kernel
STANDSTILL = 5.0  # times the next shorter pause
# families that tell what a layer computes, beside its attention
PRODUCTS = ("gemm", "quant_matmul", "grouped_matmul", "moe_exchange", "moe_routing", "mla_prolog")


@dataclass(frozen=True)
class Stretches:
    """The stretches between neighbouring anchors of the main lane; `kind` numbers equal ones."""

    sequence: Sequence
    anchors: Ints  # places in the sequence, on the main lane
    kind: Ints
    boundary: Flags
    rule: str  # what told passes apart

    @property
    def starts(self) -> Ints:
        """The anchor that each pass begins with, as a number of anchors."""
        return np.append(0, np.flatnonzero(self.boundary) + 1)

    @property
    def sizes(self) -> Ints:
        """Anchors of each pass."""
        return np.diff(np.append(self.starts, len(self.anchors)))

    @cached_property
    def usual_pause(self) -> float:
        """A pause that most layers have none longer than, in nanoseconds."""
        pauses = _longest_pauses(self.sequence, self.anchors)[~self.boundary]
        return float(np.quantile(pauses, 0.75)) if len(pauses) else 0.0

    @cached_property
    def products(self) -> Ints:
        """As `kind`, for the products alone, whatever their sizes: one for layers that differ in their attention."""
        wanted = [PRODUCTS.index(family) if family in PRODUCTS else -1 for family in self._families]
        symbol = np.array(wanted, dtype=np.int64)[self.sequence.symbol[self.main]]
        places = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(symbol >= 0)])[self.main_place]
        keys = Keys(symbol[symbol >= 0]).of(places[:-1], places[1:])
        return np.unique(keys, return_inverse=True)[1].astype(np.int64).reshape(-1)

    @property
    def _families(self) -> list[str]:
        return [rule_of(name).family for name in self.sequence.names]

    def shared(self, stretch: int) -> tuple[int, int]:
        """Of a boundary: the last row its begin shares with a layer before, the first row its end does with one after.

        Shared are equal kernels of the main lane, counted from the anchors. Without such layers: the anchors.
        """
        here = self._main(stretch)
        before = [self._main(i) for i in range(stretch - NEAR, stretch) if i >= 0 and not self.boundary[i]]
        after = [
            self._main(i) for i in range(stretch + 1, min(stretch + 1 + NEAR, len(self.kind))) if not self.boundary[i]
        ]
        symbol = self.sequence.symbol
        head = max((agreeing(symbol[here], symbol[other]) for other in before), default=0)
        tail = max((agreeing(symbol[here][::-1], symbol[other][::-1]) for other in after), default=0)
        low = int(self.anchors[stretch]) if head == 0 else int(here[head - 1])
        high = int(self.anchors[stretch + 1]) if tail == 0 else int(here[-tail])
        return low, high

    @cached_property
    def main(self) -> Ints:
        """Rows of the lane the anchors ran on."""
        return np.flatnonzero(self.sequence.lane == self.sequence.lane[self.anchors[0]])

    @cached_property
    def main_place(self) -> Ints:
        """The place of each anchor among the rows of the main lane."""
        return np.searchsorted(self.main, self.anchors)

    def _main(self, stretch: int) -> Ints:
        """Rows of the main lane in a stretch."""
        return self.main[self.main_place[stretch] : self.main_place[stretch + 1]]


def stretches(sequence: Sequence, anchors: Ints, of_attention: bool = True) -> Stretches:
    """The stretches between anchors, with those that separate passes told apart."""
    lane = main_lane(sequence, anchors)
    anchors = anchors[sequence.lane[anchors] == lane]
    main = np.flatnonzero(sequence.lane == lane)
    places = np.searchsorted(main, anchors)
    keys = Keys(sequence.symbol[main]).of(places[:-1], places[1:])
    kind = np.unique(keys, return_inverse=True)[1].astype(np.int64).reshape(-1)
    boundary, rule = _boundaries(sequence, anchors, kind, of_attention)
    return Stretches(sequence, anchors, kind, boundary, rule)


def _boundaries(sequence: Sequence, anchors: Ints, kind: Ints, of_attention: bool) -> tuple[Flags, str]:
    new_step = np.diff(sequence.step[anchors]) != 0
    marked = _marked(sequence, anchors)
    if sequence.has_steps:
        # a mark between attentions of one step: a draft's pass beside the main one
        return new_step | (marked & of_attention), "step"
    if marked.any():
        return marked, "sampling and embedding"
    novel = _novel(sequence, anchors, kind)
    if novel.any():
        return novel, "kernels that layers do not have"
    paused = _paused(_longest_pauses(sequence, anchors))
    return paused, "pauses" if paused.any() else "whole capture"


def _marked(sequence: Sequence, anchors: Ints) -> Flags:
    """Stretches with a sampling kernel, or with an embedding that is not a layer's."""
    result = _holds(sequence.landmarks("sampling"), anchors)
    for symbol, name in enumerate(sequence.names):
        if landmark_of(name) == "embedding":
            rows = sequence.symbol == symbol
            if not in_most(rows, anchors):
                result |= _holds(rows, anchors)
    return result


def in_most(rows: Flags, anchors: Ints) -> bool:
    """True when most stretches have such a row: then it is a layer's."""
    there = _holds(rows, anchors)
    return bool(there.sum() > MOST_LAYERS * len(there))


def _holds(rows: Flags, anchors: Ints) -> Flags:
    """Stretches in which any of the rows is."""
    before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(rows)])
    there: Flags = before[anchors[1:]] > before[anchors[:-1]]
    return there


def _novel(sequence: Sequence, anchors: Ints, kind: Ints) -> Flags:
    result = np.zeros(len(kind), dtype=bool)
    recurring = np.zeros(largest(kind) + 1, dtype=bool)
    for distance in range(1, NEAR + 1):
        recurring[kind[distance:][kind[distance:] == kind[:-distance]]] = True
    odd = np.flatnonzero(~recurring[kind])
    known = np.unique(kind[recurring[kind]])
    if not len(odd) or not len(known):
        return result
    layers = [_counts(sequence, anchors, int(np.argmax(kind == k))) for k in known[:8]]
    novelty = np.array([min(_surplus(_counts(sequence, anchors, i), layer) for layer in layers) for i in odd.tolist()])
    pause = _longest_pauses(sequence, anchors)
    usual = float(np.quantile(pause[recurring[kind]], 0.95))
    paused = pause[odd] > LONGER * max(usual, 1.0)
    enough = novelty >= NOVEL
    if (enough & paused).any():
        enough &= paused
    elif enough.any():  # a model's only dense layer is novel too, but has no head and no tail
        enough &= novelty >= novelty.max() / 2
    result[odd[enough]] = True
    return result


def agreeing(a: Ints, b: Ints) -> int:
    """How many symbols two stretches have in common at their begin."""
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n


def _counts(sequence: Sequence, anchors: Ints, stretch: int) -> Ints:
    inside = sequence.symbol[anchors[stretch] : anchors[stretch + 1]]
    return np.bincount(inside, minlength=len(sequence.names))


def _surplus(counts: Ints, layer: Ints) -> int:
    return int(np.maximum(counts - layer, 0).sum())


def _longest_pauses(sequence: Sequence, anchors: Ints) -> NDArray[np.int64]:
    """The longest time without work in each stretch."""
    if len(anchors) < 2:
        return np.zeros(0, dtype=np.int64)
    pauses: NDArray[np.int64] = np.maximum.reduceat(sequence.pause[: anchors[-1] + 1], anchors[:-1] + 1)
    return np.maximum(pauses, 0)


def _paused(pause: NDArray[np.int64]) -> Flags:
    """Stretches whose pause is far above all shorter ones, if they make passes of one size."""
    if len(pause) < 2:
        return np.zeros(len(pause), dtype=bool)
    ordered = np.sort(np.maximum(pause, 1)).astype(np.float64)
    ratio = ordered[1:] / ordered[:-1]
    half = len(ordered) // 2  # most stretches are layers
    best = half + int(np.argmax(ratio[half:])) if len(ratio[half:]) else half
    if best >= len(ratio) or ratio[best] < STANDSTILL:
        return np.zeros(len(pause), dtype=bool)
    paused: Flags = pause >= ordered[best + 1]
    sizes = np.diff(np.concatenate([[-1], np.flatnonzero(paused), [len(pause)]]))
    inner = sizes[1:-1] if len(sizes) > 2 else sizes
    even = np.all(inner == inner[0]) and np.all(sizes <= inner[0])
    return paused if even else np.zeros(len(pause), dtype=bool)
