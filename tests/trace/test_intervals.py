"""Interval arithmetic against slow, obvious versions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from npuscope.trace.intervals import Enclosing, crossing, depths, lane_order, one_group, sublanes, union

slices = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12)), max_size=25)


def arrays(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return columns[0], columns[1], columns[2]


@given(slices)
def test_depth_counts_the_slices_open_when_one_begins(rows: list[tuple[int, int, int]]) -> None:
    lane, start, dur = arrays(rows)
    order = lane_order(lane, start, dur).tolist()
    for place, i in enumerate(order):
        before = [j for j in order[:place] if lane[j] == lane[i]]
        assert depths(lane, start, dur)[i] == sum(start[j] + dur[j] > start[i] for j in before)


@given(slices)
def test_union_counts_every_covered_nanosecond_once(rows: list[tuple[int, int, int]]) -> None:
    _, start, dur = arrays(rows)
    covered = {t for s, d in zip(start, dur, strict=True) for t in range(s, s + d)}
    assert union(one_group(start, start + dur)).length == len(covered)


@given(slices)
def test_sublanes_leave_nothing_that_crosses(rows: list[tuple[int, int, int]]) -> None:
    lane, start, dur = arrays(rows)
    sub = sublanes(lane, start, dur)
    assert not crossing(lane * 100 + sub, start, dur).any()
    lanes_that_nest = set(lane.tolist()) - set(lane[crossing(lane, start, dur)].tolist())
    assert all(sub[i] == 0 for i in range(len(lane)) if lane[i] in lanes_that_nest)


@given(slices, st.lists(st.tuples(st.integers(0, 2), st.integers(0, 45)), min_size=1, max_size=10))
def test_enclosing_finds_the_innermost_slice(rows: list[tuple[int, int, int]], asked: list[tuple[int, int]]) -> None:
    lane, start, dur = arrays(rows)
    where, when = (np.array(column, dtype=np.int64) for column in zip(*asked, strict=True))
    if crossing(lane, start, dur).any():
        return  # the innermost is only defined where slices nest
    found = Enclosing(lane, start, dur).find(where, when)
    order = lane_order(lane, start, dur).tolist()
    for position, (at, moment) in enumerate(asked):
        around = [i for i in order if lane[i] == at and start[i] <= moment <= start[i] + dur[i]]
        if not around:
            assert found[position] == -1
        else:
            # nesting: the innermost is the last to begin, and of those that just ended the last as well
            assert start[found[position]] == max(start[i] for i in around)


def test_three_deep_on_one_lane() -> None:
    #  [-------------)        outer
    #    [---------)          middle
    #      [--)   [)          two inner ones, one of no length
    lane = np.zeros(4, dtype=np.int64)
    start, dur = np.array([0, 2, 4, 9]), np.array([14, 9, 3, 0])
    assert depths(lane, start, dur).tolist() == [0, 1, 2, 2]
    assert Enclosing(lane, start, dur).find(np.zeros(3, dtype=np.int64), np.array([5, 8, 13])).tolist() == [2, 1, 0]
