"""Reductions against plain loops, for any shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from npuscope.ops.numeric import reduce

shapes = st.lists(st.integers(1, 7), min_size=2, max_size=3)


@given(shapes, st.sampled_from([np.float32, np.int32]), st.integers(0, 2**32))
def test_every_reduction(shape: list[int], dtype: type, seed: int) -> None:
    x: NDArray[Any] = np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)
    loops: dict[str, Callable[[list[Any]], Any]] = {"sum": sum, "max": max, "min": min, "prod": math.prod}
    for axis, way in ((-1, "row"), (-2, "col")):
        kept = list(shape)
        kept[axis] = 1
        lines = np.moveaxis(x, axis, -1).reshape(-1, shape[axis]).tolist()
        for name, loop in loops.items():
            result = getattr(reduce, f"{way}_{name}")(x)
            assert result.dtype == dtype
            wanted = np.array([loop(line) for line in lines])
            np.testing.assert_array_equal(np.moveaxis(result, axis, -1).ravel(), wanted)
            assert list(result.shape) == kept
    rows = x.reshape(-1, shape[-1]).tolist()
    assert reduce.row_argmax(x).ravel().tolist() == [row.index(max(row)) for row in rows]
    assert reduce.row_argmin(x).ravel().tolist() == [row.index(min(row)) for row in rows]
    assert reduce.row_argmax(x).dtype == np.int32
    assert reduce.row_argmax(x).shape == (*shape[:-1], 1)


@pytest.mark.parametrize(
    "name", ["row_sum", "row_max", "row_min", "row_prod", "col_sum", "col_max", "col_min", "col_prod"]
)
def test_nan_goes_through(name: str) -> None:
    x = np.ones((3, 40), np.float32)
    x[1, 20] = np.nan
    assert np.count_nonzero(np.isnan(getattr(reduce, name)(x))) == 1


@given(st.integers(1, 40), st.integers(1, 700), st.integers(0, 2**32))
def test_the_sum_of_a_row_does_not_depend_on_its_neighbours(rows: int, columns: int, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((rows, columns), dtype=np.float32)
    alone = np.concatenate([reduce.row_sum(x[row : row + 1]) for row in range(rows)])
    np.testing.assert_array_equal(reduce.row_sum(x), alone)
