"""The same numbers as torch, whose answers benchmarks/record_torch_casts.py wrote down."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from ml_dtypes import bfloat16

from npuscope.ops import cube, storage
from npuscope.ops.dtypes import BF16, FP16, FP32, INT8, INT32
from npuscope.ops.rounding import cast, round_to

RECORD = Path(__file__).resolve().parents[1] / "data" / "torch_numerics.npz"


@cache
def recorded(name: str) -> np.ndarray:
    with np.load(RECORD) as record:
        return record[name]


def bf16(name: str) -> np.ndarray:
    return storage.load(recorded(name).view(bfloat16), BF16)


def test_fp32_to_bf16_and_fp16() -> None:
    np.testing.assert_array_equal(cast(recorded("wide"), FP32, BF16, "rint"), bf16("wide_bf16"))
    half = storage.load(recorded("near_halves_fp16").view(np.float16), FP16)
    np.testing.assert_array_equal(cast(recorded("near_halves"), FP32, FP16, "rint"), half)


def test_integers_to_floats_and_back() -> None:
    integers, small = recorded("integers"), recorded("small")
    np.testing.assert_array_equal(cast(integers, INT32, FP32, "rint"), recorded("integers_fp32"))
    np.testing.assert_array_equal(cast(integers, INT32, BF16, "rint"), bf16("integers_bf16"))
    np.testing.assert_array_equal(cast(small, FP32, INT32, "rint"), recorded("small_rint_int32"))
    inside = np.clip(small, -128, 127)
    np.testing.assert_array_equal(cast(inside, FP32, INT8, "trunc"), recorded("small_trunc_int8"))


def test_matrix_products() -> None:
    a, b = bf16("a"), bf16("b")
    product = cube.matmul(a, b, False)
    bound = 64 * 2.0**-24 * (np.abs(a) @ np.abs(b))  # two orders of 64 additions
    assert (np.abs(product - recorded("ab")) <= 2 * bound).all()
    # Rounded to bf16 a sum may fall on the other side of a middle: at most one step of 2^-7 away, and seldom.
    rounded, torch_rounded = round_to(product, BF16), bf16("ab_bf16")
    np.testing.assert_allclose(rounded, torch_rounded, rtol=2.0**-7)
    assert np.count_nonzero(rounded != torch_rounded) <= 4
    left, right = recorded("left").astype(np.float32), recorded("right").astype(np.float32)
    np.testing.assert_array_equal(cube.matmul(left, right, True), recorded("left_right"))
