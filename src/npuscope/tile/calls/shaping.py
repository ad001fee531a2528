"""Shapes, boxes and valid regions: views in orchestration, loads in a region, parts and other readings of tiles."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from npuscope.ops import storage
from npuscope.ops.dtypes import DataType
from npuscope.ops.shaping import (
    CONCAT,
    CONCAT_IDX,
    REINTERPRET_VIEW,
    RESHAPE,
    SET_VALIDSHAPE,
    SLICE,
    TRANSPOSE,
    TRANSPOSE_VIEW,
)
from npuscope.ops.spec import OpSpec
from npuscope.ops.transfers import AIC_GATHER, AIV_SHARD
from npuscope.tile.calls import vector
from npuscope.tile.calls.functions import implements
from npuscope.tile.enums import TensorLayout
from npuscope.tile.fault import fault
from npuscope.tile.graph.boxes import row_major
from npuscope.tile.run.block import VectorCores
from npuscope.tile.run.state import TileRun, check_bounds, current, load_box, position
from npuscope.tile.values.checks import (
    axis_of,
    check_offsets,
    check_scratch,
    describe,
    dtype_of,
    flag,
    index,
    shape_of,
    shown,
    tensor_or_tile,
)
from npuscope.tile.values.lanes import Lane, Whole
from npuscope.tile.values.tensors import BOXES, Fractal, Shape, Tensor, Tile, window

# --- the same elements, read another way


@implements(RESHAPE)
def reshape(input: object, shape: Sequence[Whole]) -> Tensor | Tile:
    run, extents = current(), shape_of(shape)
    x = run.operand(input, "reshape")
    if math.prod(extents) != x.size:
        raise fault(f"pl.reshape: {describe(x)} cannot become {list(extents)}: the number of elements differs")
    valid = _reshaped_valid(x.valid, x.shape, extents)
    if isinstance(x, Tensor):
        if x.is_contiguous:
            return x.seen_as(extents, row_major(extents), x.dtype, valid, run.block is not None)
        if run.block is None:
            raise fault(
                f"pl.reshape of a view {describe(x)} of {x.buffer.name} that is not contiguous",
                "Reshape inside a region, or before slicing.",
            )
        x = run.tile(x, "reshape")
    result = run.result(RESHAPE, (x,), extents, x.dtype, valid, x.space)
    array = x.array
    if x.boxes and array is not None and extents != x.shape:
        array = Fractal.of(x.boxes, x.shape, x.dtype).in_memory(array)
    result.array = None if array is None else array.reshape(extents)
    result.boxes = x.boxes if extents == x.shape else ""
    return result


def _reshaped_valid(valid: Shape | None, old: Shape, new: Shape) -> Shape | None:
    """A partly valid column stays so as a row and back, and axes of one come and go; else the next set_validshape
    decides.
    """
    if valid is None or [n for n in old if n != 1] != [n for n in new if n != 1]:
        return None
    marked = iter([v for v, n in zip(valid, old, strict=True) if n != 1])
    mapped = tuple(1 if n == 1 else next(marked) for n in new)
    return None if mapped == new else mapped


def view(
    tensor: object, shape: Sequence[Whole] | None = None, valid_shape: object = None, *, layout: object = None
) -> Tensor | Tile:
    """The same memory in another shape, or read as one that lies in boxes (pl.NZ, pl.MX_A_ZZ, pl.MX_B_NN)."""
    if shape is None and layout is None:
        raise fault("pl.tensor.view needs a shape or a layout")
    x = tensor_or_tile(tensor, "tensor.view")
    seen = x if shape is None else reshape(x, shape)
    if isinstance(layout, TensorLayout) and layout.name in BOXES:
        if isinstance(seen, Tile):
            raise fault(f"pl.tensor.view: a part {describe(seen)} on chip as {layout.name}", "Slice after the view.")
        seen = seen.laid_out(layout.name)
    if valid_shape is None:
        return seen
    valid = shape_of(valid_shape)
    if len(valid) != 2:
        raise fault(f"pl.tensor.view: valid_shape= must be rows and columns, not {list(valid)}")
    return set_validshape(seen, *valid)


@implements(SET_VALIDSHAPE)
def set_validshape(input: object, valid_rows: object, valid_cols: object) -> Tensor | Tile:
    run, x = current(), input
    if not isinstance(x, Tensor | Tile) or len(x.shape) < 2:
        raise fault(f"pl.set_validshape takes a tensor or a tile of rows and columns, not {describe(x)}")
    valid = (*x.shape[:-2], *shape_of((valid_rows, valid_cols)))
    if any(v > n for v, n in zip(valid, x.shape, strict=True)):
        raise fault(f"pl.set_validshape: {list(valid)} is larger than {describe(x)}")
    kept = None if valid == x.shape else valid
    if isinstance(x, Tensor):
        return x.seen_as(x.shape, x.strides, x.dtype, kept, run.block is not None)
    if x.valid == kept:
        return x
    result = run.result(SET_VALIDSHAPE, (x,), x.shape, x.dtype, kept, x.space)
    result.array = x.array
    return result


@implements(REINTERPRET_VIEW)
def reinterpret_view(data: object, dtype: DataType, *, shape: Sequence[Whole] | None = None) -> Tensor | Tile:
    run, kind = current(), dtype_of(dtype, "reinterpret_view")
    x = tensor_or_tile(data, "reinterpret_view")
    if kind.storage is None:
        raise fault(f"pl.reinterpret_view: {describe(x)} as {kind}, which has no values")
    row = x.shape[-1] * x.dtype.bytes
    extents = (*x.shape[:-1], row // kind.bytes) if shape is None else shape_of(shape)
    if math.prod(extents) * kind.bytes != x.size * x.dtype.bytes or row % kind.bytes:
        raise fault(f"pl.reinterpret_view: {describe(x)} as {list(extents)} {kind}: the number of bytes differs")
    if isinstance(x, Tensor) and x.is_contiguous and kind.bytes == x.dtype.bytes:
        return x.seen_as(extents, row_major(extents), kind, None, run.block is not None)
    tile = run.tile(x, "reinterpret_view")
    result = run.result(REINTERPRET_VIEW, (tile,), extents, kind, None, tile.space)
    if tile.array is not None:
        bits = np.empty(tile.shape, tile.dtype.storage)
        storage.store(bits, tile.array, tile.dtype)
        result.array = storage.load(bits.view(kind.storage).reshape(extents), kind)
    result.boxes = tile.boxes if extents == tile.shape else ""
    return result


@implements(TRANSPOSE)
def transpose(input: object, axis1: object, axis2: object, tmp_tile: object = None) -> Tensor | Tile:
    run, x = current(), tensor_or_tile(input, "transpose")
    check_scratch(tmp_tile, "transpose")
    first, second = axis_of(axis1, x, "transpose"), axis_of(axis2, x, "transpose")
    if isinstance(x, Tensor) and run.block is None:
        x.check_row_by_row("the transpose")
        shape, strides, valid = (_swapped(each, first, second) for each in (x.shape, x.strides, x.valid or ()))
        return Tensor(x.buffer, x.offset, shape, strides, x.dtype, valid or None)
    return transposed(run.tile(x, "transpose"), first, second, TRANSPOSE)


@implements(TRANSPOSE_VIEW)
def transpose_view(tile: object) -> Tile:
    x = current().tile(tile, "transpose_view")
    if len(x.shape) < 2:
        raise fault(f"pl.transpose_view needs rows and columns, not {describe(x)}")
    return transposed(x, -2, -1, TRANSPOSE_VIEW)


def transposed(tile: Tile, axis1: int, axis2: int, spec: OpSpec) -> Tile:
    shape, valid = (_swapped(each, axis1, axis2) for each in (tile.shape, tile.valid or ()))
    result = current().result(spec, (tile,), shape, tile.dtype, valid or None, tile.space)
    if tile.array is not None:
        result.array = np.ascontiguousarray(tile.array.swapaxes(axis1, axis2))
    return result


def _swapped(each: Shape, axis1: int, axis2: int) -> Shape:
    """What there is for each axis, after two axes are swapped; of nothing, nothing."""
    values = list(each)
    if values:
        values[axis1], values[axis2] = values[axis2], values[axis1]
    return tuple(values)


@implements(CONCAT)
def concat(src0: object, src1: object) -> Tile:
    run = current()
    first, second = run.tile(src0, "concat"), run.tile(src1, "concat")
    if first.shape[:-1] != second.shape[:-1] or first.dtype is not second.dtype:
        raise fault(f"pl.concat: {describe(first)} and {describe(second)} do not fit side by side")
    one, other = first.valid or first.shape, second.valid or second.shape
    # A gap in the first cannot be followed by data of the second.
    columns = one[-1] + (other[-1] if one[-1] == first.shape[-1] else 0)
    valid = (*(min(a, b) for a, b in zip(one[:-1], other[:-1], strict=True)), columns)
    shape = (*first.shape[:-1], first.shape[-1] + second.shape[-1])
    result = run.result(CONCAT, (first, second), shape, first.dtype, valid)
    if first.array is not None and second.array is not None:
        result.array = np.concatenate((first.array, second.array), axis=-1)
    return result


@implements(CONCAT_IDX)
def concat_idx(src0: object, src1: object, idx0: object, idx1: object, dst: object) -> Tile:
    """An index is the length of its part in bytes of the index's own type; what both leave over is dst's."""
    run = current()
    tiles = first, second, *lengths, into = tuple(run.tile(one, "concat_idx") for one in (src0, src1, idx0, idx1, dst))
    if len({tile.shape[0] for tile in tiles}) > 1 or len({tile.dtype for tile in (first, second, into)}) > 1:
        raise fault(f"pl.concat_idx: {', '.join(map(describe, tiles))} differ in rows or type")
    if any(not tile.dtype.is_int for tile in lengths):
        raise fault(f"pl.concat_idx: lengths are whole numbers, not {describe(lengths[0])}")
    result = run.result(CONCAT_IDX, tiles, into.shape, into.dtype, into.valid)
    arrays = [tile.array for tile in tiles if tile.array is not None]
    if len(arrays) == len(tiles):
        rows, columns = into.valid or into.shape
        result.array = arrays[4].copy()
        for row in range(rows):
            counts = (int(held[row, 0]) // lengths[n].dtype.bytes for n, held in enumerate(arrays[2:4]))
            line = np.concatenate([part[row, :count] for part, count in zip(arrays[:2], counts, strict=True)])[:columns]
            result.array[row, : len(line)] = line
    return result


# --- boxes


@implements(SLICE)
def slice(
    input: object,
    shape: Sequence[Whole],
    offset: Sequence[Whole],
    valid_shape: Sequence[Whole] | None = None,
    drop_dims: Sequence[int] | None = None,
    pad_value: object = None,
    clamp: bool = False,
) -> Tensor | Tile:
    """A box of a tensor or tile: a view in orchestration, a load inside a region."""
    run, box = current(), shape_of(shape)
    clamp = flag(clamp, "slice", "clamp=")
    valid = None if valid_shape is None else shape_of(valid_shape)
    axes = list(range(len(box))) if drop_dims is None else _kept_axes(box, drop_dims)
    x = run.operand(input, "slice")
    if len(box) != len(x.shape):
        kind = "tile" if isinstance(x, Tile) else "tensor"
        raise fault(f"pl.slice: a box {list(box)} of a {kind} {describe(x)}")
    if isinstance(x, Tile):
        tile: Tensor | Tile = _slice_tile(run, x, box, offset, valid, clamp)
        if len(axes) < len(box):
            tile = reshape(tile, [box[axis] for axis in axes])
    else:
        reach = None if valid or clamp else overhang(run, x, box, offset, "slice")
        valid = inside(x, reach or box, offset, valid, clamp)
        if run.block is None:
            return _view(x, box, offset, reach or valid, axes)
        kept = None if drop_dims is None else tuple([box[axis] for axis in axes])
        tile = load_box(run, x, position(x, offset), box, valid, op=SLICE, kept=kept, reach=reach)
    if pad_value is not None and tile.valid is not None:
        return vector.fillpad(tile, pad_value)
    return tile


def overhang(run: TileRun, x: Tensor, box: Shape, offset: Sequence[Whole], op: str) -> Shape | None:
    """What exists of a slice that runs past the last row of a parameter whose number of rows the program does not know.

    The chip reads on into whatever lies there. Programs do it where they drop those rows later, so it is a notice and
    the rows hold poison; past every other edge it is an error.
    """
    if not x.buffer.rows_at_run_time or x.valid is not None:
        return None
    check_offsets(offset, len(box), op)
    most, where = x.shape[0] - box[0], offset[0]
    if where.lies_in(-box[0], most) if isinstance(where, Lane) else where <= most:
        return None
    first = int(where)
    rows = x.shape[0] - first
    if not 0 < rows < box[0]:
        return None
    about = f"pl.{op} reads rows {first} to {first + box[0]} of {x.buffer.name} {list(x.shape)}"
    run.recorder.notice("out_of_bounds", f"{about}: {box[0] - rows} of them lie outside and hold anything")
    return (rows, *box[1:])


def inside(
    x: Tensor | Tile, box: Shape, offset: Sequence[Whole], valid: Shape | None, clamp: bool, op: str = "slice"
) -> Shape | None:
    """The valid part of a box; what it reads must lie in the source."""
    if valid is not None and len(valid) != len(box):
        raise fault(f"pl.{op}: valid_shape {list(valid)} for a box {list(box)}")
    for limits in (x.shape if clamp else None, x.valid):
        if limits is not None:
            check_offsets(offset, len(box), op)
            valid = tuple(max(0, min(n, e - int(o))) for n, e, o in zip(valid or box, limits, offset, strict=True))
    if valid is not None and any(v > n for v, n in zip(valid, box, strict=True)):
        raise fault(f"pl.{op}: valid_shape {list(valid)} is larger than the box {list(box)}")
    check_bounds(op, x.shape, offset, valid or box, x.buffer.name if isinstance(x, Tensor) else "the tile")
    return None if valid == box else valid


def _kept_axes(box: Shape, drop_dims: object) -> list[int]:
    """The axes that a slice keeps, without those of one that it leaves out."""
    if not isinstance(drop_dims, list | tuple):
        raise fault(f"pl.slice: drop_dims= must be a list of axes, not {shown(drop_dims)}")
    axes = [int(index(axis, "pl.slice", "an axis of drop_dims=")) for axis in drop_dims]
    for axis in axes:
        if not -len(box) <= axis < len(box) or box[axis] != 1:
            raise fault(f"pl.slice: drop_dims={list(drop_dims)} of a box {list(box)}: only an axis of 1 can go")
    dropped = {axis % len(box) for axis in axes}
    return [axis for axis in range(len(box)) if axis not in dropped]


def _view(x: Tensor, box: Shape, offset: Sequence[Whole], valid: Shape | None, axes: list[int]) -> Tensor:
    shape, strides = tuple([box[a] for a in axes]), tuple([x.strides[a] for a in axes])
    valid = None if valid is None else tuple([valid[a] for a in axes])
    if x.fractal is not None and (box[-2:] != x.shape[-2:] or axes[-2:] != [len(box) - 2, len(box) - 1]):
        x.check_row_by_row(f"a slice {list(box)}")
    view = Tensor(x.buffer, int(position(x, offset)), shape, strides, x.dtype, valid)
    view.fractal = x.fractal
    return view


def _slice_tile(run: TileRun, x: Tile, box: Shape, offset: Sequence[Whole], valid: Shape | None, clamp: bool) -> Tile:
    valid = inside(x, box, offset, valid, clamp)
    within = valid or box
    tile = run.result(SLICE, (x,), box, x.dtype, valid, x.space, plane="view")
    if x.space == "Acc":
        tile.part_of = (x, tuple(offset))
    if x.array is not None:
        part = x.array[window(within, [int(o) for o in offset])]
        if within == box:
            tile.array = np.ascontiguousarray(part)
        else:
            tile.array = storage.new(box, x.dtype, 0)
            tile.array[window(within)] = part
    return tile


# --- halves for the two vector lanes


def _crossing(x: object, spec: OpSpec) -> tuple[Tile, VectorCores, int | None]:
    """A value that crosses the edge of a vector region, the cores there, and the axis that each has half of."""
    block = current().region(spec.name)
    if not block.vector.inside:
        raise fault(f"pl.{spec.name} outside a pl.split_aiv region")
    tile, half = current().tile(x, spec.name), block.vector.half
    return tile, block.vector, None if half is None else len(tile.shape) - (2 if half == "up_down" else 1)


@implements(AIV_SHARD)
def aiv_shard(x: object) -> Tile:
    run = current()
    tile, vector, axis = _crossing(x, AIV_SHARD)
    if axis is None:
        result = run.result(AIV_SHARD, (tile,), tile.shape, tile.dtype, tile.valid)
        result.array = tile.array
        return result
    if tile.shape[axis] % 2:
        raise fault(f"pl.aiv_shard: {describe(tile)} has no two halves along axis {axis}")
    half = tile.shape[axis] // 2
    shape, valid, offset = list(tile.shape), list(tile.valid or tile.shape), [0] * len(tile.shape)
    shape[axis], offset[axis] = half, vector.core * half
    valid[axis] = min(max(valid[axis] - offset[axis], 0), half)
    result = run.result(AIV_SHARD, (tile,), tuple(shape), tile.dtype, tuple(valid))
    if tile.array is not None:
        result.array = np.ascontiguousarray(tile.array[window(shape, offset)])
    return result


@implements(AIC_GATHER)
def aic_gather(x: object) -> Tile:
    run = current()
    tile, vector, axis = _crossing(x, AIC_GATHER)
    if axis is None:
        result = run.result(AIC_GATHER, (tile,), tile.shape, tile.dtype, tile.valid, "Mat")
        result.array = tile.array
        return result
    shape = tuple(2 * n if a == axis else n for a, n in enumerate(tile.shape))
    result = run.result(AIC_GATHER, (tile,), shape, tile.dtype, None, "Mat")
    halves = vector.gather(tile.array)
    if halves is None:  # the other half is not there yet: poison
        other = None if tile.array is None else storage.new(tile.shape, tile.dtype, storage.poison(tile.dtype))
        halves = [tile.array, other]
    arrays = [half for half in halves if half is not None]
    if len(arrays) == 2:
        result.array = np.concatenate(arrays, axis=axis)
    return result
