"""The matrix unit: products of tiles, accumulated in fp32 or exactly in int32.

int8 operands are float32 arrays, so one sgemm is exact while every partial sum stays within 2^24 = 128 * 128 * 1024.
Longer K is cut into pieces of 1024 that are summed in int32, which wraps as the accumulator does.
"""

from __future__ import annotations

import numpy as np

from npuscope.ops.numeric.arrays import Array

_EXACT_K = 1024
_I32 = np.int32


def matmul(a: Array, b: Array, integer: bool, a_trans: bool = False, b_trans: bool = False) -> Array:
    """a @ b over the last two axes; leading axes are batches. `integer`: int8 operands, int32 result."""
    if a_trans:
        a = a.swapaxes(-1, -2)
    if b_trans:
        b = b.swapaxes(-1, -2)
    depth = a.shape[-1]
    if not integer:
        product: Array = np.matmul(a, b)
        return product
    total: Array = np.matmul(a[..., :_EXACT_K], b[..., :_EXACT_K, :]).astype(_I32)
    for start in range(_EXACT_K, depth, _EXACT_K):
        stop = start + _EXACT_K
        np.add(total, np.matmul(a[..., start:stop], b[..., start:stop, :]).astype(_I32), out=total)
    return total


def matmul_acc(acc: Array, a: Array, b: Array, integer: bool, a_trans: bool = False, b_trans: bool = False) -> Array:
    """acc + a @ b in a new array."""
    product = matmul(a, b, integer, a_trans, b_trans)
    return np.add(product, acc, out=product)
