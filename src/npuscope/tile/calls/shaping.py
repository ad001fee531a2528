"""Shapes and valid regions: reshape, transpose, concat, fill, padding, halves for the two vector lanes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from npuscope.ops.dtypes import DataType
from npuscope.ops.numeric import storage
from npuscope.ops.shaping import (
    CONCAT,
    REINTERPRET_VIEW,
    RESHAPE,
    SET_VALIDSHAPE,
    TRANSPOSE,
    TRANSPOSE_VIEW,
)
from npuscope.ops.spec import OpSpec
from npuscope.ops.transfers import AIC_GATHER, AIV_SHARD
from npuscope.tile.calls.gm import span
from npuscope.tile.calls.own import own
from npuscope.tile.fault import fault
from npuscope.tile.run.block import VectorCores
from npuscope.tile.run.state import current
from npuscope.tile.values.buffers import contiguous
from npuscope.tile.values.checks import describe, dtype_of, index, shape_of
from npuscope.tile.values.lanes import Whole
from npuscope.tile.values.tensors import Shape, Tensor, Tile


@own(RESHAPE)
def reshape(input: object, shape: Sequence[Whole]) -> Tensor | Tile:
    """The same elements in another shape: a view, no copy."""
    run, x = current(), input
    extents = shape_of(shape)
    if not isinstance(x, Tensor | Tile):
        raise fault(f"pl.reshape takes a tensor or a tile, not {describe(x)}")
    if isinstance(x, Tile) and x.block is not run.block:
        x = run.promoted(x)
    if np.prod(extents, dtype=np.int64) != np.prod(x.shape, dtype=np.int64):
        raise fault(f"pl.reshape: {describe(x)} cannot become {list(extents)}: the number of elements differs")
    if isinstance(x, Tensor):
        valid = _mapped(x.valid, x.shape, extents)
        if x.is_contiguous:
            inside = run.block is not None
            return Tensor(
                x.buffer, x.offset, extents, contiguous(extents), x.dtype, valid, x.captured if inside else None
            )
        if run.block is None:
            raise fault(
                f"pl.reshape of a view {describe(x)} of {x.buffer.name} that is not contiguous",
                "Reshape inside a region, or before slicing.",
            )
        x = run.tile(x, "reshape")
    result = Tile(None, extents, x.dtype, _mapped(x.valid, x.shape, extents), x.space)
    run.emit(RESHAPE, (x,), result)
    if x.array is not None:
        shared = x.share()
        assert shared is not None
        result.array = shared.reshape(extents)
    return result


def view(
    tensor: object, shape: Sequence[Whole] | None = None, valid_shape: object = None, *, layout: object = None
) -> Tensor | Tile:
    """The same memory in another shape; a layout says how the chip reads it and changes no value here."""
    if shape is None and layout is None:
        raise fault("pl.tensor.view needs a shape or a layout")
    if not isinstance(tensor, Tensor | Tile):
        raise fault(f"pl.tensor.view takes a tensor or a tile, not {describe(tensor)}")
    seen = tensor if shape is None else reshape(tensor, shape)
    if valid_shape is None:
        return seen
    valid = shape_of(valid_shape)
    if len(valid) != 2:
        raise fault(f"pl.tensor.view: valid_shape= must be rows and columns, not {list(valid)}")
    return set_validshape(seen, *valid)


def _mapped(valid: Shape | None, old: Shape, new: Shape) -> Shape | None:
    """A partly valid column stays so as a row and back, and axes of one come and go; else the next set_validshape
    decides.
    """
    if valid is None:
        return None
    marked = [v for v, n in zip(valid, old, strict=True) if n != 1]
    kept = [n for n in new if n != 1]
    if [n for n in old if n != 1] != kept:
        return None
    left = iter(marked)
    mapped = tuple(1 if n == 1 else next(left) for n in new)
    return None if mapped == new else mapped


@own(TRANSPOSE)
def transpose(input: object, axis1: object, axis2: object, tmp_tile: object = None) -> Tensor | Tile:
    """Swaps two axes."""
    run, x = current(), input
    if not isinstance(x, Tensor | Tile):
        raise fault(f"pl.transpose takes a tensor or a tile, not {describe(x)}")
    axis1, axis2 = (int(index(axis, "pl.transpose", "an axis")) for axis in (axis1, axis2))
    for axis in (axis1, axis2):
        if not -len(x.shape) <= axis < len(x.shape):
            raise fault(f"pl.transpose: no axis {axis} in {describe(x)}")
    if isinstance(x, Tensor) and run.block is None:
        shape, strides, valid = (_swapped(each, axis1, axis2) for each in (x.shape, x.strides, x.valid or ()))
        return Tensor(x.buffer, x.offset, shape, strides, x.dtype, valid or None)
    return transposed(run.tile(x, "transpose"), axis1, axis2, TRANSPOSE)


def _swapped(each: Shape, axis1: int, axis2: int) -> Shape:
    """What there is for each axis, after two axes are swapped; of nothing, nothing."""
    values = list(each)
    if values:
        values[axis1], values[axis2] = values[axis2], values[axis1]
    return tuple(values)


@own(TRANSPOSE_VIEW)
def transpose_view(tile: object) -> Tile:
    """The transpose by another reading of the layout: no copy."""
    x = current().tile(tile, "transpose_view")
    if len(x.shape) < 2:
        raise fault(f"pl.transpose_view needs rows and columns, not {describe(x)}")
    return transposed(x, -2, -1, TRANSPOSE_VIEW)


def transposed(tile: Tile, axis1: int, axis2: int, spec: OpSpec) -> Tile:
    shape, valid = (_swapped(each, axis1, axis2) for each in (tile.shape, tile.valid or ()))
    result = Tile(None, shape, tile.dtype, valid or None, tile.space)
    run = current()
    run.region(spec.name)
    run.emit(spec, (tile,), result)
    if tile.array is not None:
        result.array = np.ascontiguousarray(tile.array.swapaxes(axis1, axis2))
    return result


@own(CONCAT)
def concat(src0: object, src1: object) -> Tile:
    """Side by side along the last axis."""
    run = current()
    tiles = [run.tile(value, "concat") for value in (src0, src1)]
    first = tiles[0]
    if any(t.shape[:-1] != first.shape[:-1] or t.dtype is not first.dtype for t in tiles):
        raise fault(f"pl.concat: {' and '.join(describe(t) for t in tiles)} do not fit side by side")
    result = Tile(None, (*first.shape[:-1], sum(t.shape[-1] for t in tiles)), first.dtype, _beside(*tiles))
    run.region("concat")
    run.emit(CONCAT, tuple(tiles), result)
    if all(t.array is not None for t in tiles):
        result.array = np.concatenate([t.array for t in tiles], axis=-1)
    return result


def _beside(first: Tile, second: Tile) -> Shape | None:
    """The valid region of two tiles side by side: a gap in the first cannot be followed by data of the second."""
    if first.valid is None and second.valid is None:
        return None
    one, other = first.valid or first.shape, second.valid or second.shape
    columns = one[-1] + (other[-1] if one[-1] == first.shape[-1] else 0)
    return (*(min(a, b) for a, b in zip(one[:-1], other[:-1], strict=True)), columns)


@own(SET_VALIDSHAPE)
def set_validshape(input: object, valid_rows: object, valid_cols: object) -> Tensor | Tile:
    """Says which part of a tile holds data; nothing moves."""
    run, x = current(), input
    if not isinstance(x, Tensor | Tile) or len(x.shape) < 2:
        raise fault(f"pl.set_validshape takes a tensor or a tile of rows and columns, not {describe(x)}")
    valid = shape_of((valid_rows, valid_cols))
    if len(valid) < len(x.shape):
        valid = (*x.shape[: len(x.shape) - len(valid)], *valid)
    if any(v > n for v, n in zip(valid, x.shape, strict=True)):
        raise fault(f"pl.set_validshape: {list(valid)} is larger than {describe(x)}")
    kept = None if valid == x.shape else valid
    if isinstance(x, Tensor):
        return Tensor(x.buffer, x.offset, x.shape, x.strides, x.dtype, kept, x.captured if run.block else None)
    if x.valid == kept:
        return x
    result = Tile(x.share(), x.shape, x.dtype, kept, x.space)
    run.emit(SET_VALIDSHAPE, (x,), result)
    return result


@own(REINTERPRET_VIEW)
def reinterpret_view(data: object, dtype: DataType, *, shape: Sequence[Whole] | None = None) -> Tensor | Tile:
    """The same bits read as another type of the same width."""
    run, x = current(), data
    kind = dtype_of(dtype, "reinterpret_view")
    if not isinstance(x, Tensor | Tile):
        raise fault(f"pl.reinterpret_view takes a tensor or a tile, not {describe(x)}")
    if kind.bytes != x.dtype.bytes or kind.storage is None:
        raise fault(f"pl.reinterpret_view: {describe(x)} as {kind}: the widths differ")
    extents = x.shape if shape is None else shape_of(shape)
    if math.prod(extents) != math.prod(x.shape):
        raise fault(f"pl.reinterpret_view: {describe(x)} as {list(extents)}: the number of elements differs")
    if isinstance(x, Tensor) and x.is_contiguous:
        return Tensor(x.buffer, x.offset, extents, contiguous(extents), kind, None, x.captured if run.block else None)
    tile = run.tile(x, "reinterpret_view")
    result = Tile(None, extents, kind, None, tile.space)
    run.emit(REINTERPRET_VIEW, (tile,), result)
    if tile.array is not None:
        bits = np.empty(tile.shape, tile.dtype.storage)
        storage.store(bits, tile.array, tile.dtype)
        result.array = storage.load(bits.view(kind.storage or tile.array.dtype).reshape(extents), kind)
    return result


def _crossing(x: object, spec: OpSpec) -> tuple[Tile, VectorCores, int | None]:
    """A value that crosses the edge of a vector region, the cores there, and the axis that each has half of."""
    block = current().region(spec.name)
    if not block.vector.inside:
        raise fault(f"pl.{spec.name} outside a pl.split_aiv region")
    tile, half = current().tile(x, spec.name), block.vector.half
    return tile, block.vector, None if half is None else len(tile.shape) - (2 if half == "up_down" else 1)


@own(AIV_SHARD)
def aiv_shard(x: object) -> Tile:
    """A cube value enters a vector region: this lane's half along the split axis, or all of it."""
    run = current()
    tile, vector, axis = _crossing(x, AIV_SHARD)
    if axis is None:
        result = Tile(tile.share(), tile.shape, tile.dtype, tile.valid)
        run.emit(AIV_SHARD, (tile,), result)
        return result
    extent = tile.shape[axis]
    if extent % 2:
        raise fault(f"pl.aiv_shard: {describe(tile)} has no two halves along axis {axis}")
    shape = tuple(n // 2 if a == axis else n for a, n in enumerate(tile.shape))
    valid = None
    if tile.valid is not None:
        inside = min(max(tile.valid[axis] - vector.core * (extent // 2), 0), extent // 2)
        valid = tuple(inside if a == axis else n for a, n in enumerate(tile.valid))
    result = Tile(None, shape, tile.dtype, None if valid == shape else valid)
    run.emit(AIV_SHARD, (tile,), result)
    if tile.array is not None:
        part = [span(0, n) for n in shape]
        part[axis] = span(vector.core * (extent // 2), extent // 2)
        result.array = np.ascontiguousarray(tile.array[tuple(part)])
    return result


@own(AIC_GATHER)
def aic_gather(x: object) -> Tile:
    """A vector value goes back to the cube: both lanes' halves along the split axis, or all of it."""
    run = current()
    tile, vector, axis = _crossing(x, AIC_GATHER)
    if axis is None:
        result = Tile(tile.share(), tile.shape, tile.dtype, tile.valid, "Mat")
        run.emit(AIC_GATHER, (tile,), result)
        return result
    shape = tuple(2 * n if a == axis else n for a, n in enumerate(tile.shape))
    result = Tile(None, shape, tile.dtype, None, "Mat")
    run.emit(AIC_GATHER, (tile,), result)
    halves = vector.gather(tile.array)
    if halves is None:  # the other half is not there yet: poison
        other = None if tile.array is None else storage.new(tile.shape, tile.dtype, storage.poison(tile.dtype))
        halves = [tile.array, other]
    arrays = [half for half in halves if half is not None]
    if len(arrays) == 2:
        result.array = np.concatenate(arrays, axis=axis)
    return result
