"""Where exactly one forward pass ends and the next begins, inside the stretch that holds both.

The cut lies after the last sampling kernel and before the first embedding, after what the last layer shares with
the other layers and before what the first one shares with them: there, at the longest pause. Passes of one size
begin with the same kernel; where a pause misleads, the kernel most of them begin with decides.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from npuscope.base.frozen import dataclass
from npuscope.chip.kernels import landmark_of
from npuscope.explain.passes.sequence import LONGER, Flags, Sequence, Stretches, in_most
from npuscope.trace.intervals import Ints


@dataclass(frozen=True)
class Bounds:
    """Passes as places of the sequence: rows [begin, end) and anchors first..last, with an entry per pass."""

    begin: Ints
    end: Ints
    first: Ints
    last: Ints


@dataclass(frozen=True)
class _Region:
    """Rows of which one begins the next pass; `otherwise` is that row if no pause tells it."""

    lowest: int
    highest: int
    otherwise: int


def bounds(found: Stretches) -> Bounds:
    """The rows of each pass; those before the first and after the last pass are left to none."""
    sequence, anchors = found.sequence, found.anchors
    starts = found.starts
    first, last = anchors[starts], anchors[np.append(starts[1:], len(anchors)) - 1]
    by_step = sequence.step[first] >= 0
    begin = np.searchsorted(sequence.step, sequence.step[first], side="left")
    end = np.searchsorted(sequence.step, sequence.step[last], side="right")
    inner = np.flatnonzero(sequence.step[last[:-1]] == sequence.step[first[1:]])  # no step tells these apart
    marked = Landmarks.of(found)
    end[inner] = begin[inner + 1] = _cuts(found, marked, inner)
    if not by_step.any() or len(inner):  # a step with one pass is that pass, whole or not
        begin[0], end[-1] = _first_begin(found, marked, begin), _last_end(found, marked, begin, end)
    return Bounds(begin, end, first, last)


def _cuts(found: Stretches, marked: Landmarks, passes: Ints) -> Ints:
    """The first row of the pass after each of `passes`."""
    sequence, stretch = found.sequence, found.starts[1:] - 1
    ends = _ends(found, marked)
    regions = [_region(found, marked, int(stretch[i]), ends) for i in passes.tolist()]
    choice, sure = [], []
    for region in regions:
        paused = region.lowest + int(np.argmax(sequence.pause[region.lowest : region.highest + 1]))
        sure.append(bool(_long(found, paused, paused + 1)[0]))
        choice.append(paused if sure[-1] else region.otherwise)
    votes: dict[int, Counter[int]] = {}
    sizes = found.sizes[passes + 1].tolist()
    for size, place, certain in zip(sizes, choice, sure, strict=True):
        votes.setdefault(size, Counter())[int(sequence.symbol[place])] += len(regions) if certain else 1
    for number, region in enumerate(regions):
        symbol = votes[sizes[number]].most_common(1)[0][0]
        if sequence.symbol[choice[number]] != symbol:
            choice[number] = _begin(sequence, region, symbol, choice[number])
    return np.array(choice, dtype=np.int64)


def _long(found: Stretches, begin: int, end: int) -> Flags:
    """Rows before which the device stood still for far longer than it does inside layers."""
    long: Flags = found.sequence.pause[begin:end] > LONGER * max(found.usual_pause, 1.0)
    return long


def _begin(sequence: Sequence, region: _Region, symbol: int, otherwise: int) -> int:
    """The row after the longest pause among those of one kernel."""
    like = region.lowest + np.flatnonzero(sequence.symbol[region.lowest : region.highest + 1] == symbol)
    return int(like[int(np.argmax(sequence.pause[like]))]) if len(like) else otherwise


def _ends(found: Stretches, marked: Landmarks) -> tuple[list[int], list[int]]:
    """Symbols of the capture's last tail, from its sampling on, and of its first head, up to its embedding."""
    symbol = found.sequence.symbol
    embedding = first_between(marked.embedding, -1, int(found.anchors[0]))
    tail = symbol[marked.tail(found, len(found.starts) - 1) + 1 :].tolist()
    return tail, [] if embedding is None else symbol[:embedding].tolist()


def _region(found: Stretches, marked: Landmarks, stretch: int, ends: tuple[list[int], list[int]]) -> _Region:
    low, high = int(found.anchors[stretch]), int(found.anchors[stretch + 1])
    lowest, highest = marked.between(low, high)
    # without a pause to go by: where the capture's own first head and last tail meet, or else at the embedding,
    # or right behind sampling
    otherwise = highest if highest < high else lowest
    sampled = last_between(marked.sampling, low, high)
    begin, (tail, head) = low + 1 if sampled is None else sampled + 1, ends
    if highest < high and found.sequence.symbol[begin:highest].tolist() == tail + head:
        otherwise = begin + len(tail)
    shared_after, shared_before = found.shared(stretch)
    lowest = max(lowest, min(shared_after + 1, highest))
    highest = max(lowest, min(highest, shared_before))
    return _Region(lowest, highest, min(max(otherwise, lowest), highest))


def _first_begin(found: Stretches, marked: Landmarks, begin: Ints) -> int:
    """Where the first pass begins: the capture may begin in the tail of another, or with what is no pass's."""
    sequence, anchor = found.sequence, int(found.anchors[0])
    first = int(begin[0])
    others = np.flatnonzero(found.sizes[1:] == found.sizes[0]) + 1
    opening = Counter(sequence.symbol[begin[others if len(others) else slice(1, None)]].tolist()).most_common(1)
    if last_between(marked.sampling, first - 1, anchor) is not None:
        lowest, highest = marked.between(first - 1, anchor)
        own = lowest + int(np.argmax(sequence.pause[lowest : highest + 1]))
        return _begin(sequence, _Region(lowest, highest, own), opening[0][0], own) if opening else own
    if len(others):
        # the last row that has a pause before it, and behind it all openings that a head has
        opens = sequence.symbol == opening[0][0]
        heads = zip(begin[others].tolist(), found.anchors[found.starts[others]].tolist(), strict=True)
        needed = min(int(opens[a:b].sum()) for a, b in heads)
        left = np.cumsum(opens[first:anchor][::-1])[::-1]
        like = np.flatnonzero(opens[first:anchor] & _long(found, first, anchor) & (left >= needed))
        return first + int(like[-1]) if len(like) else first
    # alone: what is farther away than the pass itself is long does not belong to it
    rest = int(sequence.end[found.anchors[-1]]) - sequence.start[first:anchor]
    far = np.flatnonzero(sequence.pause[first:anchor] > rest)
    return first + int(far[-1]) if len(far) else first


def _last_end(found: Stretches, marked: Landmarks, begin: Ints, end: Ints) -> int:
    """Where the last pass ends: the capture may end in the head of another, or with what is no pass's."""
    sequence, last = found.sequence, int(end[-1])
    # what passes have behind their sampling is alike even where their layers differ
    tails = [edge - marked.tail(found, place) for place, edge in enumerate(end[:-1].tolist())]
    tail = marked.tail(found, len(end) - 1)
    if tails:
        sure = tail + min(tails)
        opening = Counter(sequence.symbol[begin[1:]].tolist()).most_common(1)[0][0]
        beyond = np.flatnonzero(_long(found, sure, last) | (sequence.symbol[sure:last] == opening))
        return sure + int(beyond[0]) if len(beyond) else last
    lowest, embedding = marked.between(tail, last)
    if embedding < last and last_between(marked.sampling, tail - 1, last) is not None:
        return lowest + int(np.argmax(sequence.pause[lowest : embedding + 1]))
    so_far = sequence.end[tail:last] - int(sequence.start[found.anchors[0]])
    far = np.flatnonzero(sequence.pause[tail + 1 : last] > so_far[:-1])
    return tail + 1 + int(far[0]) if len(far) else last


@dataclass(frozen=True)
class Landmarks:
    """Rows of the sequence that tell where a pass begins or ends."""

    sampling: Ints
    maybe: Ints
    embedding: Ints

    @staticmethod
    def of(found: Stretches) -> Landmarks:
        sequence = found.sequence
        of_layers = {
            symbol
            for symbol, name in enumerate(sequence.names)
            if landmark_of(name) in ("embedding", "sampling_or_layer")
            and in_most(sequence.symbol == symbol, found.anchors)
        }
        rare = ~np.isin(sequence.symbol, list(of_layers))
        return Landmarks(
            np.flatnonzero(sequence.landmarks("sampling")),
            np.flatnonzero(sequence.landmarks("sampling_or_layer") & rare),
            np.flatnonzero(sequence.landmarks("embedding") & rare),
        )

    def between(self, low: int, high: int) -> tuple[int, int]:
        """After the last sampling in rows (low, high), up to and including the first embedding behind it."""
        sampled = last_between(self.sampling, low, high)
        if sampled is None:
            sampled = last_between(self.maybe, low, first_between(self.embedding, low, high) or high)
        lowest = low + 1 if sampled is None else sampled + 1
        return lowest, first_between(self.embedding, lowest - 1, high) or high

    def tail(self, found: Stretches, place: int) -> int:
        """The last sampling of a pass, or else its last anchor."""
        next_pass = np.append(found.starts[1:], len(found.anchors))
        anchor = int(found.anchors[next_pass[place] - 1])
        end = int(found.anchors[next_pass[place]]) if place + 1 < len(found.starts) else len(found.sequence)
        sampled = last_between(self.sampling, anchor, end)
        return anchor if sampled is None else sampled


def last_between(places: Ints, low: int, high: int) -> int | None:
    """The last of some places in (low, high)."""
    place = int(np.searchsorted(places, high)) - 1
    return int(places[place]) if place >= 0 and places[place] > low else None


def first_between(places: Ints, low: int, high: int) -> int | None:
    """The first of some places in (low, high)."""
    place = int(np.searchsorted(places, low, side="right"))
    return int(places[place]) if place < len(places) and places[place] < high else None
