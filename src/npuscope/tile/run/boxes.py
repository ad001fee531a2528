"""Boxes of GM that were checked: loading them into tiles, and writing them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuscope.ops.dtypes import DataType
from npuscope.ops.numeric import rounding, storage
from npuscope.ops.numeric.arrays import Array
from npuscope.ops.spec import OpSpec
from npuscope.ops.transfers import LOAD
from npuscope.tile.fault import fault
from npuscope.tile.record.recorder import AccessKey, Attributes
from npuscope.tile.run.door import Door
from npuscope.tile.values.lanes import Lane, Number
from npuscope.tile.values.tensors import Shape, Tensor, Tile, strided


def position(tensor: Tensor, offset: Sequence[Number]) -> Number:
    """Where a box at these indices begins in the buffer; per lane where indices are."""
    if len(offset) != len(tensor.shape):
        raise fault(f"{len(offset)} offsets {list(offset)!r} for a tensor of shape {list(tensor.shape)}")
    start: Number = tensor.offset
    for index, stride in zip(offset, tensor.strides, strict=True):
        start = start + (index if type(index) is int or type(index) is Lane else int(index)) * stride
    return start


def load_box(
    run: Door,
    tensor: Tensor,
    start: Number,
    shape: Shape,
    valid: Shape | None,
    *,
    space: str | None = None,
    kept: Shape | None = None,
    op: OpSpec = LOAD,
    early: bool = False,
    reach: Shape | None = None,
    attributes: Attributes = (),
) -> Tile:
    """Loads a box that was checked; `kept`: the tile's shape where axes are dropped.

    `early`: the load stands before all else in its block; `reach`: the part that exists of a box that hangs over, the
    rest is poison.
    """
    box = reach or valid or shape
    tile = Tile(None, kept or shape, tensor.dtype, valid if kept is None else _dropped(valid, shape, kept), space)
    buffer = tensor.buffer
    access: AccessKey = (run.touch(tensor, "read"), "read", box, tensor.strides)
    if early:
        run.emit_early(op, tile, access, start)
    else:
        run.emit(op, (), tile, (access,), (start,), attributes, plane="load")
    if buffer.data is None or not (run.computes or (buffer.known and buffer.dtype.steers)):
        return tile
    first = run.shapes.one_place(start)
    if not run.computes:
        run.shapes.reads(tensor.buffer, run.block)
    if buffer.written is not None:
        _check_written(run, tensor, first, box, op.name)
    view = strided(buffer, first, box, tensor.strides, tensor.dtype)
    if box == shape:
        array = storage.load(view, tensor.dtype)
    else:
        array = storage.new(shape, tensor.dtype, 0 if reach is None else storage.poison(tensor.dtype))
        array[tuple([slice(n) for n in box])] = storage.load(view, tensor.dtype)
    tile.array = array if kept is None else array.reshape(kept)
    return tile


def _dropped(valid: Shape | None, shape: Shape, kept: Shape) -> Shape | None:
    if valid is None:
        return None
    left = [v for v, n in zip(valid, shape, strict=True) if n != 1]
    lead = [1] * (len(kept) - len(left))
    return tuple(lead + left)


def _check_written(run: Door, tensor: Tensor, start: int, box: Shape, op: str) -> None:
    buffer = tensor.buffer
    mask = np.ndarray(box, np.bool_, buffer=buffer.written, offset=start, strides=tensor.strides)
    if mask.all():
        return
    how_much = "some elements were never" if mask.any() else "nothing was ever"
    about = f"pl.{op} reads {list(box)} of {buffer.name} {list(buffer.shape)}"
    run.recorder.finding("unwritten", f"{about}, of which {how_much} written")


def write_box(run: Door, tensor: Tensor, start: int, box: Shape, array: Array, dtype: DataType, adds: bool) -> None:
    """Writes the elements of a box, in each memory that the task under way works on."""
    buffer = tensor.buffer
    if dtype is not tensor.dtype:
        array = rounding.cast(array, dtype, tensor.dtype, "rint")
    for counts in run.gm.memories_of(buffer, run.task):
        view = strided(buffer, start, box, tensor.strides, tensor.dtype)
        value = rounding.round_to(np.add(storage.load(view, tensor.dtype), array), tensor.dtype) if adds else array
        storage.store(view, value, tensor.dtype)
        if counts and buffer.written is not None:
            np.ndarray(box, np.bool_, buffer=buffer.written, offset=start, strides=tensor.strides)[...] = True
