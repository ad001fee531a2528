"""The pass and the layer of every row."""

from __future__ import annotations

import numpy as np

from npuscope.explain.passes.boundaries import NEAR, Stretches, agreeing
from npuscope.explain.passes.cuts import Bounds
from npuscope.explain.passes.layers import Layer, after
from npuscope.trace.intervals import Ints

FARTHEST = 16  # kernels that a pass's first layer may have more before its attention
HEAD, TAIL, OUTSIDE = -1, -2, -3  # layer of a row before the first layer, after the last one, in no pass


def pass_and_layer(found: Stretches, cut: Bounds, layers: list[Layer]) -> tuple[Ints, Ints]:
    """Of each row of the sequence its pass, -1 for none, and its layer; HEAD, TAIL or OUTSIDE where in none."""
    places = np.arange(len(found.sequence))
    in_pass = np.searchsorted(cut.begin, places, side="right") - 1
    in_pass = np.where((in_pass >= 0) & (places < cut.end[in_pass]), in_pass, -1)
    begin, of_pass, number = _begins(found, cut, layers)
    which = np.searchsorted(begin, places, side="right") - 1
    same = (which >= 0) & (of_pass[which] == in_pass)
    layer = np.where(in_pass < 0, OUTSIDE, np.where(same, number[which], HEAD))
    trail = np.array([_trail(found, cut, layer, place) for place, layer in enumerate(layers)])
    end = found.main_place[np.append(found.starts[1:], len(found.anchors)) - 1] + trail + 1
    # what other lanes run before the main lane's next kernel still belongs to the last layer
    tail = np.append(found.main, len(places))[np.minimum(end, len(found.main))]
    layer[(in_pass >= 0) & (layer >= 0) & (places >= tail[in_pass])] = TAIL
    return in_pass, layer


def _trail(found: Stretches, cut: Bounds, layer: Layer, place: int) -> int:
    """Kernels after a pass's last attention that are its last layer's: as many as a layer before it has whose kernels
    it shares, since attentions of several kinds may leave more or less behind; else as many as most layers have."""
    first, size, turn = int(found.starts[place]), int(found.sizes[place]), layer.attentions
    mine = after(found, first + size - 1, int(cut.end[place]))
    for near in range(turn, min(size, NEAR * turn + 1), turn):
        other = after(found, first + size - 1 - near)
        own = len(other) - layer.lead
        if own > 0 and agreeing(mine, other[:own]) == own:
            return own
    return layer.trail


def _begins(found: Stretches, cut: Bounds, layers: list[Layer]) -> tuple[Ints, Ints, Ints]:
    """Where layers begin in the sequence, with the pass and the number of each."""
    anchors, starts, sizes = found.anchors, found.starts, found.sizes
    turn, lead = (np.array([getattr(layer, name) for layer in layers]) for name in ("attentions", "lead"))
    missing = np.zeros(len(sizes), dtype=np.int64)
    missing[0] = -sizes[0] % turn[0]  # the capture's first pass may begin inside a layer
    counts = -(-sizes // turn)
    of_pass = np.repeat(np.arange(len(sizes)), counts)
    number = np.arange(len(of_pass)) - np.repeat(np.cumsum(counts) - counts, counts)
    first = starts[of_pass] + np.maximum(number * turn[of_pass] - missing[of_pass], 0)
    place = found.main_place[first] - lead[of_pass]
    for n in np.flatnonzero(number == 0).tolist():
        place[n] = _first_layer(found, layers[of_pass[n]], int(place[n]), int(cut.begin[of_pass[n]]))
    begin = found.main[np.maximum(place, 0)]
    # a truncated pass begins inside its first layer
    return np.clip(begin, cut.begin[of_pass], anchors[first]), of_pass, number


def _first_layer(found: Stretches, layer: Layer, place: int, begin: int) -> int:
    """Where a pass's first layer begins on the main lane: it may have other kernels there than the next ones."""
    symbols = found.sequence.symbol[found.main[max(place - FARTHEST, 0) : place + layer.lead]]
    if not len(symbols) or (place >= 0 and found.sequence.symbol[found.main[place]] == layer.opening):
        return place
    like = np.flatnonzero(symbols == layer.opening)
    nearest = max(place - FARTHEST, 0) + int(like[-1]) if len(like) else place
    return nearest if found.main[nearest] >= begin else place
