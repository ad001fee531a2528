"""Casts against exact rational arithmetic, against ml_dtypes and NumPy, and against what is known of the chip."""

from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction
from functools import cache

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuscope.chip.devices import load
from npuscope.ops.dtypes import (
    ALL,
    BF16,
    BOOL,
    FP16,
    FP32,
    INT8,
    INT16,
    INT32,
    INT64,
    SMALL_FLOATS,
    SMALL_WHOLES,
    UINT8,
    UINT16,
    DataType,
)
from npuscope.ops.rounding import MODES, NATIVE_CASTS, cast, cast_chain, round_to

ROUNDING = MODES[1:]
STORAGE = {BF16: ml_dtypes.bfloat16, FP16: np.float16}


def floats(*values: float) -> np.ndarray:
    return np.array([values], np.float32)


# What each mode means, said once, about the two neighbours of a value that is none of them.
def chosen(value: Fraction, low: Fraction, high: Fraction, low_is_even: bool, mode: str) -> Fraction:
    middle = (low + high) / 2
    if mode == "floor":
        return low
    if mode == "ceil":
        return high
    if mode == "trunc":
        return low if value > 0 else high
    if mode == "odd":
        return high if low_is_even else low
    if value != middle:
        return low if value < middle else high
    if mode == "round":
        return high if value > 0 else low
    return low if low_is_even else high


@cache
def values_of(dtype: DataType) -> tuple[list[Fraction], list[bool]]:
    """The finite values of a 2-byte type in order, and whether their last bits are 0; at both ends a power of two."""
    patterns = np.arange(2**15, dtype=np.uint16)
    numbers = patterns.view(STORAGE[dtype]).astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    positive = [Fraction(float(number)) for number in finite]
    positive.append(Fraction(2) ** (128 if dtype is BF16 else 16))
    even = [pattern % 2 == 0 for pattern in range(len(positive))]
    return [-value for value in positive[:0:-1]] + positive, even[:0:-1] + even


def expected(value: float, dtype: DataType, mode: str) -> float:
    if not math.isfinite(value):
        return value
    exact = Fraction(value)
    values, even = values_of(dtype)
    if abs(exact) >= values[-1]:
        result = math.copysign(math.inf, value)
        if mode in ("trunc", "odd") or mode == ("floor" if value > 0 else "ceil"):
            result = float(values[-2] if value > 0 else values[1])
    else:
        at = bisect_right(values, exact) - 1
        low = values[at]
        picked = low if low == exact else chosen(exact, low, values[at + 1], even[at], mode)
        result = math.inf if picked == values[-1] else -math.inf if picked == values[0] else float(picked)
    return max(-65504.0, min(65504.0, result)) if dtype is FP16 else result


def awkward() -> np.ndarray:
    """fp32 values on, beside and half way between values of the narrower types, of every size, and some at random."""
    rng = np.random.default_rng(5)
    uppers = rng.integers(0, 2**16, 500, dtype=np.uint32) << 16
    lows = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x1000, 0xFFF, 0x1001], np.uint32)
    halves = rng.integers(0, 2**16, 400, dtype=np.uint16).view(np.float16).astype(np.float32)
    scaled = [halves * np.float32(1 + k * 2.0**-12) for k in (-1, 0, 1, 2)]
    patterns = np.concatenate(((uppers[:, None] | lows).ravel(), rng.integers(0, 2**32, 500, dtype=np.uint32)))
    limits = [65504, 65519.996, 65520, 65535.996, 65536, 3.4028235e38, 3.3895314e38, 2.0**-24, 2.0**-25, 2.0**-149]
    return np.concatenate((patterns.view(np.float32), *scaled, floats(*limits)[0], -floats(*limits)[0]))


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize("mode", ROUNDING)
def test_rounds_as_exact_arithmetic_does(dtype: DataType, mode: str) -> None:
    tile = awkward()
    rounded = cast(tile, FP32, dtype, mode)
    wanted = np.array([expected(float(value), dtype, mode) for value in tile], np.float32)
    np.testing.assert_array_equal(rounded, wanted)
    known = ~np.isnan(tile)
    np.testing.assert_array_equal(np.signbit(rounded[known]), np.signbit(tile[known]))


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize("mode", MODES)
def test_every_value_of_a_type_is_kept(dtype: DataType, mode: str) -> None:
    every = np.arange(2**16, dtype=np.uint16).view(STORAGE[dtype]).astype(np.float32)
    np.testing.assert_array_equal(cast(every, FP32, dtype, mode), every)


def test_nearest_even_agrees_with_ml_dtypes_and_numpy() -> None:
    lows = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    tile = ((np.arange(2**16, dtype=np.uint32) << 16)[:, None] | lows).view(np.float32)
    rounded = cast(tile, FP32, BF16, "rint")
    np.testing.assert_array_equal(rounded, tile.astype(ml_dtypes.bfloat16).astype(np.float32))
    half = tile.astype(np.float16).astype(np.float32)
    saturated = np.where(np.isinf(half) & np.isfinite(tile), np.copysign(np.float32(65504), tile), half)
    np.testing.assert_array_equal(cast(tile, FP32, FP16, "rint"), saturated)


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [1, 40000])  # below and above the tile size where another method is faster
def test_nan_and_infinity_stay_in_their_places(dtype: DataType, mode: str, size: int) -> None:
    """Also NaN patterns whose set bits are all dropped, or that would carry into the sign."""
    patterns = np.array([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF800001, 0x7FC00000, 0x7F800000, 0xFF800000], np.uint32)
    tile = np.concatenate((patterns.view(np.float32), np.ones(size, np.float32)))
    rounded = cast(tile, FP32, dtype, mode)
    np.testing.assert_array_equal(rounded, tile)


def test_none_is_rint_between_floats_and_trunc_to_integers() -> None:
    tile = awkward()
    np.testing.assert_array_equal(cast(tile, FP32, BF16, "none"), cast(tile, FP32, BF16, "rint"))
    np.testing.assert_array_equal(cast(tile, FP32, INT32, "none"), cast(tile, FP32, INT32, "trunc"))


@given(st.lists(st.floats(width=32), min_size=1, max_size=20), st.sampled_from(ROUNDING))
def test_float_to_int32_is_exact_then_saturates(values: list[float], mode: str) -> None:
    values += [0.49999997, 0.5, 1.5, 2.5, 8388607.5, 8388609.0, 2147483520.0, 2.0**31, -(2.0**31)]
    values += [-value for value in values]
    with np.errstate(all="ignore"):
        got = cast(floats(*values), FP32, INT32, mode)[0].tolist()
    for value, integer in zip(values, got, strict=True):
        if math.isnan(value):
            assert integer == 0
            continue
        if math.isinf(value):
            assert integer == (2**31 - 1 if value > 0 else -(2**31))
            continue
        low = math.floor(value)
        exact = low if low == value else chosen(Fraction(value), Fraction(low), Fraction(low + 1), low % 2 == 0, mode)
        assert integer == max(-(2**31), min(2**31 - 1, exact)), (value, mode)


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**31), 2**31 - 1), min_size=1), st.sampled_from(ROUNDING)
)
def test_int_to_fp32_rounds_in_every_mode(values: list[int], mode: str) -> None:
    with np.errstate(all="ignore"):
        got = cast(np.array([values], np.int64), INT64, FP32, mode)[0]
        small = [value for value in values if abs(value) < 2**31]
        narrow = cast(np.array([small], np.int32), INT32, FP32, mode)[0]
    wanted = {}
    for value in values:
        step = Fraction(2) ** max(0, abs(value).bit_length() - 24)
        low = math.floor(value / step)
        exact = (
            low * step
            if low * step == value
            else chosen(Fraction(value), low * step, (low + 1) * step, low % 2 == 0, mode)
        )
        wanted[value] = float(exact)
    assert got.tolist() == [wanted[value] for value in values]
    assert narrow.tolist() == [wanted[value] for value in small]


def test_overflow_to_the_small_integers_keeps_the_low_bits() -> None:
    """pto-isa's a2a3 TCVT: 300 is 44 in int8, and so on; by way of a saturated int32."""
    tile = floats(300, -129, 127, -128, 70000, 1e10, np.inf, np.nan)
    # fp32 -> fp16 saturates 70000, 1e10 at 65504 = 0xFFE0; infinity is the largest int32, whose low bits are all ones.
    assert cast(tile, FP32, INT8, "rint").tolist() == [[44, 127, 127, -128, -32, -32, -1, 0]]
    assert cast(tile, FP32, UINT8, "rint").tolist() == [[44, 127, 127, 128, 224, 224, 255, 0]]
    # 70000 - 65536 = 4464; 1e10 saturates at 2^31 - 1.
    assert cast(tile, FP32, INT16, "rint").tolist() == [[300, -129, 127, -128, 4464, -1, -1, 0]]
    wide = np.array([[70000, -70000, 2**31 - 1]], np.int32)
    assert cast(wide, INT32, INT16, "none").tolist() == [[4464, -4464, -1]]
    assert cast(np.array([[2**32 + 5]]), INT64, INT32, "none").tolist() == [[5]]


def test_a_chain_rounds_at_every_hop() -> None:
    # bf16 has steps of 2^23 at 2^30. One above the middle goes up, but fp32, in steps of 2^7, makes it the middle.
    number = 2**30 + 2**22 + 1
    assert cast(np.array([[number]], np.int32), INT32, BF16, "rint").tolist() == [[2.0**30]]
    # fp16 has steps of 2^-12 below 0.5, so 0.49998 becomes 0.5 there and 1 in int8, not 0.
    assert cast(floats(0.49998), FP32, INT8, "round").tolist() == [[1]]


def test_the_quantisation_of_the_public_models() -> None:
    """fp32 rint to int32, round to fp16, trunc to int8: ties to even, and every int8 value is kept."""
    tile = np.arange(-256, 255, dtype=np.float32)[None] / 2
    whole = cast(tile, FP32, INT32, "rint")
    eight = cast(cast(whole, INT32, FP16, "round"), FP16, INT8, "trunc")
    assert eight.dtype == np.float32
    np.testing.assert_array_equal(eight, np.rint(tile))


# pypto's LegalizeTileCast page for a2a3: source -> casts of one instruction, of two, of three. Others are refused.
CHAINS = {
    "bf16": ("fp32 int32", "fp16 int16", "int4 int8 uint8"),
    "fp16": ("fp32 int16 int32 int4 int8 uint8", "bf16", ""),
    "fp32": ("bf16 fp16 int16 int32 int64", "int4 int8 uint8", ""),
    "int16": ("fp16 fp32", "bf16 int4 int8 uint8", ""),
    "int32": ("fp16 fp32 int16 int64", "bf16 int4 int8 uint8", ""),
    "int4": ("fp16", "int8 uint8", ""),
    "int64": ("fp32 int32", "bf16 fp16 int16", "int4 int8 uint8"),
    "int8": ("fp16", "int4 uint8", ""),
    "uint8": ("fp16", "int4 int8", ""),
}


def native_casts(device: str) -> dict[str, frozenset[str]]:
    rules = load(device).rules
    assert rules is not None
    return rules.casts


def test_number_of_instructions_of_each_cast() -> None:
    native = native_casts("ascend910b1")
    assert native == {source: frozenset(targets) for source, targets in NATIVE_CASTS.items()}
    for source, counts in CHAINS.items():
        for number, targets in enumerate(counts, start=1):
            found = [target for target in native if len(cast_chain(source, target, native)) == number]
            assert sorted(found) == targets.split()
    assert cast_chain("fp32", "int8", native) == ("fp16", "int8")
    assert cast_chain("bf16", "int16", native) == ("fp32", "int16")
    assert cast_chain("int32", "fp16", native_casts("ascend950")) == ("fp32", "fp16")


LARGE = [dtype for dtype in ALL if dtype.storage is not None and dtype not in (*SMALL_FLOATS, *SMALL_WHOLES)]


@pytest.mark.parametrize("source", LARGE)
@pytest.mark.parametrize("target", LARGE)
def test_small_whole_numbers_survive_every_cast(source: DataType, target: DataType) -> None:
    tile = np.array([[0, 1, 2, 100, 127]]).astype(source.compute)
    original = tile.copy()
    for mode in MODES:
        result = cast(tile, source, target, mode)
        assert result.dtype == target.compute
        assert result.tolist() == (tile.astype(bool).tolist() if BOOL in (source, target) else [[0, 1, 2, 100, 127]])
    np.testing.assert_array_equal(tile, original)


def test_results_of_ops_are_rounded_or_wrapped() -> None:
    assert round_to(floats(1 + 2**-8, 1 + 3 * 2**-8), BF16).tolist() == [[1.0, 1 + 2**-6]]
    assert round_to(floats(2049, 65519, -65520), FP16).tolist() == [[2048.0, 65504.0, -math.inf]]
    assert round_to(floats(128, -129, 5), INT8).tolist() == [[-128, 127, 5]]
    assert round_to(floats(7 / 2, -7 / 2), INT8).tolist() == [[3, -3]]
    assert round_to(floats(256, -1, 200), UINT8).tolist() == [[0, 255, 200]]
    assert round_to(np.array([[32768, 65536, -5]], np.int32), INT16).tolist() == [[-32768, 0, -5]]
    assert round_to(np.array([[65536, -1, 7]], np.int32), UINT16).tolist() == [[0, 65535, 7]]
    same = floats(1.1)
    assert round_to(same, FP32) is same


@pytest.mark.parametrize("target", [BF16, FP16, INT8, INT32])
def test_a_transposed_tile_rounds_the_same(target: DataType) -> None:
    tile = np.random.default_rng(2).standard_normal((48, 33)).astype(np.float32) * np.float32(3e-5)
    tile[0, 0], tile[1, 2] = np.nan, 1e6
    np.testing.assert_array_equal(cast(tile.T, FP32, target, "round").T, cast(tile, FP32, target, "round"))


@pytest.mark.parametrize("target", [BF16, FP16, INT8, INT32])
@pytest.mark.parametrize("mode", MODES)
def test_one_number_without_axes(target: DataType, mode: str) -> None:
    for value in (1.5, 1e-7, 1e9, math.nan):
        one = cast(np.asarray(np.float32(value)), FP32, target, mode)
        assert one.shape == ()
        np.testing.assert_array_equal(one, cast(floats(value), FP32, target, mode)[0, 0])
