"""Reductions of a tile along its rows (the last axis) or columns (the last but one); that axis stays, of length 1.

NaN wins every maximum and minimum. A row's sum does not depend on how many rows the tile has, so that two tilings of
one program can be compared bit by bit: for that reason it is not a product with ones, which BLAS would do in a third of
the time.
"""

from __future__ import annotations

import numpy as np

from npuscope.ops.numeric.arrays import Array

_I32 = np.int32


def row_sum(x: Array) -> Array:
    return np.add.reduce(x, axis=-1, dtype=x.dtype, keepdims=True)


def row_max(x: Array) -> Array:
    return np.maximum.reduce(x, axis=-1, keepdims=True)


def row_min(x: Array) -> Array:
    return np.minimum.reduce(x, axis=-1, keepdims=True)


def row_prod(x: Array) -> Array:
    return np.multiply.reduce(x, axis=-1, dtype=x.dtype, keepdims=True)


def row_argmax(x: Array) -> Array:
    """int32 column of the first maximum of each row; of the first NaN where there is one."""
    column: Array = np.argmax(x, axis=-1, keepdims=True).astype(_I32)
    return column


def row_argmin(x: Array) -> Array:
    column: Array = np.argmin(x, axis=-1, keepdims=True).astype(_I32)
    return column


def col_sum(x: Array) -> Array:
    return np.add.reduce(x, axis=-2, dtype=x.dtype, keepdims=True)


def col_max(x: Array) -> Array:
    return np.maximum.reduce(x, axis=-2, keepdims=True)


def col_min(x: Array) -> Array:
    return np.minimum.reduce(x, axis=-2, keepdims=True)


def col_prod(x: Array) -> Array:
    return np.multiply.reduce(x, axis=-2, dtype=x.dtype, keepdims=True)


def col_argmax(x: Array) -> Array:
    return row_argmax(x.swapaxes(-1, -2)).swapaxes(-1, -2)


def col_argmin(x: Array) -> Array:
    return row_argmin(x.swapaxes(-1, -2)).swapaxes(-1, -2)
