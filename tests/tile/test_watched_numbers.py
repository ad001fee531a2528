"""Numbers that depend on what a task was given say where they would be for other numbers, or fix them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuscope.tile.record.recorder import Moving
from npuscope.tile.values.lanes import Axes, Lane, WatchedNumbers

SMALL = st.integers(-9, 9)
# How a number is made of two given ones and a loop variable, in a form that can be evaluated with anything.
SUMS: st.SearchStrategy[Callable[..., Any]] = st.recursive(
    st.sampled_from([lambda a, b, i: a, lambda a, b, i: b, lambda a, b, i: i]) | SMALL.map(lambda n: lambda a, b, i: n),
    lambda part: st.one_of(
        st.builds(lambda x, y: lambda *v: x(*v) + y(*v), part, part),
        st.builds(lambda x, y: lambda *v: x(*v) - y(*v), part, part),
        st.builds(lambda x, n: lambda *v: x(*v) * n, part, SMALL),
        st.builds(lambda x, n: lambda *v: n * x(*v), part, SMALL),
        st.builds(lambda x: lambda *v: -x(*v), part),
    ),
    max_leaves=8,
)


def watched(a: int, b: int) -> tuple[WatchedNumbers, list[Lane], Lane]:
    """Two numbers of a task, and the variable of a loop of four turns."""
    axes, watch = Axes(), WatchedNumbers(2)
    axes.open(4)
    return watch, [Lane(np.asarray(n), axes, watch.form(k)) for k, n in enumerate((a, b))], Lane(np.arange(4), axes)


@given(form=SUMS, a=SMALL, b=SMALL, more=st.tuples(SMALL, SMALL))
def test_a_sum_moves_as_its_factors_say(form: Callable[..., Any], a: int, b: int, more: tuple[int, int]) -> None:
    watch, numbers, i = watched(a, b)
    made = form(*numbers, i)
    place: Any = made.place() if isinstance(made, Lane) else made
    at: Any
    by: Any
    at, by = (place.at, *place.ways) if isinstance(place, Moving) else (place, (0, 0))
    moved = np.asarray(at) + sum(factor * step for factor, step in zip(by, more, strict=True))
    expected = form(a + more[0], b + more[1], np.arange(4))
    assert np.broadcast_to(moved, 4).tolist() == np.broadcast_to(expected, 4).tolist()
    assert not watch.fixed


@given(form=SUMS, a=SMALL, b=SMALL, more=st.tuples(SMALL, SMALL), bound=SMALL)
@pytest.mark.parametrize("name", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_a_comparison_holds_as_long_as_it_says(
    name: str, form: Callable[..., Any], a: int, b: int, more: tuple[int, int], bound: int
) -> None:
    watch, numbers, i = watched(a, b)
    compare = getattr(operator, name)
    found = compare(form(*numbers, i), bound)
    steps = [0 if k in watch.fixed else step for k, step in enumerate(more)]
    apart = {by: sum(factor * step for factor, step in zip(by, steps, strict=True)) for by in watch.reach}
    if all(low <= apart[by] <= high for by, (low, high) in watch.reach.items()):
        values = found.values if isinstance(found, Lane) else np.asarray(found)
        expected = compare(np.broadcast_to(form(a + steps[0], b + steps[1], np.arange(4)), 4), bound)
        assert np.broadcast_to(values, 4).tolist() == expected.tolist()


@pytest.mark.parametrize(
    "look", [int, bool, float, str, hash, lambda n: n // 2, lambda n: n % 3, lambda n: n * n, abs, lambda n: n / 2]
)
def test_who_looks_at_a_number_fixes_it(look: Callable[[Any], object]) -> None:
    watch, numbers, _ = watched(5, 7)
    assert look(numbers[0] + 1) == look(6) or look is hash
    assert watch.fixed == {0}
