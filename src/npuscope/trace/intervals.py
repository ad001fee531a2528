"""Arithmetic on intervals: nesting, crossing and self time on lanes, who encloses a moment; sets of intervals by group.

Functions on lanes take NumPy arrays of equal length, one entry per slice. They are vectorised; only lanes on which
slices overlap are walked one by one, and only `crossing` and `sublanes` walk them slice by slice. A set is three int64
arrays (group, start, end), half open; one made by `union` is sorted by group, then start, and its intervals neither
overlap nor touch.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
_BLOCK = 1 << 18  # slices looked at together where memory matters


def largest(values: NDArray[Any]) -> int:
    """The largest of non-negative numbers; 0 for none."""
    return int(values.max()) if len(values) else 0


def lane_order(lane: NDArray[Any], start: Ints, dur: Ints) -> Ints:
    """Positions sorted by lane, then start, then longest first, so that a parent precedes its children."""
    later = (start[1:] > start[:-1]) | ((start[1:] == start[:-1]) & (dur[1:] <= dur[:-1]))
    if np.all((lane[1:] > lane[:-1]) | ((lane[1:] == lane[:-1]) & later)):
        return np.arange(len(lane))  # as many readers leave them
    order = np.argsort(start, kind="stable")  # captures are long runs in order, which a stable sort merges
    places = lane[order]
    if largest(lane) < 1 << 16:
        places = places.astype(np.uint16)  # counted, not compared
    order = order[np.argsort(places, kind="stable")]
    tied = (start[order][1:] == start[order][:-1]) & (lane[order][1:] == lane[order][:-1])
    at = np.flatnonzero(np.append(tied, False) | np.append(False, tied))
    rows = order[at]
    order[at] = rows[np.lexsort((-dur[rows], np.cumsum(np.append(True, ~tied))[at]))]
    return order


def depths(lane: NDArray[Any], start: Ints, dur: Ints, order: NDArray[Any] | None = None) -> NDArray[np.int32]:
    """For each slice, how many other slices of its lane were open when it began."""
    if order is None:
        order = lane_order(lane, start, dur)
    result = np.zeros(len(lane), dtype=np.int32)
    for rows in _crowded(lane, start, dur, order):
        result[rows] = _depths_of_lane(start[rows], dur[rows])
    return result


def _crowded(lane: NDArray[Any], start: Ints, dur: Ints, order: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """The slices, in order, of each lane on which any two overlap; most cores and streams have none."""
    begins = _runs(lane[order])
    for number in np.unique(np.searchsorted(begins, _overlaps(lane, start, dur, order), side="right") - 1):
        yield order[begins[number] : begins[number + 1]]


def _overlaps(lane: NDArray[Any], start: Ints, dur: Ints, order: NDArray[Any]) -> Ints:
    """Places in the order whose slice is still open when the next one of its lane begins; found block by block."""
    found = []
    for first in range(0, len(order), _BLOCK):
        rows = order[first : first + _BLOCK + 1]
        lanes, starts = lane[rows], start[rows]
        is_open = (lanes[1:] == lanes[:-1]) & (starts[1:] < starts[:-1] + dur[rows[:-1]])
        found.append(np.flatnonzero(is_open) + first)
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _depths_of_lane(starts: Ints, durs: Ints) -> Ints:
    lasting = durs > 0  # a slice of no length is closed by the time anything else begins
    opened: Ints = np.cumsum(lasting) - lasting
    ends = np.sort((starts + durs)[lasting])
    closed = np.searchsorted(ends, starts, side="right")  # half open: what ends now is closed now
    return opened - closed


def self_times(lane: NDArray[Any], start: Ints, dur: Ints) -> Ints:
    """Each slice's duration without the slices directly inside it."""
    order = lane_order(lane, start, dur)
    own = dur.copy()
    for rows in _crowded(lane, start, dur, order):
        depth = _depths_of_lane(start[rows], dur[rows])
        for level in range(1, largest(depth) + 1):
            outer, inner = np.flatnonzero(depth == level - 1), np.flatnonzero(depth == level)
            parent = outer[np.searchsorted(outer, inner) - 1]
            np.subtract.at(own, rows[parent], dur[rows[inner]])
    return np.maximum(own, 0)


def crossing(lane: Ints, start: Ints, dur: Ints, order: Ints | None = None) -> NDArray[np.bool_]:
    """True for each slice that begins inside an earlier slice of its lane and ends after it.

    What a slice is held against are the earlier ones that do not cross themselves, so that the lanes
    nest without those that are True.
    """
    if order is None:
        order = lane_order(lane, start, dur)
    result = np.zeros(len(lane), dtype=bool)
    for rows in _crowded(lane, start, dur, order):
        result[rows] = _crossing_in_lane(start[rows], start[rows] + dur[rows])
    return result


def _crossing_in_lane(starts: Ints, ends: Ints) -> NDArray[np.bool_]:
    crossed = np.zeros(len(starts), dtype=bool)
    stack: list[int] = []
    for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        while stack and stack[-1] <= start:
            stack.pop()
        if stack and end > stack[-1]:
            crossed[i] = True  # not pushed: what it crossed stays the reference
        else:
            stack.append(end)
    return crossed


def sublanes(lane: Ints, start: Ints, dur: Ints, order: Ints | None = None) -> Ints:
    """A sub-lane number per slice, so that within (lane, sub-lane) slices nest properly. Mostly all zero."""
    result = np.zeros(len(lane), dtype=np.int64)
    crossed = crossing(lane, start, dur, order)
    if not crossed.any():
        return result
    crowded = np.flatnonzero(np.isin(lane, np.unique(lane[crossed])))
    order = crowded[lane_order(lane[crowded], start[crowded], dur[crowded])]
    for first, last in pairwise(_runs(lane[order])):
        rows = order[first:last]
        result[rows] = _sublanes_in_lane(start[rows].tolist(), (start[rows] + dur[rows]).tolist())
    return result


def _sublanes_in_lane(starts: list[int], ends: list[int]) -> list[int]:
    """First fit: inside what is open on the sub-lane used last, else on an empty sub-lane, else on a new one."""
    numbers: list[int] = []
    stacks: list[list[int]] = []  # ends of what is open on each sub-lane, outermost first
    busy: list[tuple[int, int]] = []  # (end of the outermost, sub-lane)
    empty: list[int] = []
    used = 0
    for start, end in zip(starts, ends, strict=True):
        while busy and busy[0][0] <= start:
            heapq.heappush(empty, heapq.heappop(busy)[1])
        stack = stacks[used] if stacks else []
        while stack and stack[-1] <= start:
            stack.pop()
        if not stack or end > stack[-1]:
            if not empty:
                empty.append(len(stacks))
                stacks.append([])
            used = heapq.heappop(empty)
            stacks[used].clear()
            heapq.heappush(busy, (max(end, start + 1), used))
        stacks[used].append(end)
        numbers.append(used)
    return numbers


class Enclosing:
    """Answers, for moments on lanes, which slice was the innermost one open there.

    Keeps one order of the slices and works lane by lane, so that it needs little memory beside its input.
    """

    def __init__(self, lane: NDArray[Any], start: Ints, dur: Ints) -> None:
        self._start, self._dur = start, dur
        self._order = lane_order(lane, start, dur).astype(np.uint32)
        self._depth = depths(lane, start, dur, self._order)
        sorted_lanes = lane[self._order]
        self._begins = _runs(sorted_lanes)
        self._lanes = sorted_lanes[self._begins[:-1]]

    def depths(self) -> NDArray[np.int32]:
        """The slices' depths, in the order they were given."""
        return self._depth

    def find(self, lane: NDArray[Any], moment: Ints) -> Ints:
        """The position of the innermost slice with start <= moment <= end, or -1. Ends count as inside,
        because profilers stamp flows at the end of the slice that caused them."""
        found = np.full(len(lane), -1, dtype=np.int64)
        questions = np.argsort(lane, kind="stable")
        asked = lane[questions]
        for first, last in pairwise(_runs(asked)):
            block = np.searchsorted(self._lanes, asked[first])
            if block < len(self._lanes) and self._lanes[block] == asked[first]:
                rows = self._order[self._begins[block] : self._begins[block + 1]]
                here = questions[first:last]
                inner = _innermost(self._start[rows], self._dur[rows], self._depth[rows], moment[here])
                found[here] = np.where(inner >= 0, rows[inner].astype(np.int64), -1)
        return found


def _runs(values: NDArray[Any]) -> Ints:
    """Where each run of equal values begins, and at last where the last one ends; just 0 for no values."""
    changes = np.flatnonzero(values[1:] != values[:-1]) + 1
    return np.concatenate([[0], changes, [len(values)]]) if len(values) else np.zeros(1, dtype=np.int64)


def _innermost(starts: Ints, durs: Ints, depth: NDArray[np.int32], moments: Ints) -> Ints:
    """As `Enclosing.find`, within one lane whose slices are in order."""
    ends = starts + durs
    found = np.full(len(moments), -1, dtype=np.int64)
    at = np.searchsorted(starts, moments, side="right") - 1  # the last to begin; outwards from there
    open_question = np.flatnonzero(at >= 0)
    at_depth: dict[int, Ints] = {}
    while len(open_question):
        candidate = at[open_question]
        hit = ends[candidate] >= moments[open_question]
        found[open_question[hit]] = candidate[hit]
        open_question = open_question[~hit & (depth[candidate] > 0)]
        at[open_question] = _parents(at[open_question], depth, at_depth)
    return found


def _parents(at: Ints, depth: NDArray[np.int32], at_depth: dict[int, Ints]) -> Ints:
    """For slices of depth above zero, the last one before each that is one less deep."""
    parents = np.empty(len(at), dtype=np.int64)
    for level in np.unique(depth[at]).tolist():
        if level - 1 not in at_depth:
            at_depth[level - 1] = np.flatnonzero(depth == level - 1)
        here = depth[at] == level
        parents[here] = at_depth[level - 1][np.searchsorted(at_depth[level - 1], at[here]) - 1]
    return parents


_ROOM = 2**62


class Intervals(NamedTuple):
    """Intervals [start, end) in groups numbered from 0."""

    group: Ints
    start: Ints
    end: Ints

    @property
    def length(self) -> int:
        return int((self.end - self.start).sum())

    def of_length(self) -> Intervals:
        """Those that are not empty."""
        return self.where(self.end > self.start)

    def where(self, kept: NDArray[Any]) -> Intervals:
        """Those a mask or a list of positions chooses."""
        return Intervals(self.group[kept], self.start[kept], self.end[kept])

    def lengths(self, groups: int) -> Ints:
        """Nanoseconds per group."""
        return sum_by(self.group, self.end - self.start, groups)


class Parts(NamedTuple):
    """Pieces of intervals: the position of the interval each was cut from, and of the piece of the cover around it."""

    of: Ints
    start: Ints
    end: Ints
    by: Ints  # -1 outside of the cover


def one_group(start: Ints, end: Ints) -> Intervals:
    """Intervals that all belong together."""
    return Intervals(np.zeros(len(start), dtype=np.int64), start, end)


def sum_by(group: Ints, values: Ints, groups: int) -> Ints:
    """Exact sums of integers per group."""
    total = np.zeros(groups, dtype=np.int64)
    np.add.at(total, group, values)
    return total


def union(intervals: Intervals) -> Intervals:
    """When at least one interval of the group is open, as few intervals as say it."""
    group, start, end = intervals.of_length()
    if len(group) == 0:
        return Intervals(group, start, end)
    order = np.lexsort((start, group))
    group, start, end = group[order], start[order], end[order]
    begins, ends = _Axis.of(group, start, end).at(group, start, end)
    reach = np.maximum.accumulate(ends)
    opens = np.concatenate([[True], begins[1:] > reach[:-1]])
    first = np.flatnonzero(opens)
    last_end = np.maximum.reduceat(end, first)
    return Intervals(group[first], start[first], last_end)


def union_with_last(intervals: Intervals) -> tuple[Intervals, Ints]:
    """The union, and for each of its pieces the position of the interval that ends with it."""
    whole = union(intervals)
    order = np.lexsort((intervals.end, intervals.group))
    group, end = intervals.group[order], intervals.end[order]
    axis = _Axis.of(intervals.group, intervals.start, intervals.end) if len(order) else None
    if axis is None:
        return whole, np.zeros(0, dtype=np.int64)
    ends = axis.at(group, end, end)[0]
    found = np.searchsorted(ends, axis.at(whole.group, whole.end, whole.end)[0], side="right") - 1
    return whole, order[found]


def gaps(covered: Intervals, groups: int, window: tuple[int, int]) -> Intervals:
    """What a union within the window leaves open of it, for every group from 0."""
    everything = np.arange(groups, dtype=np.int64)
    whole = Intervals(everything, np.full(groups, window[0]), np.full(groups, window[1]))
    rest = outside(whole, covered)
    return Intervals(rest.of, rest.start, rest.end)


def inside(asked: Intervals, cover: Intervals) -> Parts:
    """The parts of the intervals asked for that the union `cover` of their group covers."""
    first, count = _overlapped(asked, cover)
    of = np.repeat(np.arange(len(count)), count)
    piece = np.repeat(first, count) + counting(count)
    start = np.maximum(asked.start[of], cover.start[piece])
    return Parts(of, start, np.minimum(asked.end[of], cover.end[piece]), piece)


def outside(asked: Intervals, cover: Intervals) -> Parts:
    """The parts of the intervals asked for that the union `cover` of their group leaves open."""
    first, count = _overlapped(asked, cover)
    of = np.repeat(np.arange(len(count)), count + 1)
    place = counting(count + 1)
    after = np.repeat(first, count + 1) + place  # the piece of the cover that ends this part
    start, end = asked.start[of].copy(), asked.end[of].copy()
    later, sooner = place > 0, place < count[of]
    start[later] = cover.end[after[later] - 1]
    end[sooner] = cover.start[after[sooner]]
    open_ = end > start
    return Parts(of[open_], start[open_], end[open_], np.full(int(open_.sum()), -1))


def _overlapped(asked: Intervals, cover: Intervals) -> tuple[Ints, Ints]:
    """For each interval asked for, the first piece of the cover that overlaps it, and how many do."""
    if len(cover.group) == 0 or len(asked.group) == 0:
        nothing = np.zeros(len(asked.group), dtype=np.int64)
        return nothing, nothing
    axis = _Axis.of(
        np.concatenate([asked.group, cover.group]),
        np.concatenate([asked.start, cover.start]),
        np.concatenate([asked.end, cover.end]),
    )
    asked_start, asked_end = axis.at(*asked)
    cover_start, cover_end = axis.at(*cover)
    first = np.searchsorted(cover_end, asked_start, side="right")
    return first, np.maximum(np.searchsorted(cover_start, asked_end, side="left") - first, 0)


def counting(count: Ints) -> Ints:
    """0, 1, … count - 1 for each count, one after the other."""
    ends = np.cumsum(count)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - count, count)


class _Axis(NamedTuple):
    """One axis on which every group's times have a stretch of their own, so that one search serves all groups."""

    origin: int
    stride: int
    times: Ints | None  # where nanoseconds would overflow: the distinct times, whose ranks stand for them

    @staticmethod
    def of(group: Ints, start: Ints, end: Ints) -> _Axis:
        origin, stride = int(np.min(start)), int(np.max(end)) - int(np.min(start)) + 1
        if stride * (largest(group) + 1) < _ROOM:
            return _Axis(origin, stride, None)
        times = np.unique(np.concatenate([start, end]))
        return _Axis(0, len(times) + 1, times)

    def at(self, group: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        if self.times is not None:
            start, end = np.searchsorted(self.times, start), np.searchsorted(self.times, end)
        return start - self.origin + group * self.stride, end - self.origin + group * self.stride
