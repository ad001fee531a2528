"""Element-wise work against the same thing said one element at a time, reductions against plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from npuscope.ops import elementwise, reductions
from npuscope.ops.elementwise import cmp, expdif

KERNEL = {spec.name: spec.numeric for spec in (*elementwise.ALL, *reductions.ALL) if spec.numeric is not None}
NAN = float("nan")
TILE = np.array([[1.5, -2.25, 0.0, 7.0, -7.0, 3e38, NAN, 0.5]], np.float32)


@pytest.mark.parametrize(
    ("name", "scalar"),
    [
        ("exp", math.exp),
        ("log", math.log),
        ("sqrt", math.sqrt),
        ("rsqrt", lambda x: 1 / math.sqrt(x)),
        ("recip", lambda x: 1 / x),
        ("neg", lambda x: -x),
        ("abs", abs),
        ("relu", lambda x: max(x, 0.0)),
        ("sin", math.sin),
        ("cos", math.cos),
    ],
)
def test_unary(name: str, scalar: object) -> None:
    values = np.linspace(0.01, 20, 77, dtype=np.float32).reshape(7, 11)
    result = KERNEL[name](values)
    assert result.dtype == np.float32
    wanted = [[scalar(float(value)) for value in row] for row in values]  # type: ignore[operator]
    np.testing.assert_allclose(result, np.array(wanted), rtol=4e-7, atol=1e-7)
    assert np.isnan(KERNEL[name](TILE)[0, 6])
    np.testing.assert_allclose(KERNEL[name](values[0, 5]), result[0, 5], rtol=4e-7)  # one number


def test_relu_and_signs() -> None:
    assert KERNEL["relu"](TILE)[0, :5].tolist() == [1.5, 0.0, 0.0, 7.0, 0.0]
    assert KERNEL["relu"](np.array([[-3, 4]], np.int32)).tolist() == [[0, 4]]
    assert KERNEL["recip"](np.zeros((1, 1), np.float32)).tolist() == [[math.inf]]


@pytest.mark.parametrize("size", [64, 9000])  # a number and a large tile take another way
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_nan_wins_a_maximum_and_a_minimum(name: str, size: int) -> None:
    tile = np.linspace(-5, 5, size, dtype=np.float32)[None]
    tile[0, 3], tile[0, 5], tile[0, 6] = NAN, math.inf, -math.inf
    for other in (np.float32(0.25), np.float32(NAN), np.full_like(tile, 0.25), 0.25):
        np.testing.assert_array_equal(KERNEL[name](tile, other), getattr(np, name)(tile, np.asarray(other, np.float32)))


def test_division_and_remainders() -> None:
    x = np.array([[7, -7, 7, -7]], np.float32)
    y = np.array([[2, 2, -2, -2]], np.float32)
    assert KERNEL["div"](x, y).tolist() == [[3.5, -3.5, -3.5, 3.5]]
    assert KERNEL["fmod"](x, y).tolist() == [[1, -1, 1, -1]]  # the sign of x
    assert KERNEL["rem"](x, y).tolist() == [[1, 1, -1, -1]]  # the sign of y
    i, j = x.astype(np.int32), y.astype(np.int32)
    assert KERNEL["div"](i, j).tolist() == [[3, -3, -3, 3]]
    assert KERNEL["fmod"](i, j).tolist() == [[1, -1, 1, -1]]
    assert KERNEL["rem"](i, j).tolist() == [[1, 1, -1, -1]]
    assert KERNEL["div"](i, j).dtype == np.int32
    assert KERNEL["div"](i, np.int32(0)).tolist() == [[-1] * 4]


def test_broadcasts_of_rows_columns_and_numbers() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert KERNEL["mul"](x, np.array([[1], [10]], np.float32)).tolist() == [[0, 1, 2], [30, 40, 50]]
    assert KERNEL["sub"](x, np.array([[0, 1, 2]], np.float32)).tolist() == [[0, 0, 0], [3, 3, 3]]
    assert KERNEL["sub"](np.float32(1), x).tolist() == [[1, 0, -1], [-2, -3, -4]]
    np.testing.assert_allclose(expdif(x, np.float32(5)), np.exp(x.astype(np.float64) - 5), rtol=3e-7)


def test_bits_of_integers_and_of_8_bit_tiles_held_as_floats() -> None:
    x = np.array([[12, -1, 5]], np.int32)
    assert KERNEL["and"](x, np.int32(6)).tolist() == [[4, 6, 4]]
    assert KERNEL["or"](x, np.int32(1)).tolist() == [[13, -1, 5]]
    assert KERNEL["xor"](x, np.int32(5)).tolist() == [[9, -6, 0]]
    assert KERNEL["shl"](x, np.int32(2)).tolist() == [[48, -4, 20]]
    assert KERNEL["shr"](x, np.int32(1)).tolist() == [[6, -1, 2]]
    assert KERNEL["not"](x).tolist() == [[-13, 0, -6]]
    eight = x.astype(np.float32)
    assert KERNEL["and"](eight, np.float32(6)).tolist() == [[4.0, 6.0, 4.0]]
    assert KERNEL["not"](eight).dtype == np.float32


def test_comparisons() -> None:
    x, y = np.array([[1.0, 2.0, NAN]], np.float32), np.float32(2)
    wanted = {0: [False, True, False], 1: [True, False, True], 2: [True, False, False]}
    wanted |= {3: [True, True, False], 4: [False, False, False], 5: [False, True, False]}
    for code, mask in wanted.items():
        assert cmp(x, y, code).tolist() == [mask]


# --- reductions

shapes = st.lists(st.integers(1, 7), min_size=2, max_size=3)


@given(shapes, st.sampled_from([np.float32, np.int32]), st.integers(0, 2**32))
def test_every_reduction(shape: list[int], dtype: type, seed: int) -> None:
    x: NDArray[Any] = np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)
    loops: dict[str, Callable[[list[Any]], Any]] = {"sum": sum, "max": max, "min": min, "prod": math.prod}
    loops |= {"argmax": lambda line: line.index(max(line)), "argmin": lambda line: line.index(min(line))}
    for axis, way in ((-1, "row"), (-2, "col")):
        kept = list(shape)
        kept[axis] = 1
        lines = np.moveaxis(x, axis, -1).reshape(-1, shape[axis]).tolist()
        for name, loop in loops.items():
            result = KERNEL[f"{way}_{name}"](x)
            assert result.dtype == (np.int32 if name.startswith("arg") else dtype)
            wanted = np.array([loop(line) for line in lines])
            np.testing.assert_array_equal(np.moveaxis(result, axis, -1).ravel(), wanted)
            assert list(result.shape) == kept


@pytest.mark.parametrize(
    "name", ["row_sum", "row_max", "row_min", "row_prod", "col_sum", "col_max", "col_min", "col_prod"]
)
def test_nan_goes_through(name: str) -> None:
    x = np.ones((3, 40), np.float32)
    x[1, 20] = np.nan
    assert np.count_nonzero(np.isnan(KERNEL[name](x))) == 1


@given(st.integers(1, 40), st.integers(1, 700), st.integers(0, 2**32))
def test_the_sum_of_a_row_does_not_depend_on_its_neighbours(rows: int, columns: int, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((rows, columns), dtype=np.float32)
    alone = np.concatenate([KERNEL["row_sum"](x[row : row + 1]) for row in range(rows)])
    np.testing.assert_array_equal(KERNEL["row_sum"](x), alone)
