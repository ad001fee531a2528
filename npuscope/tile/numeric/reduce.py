"""Reductions of a tile along its rows (the last axis) or columns (the last but one); the reduced axis stays, of length 1.

NaN wins every maximum and minimum. Sums are pairwise or blocked as NumPy does them: the chip's association is not fixed either.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_I32 = np.int32
_add, _max, _min, _mul = np.add.reduce, np.maximum.reduce, np.minimum.reduce, np.multiply.reduce


def row_sum(x: Array) -> Array:
    return _add(x, -1, x.dtype, None, True)


def row_max(x: Array) -> Array:
    return _max(x, -1, None, None, True)


def row_min(x: Array) -> Array:
    return _min(x, -1, None, None, True)


def row_prod(x: Array) -> Array:
    return _mul(x, -1, x.dtype, None, True)


def row_argmax(x: Array) -> Array:
    """int32 index of the first maximum of each row; of the first NaN where there is one."""
    return np.argmax(x, -1, keepdims=True).astype(_I32)


def row_argmin(x: Array) -> Array:
    return np.argmin(x, -1, keepdims=True).astype(_I32)


def col_sum(x: Array) -> Array:
    return _add(x, -2, x.dtype, None, True)


def col_max(x: Array) -> Array:
    return _max(x, -2, None, None, True)


def col_min(x: Array) -> Array:
    return _min(x, -2, None, None, True)


def col_prod(x: Array) -> Array:
    return _mul(x, -2, x.dtype, None, True)
