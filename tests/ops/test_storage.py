"""What is stored comes back, from any view of GM."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuscope.ops import storage
from npuscope.ops.dtypes import ALL, BF16, FP16, FP32, INT8, INT32, TASK_ID, DataType

HELD = [dtype for dtype in ALL if dtype is not TASK_ID]


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize("shape", [(256, 256), (65536, 1), (1, 65536)])
def test_every_pattern_is_loaded_and_stored(dtype: DataType, shape: tuple[int, int]) -> None:
    assert dtype.storage is not None
    gm = np.arange(2**16, dtype=np.uint16).reshape(shape).view(dtype.storage)
    tile = storage.load(gm, dtype)
    assert tile.dtype == np.float32
    np.testing.assert_array_equal(tile, gm.astype(np.float32))
    back = np.zeros_like(gm)
    storage.store(back, tile, dtype)
    numbers = ~np.isnan(tile)
    np.testing.assert_array_equal(back.view(np.uint16)[numbers], gm.view(np.uint16)[numbers])
    assert np.isnan(back[~numbers].astype(np.float32)).all()


def test_finite_fp16_takes_the_path_on_the_bits() -> None:
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)].reshape(1, -1)
    for part in (finite[:, ::7], finite[:, :100], finite[:, -3000:]):
        tile = storage.load(part, FP16)
        np.testing.assert_array_equal(tile, part.astype(np.float32))
        back = np.zeros(part.shape, np.float16)
        storage.store(back, tile, FP16)
        np.testing.assert_array_equal(back.view(np.uint16), part.view(np.uint16))


@given(
    st.sampled_from(HELD),
    st.tuples(st.integers(1, 80), st.integers(1, 80)),
    st.tuples(st.integers(0, 5), st.integers(0, 5)),
    st.booleans(),
)
def test_a_window_of_gm_and_nothing_beside_it(
    dtype: DataType, shape: tuple[int, int], offset: tuple[int, int], transposed: bool
) -> None:
    rows, columns = shape
    values = np.arange(rows * columns).reshape(shape) % 100
    gm = np.zeros((100, 100), dtype.storage)
    view = gm[offset[0] : offset[0] + rows, offset[1] : offset[1] + columns]
    if transposed:
        view, values = view.T, values.T
    tile = np.ascontiguousarray(values.astype(dtype.compute))
    storage.store(view, tile, dtype)
    assert np.count_nonzero(gm) == np.count_nonzero(tile)
    loaded = storage.load(view, dtype)
    assert loaded.flags.c_contiguous
    assert loaded.dtype == dtype.compute
    np.testing.assert_array_equal(loaded, tile)
    loaded[...] = 0
    np.testing.assert_array_equal(view.astype(dtype.compute), tile)


def test_poison_is_what_no_program_writes_by_accident() -> None:
    assert math.isnan(storage.poison(BF16))
    assert math.isnan(storage.poison(FP32))
    assert storage.poison(INT8) == -128
    assert storage.poison(INT32) == -(2**31)
    for dtype in HELD:
        poison = storage.poison(dtype)
        gm = np.full((2, 3), poison, dtype.storage)
        tile = storage.new((2, 3), dtype, poison)
        assert gm.dtype == dtype.storage
        assert tile.dtype == dtype.compute
        np.testing.assert_array_equal(storage.load(gm, dtype), tile)
