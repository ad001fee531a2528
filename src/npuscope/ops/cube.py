"""Products of matrices, the cube unit's work: sums in FP32, of INT8 operands exactly in INT32."""

from __future__ import annotations

from npuscope.ops.spec import OpSpec, Plane, Role

# fmt: off

_CUBE: tuple[Plane, ...] = ("cube",)
_COST = "core.l0_cycles"
_TYPES = "FP16, BF16, FP32 → FP32; INT8 → INT32"

MATMUL = OpSpec(
    "matmul", _CUBE, "own", "a · b.", cost=_COST, types=_TYPES, storage="operand",
    spellings=("matmul", "batch_matmul", "gemv"),
)
MATMUL_ACC = OpSpec(
    "matmul_acc", _CUBE, "own", "acc + a · b in the accumulator; a · b alone where init_cond holds.", cost=_COST,
    types=_TYPES, storage="operand", spellings=("matmul_acc", "batch_matmul_acc", "gemv_acc"),
)
MATMUL_BIAS = OpSpec(
    "matmul_bias", _CUBE, "own", "a · b + bias, the bias a row.", cost=_COST, types=_TYPES, storage="operand",
    spellings=("matmul_bias", "gemv_bias"),
)
MATMUL_DUAL = OpSpec(
    "matmul_dual", _CUBE, "own", "Two products of one left operand: (a · b, a · c).", cost=_COST, types=_TYPES,
    storage="operand", roles=(Role.DUAL,),
)
MATMUL_DUAL_ACC = OpSpec(
    "matmul_dual_acc", _CUBE, "own", "Two accumulators fed by one left operand.", cost=_COST, types=_TYPES,
    storage="operand", roles=(Role.DUAL,),
)

ALL = (MATMUL, MATMUL_ACC, MATMUL_BIAS, MATMUL_DUAL, MATMUL_DUAL_ACC)
