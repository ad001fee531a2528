"""Rounding of fp32 values to the values of bf16, of fp16, and to whole numbers, in each of the language's modes.

A mode is a function chosen once (`BF16[mode]`, `FP16[mode]`, `WHOLE[mode]`) that takes and returns float32 arrays;
`FP16` saturates, as a cast does, and `FP16_RESULT` overflows to infinity, as arithmetic does.
The bits of the pattern are rounded as an unsigned number: a carry out of the significand moves to the next exponent,
which is the right value. Measured on 256x256: to bf16 "round" 13 us, "rint" 25 us; to fp16 30 to 45 us, where NumPy's
own float16 needs 275 us.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from ml_dtypes import bfloat16

from npuscope.ops.numeric.arrays import Array

Rounding = Callable[[Array], Array]
Words = npt.NDArray[np.uint32]  # the bits of fp32

MODES = ("rint", "round", "floor", "ceil", "trunc", "odd")

_F32, _U32 = np.float32, np.uint32
_ONE, _TOP, _SIGN = _U32(1), _U32(31), _U32(0x80000000)
_BF16_DROPS, _FP16_DROPS = 16, 13  # low bits of an fp32 pattern that the narrower type lacks
_SMALL_TILE = (
    16384  # below it two conversions by ml_dtypes are faster than six passes over the bits (16x256: 3 and 6 us)
)
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
    mask, keep, half, below, shift = (
        _U32(low),
        _U32(0xFFFFFFFF ^ low),
        _U32((low + 1) >> 1),
        _U32(low >> 1),
        _U32(drops),
    )

    def rint(bits: Words) -> Words:
        kept = bits >> shift
        kept &= _ONE
        kept += below
        kept += bits
        kept &= keep
        return kept

    def away(bits: Words) -> Words:
        kept = bits + half
        kept &= keep
        return kept

    def trunc(bits: Words) -> Words:
        return bits & keep

    def odd(bits: Words) -> Words:
        kept = bits & mask
        kept += mask  # carries into the last kept bit exactly if something was dropped
        kept |= bits
        kept &= keep
        return kept

    def floor(bits: Words) -> Words:
        kept = bits >> _TOP
        kept *= mask
        kept += bits
        kept &= keep
        return kept

    def ceil(bits: Words) -> Words:
        kept = bits >> _TOP
        kept ^= _ONE
        kept *= mask
        kept += bits
        kept &= keep
        return kept

    return {"rint": rint, "round": away, "floor": floor, "ceil": ceil, "trunc": trunc, "odd": odd}[mode]


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
    drop, whole = _dropper(_FP16_DROPS, mode), WHOLE[mode]

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


WHOLE: dict[str, Rounding] = {
    "rint": np.rint,
    "round": _whole_away,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "odd": _whole_odd,
}
BF16 = {mode: _to_bf16(mode) for mode in MODES}
FP16 = {mode: _to_fp16(mode, 65504) for mode in MODES}
FP16_RESULT = _to_fp16("rint", np.inf)
