"""Element-wise work on tiles: name -> function, in the compute type of its operands (float32, or an integer type).

Rounding at the result's type is `rounding.round_to`, the caller's to apply. Shapes broadcast as in NumPy. exp, log, rsqrt and
the like are the exact functions rounded to fp32; the chip approximates them. Run them under one `np.errstate(all="ignore")`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_F32 = np.float32
_ZERO, _ONE = _F32(0), _F32(1)


def _is_float(x: Any) -> bool:
    return bool(np.asarray(x).dtype.kind == "f")


def _div(x: Any, y: Any) -> Array:
    """x / y; between integers the quotient is cut towards zero, as C does, and a division by zero gives -1 (all bits set)."""
    if _is_float(x) or _is_float(y):
        return np.divide(x, y)
    quotient = np.floor_divide(x, y)
    quotient += (np.not_equal(quotient * y, x)) & (np.less(x, 0) ^ np.less(y, 0))
    return np.where(np.equal(y, 0), np.asarray(-1).astype(quotient.dtype), quotient)


def _rsqrt(x: Array) -> Array:
    root = np.sqrt(x)
    return np.divide(_ONE, root, out=root)


def _expdif(x: Array, y: Array) -> Array:
    difference = np.subtract(x, y)
    return np.exp(difference, out=difference)


def _mask(operation: Callable[..., Any]) -> Callable[[Any, Any], Array]:
    """A bitwise op; 8-bit tiles are float32, so their bits are taken and given back through int32."""

    def run(x: Any, y: Any) -> Array:
        if _is_float(x) or _is_float(y):
            result: Array = operation(np.asarray(x).astype(np.int32), np.asarray(y).astype(np.int32)).astype(_F32)
            return result
        return np.asarray(operation(x, y))

    return run


def _invert(x: Array) -> Array:
    return np.invert(x.astype(np.int32)).astype(_F32) if x.dtype.kind == "f" else np.invert(x)


BINARY: dict[str, Callable[[Any, Any], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _div,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "fmod": np.fmod,  # sign of x
    "fmods": np.fmod,
    "rem": np.remainder,  # sign of y
    "rems": np.remainder,
    "pow": np.power,
    "expdif": _expdif,
    "and": _mask(np.bitwise_and),
    "or": _mask(np.bitwise_or),
    "xor": _mask(np.bitwise_xor),
    "shl": _mask(np.left_shift),
    "shr": _mask(np.right_shift),
}

UNARY: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": _rsqrt,
    "recip": lambda x: np.divide(_ONE, x),
    "neg": np.negative,
    "abs": np.abs,
    "relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "sin": np.sin,
    "cos": np.cos,
    "not": _invert,
}

_COMPARISONS = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)


def cmp(x: Any, y: Any, code: int) -> npt.NDArray[np.bool_]:
    """Mask of x (0 ==, 1 !=, 2 <, 3 <=, 4 >, 5 >=) y."""
    result: npt.NDArray[np.bool_] = _COMPARISONS[code](x, y)
    return result


def select(mask: Array, x: Any, y: Any) -> Array:
    """x where the mask holds, else y."""
    return np.where(mask, x, y)
