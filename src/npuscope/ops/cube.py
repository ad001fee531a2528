"""Products of matrices, the cube unit's work: sums in FP32, of INT8 operands exactly in INT32.

INT8 operands are float32 arrays, so one sgemm is exact while every partial sum stays within 2^24 = 128 * 128 * 1024.
Longer K is cut into pieces of 1024 that are summed in int32, which wraps as the accumulator does.
"""

from __future__ import annotations

import numpy as np

from npuscope.ops.dtypes import Array
from npuscope.ops.spec import OpRole, OpSpec, Plane

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


MX_GROUP = 32  # elements along K that share a scale


def scaled(x: Array, scale: Array, axis: int, codes: bool) -> Array:
    """Elements times the scale of their group of 32 along an axis; `codes`: the scales are bytes b for 2^(b - 127)."""
    factors = np.exp2(np.subtract(scale, 127)).astype(np.float32) if codes else scale
    return np.multiply(x, np.repeat(factors, MX_GROUP, axis=axis))


def quantised(x: Array) -> tuple[Array, Array]:
    """Rows of fp32 as values to be rounded to FP8E4M3FN, and a power of two for each group of 32 of them.

    A group's exponent is that of its largest value less 8, e4m3's own largest exponent (the rule of OCP's MX formats).
    """
    groups = x.reshape(*x.shape[:-1], -1, MX_GROUP)
    largest = np.abs(groups).max(axis=-1)
    exponent = np.clip(np.floor(np.log2(largest, where=largest > 0, out=np.full_like(largest, -127))) - 8, -127, 127)
    scale = np.exp2(exponent).astype(np.float32)
    return np.divide(groups, scale[..., None]).reshape(x.shape), scale


# fmt: off

_CUBE: tuple[Plane, ...] = ("cube",)
_COST = "core.l0_cycles"
_MX_TYPES = "FP8E4M3FN, scales FP8E8M0 or UINT8 → FP32"
_TYPES = "FP16, BF16, FP32 → FP32; INT8 → INT32"

MATMUL = OpSpec(
    "matmul", _CUBE, "custom", "a · b.", cost=_COST, types=_TYPES, storage="operand",
    spellings=("matmul", "batch_matmul", "gemv"),
)
MATMUL_ACC = OpSpec(
    "matmul_acc", _CUBE, "custom", "acc + a · b in the accumulator; a · b alone where init_cond holds.", cost=_COST,
    types=_TYPES, storage="operand", spellings=("matmul_acc", "tile.matmul_acc", "batch_matmul_acc", "gemv_acc"),
)
MATMUL_BIAS = OpSpec(
    "matmul_bias", _CUBE, "custom", "a · b + bias, the bias a row.", cost=_COST, types=_TYPES, storage="operand",
    spellings=("matmul_bias", "gemv_bias"),
)
MATMUL_DUAL = OpSpec(
    "matmul_dual", _CUBE, "custom", "Two products of one left operand: (a · b, a · c).", cost=_COST, types=_TYPES,
    storage="operand", roles=(OpRole.DUAL,),
)
MATMUL_DUAL_ACC = OpSpec(
    "matmul_dual_acc", _CUBE, "custom", "Two accumulators fed by one left operand.", cost=_COST, types=_TYPES,
    storage="operand", roles=(OpRole.DUAL,),
)
MATMUL_MX = OpSpec(
    "matmul_mx", _CUBE, "custom", "a · b, each group of 32 along K times its power of two.", cost=_COST,
    like="no cost of it is public", types=_MX_TYPES, storage="operand",
)
MATMUL_MX_ACC = OpSpec(
    "matmul_mx_acc", _CUBE, "custom", "acc + a · b with scales for each group of 32 along K.", cost=_COST,
    like="no cost of it is public", types=_MX_TYPES, storage="operand",
)
MATMUL_MX_BIAS = OpSpec(
    "matmul_mx_bias", _CUBE, "custom", "a · b with scales for each group of 32 along K, plus a row.", cost=_COST,
    like="no cost of it is public", types=_MX_TYPES, storage="operand",
)
QUANT_MX = OpSpec(
    "quant_mx", ("vector",), "custom", "FP8 values and a power of two for each 32 of them: (values, scales).",
    cost="op.vmul", like="no cost of it is public", types="FP16, BF16, FP32 → FP8E4M3FN, FP8E8M0", storage="separate",
)
TMOV_X2ZZ = OpSpec(
    "tmov_x2zz", ("vector",), "custom", "Exponents of MX scales in the order in which the cube reads them.",
    cost="op.vcopy", like="no cost of it is public", types="UINT8", storage="separate",
    roles=(OpRole.SAME_ELEMENTS, OpRole.KEEPS_VALUES),
)

ALL = (
    MATMUL, MATMUL_ACC, MATMUL_BIAS, MATMUL_DUAL, MATMUL_DUAL_ACC, MATMUL_MX, MATMUL_MX_ACC, MATMUL_MX_BIAS,
    QUANT_MX, TMOV_X2ZZ,
)
