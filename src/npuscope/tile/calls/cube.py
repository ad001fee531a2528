"""Matrix products: fp16, bf16, fp32 accumulate in FP32, int8 in INT32."""

from __future__ import annotations

import math

import numpy as np

from npuscope.ops import cube, rounding
from npuscope.ops.cube import MATMUL, MATMUL_ACC, MATMUL_BIAS, MATMUL_DUAL, MATMUL_DUAL_ACC
from npuscope.ops.dtypes import FP32, INT32, Array, DataType
from npuscope.ops.elementwise import CAST
from npuscope.ops.spec import OpSpec
from npuscope.tile.calls.functions import implements
from npuscope.tile.fault import fault
from npuscope.tile.run.state import TileRun, current
from npuscope.tile.values.checks import describe, dtype_of, flag
from npuscope.tile.values.tensors import Shape, Tile


def _matrix(tile: Tile) -> tuple[Array | None, Shape, Shape | None]:
    """The last two axes; leading axes of one are dropped, for tiles on chip are two-dimensional."""
    shape, valid, array = tile.shape, tile.valid, tile.array
    while len(shape) > 2 and shape[0] == 1:
        shape = shape[1:]
        valid = None if valid is None else valid[1:]
        array = None if array is None else array[0]
    return array, shape, valid


def _product(
    run: TileRun, spec: OpSpec, x: object, y: object, a_trans: bool, b_trans: bool, acc: Tile | None, keep: bool = True
) -> Tile:
    name = spec.name
    left, right = run.tile(x, name), run.tile(y, name)
    a_trans, b_trans = flag(a_trans, name, "a_trans="), flag(b_trans, name, "b_trans=")
    if left.dtype is not right.dtype:
        raise fault(f"pl.{name}: operands {describe(left)} and {describe(right)} differ in type", "Cast one of them.")
    a, a_shape, a_valid = _matrix(left)
    b, b_shape, b_valid = _matrix(right)
    if len(a_shape) < 2 or len(b_shape) < 2:
        raise fault(f"pl.{name} needs matrices, not {describe(left)} and {describe(right)}")
    m, k = (a_shape[-1], a_shape[-2]) if a_trans else (a_shape[-2], a_shape[-1])
    inner, n = (b_shape[-1], b_shape[-2]) if b_trans else (b_shape[-2], b_shape[-1])
    if k != inner:
        raise fault(f"pl.{name}: {describe(left)} times {describe(right)}: {k} columns meet {inner} rows")
    integer, step = left.dtype.is_int, 32 if left.dtype.bytes == 1 else 16
    if k % step or n % 16:
        about = f"pl.{name} of {describe(left)} and {describe(right)}"
        steps = f"the cube works in steps of {step} along K and 16 along columns"
        run.recorder.notice("alignment", f"{about}: {steps}, not {k} and {n}")
    dtype: DataType = INT32 if integer else FP32
    try:
        batch = np.broadcast_shapes(a_shape[:-2], b_shape[:-2])
    except ValueError:
        raise fault(f"pl.{name}: {describe(left)} and {describe(right)} differ in their leading axes") from None
    shape = (*batch, m, n)
    if acc is not None and (
        acc.shape[-2:] != (m, n) or acc.dtype is not dtype or math.prod(acc.shape) != math.prod(shape)
    ):
        raise fault(f"pl.{name}: the accumulator is {describe(acc)}, the product {list(shape)} {dtype}")
    valid, deep = _valid(a_valid, b_valid, shape, k, a_trans, b_trans)
    flops = 2 * m * n * k * math.prod(batch)
    attributes = tuple([(key, True) for key, on in (("a_trans", a_trans), ("b_trans", b_trans)) if on])
    made = shape if acc is None else acc.shape
    result = run.result(spec, (acc, left, right), made, dtype, valid, "Acc", attributes=attributes, flops=flops)
    if a is not None and b is not None and (acc is None or acc.array is not None):
        if deep < k:  # what lies beyond the valid columns must not enter the sum
            a = a[..., :deep, :] if a_trans else a[..., :deep]
            b = b[..., :deep] if b_trans else b[..., :deep, :]
        product = cube.matmul(a, b, integer, a_trans, b_trans)
        if acc is not None and acc.array is not None and keep:
            np.add(product, acc.array.reshape(product.shape), out=product)
        result.array = product.reshape(result.shape)
    return result


def _valid(
    a: Shape | None, b: Shape | None, shape: Shape, k: int, a_trans: bool, b_trans: bool
) -> tuple[Shape | None, int]:
    """Valid region of a product and how deep its sum goes."""
    if a is None and b is None:
        return None, k
    rows, a_deep = (shape[-2], k) if a is None else (a[-1], a[-2]) if a_trans else (a[-2], a[-1])
    columns, b_deep = (shape[-1], k) if b is None else (b[-2], b[-1]) if b_trans else (b[-1], b[-2])
    valid = (*shape[:-2], rows, columns)
    return None if valid == shape else valid, min(a_deep, b_deep)


@implements(MATMUL, "matmul")
def matmul(
    lhs: object,
    rhs: object,
    out_dtype: DataType | None = None,
    a_trans: bool = False,
    b_trans: bool = False,
    c_matrix_nz: bool = False,
) -> Tile:
    """lhs · rhs in the accumulator's type, or narrowed to out_dtype."""
    run = current()
    if out_dtype is not None:
        out_dtype = dtype_of(out_dtype, "matmul")
    flag(c_matrix_nz, "matmul", "c_matrix_nz=")
    tile = _product(run, MATMUL, lhs, rhs, a_trans, b_trans, None)
    if out_dtype is not None and out_dtype is not tile.dtype:
        if not (tile.dtype is FP32 and out_dtype.is_float):
            raise fault(f"pl.matmul gives {tile.dtype}, not {out_dtype}")
        mode = (("mode", "rint"),)
        narrow = run.result(CAST, (tile,), tile.shape, out_dtype, tile.valid, "Acc", attributes=mode, plane="move")
        if tile.array is not None:
            narrow.array = rounding.cast(tile.array, FP32, out_dtype, "rint")
        return narrow
    return tile


@implements(MATMUL_ACC, "matmul_acc")
def matmul_acc(
    acc: object, lhs: object, rhs: object, a_trans: bool = False, b_trans: bool = False, init_cond: object = None
) -> Tile:
    run = current()
    keep = init_cond is None or not flag(init_cond, "matmul_acc", "init_cond=")
    return _product(run, MATMUL_ACC, lhs, rhs, a_trans, b_trans, run.tile(acc, "matmul_acc"), keep)


@implements(MATMUL_DUAL_ACC)
def matmul_dual_acc(
    acc_a: object,
    acc_b: object,
    lhs: object,
    rhs_a: object,
    rhs_b: object,
    a_trans: bool = False,
    b_trans: bool = False,
) -> tuple[Tile, Tile]:
    """Two accumulators fed by one left operand: (acc_a + lhs · rhs_a, acc_b + lhs · rhs_b)."""
    run = current()
    first = None if acc_a is None else run.tile(acc_a, "matmul_dual_acc")
    second = None if acc_b is None else run.tile(acc_b, "matmul_dual_acc")
    one = _product(run, MATMUL_DUAL_ACC, lhs, rhs_a, a_trans, b_trans, first)
    return one, _product(run, MATMUL_DUAL_ACC, lhs, rhs_b, a_trans, b_trans, second)


@implements(MATMUL_DUAL)
def matmul_dual(
    lhs: object, rhs_a: object, rhs_b: object, a_trans: bool = False, b_trans: bool = False
) -> tuple[Tile, Tile]:
    run = current()
    one = _product(run, MATMUL_DUAL, lhs, rhs_a, a_trans, b_trans, None)
    return one, _product(run, MATMUL_DUAL, lhs, rhs_b, a_trans, b_trans, None)


@implements(MATMUL_BIAS, "matmul_bias")
def matmul_bias(lhs: object, rhs: object, bias: object) -> Tile:
    run = current()
    tile = _product(run, MATMUL_BIAS, lhs, rhs, False, False, None)
    row = run.tile(bias, "matmul_bias")
    if row.shape[-1] != tile.shape[-1] or math.prod(row.shape) != row.shape[-1]:
        raise fault(f"pl.matmul_bias: a bias {describe(row)} for a product {describe(tile)}")
    if tile.array is not None and row.array is not None:
        tile.array = tile.array + row.array.reshape(1, -1).astype(tile.array.dtype)
    return tile


@implements(MATMUL, "batch_matmul")
def batch_matmul(lhs: object, rhs: object) -> Tile:
    return matmul(lhs, rhs)


@implements(MATMUL_ACC, "batch_matmul_acc")
def batch_matmul_acc(acc: object, lhs: object, rhs: object) -> Tile:
    return matmul_acc(acc, lhs, rhs)


@implements(MATMUL, "gemv")
def gemv(lhs: object, rhs: object, acc_phase: str = "unspecified") -> Tile:
    return matmul(lhs, rhs)


@implements(MATMUL_ACC, "gemv_acc")
def gemv_acc(acc: object, lhs: object, rhs: object, acc_phase: str = "unspecified") -> Tile:
    return matmul_acc(acc, lhs, rhs)


@implements(MATMUL_BIAS, "gemv_bias")
def gemv_bias(lhs: object, rhs: object, bias: object, acc_phase: str = "unspecified") -> Tile:
    return matmul_bias(lhs, rhs, bias)
