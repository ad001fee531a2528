"""Sets of half-open intervals per group (a lane, a task): unions, gaps, and the parts inside and outside a set.

A set is three int64 arrays (group, start, end). One made by `union` is sorted by group, then start, and its
intervals neither overlap nor touch. All functions are vectorised over every group at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npuscope.trace.intervals import Ints, largest

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
