"""Between a tensor in GM, in its storage type, and a tile on chip, in the compute type of `dtypes`.

A tile array holds only values its type can represent, so storing never rounds and loading never loses anything.
"""

from __future__ import annotations

import numpy as np

from npuscope.ops.dtypes import BF16, FP4, FP16, Array, DataType, Number

_F32, _U32, _U16, _I16, _I32 = np.float32, np.uint32, np.uint16, np.int16, np.int32
_HALF = np.uint32(16)
# From here up a shift of the bits beats ml_dtypes' rounding cast: 256x256 12 to 19 us and 29 us, 16x256 about equal.
_SHIFT_FROM = 4096
_REBIAS, _UNBIAS = _F32(2.0**112), _F32(2.0**-112)  # between the exponent biases of fp32 (127) and fp16 (15)


def load(view: Array, dtype: DataType) -> Array:
    """A fresh C-contiguous tile of a (strided) view of GM.

    Measured, 256x256 slices of a 5120x5120 bf16 array that is not in the cache: `astype` by ml_dtypes 20 us (6 us from
    the cache), shifting uint16 into uint32 24 to 30 us, writing the odd halves of a zeroed array 36 us.
    """
    if dtype is FP16:
        return _widen_fp16(view)
    return view.astype(dtype.compute, "C")


def store(view: Array, array: Array, dtype: DataType) -> None:
    """Write a tile, whose values the storage type can represent, into a view of GM."""
    if dtype is BF16 and array.size >= _SHIFT_FROM:
        np.right_shift(array.view(_U32), _HALF, out=view.view(_U16), casting="unsafe")
    elif dtype is FP16:
        _store_fp16(view, array)
    else:
        view[...] = array


def new(shape: tuple[int, ...], dtype: DataType, fill: Number) -> Array:
    """A tile filled with one value, which `dtype` can represent."""
    return np.full(shape, fill, dtype.compute)


def poison(dtype: DataType) -> float | int:
    """What memory never written holds: NaN, or the lowest value of an integer type, which has no NaN."""
    if dtype is FP4:  # it has no NaN either
        return -6.0
    if dtype.is_float:
        return float("nan")
    return dtype.limits[0]


# fp16 goes by the bits: NumPy converts one element at a time (256x256: load 105 us, here 20; store 165 us, here 31).
def _widen_fp16(view: Array) -> Array:
    bits = view.view(_I16).astype(_I32, "C")
    bits <<= 13
    bits &= -0x70000001  # the sign once, which widening has spread over the top four bits
    wide = bits.view(_F32)
    wide *= _REBIAS  # makes subnormals normal; infinity and NaN land at 65536 and above
    if not np.vdot(wide, wide) < 2.0**32:
        return view.astype(_F32, "C")
    return wide


def _store_fp16(view: Array, array: Array) -> None:
    if not np.vdot(array, array) < np.inf:
        view[...] = array
        return
    bits = np.multiply(array, _UNBIAS).view(_I32)
    half = bits >> 13
    bits >>= 16
    bits &= 0x8000
    half |= bits
    view.view(_I16)[...] = half
