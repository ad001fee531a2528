"""Layers of forward passes: how many attentions one has, where it begins, which rows are its.

A layer may hold several attentions: then the stretches between them come in turns, and the shortest turn that most of
a pass repeats is one layer. A layer begins before its first attention with the kernels that the first layer of a
pass shares with the others, or else with those that the last layer of a pass leaves out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from npuscope.forward.passes.boundaries import Stretches, agreeing
from npuscope.forward.passes.cuts import Bounds
from npuscope.trace.intervals import Ints

REPEATS = 0.7  # of a pass's stretches equal the one a turn later
FARTHEST = 16  # kernels that a pass's first layer may have more before its attention
HEAD, TAIL, OUTSIDE = -1, -2, -3  # layer of a row before the first layer, after the last one, in no pass


@dataclass(frozen=True)
class Layers:
    """`attentions` per layer; `lead` and `trail`: kernels of the main lane before a layer's first attention and
    after its last one; `opening`: the symbol a layer begins with."""

    attentions: int
    lead: int
    trail: int
    opening: int

    def begins(self, found: Stretches, pass_bounds: Bounds) -> tuple[Ints, Ints, Ints]:
        """Where layers begin in the sequence, with the pass and the number of each."""
        anchors, starts = found.anchors, found.starts
        sizes = np.diff(np.append(starts, len(anchors)))
        counts = -(-sizes // self.attentions)
        of_pass = np.repeat(np.arange(len(sizes)), counts)
        number = np.arange(len(of_pass)) - np.repeat(np.cumsum(counts) - counts, counts)
        first = starts[of_pass] + number * self.attentions
        place = found.main_place[first] - self.lead
        for layer in np.flatnonzero(number == 0).tolist():
            place[layer] = self._first_layer(found, int(place[layer]), int(pass_bounds.begin[of_pass[layer]]))
        begin = found.main[np.maximum(place, 0)]
        # a truncated pass begins inside its first layer
        return np.clip(begin, pass_bounds.begin[of_pass], anchors[first]), of_pass, number

    def _first_layer(self, found: Stretches, place: int, begin: int) -> int:
        """Where a pass's first layer begins on the main lane: it may have other kernels there than the next ones."""
        symbols = found.sequence.symbol[found.main[max(place - FARTHEST, 0) : place + self.lead]]
        if not len(symbols) or (place >= 0 and found.sequence.symbol[found.main[place]] == self.opening):
            return place
        like = np.flatnonzero(symbols == self.opening)
        nearest = max(place - FARTHEST, 0) + int(like[-1]) if len(like) else place
        return nearest if found.main[nearest] >= begin else place

    def of_rows(self, found: Stretches, pass_bounds: Bounds) -> tuple[Ints, Ints]:
        """The pass and the layer of each row of the sequence; HEAD, TAIL or OUTSIDE where in no layer."""
        places = np.arange(len(found.sequence))
        in_pass = np.searchsorted(pass_bounds.begin, places, side="right") - 1
        in_pass = np.where((in_pass >= 0) & (places < pass_bounds.end[in_pass]), in_pass, -1)
        begin, of_pass, number = self.begins(found, pass_bounds)
        which = np.searchsorted(begin, places, side="right") - 1
        same = (which >= 0) & (of_pass[which] == in_pass)
        layer = np.where(in_pass < 0, OUTSIDE, np.where(same, number[which], HEAD))
        after = found.main_place[np.append(found.starts[1:], len(found.anchors)) - 1] + self.trail + 1
        # what other lanes run before the main lane's next kernel still belongs to the last layer
        tail = np.append(found.main, len(places))[np.minimum(after, len(found.main))]
        layer[(in_pass >= 0) & (layer >= 0) & (places >= tail[in_pass])] = TAIL
        return in_pass, layer


def layers(found: Stretches, cut: Bounds) -> Layers:
    """What a layer is in this capture, learned from the passes of its most common size."""
    starts = found.starts
    sizes = np.diff(np.append(starts, len(found.anchors)))
    usual = usual_size(sizes)
    typical = np.flatnonzero(sizes == usual)
    turn = _turn(found.kind[starts[typical[len(typical) // 2]] :][: usual - 1], usual)
    lead, trail = _lead(found, cut, turn, starts, typical), _trail(found, cut, turn, starts, typical)
    body = _body(found, turn, starts, typical)
    if body is not None:
        # what the last layer leaves out before the next attention leads; never more than the stretch holds
        lead = min(max(lead, body - trail), body)
        trail = body - lead
    second = int(starts[typical[0]]) + turn  # the first layer may be unlike the others
    place = found.main_place[second if second < len(found.anchors) else -1] - lead
    return Layers(turn, lead, trail, int(found.sequence.symbol[found.main[max(int(place), 0)]]))


def usual_size(sizes: Ints) -> int:
    """The number of attentions of the main model's pass: common and, beside drafts that are more common, large.

    The first and the last pass of a capture may be cut short, but have no more than a whole one.
    """
    edges = max(int(sizes[0]), int(sizes[-1]))
    if len(sizes) < 3:
        return edges
    values, counts = np.unique(sizes[1:-1], return_counts=True)
    return max(edges, int(values[int(np.argmax(values * values * counts))]))


def _turn(kinds: Ints, size: int) -> int:
    for turn in range(1, size // 2 + 1):
        if size % turn == 0 and np.mean(kinds[turn:] == kinds[:-turn]) >= REPEATS:
            return turn
    return 1


def _before(found: Stretches, anchor: int, begin: int = 0) -> Ints:
    """Symbols of the main lane before an anchor, the nearest first, down to the anchor before it or to a row."""
    first = max(found.main_place[anchor - 1] + 1 if anchor > 0 else 0, int(np.searchsorted(found.main, begin)))
    return found.sequence.symbol[found.main[first : found.main_place[anchor]]][::-1]


def _after(found: Stretches, anchor: int, end: int | None = None) -> Ints:
    """Symbols of the main lane after an anchor, up to the next one or to a row."""
    last = found.main_place[anchor + 1] if anchor + 1 < len(found.anchors) else len(found.main)
    if end is not None:
        last = min(last, int(np.searchsorted(found.main, end)))
    return found.sequence.symbol[found.main[found.main_place[anchor] + 1 : last]]


def _body(found: Stretches, turn: int, starts: Ints, typical: Ints) -> int | None:
    """Kernels between the last attention of a layer and the first of the next, most often."""
    lengths = Counter[int]()
    for start, size in _passes(found, starts, typical):
        for anchor in range(start + turn - 1, start + size - 1, turn):
            lengths[int(found.main_place[anchor + 1] - found.main_place[anchor]) - 1] += 1
    return lengths.most_common(1)[0][0] if lengths else None


def _lead(found: Stretches, cut: Bounds, turn: int, starts: Ints, typical: Ints) -> int:
    """Kernels before a pass's first attention that its second layer has as well."""
    return _usual(
        agreeing(_before(found, first, int(begin)), _before(found, first + turn))
        for (first, size), begin in zip(_passes(found, starts, typical), cut.begin[typical], strict=False)
        if size > turn
    )


def _trail(found: Stretches, cut: Bounds, turn: int, starts: Ints, typical: Ints) -> int:
    """Kernels after a pass's last attention that the layer before has as well."""
    return _usual(
        agreeing(_after(found, first + size - 1, int(end)), _after(found, first + size - 1 - turn))
        for (first, size), end in zip(_passes(found, starts, typical), cut.end[typical], strict=False)
        if size > turn
    )


def _usual(numbers: Iterable[int]) -> int:
    counts = Counter(numbers)
    return counts.most_common(1)[0][0] if counts else 0


def _passes(found: Stretches, starts: Ints, which: Ints) -> list[tuple[int, int]]:
    """First anchor and size of some passes; a few dozen teach as much as all."""
    ends = np.append(starts[1:], len(found.anchors))
    return [(int(starts[i]), int(ends[i] - starts[i])) for i in which[:64].tolist()]
