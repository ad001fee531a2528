from __future__ import annotations

import tracemalloc
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from npuscope.ops import dtypes
from npuscope.tile.golden import ScalarSpec, TensorSpec


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        (None, [[0, 0], [0, 0]]),
        (1.5, [[1.5, 1.5], [1.5, 1.5]]),
        (np.ones, [[1, 1], [1, 1]]),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array([[1, 2], [3, 4]]).T, [[1, 3], [2, 4]]),
        (lambda: np.eye(2), [[1, 0], [0, 1]]),
        (lambda scale=2.0: scale * np.eye(2), [[2, 0], [0, 2]]),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, "float16", ml_dtypes.bfloat16, dtypes.BF16])
def test_an_array_is_made_as_its_spec_says(init, expected, dtype) -> None:
    spec = TensorSpec("x", [2, 2], dtype, init_value=init)
    made = spec.create_tensor()
    assert made.dtype == spec.storage
    assert made.flags.c_contiguous
    assert made.astype(float).tolist() == expected


@pytest.mark.parametrize("value", [0, 3, -1.0])
def test_weights_filled_with_a_number_take_no_more_memory_than_they_hold(value) -> None:
    spec = TensorSpec("w", [1 << 10, 1 << 10], np.int8, init_value=value)
    tracemalloc.start()
    made: Any = spec.create_tensor()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (made == value).all()
    assert most < 2 * made.nbytes  # as Python's whole numbers eight times as much


def test_a_callable_with_a_parameter_gets_a_seeded_generator() -> None:
    spec = TensorSpec("x", [3, 4], np.float32, init_value=lambda rng: rng.standard_normal((3, 4)))
    again = TensorSpec("x", [3, 4], np.float32, init_value=lambda rng: rng.standard_normal((3, 4)))
    other = TensorSpec("y", [3, 4], np.float32, init_value=lambda rng: rng.standard_normal((3, 4)))
    first, second, third = (np.asarray(one.create_tensor()) for one in (spec, again, other))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, third)  # inputs are not copies of one another


def test_an_output_does_not_write_into_the_users_array() -> None:
    cache = np.ones((2, 2), np.float32)
    made: Any = TensorSpec("cache", [2, 2], np.float32, init_value=cache, is_output=True).create_tensor()
    made[:] = 7
    assert cache.sum() == 4


def test_a_value_of_another_shape_is_refused() -> None:
    spec = TensorSpec("x", [2, 3], np.float32, init_value=lambda: np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"'x'.*\(3, 2\).*\(2, 3\)"):
        spec.create_tensor()


def test_a_value_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match=r"'x'.*str"):
        TensorSpec("x", [1], np.float32, init_value="randn").create_tensor()


@pytest.mark.parametrize("resident", [True, -1, "all", 1.5])
def test_where_a_tensor_stays_must_be_clear(resident) -> None:
    with pytest.raises(ValueError, match="resident"):
        TensorSpec("x", [1], np.float32, resident=resident)


@pytest.mark.parametrize(
    ("resident", "stays"), [(None, False), (False, False), (0, True), (3, True), ("stacked", True)]
)
def test_places_a_tensor_may_stay(resident, stays) -> None:
    assert TensorSpec("x", [1], np.float32, resident=resident).is_resident is stays


@pytest.mark.parametrize(
    ("dtype", "given", "seen"),
    [
        (np.int32, 4096, 4096),
        (dtypes.INT8, -128, -128),
        (np.bool_, True, True),
        (np.float32, 0.1, 0.10000000149011612),  # the nearest float32
        (np.float16, 0.1, 0.0999755859375),
        (dtypes.BF16, 0.1, 0.10009765625),
        (np.float32, 3, 3.0),
        (np.int64, np.array(5, np.int64), 5),
    ],
)
def test_a_scalar_is_what_its_dtype_can_hold(dtype, given, seen) -> None:
    value = ScalarSpec("s", dtype, given).to_python()
    assert value == seen
    assert type(value) is type(seen)


@pytest.mark.parametrize(
    ("dtype", "given", "says"),
    [
        (np.int8, 128, "out of range"),
        (np.uint8, -1, "out of range"),
        (np.int32, 1.0, "requires int"),
        (np.int32, True, "requires int"),
        (np.bool_, 1, "requires bool"),
        (np.float32, "1", "requires int or float"),
        (np.float64, 1.0, "unsupported dtype"),
        (np.int64, np.zeros(2, np.int64), "no scalar"),
        (np.int64, np.array(1, np.int32), "does not match"),
    ],
)
def test_a_scalar_that_does_not_fit_is_refused(dtype, given, says) -> None:
    with pytest.raises(ValueError, match=says):
        ScalarSpec("s", dtype, given)
