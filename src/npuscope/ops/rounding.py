"""Rounding and casts of tiles, from compute array to compute array, as the chip's convert instruction does them.

Facts (pto-isa include/pto/npu/a2a3/TCvt.hpp; pypto docs/en/dev/passes/14-legalize_tile_cast.md):
- A pair of types without an instruction goes through `cast_chain`, with the same mode at every step.
- "none" is rint between floats and from an integer to a float, trunc from a float to an integer.
- The low bits are kept from fp16 to int8, uint8 and int16 and from fp32 to int16 (each by way of a saturated int32),
  from int64 to int32 and from int32 to int16. So fp32 300.0 is int8 44. Every other conversion saturates.
- NaN becomes integer 0, and fp32 to fp16 saturates a finite value at 65504 (the expected values of pto-isa's device
  tests, tests/npu/a2a3/src/st/testcase/tcvt; a page of pypto on precision expects infinity instead).
- Arithmetic overflows to infinity: the default mode of these chips (CANN, INF_NAN_MODE_ENABLE).

Assumptions: a cast that overflows bf16 rounds to infinity as in IEEE 754; "odd" sends an inexact value to the neighbour
whose last bit is 1 (the chip has it for fp32 to fp16 only; pto-isa's CPU model breaks ties to odd instead); types the
chip cannot cast at all convert directly; an op's own result is rounded to nearest even.

A returned array may be the argument itself where nothing changes: callers treat tile arrays as immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache

import numpy as np
import numpy.typing as npt
from ml_dtypes import bfloat16

from npuscope.ops.dtypes import (
    BF16,
    BOOL,
    BY_NAME,
    FP16,
    FP32,
    HALF_BYTES,
    INT8,
    INT16,
    INT32,
    SMALL_FLOATS,
    SMALL_WHOLES,
    UINT8,
    UINT16,
    Array,
    DataType,
    Number,
)

Rounding = Callable[[Array], Array]
Words = npt.NDArray[np.uint32]  # the bits of fp32

ROUNDINGS = ("rint", "round", "floor", "ceil", "trunc", "odd")

_F32, _U32 = np.float32, np.uint32
_ZERO, _ONE, _TOP, _SIGN = _U32(0), _U32(1), _U32(31), _U32(0x80000000)
_BF16_DROPS, _FP16_DROPS = 16, 13  # low bits of an fp32 pattern that the narrower type lacks
# Below it two conversions by ml_dtypes are faster than six passes over the bits (16x256: 3 and 6 us).
_SMALL_TILE = 16384
_FP16_MAX = _F32(65504)
_FP16_MAX_SQUARED = 65504.0**2
_FP16_NORMAL = _U32((0x38800000 << 1) - 1)  # 2^-14, the smallest normal number, as `size` in _to_fp16 has it
_UP, _DOWN = _F32(2.0**24), _F32(2.0**-24)  # fp16 subnormals are the multiples of 2^-24
# The largest float below a half: adding it never lifts a value below x.5 to the next whole number, as adding 0.5 can.
_BELOW_HALF = _U32(0x3EFFFFFF)
_HALF = _F32(0.5)


def _dropper(drops: int, mode: str) -> Callable[[Words], Words]:
    """Rounds patterns to a multiple of 2^drops; NaN is the caller's to repair."""
    low = (1 << drops) - 1
    mask, keep, shift = _U32(low), _U32(0xFFFFFFFF ^ low), _U32(drops)
    half, below = _U32((low + 1) >> 1), _U32(low >> 1)

    def run(bits: Words) -> Words:
        if mode == "trunc":
            return bits & keep
        if mode == "round":
            kept = bits + half
        elif mode == "odd":
            kept = bits & mask
            kept += mask  # carries into the last kept bit exactly if something was dropped
            kept |= bits
        else:
            kept = bits >> (shift if mode == "rint" else _TOP)  # the last bit that stays, or the sign
            if mode == "rint":
                kept &= _ONE
                kept += below
            else:
                kept ^= _ONE if mode == "ceil" else _ZERO
                kept *= mask
            kept += bits
        kept &= keep
        return kept

    return run


def _to_bf16(mode: str) -> Rounding:
    drop = _dropper(_BF16_DROPS, mode)
    nearest_even = mode == "rint"

    def run(x: Array) -> Array:
        if nearest_even and x.size < _SMALL_TILE:
            return x.astype(bfloat16).astype(_F32)
        rounded = drop(x.view(_U32)).view(_F32)
        # A sum of squares is NaN exactly if an element is, and BLAS makes it the cheapest test (256x256: 3 us).
        square = np.vdot(x, x)
        if square != square:
            rounded[np.isnan(x)] = np.nan
        return rounded

    return run


def _to_fp16(mode: str, beyond: float) -> Rounding:
    """`beyond`: what a finite value past the largest becomes."""
    drop, whole = _dropper(_FP16_DROPS, mode), TO_WHOLE[mode]

    def run(x: Array) -> Array:
        rounded = drop(x.view(_U32)).view(_F32)
        size = x.view(_U32) << _ONE  # without the sign
        size -= _ONE  # zero, which is common and needs no care, becomes the largest
        small = size < _FP16_NORMAL
        if small.any():
            at = np.flatnonzero(small)
            np.put(rounded, at, np.multiply(whole(np.multiply(x.take(at), _UP)), _DOWN))
        if not np.vdot(x, x) <= _FP16_MAX_SQUARED:  # else all are finite and in range
            over = (np.abs(rounded) > _FP16_MAX) & np.isfinite(x)
            rounded[over] = np.copysign(_F32(beyond), x[over])
            rounded[np.isnan(x)] = np.nan
        return rounded

    return run


def _whole_away(x: Array) -> Array:
    bits = x.view(_U32) & _SIGN
    bits |= _BELOW_HALF
    whole = bits.view(_F32)
    np.add(whole, x, out=whole)
    return np.trunc(whole, out=whole)


def _whole_odd(x: Array) -> Array:
    down = np.floor(x)
    half = down * _HALF
    down += (np.floor(half) == half) & (down != x)
    return down


TO_WHOLE: dict[str, Rounding] = {
    "rint": np.rint,
    "round": _whole_away,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "odd": _whole_odd,
}
TO_BF16 = {mode: _to_bf16(mode) for mode in ROUNDINGS}
TO_FP16 = {mode: _to_fp16(mode, 65504) for mode in ROUNDINGS}
TO_FP16_RESULT = _to_fp16("rint", np.inf)


def _to_small(dtype: DataType, mode: str) -> Rounding:
    """To a float of 8 or 4 bits, by its values: 256 or 16. What is past the last one becomes the last one."""
    assert dtype.storage is not None
    codes = np.arange(16 if dtype in HALF_BYTES else 256, dtype=np.uint8)
    values = codes.view(dtype.storage).astype(_F32)
    finite = np.isfinite(values)
    order = np.argsort(values[finite], kind="stable")
    table, odd = values[finite][order], (codes[finite][order] & 1).astype(bool)
    has_nan = bool(np.isnan(values).any())

    def run(x: Array) -> Array:
        above = np.searchsorted(table, x).clip(0, table.size - 1)  # the first value that is not below
        below = np.where(table[above] == x, above, above - 1).clip(0)
        up, down = table[above], table[below]
        if mode in ("floor", "ceil", "trunc"):
            high = np.full(x.shape, mode == "ceil") if mode != "trunc" else x < 0
        elif mode == "odd":
            high = odd[above]
        else:
            nearer = np.subtract(up, x) - np.subtract(x, down)
            high = (nearer < 0) | ((nearer == 0) & (~odd[above] if mode == "rint" else x > 0))
        rounded: Array = np.where(high, up, down).astype(_F32)
        if has_nan:
            rounded[np.isnan(x)] = np.nan
        return rounded

    return run


TO_SMALL = {dtype: {mode: _to_small(dtype, mode) for mode in ROUNDINGS} for dtype in SMALL_FLOATS}

# --- which casts are one instruction, and the chain of instructions for the others

NATIVE_CASTS = {  # of A2 and A3, as their device files have it
    "fp32": ("fp16", "bf16", "int16", "int32", "int64"),
    "fp16": ("fp32", "int32", "int16", "int8", "uint8", "int4"),
    "bf16": ("fp32", "int32"),
    "int16": ("fp16", "fp32"),
    "int32": ("fp32", "int16", "int64", "fp16"),
    "int64": ("fp32", "int32"),
    "uint8": ("fp16",),
    "int8": ("fp16",),
    "int4": ("fp16",),
}
_LONGEST = 4
_FLOATS = {"fp32": (24, 8), "fp16": (11, 5), "bf16": (8, 8)}  # bits of significand and exponent


def cast_chain(source: str, target: str, native: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """The types (in small letters) that a cast passes through, the target last; () where there is no chain.

    The rule of pypto's LegalizeTileCast pass: the shortest chain whose intermediates hold every value of the target.
    Among equals the one with most floats (the pass says "the float of the same width first", which for these tables
    is the same). The compiler refuses a pair without such a chain, as int8 to fp32 on A2.
    """
    paths: list[tuple[str, ...]] = [(source,)]
    for _ in range(_LONGEST):
        paths = [(*path, step) for path in paths for step in native.get(path[-1], ()) if step not in path]
        complete = [path for path in paths if path[-1] == target]
        if complete:
            return min(complete, key=lambda path: (sum(step not in _FLOATS for step in path), path))[1:]
        paths = [path for path in paths if _holds(path[-1], target)]
    return ()


def _holds(middle: str, target: str) -> bool:
    """Whether a chain may pass through `middle`: not when that provably loses values the target could have kept."""
    if target in _FLOATS:
        return middle in _FLOATS and all(a >= b for a, b in zip(_FLOATS[middle], _FLOATS[target], strict=True))
    signed, bits = _whole_range(target)
    if middle in _FLOATS:
        return _FLOATS[middle][0] >= bits
    middle_signed, middle_bits = _whole_range(middle)
    return middle_signed >= signed and middle_bits >= bits


def _whole_range(dtype: str) -> tuple[bool, int]:
    """Of a type of whole numbers: whether it has a sign, and its bits without that."""
    signed = not dtype.startswith("u")
    return signed, int("".join(filter(str.isdigit, dtype)) or 1) - signed


# --- casts

Step = Callable[[Array], Array]

MODES = ("none", *ROUNDINGS)

_I32, _I64 = np.int32, np.int64
_largest, _lowest = np.maximum.reduce, np.minimum.reduce
_FP32_WHOLE, _FP16_WHOLE, _BF16_WHOLE = 2**24, 2**11, 2**8  # every whole number up to here is a value of the type
_LOW_BITS = {(FP16, INT8), (FP16, UINT8), (FP16, INT16), (FP32, INT16)}


def cast(array: Array, source: DataType, target: DataType, mode: str) -> Array:
    """The tile (or array without axes) of `source` values as `target` values, in one of MODES."""
    if not array.ndim:
        return cast(array.reshape(1), source, target, mode).reshape(())
    for step in _plan(source, target, mode):
        array = step(array)
    return array


def round_to(array: Array, dtype: DataType) -> Array:
    """An op's result as a tile of `dtype`: floats to nearest even, integers cut to whole numbers and wrapped."""
    if dtype is FP32:
        return array if array.dtype == _F32 else array.astype(_F32)
    if dtype is BF16:
        return TO_BF16["rint"](array)
    if dtype is FP16:
        return TO_FP16_RESULT(array)
    if dtype in TO_SMALL:
        return TO_SMALL[dtype]["rint"](array.astype(_F32, copy=False))
    if dtype in _NARROW:
        return _NARROW[dtype](np.trunc(array) if array.dtype == _F32 else array)
    return array if array.dtype == dtype.compute else array.astype(dtype.compute)


def _within(x: Array, low: Number, high: Number) -> bool:
    """Whether no element is outside, nor NaN."""
    return bool(not x.size or (_largest(x, axis=None) <= high and _lowest(x, axis=None) >= low))


@cache
def _plan(source: DataType, target: DataType, mode: str) -> tuple[Step, ...]:
    """The steps of the chain, without those that change no value."""
    if source == target:
        return ()
    steps: list[Step] = []
    chain = cast_chain(source.name.lower(), target.name.lower(), NATIVE_CASTS)
    for step in [BY_NAME[name.upper()] for name in chain] or [target]:
        steps += _one_cast(source, step, mode)
        source = step
    return tuple(steps)


def _one_cast(source: DataType, target: DataType, mode: str) -> list[Step]:
    if target is BOOL:
        return [lambda x: np.not_equal(x, 0)]
    if target.is_float:
        return _to_float(source, target, "rint" if mode == "none" else mode)
    if source.is_float:
        return [_float_to_int(source, target, "trunc" if mode == "none" else mode)]
    return [_NARROW[target] if target in _NARROW else _to_compute(target)]


def _to_float(source: DataType, target: DataType, mode: str) -> list[Step]:
    if target is FP32:
        return [_int_to_fp32(mode)] if source.compute != _F32 else []
    if source in (INT8, UINT8, *SMALL_WHOLES) and target is FP16:
        return []
    if target in TO_SMALL:
        narrow = TO_SMALL[target][mode]
        return [narrow] if source.compute == _F32 else [lambda x: narrow(x.astype(_F32))]
    narrow = (TO_BF16 if target is BF16 else TO_FP16)[mode]
    return (
        [narrow] if source.compute == _F32 else [_int_to_narrow(narrow, _BF16_WHOLE if target is BF16 else _FP16_WHOLE)]
    )


def _int_to_narrow(narrow: Step, exact: int) -> Step:
    def run(x: Array) -> Array:
        # An integer that fp32 cannot hold is far outside fp16, so the one instruction int32 to fp16 rounds once too.
        near = x.astype(_F32)
        if _within(near, -exact, exact):
            return near
        return narrow(near)

    return run


def _to_compute(dtype: DataType) -> Step:
    return lambda x: x if x.dtype == dtype.compute else x.astype(dtype.compute)


def _wrapper(dtype: DataType) -> Step:
    """Whole numbers modulo the width of a type of at most 16 bits."""
    low, high = dtype.limits

    def run(x: Array) -> Array:
        if x.dtype == dtype.compute and _within(x, low, high):
            return x
        if x.dtype == _F32:
            x = x.astype(_I64)
        return x.astype(dtype.storage).astype(dtype.compute)

    return run


_NARROW = {dtype: _wrapper(dtype) for dtype in (INT8, UINT8, INT16, UINT16, *SMALL_WHOLES)}


def _float_to_int(source: DataType, target: DataType, mode: str) -> Step:
    whole_of = TO_WHOLE[mode]
    least, largest = target.limits
    low = _F32(least)
    # The largest float in range: 2^31 and 2^63 themselves are not.
    high = _F32(largest) if largest < _FP32_WHOLE else np.nextafter(_F32(largest), _F32(0))
    compute = target.compute
    low_bits = (source, target) in _LOW_BITS

    def run(x: Array) -> Array:
        whole = whole_of(x)
        if _within(whole, low, high):
            return whole if compute == _F32 else whole.astype(compute)
        if low_bits:
            return _NARROW[target](_saturate(whole, INT32))
        return _saturate(whole, target).astype(compute)

    return run


def _saturate(whole: Array, target: DataType) -> Array:
    """Whole floats within the range of an integer type, in its storage type; NaN is 0."""
    least, largest = target.limits
    above, below = whole >= float(largest), whole <= float(least)
    result = np.where(above | below | np.isnan(whole), _F32(0), whole).astype(target.storage)
    result[above] = largest
    result[below] = least
    return result


def _int_to_fp32(mode: str) -> Step:
    if mode == "rint":
        return lambda x: x.astype(_F32)

    def run(x: Array) -> Array:
        near = x.astype(_F32)  # to nearest even
        if _within(near, -_FP32_WHOLE, _FP32_WHOLE):
            return near
        return _directed(near, x.astype(np.longdouble), mode)

    return run


def _directed(near: Array, exact: Array, mode: str) -> Array:
    """fp32 by `mode`, of exact values and their nearest fp32 neighbours: those, or the ones beyond the exact value."""
    error = np.subtract(near, exact)
    beyond = np.nextafter(near, np.where(error > 0, -np.inf, np.inf).astype(_F32))
    if mode == "round":
        swap = (np.abs(error) == np.abs(beyond - exact)) & (np.abs(beyond) > np.abs(near))
    elif mode == "floor":
        swap = error > 0
    elif mode == "ceil":
        swap = error < 0
    elif mode == "trunc":
        swap = np.abs(near) > np.abs(exact)
    else:
        swap = near.view(_U32) % 2 == 0
    return np.where(swap & (error != 0), beyond, near)
