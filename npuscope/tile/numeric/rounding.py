"""Casts between the data types, from compute format to compute format, value for value as the chip's convert instruction.

Facts (pto-isa include/pto/npu/a2a3/TCvt.hpp, pypto docs/en/dev/passes/14-legalize_tile_cast.md):
- A pair without an instruction goes through the chain of `casts.hops`, with the same mode at every hop.
- "none" is rint between floats and trunc from a float to an integer.
- Narrowing that keeps the low bits: fp16 to int8, uint8 and int16, fp32 to int16 (all by way of a saturated int32), int64 to
  int32, int32 to int16. Every other conversion saturates.
- fp32 to fp16 saturates a finite value at 65504 (the language's docs; one of its pages expects infinity instead).
Assumptions: NaN becomes integer 0; a bf16 overflow rounds to infinity as in IEEE; "odd" is round-to-odd (an inexact value goes
to the neighbour whose last bit is 1), which the chip has for fp32 to fp16 only; an op's result is rounded to nearest even.

A returned array may be the argument itself where nothing changes: callers treat tile arrays as immutable.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from npuscope.tile.dtypes import BF16, BOOL, FP16, FP32, INT8, INT16, INT32, UINT8, UINT16, DataType
from npuscope.tile.numeric.casts import hops

Array = npt.NDArray[Any]
Step = Callable[[Array], Array]

MODES = ("none", "rint", "round", "floor", "ceil", "trunc", "odd")

_F32, _U32, _I32, _I64 = np.float32, np.uint32, np.int32, np.int64
_ONE, _SIGN_AT = _U32(1), _U32(31)
_BF16_DROPS, _FP16_DROPS = 16, 13  # low bits of an fp32 pattern that the narrower type lacks
_FP16_MAX, _FP16_NORMAL = _F32(65504), _F32(2.0**-14)
_BELOW_HALF = _F32(0.49999997)  # largest float below 0.5: adding it never carries a value below x.5 to the next integer

_steps: dict[tuple[str, str, str], tuple[Step, ...]] = {}


def cast(array: Array, source: DataType, target: DataType, mode: str) -> Array:
    """The tile of `source` values as `target` values, in one of MODES."""
    key = (source.name, target.name, mode)
    steps = _steps.get(key)
    if steps is None:
        steps = _steps[key] = _plan(source, target, mode)
    for step in steps:
        array = step(array)
    return array


def round_to(array: Array, dtype: DataType) -> Array:
    """An op's result in the compute type, as a tile of `dtype`: floats to nearest even, integers wrapped to their width."""
    if dtype is FP32:
        return array if array.dtype == _F32 else array.astype(_F32)
    if dtype is BF16:
        return _to_bf16(array, "rint")
    if dtype is FP16:
        return _to_fp16(array, "rint")
    if dtype is INT8 or dtype is UINT8 or dtype is INT16 or dtype is UINT16:
        return _wrap(array, dtype)
    return array if array.dtype == dtype.compute else array.astype(dtype.compute)


def _plan(source: DataType, target: DataType, mode: str) -> tuple[Step, ...]:
    """The steps of the chain, without those that keep every value."""
    if source == target:
        return ()
    steps: list[Step] = []
    for hop in hops(source, target) or (target,):
        steps += _hop(source, hop, mode)
        source = hop
    return tuple(steps)


def _hop(source: DataType, target: DataType, mode: str) -> list[Step]:
    if target is BOOL:
        return [partial(np.not_equal, 0)]
    if target.is_float:
        steps: list[Step] = []
        if source.is_int and source.compute != target.compute:
            steps.append(partial(_int_to_fp32, mode=mode if target is FP32 else "rint"))
        exact = target is FP32 or source is target or (source in (INT8, UINT8) and target is FP16)
        if not exact:
            steps.append(partial(_to_bf16 if target is BF16 else _to_fp16, mode="rint" if mode == "none" else mode))
        return steps
    if source.is_float:
        mode = "trunc" if mode == "none" else mode
        return [partial(_float_to_int, target=target, wraps=(source, target) in _WRAPS, mode=mode)]
    return [partial(_int_to_int, target=target)]


_WRAPS = {(FP16, INT8), (FP16, UINT8), (FP16, INT16), (FP32, INT16)}


def _drop(bits: Array, drops: int, mode: str) -> Array:
    """fp32 patterns (no NaN) without their `drops` low bits, rounded by `mode`; a carry into the exponent is the right one."""
    low = (1 << drops) - 1
    if mode == "round":
        kept = bits + _U32((low + 1) >> 1)
    elif mode == "rint":
        kept = bits >> _U32(drops)
        kept &= _ONE
        kept += _U32(low >> 1)
        kept += bits
    elif mode == "trunc":
        return bits & _U32(~low & 0xFFFFFFFF)
    elif mode == "odd":
        kept = ((bits & _U32(low)) != 0).astype(_U32)
        kept <<= _U32(drops)
        kept |= bits
    else:  # floor adds to negative values, ceil to positive ones
        kept = bits >> _SIGN_AT
        if mode == "ceil":
            kept ^= _ONE
        kept *= _U32(low)
        kept += bits
    kept &= _U32(~low & 0xFFFFFFFF)
    return kept


def _to_bf16(x: Array, mode: str) -> Array:
    rounded = _drop(x.view(_U32), _BF16_DROPS, mode).view(_F32)
    # A sum of squares is NaN exactly if an element is, and BLAS makes it the cheapest test (256x256: 3 us).
    if np.isnan(np.vdot(x, x)):
        rounded[np.isnan(x)] = np.nan
    return rounded


def _to_fp16(x: Array, mode: str) -> Array:
    rounded = _drop(x.view(_U32), _FP16_DROPS, mode).view(_F32)
    size = np.abs(x)
    small = size < _FP16_NORMAL
    if small.any():  # multiples of 2^-24 there, the type's subnormals
        rounded[small] = _integral(x[small] * _F32(2.0**24), mode) * _F32(2.0**-24)
    if not np.vdot(x, x) <= _FP16_MAX * _FP16_MAX:  # so all are finite and in range, or look
        over = (np.abs(rounded) > _FP16_MAX) & np.isfinite(x)
        rounded[over] = np.copysign(_FP16_MAX, x[over])
        rounded[np.isnan(x)] = np.nan
    return rounded


def _integral(x: Array, mode: str) -> Array:
    """Whole numbers, as floats, by `mode`."""
    if mode == "rint":
        return np.rint(x)
    if mode == "trunc":
        return np.trunc(x)
    if mode == "round":
        whole = np.copysign(_BELOW_HALF, x)
        whole += x
        return np.trunc(whole, out=whole)
    if mode == "floor":
        return np.floor(x)
    if mode == "ceil":
        return np.ceil(x)
    down = np.floor(x)
    half = down * _F32(0.5)
    even = np.floor(half) == half
    return np.where((down != x) & even, down + _F32(1), down)


def _float_to_int(x: Array, target: DataType, wraps: bool, mode: str) -> Array:
    whole = _integral(x, mode)
    largest = np.vdot(whole, whole)
    if target.compute == _F32:
        if not largest <= 127.0 * 127.0 or target is UINT8:
            wide = _saturate(whole, INT32)
            return _wrap(wide.astype(np.float64), target) if wraps else _saturate(whole, target).astype(_F32)
        return whole
    if wraps:
        return _wrap(_saturate(whole, INT32), target)
    if target is INT32 and largest < 2.0**60:
        return whole.astype(_I32)
    return _saturate(whole, target).astype(target.compute)


def _saturate(whole: Array, target: DataType) -> Array:
    """Whole floats within the range of an integer type, in that type; NaN is 0."""
    limits = np.iinfo(target.storage)  # type: ignore[arg-type]
    inside = (whole >= limits.min) & (whole < float(limits.max) + (limits.max < 2**53))
    result = np.where(inside, whole, 0).astype(target.storage)
    result[whole < limits.min] = limits.min
    result[whole >= float(limits.max)] = limits.max
    return result


def _int_to_fp32(x: Array, mode: str) -> Array:
    near = x.astype(_F32)  # to nearest even
    if mode in ("none", "rint"):
        return near
    exact = x.astype(np.float64 if x.dtype.itemsize <= 4 else np.longdouble)
    error = near - exact
    if not error.any():
        return near
    other = np.nextafter(near, np.where(error > 0, -np.inf, np.inf).astype(_F32))
    if mode == "round":
        away = (np.abs(error) == np.abs(other - exact)) & (np.abs(other) > np.abs(near))
    elif mode == "floor":
        away = error > 0
    elif mode == "ceil":
        away = error < 0
    elif mode == "trunc":
        away = np.abs(near) > np.abs(exact)
    else:
        away = near.view(_U32) & _ONE == 0
    return np.where((error != 0) & away, other, near)


def _int_to_int(x: Array, target: DataType) -> Array:
    if target in (INT8, UINT8, INT16, UINT16):
        return _wrap(x, target)
    return x if x.dtype == target.compute else x.astype(target.compute)


def _wrap(x: Array, dtype: DataType) -> Array:
    """Whole numbers modulo the width of a type of at most 16 bits."""
    if x.dtype == _F32:
        if dtype is INT8 and np.vdot(x, x) <= 127.0 * 127.0:
            return x
        x = np.trunc(x).astype(_I64)
    return x.astype(_I64).astype(dtype.storage).astype(dtype.compute)
