"""What a layer is, and the pass and layer of every row.

A layer has one attention, of whatever kind: sliding and full ones that take turns are a layer each. Only where the
products between attentions come in turns (LongCat: with experts and without) is the shortest turn that most of a pass
repeats one layer. A layer begins before its first attention with the kernels that the first layer of a pass shares with
the others, or else with those that the last layer of a pass leaves out. Passes that share no kind of stretch, such as
prefill and decode of some models, have layers of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from npuscope.base.frozen import dataclass
from npuscope.explain.passes.cuts import Bounds
from npuscope.explain.passes.sequence import NEAR, Stretches, agreeing
from npuscope.trace.intervals import Ints, counting

ENOUGH = 64  # passes teach as much as all
ALONE = -1  # the kind of passes with one attention
MOST_ATTENTIONS = 8  # of one layer
CLEARLY = 0.3  # of the stretches more must equal the one a turn later to call a longer turn a layer
FARTHEST = 16  # kernels that a pass's first layer may have more before its attention
HEAD, TAIL, OUTSIDE = -1, -2, -3  # layer of a row before the first layer, after the last one, in no pass


@dataclass(frozen=True)
class Layer:
    """`attentions` of one layer; `lead` and `trail`: kernels of the main lane before its first attention and after
    its last one; `opening`: the symbol it begins with."""

    attentions: int
    lead: int
    trail: int
    opening: int


A_FEW_MORE = 1.1  # times the attentions of a pass


def alike(found: Stretches) -> list[int]:
    """A number for each pass, the same for passes that have a kind of stretch in common."""
    group_of: dict[int, int] = {}  # kind -> the pass whose group it is in
    leader = list(range(len(found.starts)))

    def lead(place: int) -> int:
        while leader[place] != place:
            leader[place] = place = leader[leader[place]]
        return place

    for place, (start, size) in enumerate(zip(found.starts.tolist(), found.sizes.tolist(), strict=True)):
        for kind in set(found.kind[start : start + size - 1].tolist()) or {ALONE}:
            leader[lead(place)] = lead(group_of.setdefault(kind, place))
    return [lead(place) for place in range(len(leader))]


def layers(found: Stretches, cut: Bounds, groups: list[int]) -> list[Layer]:
    """For each pass what its layers are; a pass too short to tell has those of the main model."""
    main = groups[int(np.argmax(found.sizes))]
    learned: dict[int, Layer] = {}
    for group in sorted(set(groups), key=lambda g: g != main):  # the main model first
        mine = np.array([place for place, of in enumerate(groups) if of == group])
        layer = _learn(found, cut, mine)
        learned[group] = learned[main] if layer is None else layer
    return [learned[group] for group in groups]


def _learn(found: Stretches, cut: Bounds, mine: Ints) -> Layer | None:
    """What the passes of the most common size among some teach; None where no pass has two layers."""
    starts, sizes = found.starts, found.sizes
    usual = usual_size(sizes[mine])
    typical = mine[sizes[mine] == usual][:ENOUGH]
    firsts = starts[typical].tolist()
    turn = _turn([found.products[first : first + usual - 1] for first in firsts])
    if usual <= turn:
        return Layer(1, 0, 0, -1) if len(mine) == len(sizes) else None
    near = range(turn, min(usual, NEAR * turn + 1), turn)
    lasts = [first + usual - 1 for first in firsts]
    # kernels before a pass's first attention, and after its last one, that another of its layers has as well
    lead = _most_common(
        max(agreeing(_before(found, first, begin), _before(found, first + n)) for n in near)
        for first, begin in zip(firsts, cut.begin[typical].tolist(), strict=True)
    )
    trail = _most_common(
        max(agreeing(_after(found, last, end), _after(found, last - n)) for n in near)
        for last, end in zip(lasts, cut.end[typical].tolist(), strict=True)
    )
    gap = np.diff(found.main_place) - 1
    ends = (anchor for first in firsts for anchor in range(first + turn - 1, first + usual - 1, turn))
    body = _most_common(int(gap[anchor]) for anchor in ends)
    # what the last layer leaves out before the next attention leads; never more than the stretch holds
    lead = min(max(lead, body - trail), body)
    place = int(found.main_place[firsts[0] + turn]) - lead  # the first layer may be unlike the others
    return Layer(turn, lead, body - lead, int(found.sequence.symbol[found.main[max(place, 0)]]))


def usual_size(sizes: Ints) -> int:
    """The number of attentions of the main model's pass: common and, beside drafts that are more common, large.

    The first and the last pass of a capture may be cut short, but have no more than a whole one, but for a few of
    another model that nothing parts from it (the decoder of images after the last step of a diffusion).
    """
    edges = max(int(sizes[0]), int(sizes[-1]))
    if len(sizes) < 3:
        return edges
    values, counts = np.unique(sizes[1:-1], return_counts=True)
    common = int(np.argmax(values * values * counts))
    inner = int(values[common])
    return inner if counts[common] > 1 and edges <= A_FEW_MORE * inner else max(edges, inner)


def _turn(kinds: list[Ints]) -> int:
    """After how many attentions the stretches of passes repeat; fewer unless more explain clearly more of them."""
    shares = {}
    for turn in range(1, MOST_ATTENTIONS + 1):
        same = [own[turn:] == own[:-turn] for own in kinds if len(own) + 1 >= 2 * turn]
        if sum(map(len, same)):
            shares[turn] = float(np.mean(np.concatenate(same)))
    best = max(shares.values(), default=0.0)
    return next((turn for turn, share in shares.items() if share >= best - CLEARLY), 1)


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


def _most_common(numbers: Iterable[int]) -> int:
    return Counter(numbers).most_common(1)[0][0]


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
    end = found.main_place[found.starts + found.sizes - 1] + trail + 1
    # what other lanes run before the main lane's next kernel still belongs to the last layer
    tail = np.append(found.main, len(places))[np.minimum(end, len(found.main))]
    layer[(in_pass >= 0) & (layer >= 0) & (places >= tail[in_pass])] = TAIL
    return in_pass, layer


def _trail(found: Stretches, cut: Bounds, layer: Layer, place: int) -> int:
    """Kernels after a pass's last attention that are its last layer's: as many as a layer before it has whose kernels
    it shares, since attentions of several kinds may leave more or less behind; else as many as most layers have."""
    size, turn = int(found.sizes[place]), layer.attentions
    last = int(found.starts[place]) + size - 1
    mine = _after(found, last, int(cut.end[place]))
    for near in range(turn, min(size, NEAR * turn + 1), turn):
        other = _after(found, last - near)
        own = len(other) - layer.lead
        if own > 0 and agreeing(mine, other[:own]) == own:
            return own
    return layer.trail


def _begins(found: Stretches, cut: Bounds, layers: list[Layer]) -> tuple[Ints, Ints, Ints]:
    """Where layers begin in the sequence, with the pass and the number of each."""
    sizes = found.sizes
    turn, lead = (np.array([getattr(layer, name) for layer in layers]) for name in ("attentions", "lead"))
    missing = np.zeros(len(sizes), dtype=np.int64)
    missing[0] = -sizes[0] % turn[0]  # the capture's first pass may begin inside a layer
    counts = -(-sizes // turn)
    of_pass = np.repeat(np.arange(len(sizes)), counts)
    number = counting(counts)
    first = found.starts[of_pass] + np.maximum(number * turn[of_pass] - missing[of_pass], 0)
    place = found.main_place[first] - lead[of_pass]
    for n in np.flatnonzero(number == 0).tolist():
        place[n] = _first_layer(found, layers[of_pass[n]], int(place[n]), int(cut.begin[of_pass[n]]))
    begin = found.main[np.maximum(place, 0)]
    # a truncated pass begins inside its first layer
    return np.clip(begin, cut.begin[of_pass], found.anchors[first]), of_pass, number


def _first_layer(found: Stretches, layer: Layer, place: int, begin: int) -> int:
    """Where a pass's first layer begins on the main lane: it may have other kernels there than the next ones."""
    first = max(place - FARTHEST, 0)
    symbols = found.sequence.symbol[found.main[first : place + layer.lead]]
    if not len(symbols) or (place >= 0 and found.sequence.symbol[found.main[place]] == layer.opening):
        return place
    like = np.flatnonzero(symbols == layer.opening)
    nearest = first + int(like[-1]) if len(like) else place
    return nearest if found.main[nearest] >= begin else place
