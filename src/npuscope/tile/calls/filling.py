"""Tiles filled with numbers: all of one, ramps, triangles, and padding around what is valid."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from npuscope.ops.dtypes import INT32, DataType
from npuscope.ops.numeric import sorting, storage
from npuscope.ops.shaping import ARANGE, FILLPAD, FILLPAD_EXPAND, FULL, TRI
from npuscope.tile.calls.literals import number_of, settled
from npuscope.tile.calls.own import own
from npuscope.tile.enums import PadValue
from npuscope.tile.fault import fault
from npuscope.tile.run.state import Run, current
from npuscope.tile.values.checks import (
    Scalar,
    describe,
    dtype_of,
    fitting,
    flag,
    held,
    index,
    is_number,
    shape_of,
    shown,
)
from npuscope.tile.values.lanes import Plain, Whole
from npuscope.tile.values.tensors import Tile
from npuscope.tile.values.unknown import Unknown


def pad_number(pad_value: object, dtype: DataType) -> Scalar:
    """What a padding stands for in a data type: `min` and `max` are its finite extremes."""
    if pad_value is PadValue.zero or pad_value is PadValue.null:
        return 0
    if is_number(pad_value):
        if isinstance(pad_value, float | np.floating) and np.isinf(pad_value):
            return pad_number(PadValue.max if pad_value > 0 else PadValue.min, dtype)
        return fitting(pad_value, dtype, "pl.fillpad")
    if not isinstance(pad_value, PadValue):
        raise fault(f"a padding must be pl.PadValue.… or a number, not {shown(pad_value)}")
    if dtype.is_float:
        info = ml_dtypes.finfo(dtype.storage)  # type: ignore[no-untyped-call]
        return float(info.min if pad_value is PadValue.min else info.max)
    return dtype.limits[0 if pad_value is PadValue.min else 1]


@own(FILLPAD)
def fillpad(value: object, pad_value: object = PadValue.zero) -> Tile:
    """Fills what lies outside the valid region; the result is valid everywhere."""
    run = current()
    tile = run.tile(value, "fillpad")
    run.region("fillpad")
    padding = pad_number(pad_value, tile.dtype)
    result = Tile(None, tile.shape, tile.dtype, None, tile.space)
    run.emit(FILLPAD, (tile,), result)
    if tile.array is not None:
        if tile.valid is None:
            result.array = tile.share()
        else:
            result.array = storage.new(tile.shape, tile.dtype, settled(padding))
            inside = tuple([np.s_[:n] for n in tile.valid])
            result.array[inside] = tile.array[inside]
    return result


@own(FILLPAD_EXPAND)
def fillpad_expand(value: object, shape: Sequence[Whole], pad_value: object = PadValue.zero) -> Tile:
    """A larger tile: the valid part of value, the rest padding."""
    run = current()
    tile = run.tile(value, "fillpad_expand")
    extents, padding = shape_of(shape), pad_number(pad_value, tile.dtype)
    if len(extents) != len(tile.shape) or any(n < m for n, m in zip(extents, tile.shape, strict=True)):
        raise fault(f"pl.fillpad_expand: {describe(tile)} does not grow to {list(extents)}")
    result = Tile(None, extents, tile.dtype)
    run.emit(FILLPAD_EXPAND, (tile,), result)
    if tile.array is not None:
        result.array = storage.new(extents, tile.dtype, settled(padding))
        inside = tuple([np.s_[:n] for n in (tile.valid or tile.shape)])
        result.array[inside] = tile.array[inside]
    return result


@own(FULL)
def full(shape: Sequence[Whole], dtype: DataType, value: object) -> Tile:
    """A tile of one value."""
    run = current()
    extents, kind = shape_of(shape), dtype_of(dtype, "full")
    run.region("full")
    number = _one(run, fitting(value, kind, "pl.full"))
    result = Tile(None, extents, kind)
    run.emit(FULL, (value,), result)
    if number is not None and (run.computes or kind.steers):
        result.array = storage.new(extents, kind, held(number, kind) if kind.is_float else number)
    return result


def _one(run: Run, value: Scalar) -> Plain | None:
    """A number; None where shapes mode does not know it, or where it differs from lane to lane."""
    if isinstance(value, Unknown):
        return None
    number = number_of(value)
    if number is None:
        run.shapes.lose()
    return number


@own(ARANGE)
def arange(start: object, shape: Sequence[Whole], dtype: DataType | None = None, descending: bool = False) -> Tile:
    """A ramp in one row."""
    run = current()
    run.region("arange")
    extents, kind = shape_of(shape), INT32 if dtype is None else dtype_of(dtype, "arange")
    if any(n != 1 for n in extents[:-1]):
        raise fault(f"pl.arange makes one row, not {list(extents)}")
    first = _one(run, fitting(start, kind, "pl.arange"))
    descending = flag(descending, "arange", "descending=")
    result = Tile(None, extents, kind)
    run.emit(ARANGE, (start,), result)
    if first is not None and (run.computes or kind.steers):
        ramp = sorting.arange(first, extents, kind.compute)
        result.array = np.subtract(2 * first, ramp).astype(kind.compute) if descending else ramp
    return result


@own(TRI)
def tri(
    diagonal: object,
    shape: Sequence[Whole],
    valid_shape: object = None,
    dtype: DataType | None = None,
    upper: bool = False,
) -> Tile:
    """Ones on and below (or above) a diagonal."""
    run = current()
    run.region("tri")
    extents, kind = shape_of(shape), INT32 if dtype is None else dtype_of(dtype, "tri")
    if len(extents) != 2:
        raise fault(f"pl.tri makes rows and columns, not {list(extents)}")
    first = index(diagonal, "pl.tri", "the diagonal") + (-1 if flag(upper, "tri", "upper=") else 0)
    valid = None if valid_shape is None else shape_of(valid_shape)
    if valid is not None and (len(valid) != 2 or valid[0] > extents[0] or valid[1] > extents[1]):
        raise fault(f"pl.tri: valid_shape {list(valid)} is larger than {list(extents)}")
    result = Tile(None, extents, kind, None if valid == extents else valid)
    run.emit(TRI, (diagonal,), result)
    if run.computes or kind.steers:
        below = np.tri(extents[-2], extents[-1], k=int(first))
        result.array = (1 - below if upper else below).astype(kind.compute)
    return result
