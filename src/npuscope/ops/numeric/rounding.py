"""Casts between data types, from compute format to compute format, with the values of the chip's convert instruction.

Facts (pto-isa include/pto/npu/a2a3/TCvt.hpp; pypto docs/en/dev/passes/14-legalize_tile_cast.md):
- A pair without an instruction goes through the chain of `casts.hops`, with the same mode at every hop.
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

from collections.abc import Callable

import numpy as np

from npuscope.ops.dtypes import BF16, BOOL, FP16, FP32, INT8, INT16, INT32, UINT8, UINT16, DataType
from npuscope.ops.numeric import floats
from npuscope.ops.numeric.arrays import Array, Number
from npuscope.ops.numeric.casts import hops

Step = Callable[[Array], Array]

MODES = ("none", *floats.MODES)

_F32, _U32, _I32, _I64 = np.float32, np.uint32, np.int32, np.int64
_largest, _lowest = np.maximum.reduce, np.minimum.reduce
_FP32_WHOLE, _FP16_WHOLE, _BF16_WHOLE = 2**24, 2**11, 2**8  # every whole number up to here is a value of the type
_LOW_BITS = {(FP16, INT8), (FP16, UINT8), (FP16, INT16), (FP32, INT16)}
_to_bf16, _to_fp16 = floats.BF16["rint"], floats.FP16_RESULT

_steps: dict[tuple[str, str, str], tuple[Step, ...]] = {}


def cast(array: Array, source: DataType, target: DataType, mode: str) -> Array:
    """The tile (or array without axes) of `source` values as `target` values, in one of MODES."""
    if not array.ndim:
        return cast(array.reshape(1), source, target, mode).reshape(())
    key = (source.name, target.name, mode)
    steps = _steps.get(key)
    if steps is None:
        steps = _steps[key] = _plan(source, target, mode)
    for step in steps:
        array = step(array)
    return array


def round_to(array: Array, dtype: DataType) -> Array:
    """An op's result as a tile of `dtype`: floats to nearest even, integers cut to whole numbers and wrapped."""
    if dtype is FP32:
        return array if array.dtype == _F32 else array.astype(_F32)
    if dtype is BF16:
        return _to_bf16(array)
    if dtype is FP16:
        return _to_fp16(array)
    if dtype in _NARROW:
        return _NARROW[dtype](np.trunc(array) if array.dtype == _F32 else array)
    return array if array.dtype == dtype.compute else array.astype(dtype.compute)


def _within(x: Array, low: Number, high: Number) -> bool:
    """Whether no element is outside, nor NaN."""
    return bool(not x.size or (_largest(x, axis=None) <= high and _lowest(x, axis=None) >= low))


def _plan(source: DataType, target: DataType, mode: str) -> tuple[Step, ...]:
    """The steps of the chain, without those that change no value."""
    if source == target:
        return ()
    steps: list[Step] = []
    for hop in hops(source, target) or (target,):
        steps += _hop(source, hop, mode)
        source = hop
    return tuple(steps)


def _hop(source: DataType, target: DataType, mode: str) -> list[Step]:
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
    if source in (INT8, UINT8) and target is FP16:
        return []
    narrow = (floats.BF16 if target is BF16 else floats.FP16)[mode]
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


_NARROW = {dtype: _wrapper(dtype) for dtype in (INT8, UINT8, INT16, UINT16)}


def _float_to_int(source: DataType, target: DataType, mode: str) -> Step:
    whole_of = floats.WHOLE[mode]
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
