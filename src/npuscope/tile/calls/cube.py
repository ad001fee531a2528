"""Matrix products: fp16, bf16, fp32 accumulate in FP32, int8 in INT32."""

from __future__ import annotations

import math

import numpy as np

from npuscope.ops import cube, rounding
from npuscope.ops.cube import (
    MATMUL,
    MATMUL_ACC,
    MATMUL_BIAS,
    MATMUL_DUAL,
    MATMUL_DUAL_ACC,
    MATMUL_MX,
    MATMUL_MX_ACC,
    MATMUL_MX_BIAS,
    MX_GROUP,
    QUANT_MX,
    TMOV_X2ZZ,
)
from npuscope.ops.dtypes import FP8E4M3FN, FP8E8M0, FP32, INT32, UINT8, Array, DataType
from npuscope.ops.elementwise import CAST
from npuscope.ops.shaping import TRANSPOSE
from npuscope.ops.spec import OpSpec
from npuscope.tile.calls.functions import implements
from npuscope.tile.calls.shaping import reshape, transposed
from npuscope.tile.enums import AccPhase, TensorLayout
from npuscope.tile.fault import fault
from npuscope.tile.run.state import TileRun, current
from npuscope.tile.values.checks import check_phase, check_scratch, describe, dtype_of, flag, index, shape_of, shown
from npuscope.tile.values.lanes import Whole
from npuscope.tile.values.tensors import Shape, Tile, window


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
    if left.block is not None and any(left is one for one in run.region(name).right_operands):
        about = f"pl.{name}: {describe(left)} was gathered with is_b_matrix=True"
        run.recorder.notice("layout", f"{about}, for the right side, and stands on the left")
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
    held = valid if acc is None else acc.valid  # an accumulator keeps what it holds beside a smaller product
    result = run.result(spec, (acc, left, right), made, dtype, held, "Acc", attributes=attributes, flops=flops)
    if a is not None and b is not None and (acc is None or acc.array is not None):
        if deep < k:  # what lies beyond the valid columns must not enter the sum
            a = a[..., :deep, :] if a_trans else a[..., :deep]
            b = b[..., :deep] if b_trans else b[..., :deep, :]
        product = cube.matmul(a, b, integer, a_trans, b_trans)
        if acc is not None and acc.array is not None and keep:
            np.add(product, acc.array.reshape(product.shape), out=product)
        result.array = product.reshape(result.shape)
        if acc is not None and acc.array is not None and valid not in (None, acc.valid):
            inside = window(tuple([1] * (len(made) - len(shape))) + valid)[-len(made) :]
            result.array, found = acc.array.copy(), result.array[inside]
            result.array[inside] = found
    if acc is not None and acc.part_of is not None:
        _write_through(run, acc.part_of, result)
    return result


def _write_through(run: TileRun, part_of: tuple[Tile, tuple[Whole, ...]], result: Tile) -> None:
    """A product into a part of an accumulator: the whole one holds it, too."""
    whole, offset = part_of
    if whole.array is not None and result.array is not None:
        run.shapes.only_first()  # the next turn finds what this one wrote
        whole.writable()[window(result.shape, [int(o) for o in offset])] = result.array
    result.part_of = part_of


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


@implements(MATMUL_ACC, "tile.matmul_acc", "batch_matmul_acc")
def matmul_acc_of_tiles(
    acc: object, lhs: object, rhs: object, init_cond: object = None, *, a_trans: bool = False, b_trans: bool = False
) -> Tile:
    return matmul_acc(acc, lhs, rhs, a_trans, b_trans, init_cond)


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
    return _with_bias(_product(current(), MATMUL_BIAS, lhs, rhs, False, False, None), bias, "matmul_bias")


def _with_bias(tile: Tile, bias: object, name: str) -> Tile:
    row = current().tile(bias, name)
    if row.shape[-1] != tile.shape[-1] or math.prod(row.shape) != row.shape[-1]:
        raise fault(f"pl.{name}: a bias {describe(row)} for a product {describe(tile)}")
    if tile.array is not None and row.array is not None:
        tile.array = tile.array + row.array.reshape(1, -1).astype(tile.array.dtype)
    return tile


# --- products with a scale for each group of 32 along K


@implements(MATMUL_MX)
def matmul_mx(lhs: object, lhs_scale: object, rhs: object, rhs_scale: object) -> Tile:
    return _scaled_product(MATMUL_MX, lhs, lhs_scale, rhs, rhs_scale, None)


@implements(MATMUL_MX_ACC)
def matmul_mx_acc(acc: object, lhs: object, lhs_scale: object, rhs: object, rhs_scale: object) -> Tile:
    return _scaled_product(MATMUL_MX_ACC, lhs, lhs_scale, rhs, rhs_scale, current().tile(acc, "matmul_mx_acc"))


@implements(MATMUL_MX_BIAS)
def matmul_mx_bias(lhs: object, lhs_scale: object, rhs: object, rhs_scale: object, bias: object) -> Tile:
    tile = _scaled_product(MATMUL_MX_BIAS, lhs, lhs_scale, rhs, rhs_scale, None)
    return _with_bias(tile, bias, "matmul_mx_bias")


def _scaled_product(spec: OpSpec, x: object, x_scale: object, y: object, y_scale: object, acc: Tile | None) -> Tile:
    run, name = current(), spec.name
    left, right = run.tile(x, name), run.tile(y, name)
    scales = run.tile(x_scale, name), run.tile(y_scale, name)
    if left.dtype is not FP8E4M3FN or right.dtype is not FP8E4M3FN:
        raise fault(f"pl.{name} multiplies FP8E4M3FN, not {describe(left)} and {describe(right)}")
    if len(left.shape) != 2 or len(right.shape) != 2 or left.shape[1] != right.shape[0]:
        raise fault(f"pl.{name}: {describe(left)} times {describe(right)}")
    (m, k), n = left.shape, right.shape[1]
    if m % 16 or k % 64 or n % 32:
        raise fault(f"pl.{name}: {m} rows, K of {k} and {n} columns", "They are multiples of 16, 64 and 32.")
    for scale, wanted in zip(scales, ((m, k // MX_GROUP), (k // MX_GROUP, n)), strict=True):
        if scale.shape != wanted or scale.dtype not in (FP8E8M0, UINT8):
            raise fault(f"pl.{name}: scales are {list(wanted)} of FP8E8M0 or UINT8, not {describe(scale)}")
    if acc is not None and (acc.shape != (m, n) or acc.dtype is not FP32):
        raise fault(f"pl.{name}: the accumulator is {describe(acc)}, the product {[m, n]} FP32")
    result = run.result(spec, (acc, left, right, *scales), (m, n), FP32, None, "Acc", flops=2 * m * n * k)
    arrays = [tile.array for tile in (left, right, *scales)]
    if all(array is not None for array in arrays) and (acc is None or acc.array is not None):
        a, b, a_scale, b_scale = (array for array in arrays if array is not None)
        result.array = cube.matmul(
            cube.scaled(a, a_scale, 1, scales[0].dtype is UINT8),
            cube.scaled(b, b_scale, 0, scales[1].dtype is UINT8),
            integer=False,
        )
        if acc is not None and acc.array is not None:
            result.array = np.add(result.array, acc.array)
    return result


_SIDES = {TensorLayout.MX_A_ZZ: 1, TensorLayout.MX_B_NN: 0}


@implements(QUANT_MX)
def quant_mx(
    src: object, *, group_axis: object = None, dtype: DataType = FP8E4M3FN, layout: object = None
) -> tuple[Tile, Tile]:
    """Groups along rows (1); along columns (0) the source is [N, K] and is transposed first. The first form of it
    said `layout=pl.MX_A_ZZ` or `pl.MX_B_NN`, for the left and the right side of a product.
    """
    if group_axis is None and layout in _SIDES:
        group_axis = _SIDES[layout]
    if group_axis is None:
        raise fault("pl.quant_mx needs group_axis=, 1 for groups along rows or 0 along columns")
    run, axis = current(), index(group_axis, "pl.quant_mx", "group_axis=")
    tile = run.tile(src, "quant_mx")
    if axis == 0:
        tile = transposed(tile, -2, -1, TRANSPOSE)
    if axis not in (0, 1) or dtype_of(dtype, "quant_mx") is not FP8E4M3FN or not tile.dtype.is_float:
        raise fault(f"pl.quant_mx of {describe(tile)} to {dtype} along axis {shown(group_axis)}")
    k = tile.shape[-2 if axis == 0 else -1]
    if len(tile.shape) != 2 or k % MX_GROUP:
        raise fault(f"pl.quant_mx: {describe(tile)} has no groups of {MX_GROUP}")
    shape = (k // MX_GROUP, tile.shape[1]) if axis == 0 else (tile.shape[0], k // MX_GROUP)
    values = run.result(QUANT_MX, (tile,), tile.shape, FP8E4M3FN, tile.valid)
    scales = run.result(QUANT_MX, (tile,), shape, FP8E8M0)
    if tile.array is not None:
        rows, powers = cube.quantised(tile.array.T if axis == 0 else tile.array)
        values.array = rounding.round_to(rows.T.copy() if axis == 0 else rows, FP8E4M3FN)
        scales.array = powers.T.copy() if axis == 0 else powers
    scales.boxes = "MX_B_NN" if axis == 0 else "MX_A_ZZ"
    return values, scales


@implements(TMOV_X2ZZ)
def tmov_x2zz(
    src: object, tmp: object, *, group_axis: object = 1, dst_rows: object = None, dst_cols: object = None
) -> Tile:
    """Exponents of the left side of a product, row by row (1) or column by column (0), as the cube reads scales."""
    run, axis = current(), index(group_axis, "pl.tmov_x2zz", "group_axis=")
    check_scratch(tmp, "tmov_x2zz")
    tile = run.tile(src, "tmov_x2zz")
    if tile.dtype is not UINT8 or len(tile.shape) != 2 or axis not in (0, 1):
        raise fault(f"pl.tmov_x2zz of {describe(tile)} along axis {shown(group_axis)}", "It takes bytes, axis 0 or 1.")
    if axis == 0:
        tile = transposed(tile, -2, -1, TRANSPOSE)
    shape = shape_of([n if given is None else given for n, given in zip(tile.shape, (dst_rows, dst_cols), strict=True)])
    tile = run.tile(reshape(tile, shape), "tmov_x2zz")
    result = run.result(TMOV_X2ZZ, (tile,), shape, UINT8)
    result.array, result.boxes = tile.array, "MX_A_ZZ"
    return result


@implements(MATMUL, "batch_matmul")
def batch_matmul(lhs: object, rhs: object) -> Tile:
    return matmul(lhs, rhs)


@implements(MATMUL, "gemv")
def gemv(lhs: object, rhs: object, acc_phase: object = AccPhase.Unspecified) -> Tile:
    check_phase(acc_phase, "gemv", "acc_phase")
    return matmul(lhs, rhs)


@implements(MATMUL_ACC, "gemv_acc")
def gemv_acc(
    acc: object, lhs: object, rhs: object, acc_phase: object = AccPhase.Unspecified, *, init_cond: object = None
) -> Tile:
    check_phase(acc_phase, "gemv_acc", "acc_phase")
    return matmul_acc(acc, lhs, rhs, init_cond=init_cond)


@implements(MATMUL_BIAS, "gemv_bias")
def gemv_bias(lhs: object, rhs: object, bias: object, acc_phase: object = AccPhase.Unspecified) -> Tile:
    check_phase(acc_phase, "gemv_bias", "acc_phase")
    return matmul_bias(lhs, rhs, bias)
