"""Element-wise work on tiles, in the compute type of its operands (float32, or an integer type).

Rounding at the result's type is `rounding.round_to`, the caller's to apply. Shapes broadcast as in NumPy; operands
may be NumPy scalars of the tile's compute type. exp, log, rsqrt and the like are the exact functions rounded to
fp32, where the chip approximates. NaN goes through everything, maximum and minimum too. To be run under one
`np.errstate(all="ignore")`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from npuscope.ops.numeric.arrays import Array, Value

Binary = Callable[[Value, Value], Array]

_F32, _I32 = np.float32, np.int32
_ONE = _F32(1)
_INFINITY = _F32(np.inf)
_CLIP_FROM = 8192  # elements from which clipping beats maximum with one number (256x256: 8 us and 25 us)


def _is_float(x: Value) -> bool:
    return x.dtype.kind == "f" if isinstance(x, np.ndarray | np.generic) else isinstance(x, float)


def maximum(x: Value, y: Value) -> Array:
    if isinstance(x, np.ndarray) and not isinstance(y, np.ndarray) and x.size >= _CLIP_FROM and x.dtype == _F32:
        return x.clip(_F32(y), _INFINITY)
    return np.maximum(x, y)


def minimum(x: Value, y: Value) -> Array:
    if isinstance(x, np.ndarray) and not isinstance(y, np.ndarray) and x.size >= _CLIP_FROM and x.dtype == _F32:
        return x.clip(-_INFINITY, _F32(y))
    return np.minimum(x, y)


def div(x: Value, y: Value) -> Array:
    """x / y; between integers cut towards zero as in C, and -1 (all bits set) for a division by zero."""
    if _is_float(x) or _is_float(y):
        return np.divide(x, y)
    rest = np.fmod(x, y)
    return np.where(np.equal(y, 0), -1, np.floor_divide(np.subtract(x, rest), y)).astype(rest.dtype)


def fmod(x: Value, y: Value) -> Array:
    """x - trunc(x / y) * y, with the sign of x."""
    if not _is_float(x) and not _is_float(y):
        return np.fmod(x, y)
    quotient = np.divide(x, y)
    return np.subtract(x, np.trunc(quotient) * y)


def rem(x: Value, y: Value) -> Array:
    """x - floor(x / y) * y, with the sign of y."""
    if not _is_float(x) and not _is_float(y):
        return np.remainder(x, y)
    quotient = np.divide(x, y)
    return np.subtract(x, np.floor(quotient) * y)


def expdif(x: Value, y: Value) -> Array:
    return np.exp(np.subtract(x, y))


def _bits(operation: Callable[..., Array]) -> Binary:
    """A bitwise op; 8-bit tiles are float32, so their bits are taken and given back by way of int32."""

    def run(x: Value, y: Value) -> Array:
        if _is_float(x) or _is_float(y):
            return operation(np.asarray(x).astype(_I32), np.asarray(y).astype(_I32)).astype(_F32)
        return operation(x, y)

    return run


def rsqrt(x: Array) -> Array:
    return np.divide(_ONE, np.sqrt(x))


def invert(x: Array) -> Array:
    return np.invert(x.astype(_I32)).astype(_F32) if x.dtype.kind == "f" else np.invert(x)


def recip(x: Array) -> Array:
    return np.divide(_ONE, x)


def relu(x: Array) -> Array:
    positive: Array = maximum(x, x.dtype.type(0))
    return positive


bit_and, bit_or, bit_xor = _bits(np.bitwise_and), _bits(np.bitwise_or), _bits(np.bitwise_xor)
shift_left, shift_right = _bits(np.left_shift), _bits(np.right_shift)

_COMPARISONS: tuple[Callable[[Value, Value], npt.NDArray[np.bool_]], ...] = (
    np.equal,
    np.not_equal,
    np.less,
    np.less_equal,
    np.greater,
    np.greater_equal,
)


def cmp(x: Value, y: Value, code: int) -> npt.NDArray[np.bool_]:
    """Mask of x (0 ==, 1 !=, 2 <, 3 <=, 4 >, 5 >=) y."""
    mask: npt.NDArray[np.bool_] = _COMPARISONS[code](x, y)
    return mask


def select(mask: Array, x: Value, y: Value) -> Array:
    """x where the mask holds, else y."""
    chosen: Array = np.where(mask, x, y)
    return chosen
