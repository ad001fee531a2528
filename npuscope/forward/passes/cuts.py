"""Where exactly one forward pass ends and the next begins, inside the stretch that holds both.

The cut lies after the last sampling kernel and before the first embedding, after what the last layer shares with
the other layers and before what the first one shares with them: there, at the longest pause. Passes of one size
begin with the same kernel; where a pause misleads, the kernel most of them begin with decides.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from npuscope.forward.passes import marks
from npuscope.forward.passes.boundaries import Stretches, in_most
from npuscope.forward.passes.sequence import Sequence
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
    """Rows of which one begins the next pass; `size` is that pass's number of anchors."""

    lowest: int
    highest: int
    size: int


def bounds(found: Stretches) -> Bounds:
    """The rows of each pass; those before the first and after the last pass are left to none."""
    sequence, anchors = found.sequence, found.anchors
    starts = found.starts
    first, last = anchors[starts], anchors[np.append(starts[1:], len(anchors)) - 1]
    sizes = np.diff(np.append(starts, len(anchors)))
    by_step = sequence.step[first] >= 0
    begin = np.searchsorted(sequence.step, sequence.step[first], side="left")
    end = np.searchsorted(sequence.step, sequence.step[last], side="right")
    end[~by_step] = len(sequence)
    begin[~by_step] = np.searchsorted(sequence.step, -1, side="left")
    inner = np.flatnonzero(sequence.step[last[:-1]] == sequence.step[first[1:]])  # no step tells these apart
    end[inner] = begin[inner + 1] = _cuts(found, inner, sizes)
    if not by_step.any() or len(inner):  # a step with one pass is that pass, whole or not
        begin[0], end[-1] = _edges(found, begin, end)
    return Bounds(begin, end, first, last)


def _cuts(found: Stretches, passes: Ints, sizes: Ints) -> Ints:
    """The first row of the pass after each of `passes`."""
    sequence, stretch = found.sequence, found.starts[1:] - 1
    marked = _Marks.of(found)
    regions = [
        _region(found, marked, int(stretch[i]), int(sizes[i + 1]))
        for i in passes.tolist()
    ]  # fmt: skip
    choice = [r.lowest + int(np.argmax(sequence.pause[r.lowest : r.highest + 1])) for r in regions]
    votes: dict[int, Counter[int]] = {}
    for region, place in zip(regions, choice, strict=True):
        votes.setdefault(region.size, Counter())[int(sequence.symbol[place])] += 1
    for number, region in enumerate(regions):
        symbol = votes[region.size].most_common(1)[0][0]
        choice[number] = _begin(sequence, region, symbol, choice[number])
    return np.array(choice, dtype=np.int64)


def _begin(sequence: Sequence, region: _Region, symbol: int, otherwise: int) -> int:
    """The row after the longest pause among those of one kernel."""
    like = region.lowest + np.flatnonzero(sequence.symbol[region.lowest : region.highest + 1] == symbol)
    return int(like[int(np.argmax(sequence.pause[like]))]) if len(like) else otherwise


@dataclass(frozen=True)
class _Marks:
    sampling: Ints
    maybe: Ints
    embedding: Ints

    @staticmethod
    def of(found: Stretches) -> _Marks:
        sequence = found.sequence
        of_layers = {
            symbol
            for symbol, name in enumerate(sequence.names)
            if any(marks.found(pattern, [name])[0] for pattern in (marks.EMBEDDING, marks.MAYBE_SAMPLING))
            and in_most(sequence.symbol == symbol, found.anchors)
        }
        rare = ~np.isin(sequence.symbol, list(of_layers))
        return _Marks(
            np.flatnonzero(sequence.marked(marks.SAMPLING)),
            np.flatnonzero(sequence.marked(marks.MAYBE_SAMPLING) & rare),
            np.flatnonzero(sequence.marked(marks.EMBEDDING) & rare),
        )

    def between(self, low: int, high: int) -> tuple[int, int]:
        """After the last sampling in rows (low, high), up to and including the first embedding behind it."""
        sampled = _last(self.sampling, low, high)
        if sampled is None:
            sampled = _last(self.maybe, low, _first(self.embedding, low, high) or high)
        lowest = low + 1 if sampled is None else sampled + 1
        return lowest, _first(self.embedding, lowest - 1, high) or high


def _last(places: Ints, low: int, high: int) -> int | None:
    place = int(np.searchsorted(places, high)) - 1
    return int(places[place]) if place >= 0 and places[place] > low else None


def _first(places: Ints, low: int, high: int) -> int | None:
    place = int(np.searchsorted(places, low, side="right"))
    return int(places[place]) if place < len(places) and places[place] < high else None


def _region(found: Stretches, marked: _Marks, stretch: int, size: int) -> _Region:
    low, high = int(found.anchors[stretch]), int(found.anchors[stretch + 1])
    lowest, highest = marked.between(low, high)
    shared_after, shared_before = found.shared(stretch)
    lowest = max(lowest, min(shared_after + 1, highest))
    highest = max(lowest, min(highest, shared_before))
    return _Region(lowest, highest, size)


def _edges(found: Stretches, begin: Ints, end: Ints) -> tuple[int, int]:
    """Where the first pass begins and the last one ends: the capture may begin in a tail and end in a head."""
    sequence, anchors = found.sequence, found.anchors
    marked = _Marks.of(found)
    low, high = int(anchors[0]), int(anchors[-1])
    opening = Counter(sequence.symbol[begin[1:]].tolist()).most_common(1)
    first, last = int(begin[0]), int(end[-1])
    if _last(marked.sampling, first - 1, low) is not None:
        lowest, highest = marked.between(first - 1, low)
        region = _Region(lowest, highest, 0)
        own = lowest + int(np.argmax(sequence.pause[lowest : highest + 1]))
        first = _begin(sequence, region, opening[0][0], own) if opening else own
    if _last(marked.sampling, high, last) is not None:
        lowest, embedding = marked.between(high, last)
        if lowest < last:
            own = lowest + int(np.argmax(sequence.pause[lowest : embedding + 1])) if embedding < last else last
            region = _Region(lowest, min(embedding, last - 1), 0)
            last = _begin(sequence, region, opening[0][0], own) if opening else own
    return first, last
