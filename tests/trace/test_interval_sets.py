"""Sets of intervals per group, held against a version that looks at every nanosecond."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from npuscope.trace.intervals import Intervals, gaps, inside, outside, sum_by, union

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
