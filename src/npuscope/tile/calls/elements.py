"""Single elements, and the extent of an axis."""

from __future__ import annotations

import numpy as np

from npuscope.ops.dtypes import FP32, DataType
from npuscope.ops.numeric import rounding
from npuscope.ops.numeric.arrays import Array
from npuscope.ops.scalars import DIM, READ, WRITE
from npuscope.tile.calls.gm import check_bounds
from npuscope.tile.calls.literals import settled
from npuscope.tile.calls.own import own
from npuscope.tile.fault import fault
from npuscope.tile.record import model, sites
from npuscope.tile.run.boxes import position, write_box
from npuscope.tile.run.state import Run, current
from npuscope.tile.values import lanes
from npuscope.tile.values.checks import Scalar, describe, fitting, is_number
from npuscope.tile.values.checks import index as whole
from npuscope.tile.values.lanes import Lane, Whole
from npuscope.tile.values.tensors import Tensor, Tile, strided
from npuscope.tile.values.unknown import UNKNOWN, Unknown


def _flat(x: Tensor | Tile, index: object) -> list[Whole]:
    """An index list; one number on a tensor of more axes counts elements row by row."""
    indices = index if isinstance(index, list | tuple) else [index]
    where = [i if type(i) is int else whole(i, f"an element of {describe(x)}") for i in indices]
    if len(where) == len(x.shape):
        return where
    if len(where) == 1:
        rest = where[0]
        unfolded: list[Whole] = []
        for extent in reversed(x.shape[1:]):
            unfolded.append(rest % extent)
            rest = rest // extent
        return [rest, *reversed(unfolded)]
    raise fault(f"{len(where)} indices for {describe(x)}")


@own(READ)
def read(src: object, offset: object) -> Scalar:
    """One element as a scalar."""
    run, x, index = current(), src, offset
    if isinstance(x, Tile):
        if x.block is run.block:
            return _read_tile(run, x, _flat(x, index))
        x = run.promoted(x)
    if not isinstance(x, Tensor):
        raise fault(f"pl.read takes a tensor or a tile, not {describe(x)}")
    where = _flat(x, index)
    ones = (1,) * len(where)
    check_bounds("read", x.shape, where, ones, x.buffer.name)
    start = position(x, where)
    if run.block is None and not run.orchestration.reads_for_runtime:
        run.recorder.host_reads.append(model.HostRead(x.buffer.id, int(start), len(run.recorder.tasks), sites.here()))
    elif run.block is not None:
        number = run.touch(x, "read")
        run.emit(READ, (), None, ((number, "read", ones, x.strides),), (start,))
    buffer = x.buffer
    if buffer.data is None or not buffer.known:
        return UNKNOWN
    if not run.computes:
        run.shapes.reads(x.buffer, run.block)
        start = lanes.plain(start)
        if isinstance(start, Lane) and x.dtype is buffer.dtype:
            return start.like(buffer.data[start.values].astype(np.int64))
    at = int(start)
    if buffer.written is not None and not buffer.written[at]:
        run.recorder.finding("unwritten", f"pl.read of an element of {buffer.name} that was never written")
    return _scalar(buffer.data[at] if x.dtype is buffer.dtype else strided(buffer, at, (), (), x.dtype).take(0))


def _scalar(value: np.generic) -> int | np.float32:
    """fp32 scalars stay fp32; whole numbers are Python's."""
    if isinstance(value, np.integer | np.bool_):
        return int(value)
    return np.float32(value)


def _read_tile(run: Run, x: Tile, where: list[Whole]) -> Scalar:
    check_bounds("read", x.shape, where, (1,) * len(where), "the tile")
    run.emit(READ, (x,), None)
    if x.array is None:
        return UNKNOWN
    where = [lanes.plain(i) for i in where]
    lane = next((i for i in where if isinstance(i, Lane)), None)
    if lane is not None:
        return lane.like(x.array[tuple([lanes.of(i) for i in where])].astype(np.int64))
    value = x.array[tuple([int(i) for i in where])]
    return int(value) if x.dtype.is_int else np.float32(value)


@own(WRITE)
def write(dst: object, offset: object, value: object) -> Tensor | Tile:
    """One element in place."""
    run, x, index = current(), dst, offset
    if not is_number(value):
        raise fault(f"pl.write takes a scalar, not {describe(value)}")
    if isinstance(x, Tensor | Tile):
        value = fitting(value, x.dtype, "pl.write")
    if isinstance(x, Tile):
        where = _flat(x, index)
        check_bounds("write", x.valid or x.shape, where, (1,) * len(where), "the tile's valid region")
        run.region("write")
        run.emit(WRITE, (x, value), None)
        _write_tile(run, x, where, value)
        return x
    if not isinstance(x, Tensor):
        raise fault(f"pl.write takes a tensor or a tile, not {describe(x)}")
    where = _flat(x, index)
    ones = (1,) * len(where)
    check_bounds("write", x.shape, where, ones, x.buffer.name)
    start = position(x, where)
    run.region("write")
    number = run.touch(x, "write", "write")
    run.emit(WRITE, (value,), None, ((number, "write", ones, x.strides),), (start,))
    buffer = x.buffer
    if isinstance(value, Unknown) or (x.dtype is not buffer.dtype and not run.computes):
        if buffer.known and not run.computes:
            run.shapes.will_write(x.buffer, run.block)
        buffer.known = False
    elif buffer.data is None:
        return x
    elif run.computes:
        write_box(run, x, int(start), ones, _element(settled(value), x.dtype), x.dtype, adds=False)
    else:
        run.shapes.write(x.buffer, start, value, run.block)
    return x


def _element(value: int | float | np.number | np.bool_, dtype: DataType) -> Array:
    array = np.asarray(value)
    if dtype.is_float:
        return rounding.cast(array.astype(np.float32), FP32, dtype, "rint")
    return array.astype(dtype.compute)


def _write_tile(run: Run, x: Tile, where: list[Whole], value: Scalar) -> None:
    if x.array is None:
        return
    run.shapes.only_first()  # the next turn finds what this one wrote
    if isinstance(value, Unknown):
        x.array = None
        return
    x.own()[tuple([int(i) for i in where])] = _element(settled(value), x.dtype)


@own(DIM)
def dim(tensor: object, axis: object) -> int:
    """The run-time extent of an axis."""
    if not isinstance(tensor, Tensor | Tile):
        raise fault(f"pl.tensor.dim takes a tensor, not {describe(tensor)}")
    axis = int(whole(axis, "pl.tensor.dim", "an axis"))
    if not -len(tensor.shape) <= axis < len(tensor.shape):
        raise fault(f"pl.tensor.dim: no axis {axis} in {describe(tensor)}")
    extent: int = tensor.shape[axis]
    return extent
