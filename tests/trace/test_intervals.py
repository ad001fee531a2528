"""Arithmetic on intervals: nesting, crossing, self time, unions, gaps, parts inside and outside."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from npuscope.trace.intervals import (
    Enclosing,
    Intervals,
    crossing,
    depths,
    gaps,
    inside,
    lane_order,
    one_group,
    outside,
    sublanes,
    sum_by,
    union,
)

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


ONE = st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 12))
MANY = st.lists(ONE, max_size=25)


def intervals(rows: list[tuple[int, int, int]], shift: int = 0) -> Intervals:
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return Intervals(table[:, 0], table[:, 1] + shift, table[:, 1] + table[:, 2] + shift)


def moments(found: Intervals) -> set[tuple[int, int]]:
    """Every (group, nanosecond) covered."""
    rows = zip(*(column.tolist() for column in found), strict=True)
    return {(group, t) for group, start, end in rows for t in range(start, end)}


@given(MANY)
def test_a_union_covers_the_same_moments_with_intervals_that_neither_overlap_nor_touch(
    rows: list[tuple[int, int, int]],
) -> None:
    found = union(intervals(rows))
    assert moments(found) == moments(intervals(rows))
    assert found.length == len(moments(found))
    same = found.group[1:] == found.group[:-1]
    assert (found.start[1:][same] > found.end[:-1][same]).all()


@given(MANY)
def test_gaps_are_the_rest_of_the_window(rows: list[tuple[int, int, int]]) -> None:
    covered = union(intervals(rows))
    open_ = gaps(covered, 4, (0, 50))
    assert moments(open_) | moments(covered) == {(group, t) for group in range(4) for t in range(50)}
    assert not moments(open_) & moments(covered)


@given(MANY, MANY)
def test_inside_and_outside_split_what_was_asked_for(
    asked_rows: list[tuple[int, int, int]], rows: list[tuple[int, int, int]]
) -> None:
    asked, cover = intervals(asked_rows), union(intervals(rows))
    for number in range(len(asked.group)):
        one = asked.where(np.array([number]))
        pieces = []
        for parts in (inside(asked, cover), outside(asked, cover)):
            mine = parts.of == number
            pieces.append(Intervals(np.repeat(one.group, mine.sum()), parts.start[mine], parts.end[mine]))
        assert moments(pieces[0]) == moments(one) & moments(cover)
        assert moments(pieces[1]) == moments(one) - moments(cover)


def test_times_since_1970_in_a_million_groups_do_not_overflow() -> None:
    # GIVEN groups × nanoseconds beyond 2^63
    group = np.array([0, 0, 999_999, 999_999])
    start = np.array([10**18, 10**18 + 5, 0, 4 * 10**18])
    # WHEN
    found = union(Intervals(group, start, start + 10))
    # THEN
    assert found.lengths(1_000_000)[[0, 999_999]].tolist() == [15, 20]


def test_sums_by_group_are_exact_beyond_a_float() -> None:
    huge = 2**53 + 1
    assert sum_by(np.array([1, 1]), np.array([huge, 1]), 2).tolist() == [0, huge + 1]
