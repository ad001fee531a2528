"""Arithmetic on intervals that share lanes: nesting, crossing, who encloses a moment, length of a union.

All functions take NumPy arrays of equal length, one entry per slice, and are vectorised except
`sublanes`, which runs only over the lanes whose slices cross.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def lane_order(lane: Ints, start: Ints, dur: Ints) -> Ints:
    """Positions sorted by lane, then start, then longest first, so that a parent precedes its children."""
    lane_step, start_step, dur_step = (np.diff(column) for column in (lane, start, dur))
    if np.all((lane_step > 0) | ((lane_step == 0) & ((start_step > 0) | ((start_step == 0) & (dur_step <= 0))))):
        return np.arange(len(lane))  # as many readers leave them
    return np.lexsort((-dur, start, lane))


def depths(lane: Ints, start: Ints, dur: Ints, order: Ints | None = None) -> Ints:
    """For each slice, how many other slices of its lane were open when it began."""
    if order is None:
        order = lane_order(lane, start, dur)
    lanes, starts, durs = lane[order], start[order], dur[order]
    if not _overlap(lanes, starts, durs):
        return np.zeros(len(lane), dtype=np.int64)
    lasting = durs > 0  # a slice of no length is closed by the time anything else begins
    before: Ints = np.cumsum(lasting) - lasting
    depth = before - _closed_by(lanes, starts, lanes[lasting], (starts + durs)[lasting])
    result = np.empty(len(lane), dtype=np.int64)
    result[order] = depth
    return result


def _closed_by(lanes: Ints, moments: Ints, end_lanes: Ints, ends: Ints) -> Ints:
    """For each (lane, moment), sorted, how many ends lie in earlier lanes or in this lane not after the moment."""
    by_end = np.lexsort((ends, end_lanes))
    end_lanes, ends = end_lanes[by_end], ends[by_end]
    # rank both sides on one axis: equal (lane, time) puts the end first, since intervals are half open
    both = np.lexsort(
        (
            np.concatenate([np.zeros(len(ends), np.int8), np.ones(len(moments), np.int8)]),
            np.concatenate([ends, moments]),
            np.concatenate([end_lanes, lanes]),
        )
    )
    is_end = both < len(ends)
    seen = np.cumsum(is_end)
    closed = np.empty(len(moments), dtype=np.int64)
    closed[both[~is_end] - len(ends)] = seen[~is_end]
    return closed


def crossing(lane: Ints, start: Ints, dur: Ints) -> NDArray[np.bool_]:
    """True for each slice that begins inside an earlier slice of its lane and ends after it."""
    order = lane_order(lane, start, dur)
    lanes, starts, durs = lane[order], start[order], dur[order]
    result = np.zeros(len(lane), dtype=bool)
    if _overlap(lanes, starts, durs):
        result[order] = _crossing_sorted(lanes, starts, starts + durs)
    return result


def _overlap(lanes: Ints, starts: Ints, durs: Ints) -> bool:
    """True if any two slices, in lane order, are open at once; most cores and streams have none."""
    return bool(np.any((lanes[1:] == lanes[:-1]) & (starts[1:] < (starts + durs)[:-1])))


def _crossing_sorted(lanes: Ints, starts: Ints, ends: Ints) -> NDArray[np.bool_]:
    crossed = np.zeros(len(lanes), dtype=bool)
    stack: list[int] = []
    current = -1
    for i, (lane, start, end) in enumerate(zip(lanes.tolist(), starts.tolist(), ends.tolist(), strict=True)):
        if lane != current:
            current, stack = lane, []
        while stack and stack[-1] <= start:
            stack.pop()
        if stack and end > stack[-1]:
            crossed[i] = True  # not pushed: what it crossed stays the reference
        else:
            stack.append(end)
    return crossed


def sublanes(lane: Ints, start: Ints, dur: Ints) -> Ints:
    """A sub-lane number per slice, so that within (lane, sub-lane) slices nest properly. Mostly all zero."""
    result = np.zeros(len(lane), dtype=np.int64)
    rest = np.flatnonzero(np.isin(lane, np.unique(lane[crossing(lane, start, dur)])))
    number = 0
    while len(rest):
        number += 1
        crossed = crossing(lane[rest], start[rest], dur[rest])
        result[rest[crossed]] = number
        rest = rest[crossed]
    return result


class Enclosing:
    """Answers, for moments on lanes, which slice was the innermost one open there."""

    def __init__(self, lane: Ints, start: Ints, dur: Ints) -> None:
        self._order = lane_order(lane, start, dur)
        self._lane, self._start = lane[self._order], start[self._order]
        self._end = self._start + dur[self._order]
        self._depth = depths(lane, start, dur, self._order)[self._order]

    def depths(self) -> Ints:
        """The slices' depths, in the order they were given."""
        result = np.empty(len(self._depth), dtype=np.int64)
        result[self._order] = self._depth
        return result

    def find(self, lane: Ints, moment: Ints) -> Ints:
        """The position of the innermost slice with start <= moment <= end, or -1. Ends count as inside,
        because profilers stamp flows at the end of the slice that caused them."""
        if len(self._lane) == 0 or len(lane) == 0:
            return np.full(len(lane), -1, dtype=np.int64)
        at = self._last_start(lane, moment)
        found = np.full(len(lane), -1, dtype=np.int64)
        open_question = np.flatnonzero(at >= 0)
        steps = int(self._depth.max(initial=0)) + 1
        for _ in range(min(steps, 4096) + 1):
            candidate = at[open_question]
            same = self._lane[candidate] == lane[open_question]
            hit = same & (self._end[candidate] >= moment[open_question])
            found[open_question[hit]] = candidate[hit]
            going_on = same & ~hit & (self._depth[candidate] > 0)
            open_question = open_question[going_on]
            if len(open_question) == 0:
                break
            at[open_question] = self._parent(at[open_question])
            open_question = open_question[at[open_question] >= 0]
        return np.where(found >= 0, self._order[found], -1)

    def _last_start(self, lane: Ints, moment: Ints) -> Ints:
        """Per question the last slice, in lane order, that starts on the lane not after the moment."""
        order = np.lexsort((moment, lane))
        # lanes are whole blocks of the sorted slices, so each lane needs one binary search over its block
        begin = np.searchsorted(self._lane, lane[order], side="left")
        finish = np.searchsorted(self._lane, lane[order], side="right")
        at = np.empty(len(lane), dtype=np.int64)
        asked, edges = lane[order], np.flatnonzero(np.diff(lane[order], prepend=-1))
        for first, last in zip(edges, np.append(edges[1:], len(asked)), strict=True):
            block = slice(begin[first], finish[first])
            inside = np.searchsorted(self._start[block], moment[order[first:last]], side="right")
            at[order[first:last]] = np.where(inside > 0, begin[first] + inside - 1, -1)
        return at

    def _parent(self, at: Ints) -> Ints:
        """The nearest earlier slice of smaller depth; -1 where there is none."""
        if not hasattr(self, "_parents"):
            self._parents = _parents(self._lane, self._depth)
        return self._parents[at]


def _parents(lane: Ints, depth: Ints) -> Ints:
    parents = np.full(len(lane), -1, dtype=np.int64)
    stack: list[int] = []
    current = -1
    depths_, lanes_ = depth.tolist(), lane.tolist()
    for i, d in enumerate(depths_):
        if lanes_[i] != current:
            current, stack = lanes_[i], []
        while stack and depths_[stack[-1]] >= d:
            stack.pop()
        if stack:
            parents[i] = stack[-1]
        stack.append(i)
    return parents


def union_length(start: Ints, dur: Ints) -> int:
    """Nanoseconds during which at least one of the intervals was open."""
    if len(start) == 0:
        return 0
    order = np.argsort(start, kind="stable")
    starts, ends = start[order], (start + dur)[order]
    reach = np.maximum.accumulate(ends)
    covered = np.maximum(ends[1:], reach[:-1]) - np.maximum(starts[1:], reach[:-1])
    return int(ends[0] - starts[0] + np.maximum(covered, 0).sum())
