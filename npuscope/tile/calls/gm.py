"""Boxes of GM: where they lie, whether they may be touched, reading and writing them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from npuscope.ops.dtypes import BF16, FP16, FP32, INT8, INT16, INT32, DataType
from npuscope.ops.numeric import rounding, storage
from npuscope.ops.numeric.arrays import Array
from npuscope.ops.spec import OpSpec
from npuscope.ops.transfers import LOAD, STORE
from npuscope.tile.enums import AtomicType
from npuscope.tile.fault import fault
from npuscope.tile.record import sites
from npuscope.tile.record.model import PAST_THE_END
from npuscope.tile.run.state import Run
from npuscope.tile.shapes.steering import log_read, will_write
from npuscope.tile.values import lanes
from npuscope.tile.values.axes import AXES
from npuscope.tile.values.checks import Whole, check_offsets, describe
from npuscope.tile.values.lanes import Lane
from npuscope.tile.values.tensors import Shape, Tensor, Tile, strided

_ADDS = (FP32, FP16, BF16, INT32, INT16, INT8)  # what the store unit can add to GM


def position(tensor: Tensor, offset: Sequence[Whole]) -> Whole:
    """Where a box at these indices begins in the buffer; per lane where indices are."""
    if len(offset) != len(tensor.shape):
        raise fault(f"{len(offset)} offsets {list(offset)!r} for a tensor of shape {list(tensor.shape)}")
    start: Whole = tensor.offset
    for index, stride in zip(offset, tensor.strides, strict=True):
        start = start + (int(index) if isinstance(index, np.integer | np.bool_) else index) * stride
    return start


def check_bounds(op: str, extents: Shape, offset: Sequence[Whole], inside: Sequence[int], what: str) -> None:
    """The accessed region must lie in the source."""
    check_offsets(offset, len(extents), op)
    for axis, (extent, first, count) in enumerate(zip(extents, offset, inside, strict=True)):
        # Lanes outside may never come to this line: go on with those that are where the first one is.
        if type(first) is Lane and first.settled_in(0, extent - count):
            continue
        place = int(first)
        if place < 0 or place + count > extent:
            raise fault(
                f"pl.{op}: rows or columns {place} to {place + count} of axis {axis} lie outside "
                f"{what} of shape {list(extents)}",
                "Narrow it with valid_shape or clamp=True, or mend the offset.",
            )


def _kept(run: Run, op: str, tensor: Tensor, offset: Sequence[Whole], box: Shape) -> Shape:
    """What lies in a tensor of a box that begins in it and runs past its end.

    The chip writes on, over whatever lies there; programs exist that do so and run. Here that part is left out, and
    told.
    """
    check_offsets(offset, len(tensor.shape), op)
    kept = []
    for axis, (extent, first, count) in enumerate(zip(tensor.shape, offset, box, strict=True)):
        inside = type(first) is Lane and first.settled_in(0, extent - count)
        over = 0 if inside else int(first) + count - extent
        kept.append(count - over if 0 < over < count else count)
        if kept[-1] < count:
            lost = (prod(box) - prod([*kept, *box[axis + 1 :]])) * tensor.dtype.bytes
            about = f"pl.{op} writes past the end of {tensor.buffer.name} {list(tensor.shape)} along axis {axis}"
            message = f"{about}: the chip writes over what lies there; here it is left out"
            run.recorder.finding(PAST_THE_END, message, bytes=lost)
    return tuple(kept)


def check_room(op: str, target: Tensor | Tile, offset: Sequence[Whole], box: Shape, what: str) -> None:
    """What is written must lie in the target, and in its valid region where it has one."""
    check_bounds(op, target.shape, offset, box, what)
    if target.valid is not None:
        check_bounds(op, target.valid, offset, box, f"the valid region of {what}, which has")


def load_box(
    run: Run,
    tensor: Tensor,
    start: Whole,
    shape: Shape,
    valid: Shape | None,
    *,
    space: str | None = None,
    strides: Shape | None = None,
    kept: Shape | None = None,
    op: OpSpec = LOAD,
    prologue: bool = False,
    reach: Shape | None = None,
    attributes: tuple[tuple[str, object], ...] = (),
) -> Tile:
    """Loads a box that was checked; `strides` and `kept` (the tile's shape) differ where axes are dropped.

    `reach`: the part that exists of a box that hangs over; the rest is poison.
    """
    strides = strides or tensor.strides
    box = reach or valid or shape
    tile = Tile(None, kept or shape, tensor.dtype, valid if kept is None else _dropped(valid, shape, kept), space)
    buffer = tensor.buffer
    number = run.touch(tensor, "read")
    access = (number, "read", box, strides)
    if prologue:
        block = run.block
        assert block is not None
        key = ("op", op.name, "load", sites.here(), (), _type(tile), (access,), (), 0)
        tile.block, tile.index = block, len(block.prologue)
        block.prologue.append(run.recorder.number(key))
        block.prologue_offsets.append(lanes.place(start))
    else:
        run.emit(op, (), tile, (access,), (start,), attributes, plane="load")
    if buffer.data is None or not (run.computes or (buffer.known and buffer.dtype.steers)):
        return tile
    at = _first(start)
    if not run.computes:
        log_read(run, buffer)
    if buffer.written is not None:
        _check_written(run, tensor, at, box, strides, op.name)
    view = strided(buffer, at, box, strides, tensor.dtype)
    if box == shape:
        array = storage.load(view, tensor.dtype)
    else:
        array = storage.new(shape, tensor.dtype, 0 if reach is None else storage.poison(tensor.dtype))
        array[tuple([slice(n) for n in box])] = storage.load(view, tensor.dtype)
    tile.array = array if kept is None else array.reshape(kept)
    return tile


def _first(start: Whole) -> int:
    """Where a box begins that is touched now: in the first lane, and in no other."""
    one: Whole = lanes.plain(start)
    if isinstance(one, Lane):
        AXES.only_first()
    return int(one)


def _type(tile: Tile) -> tuple[Shape, str, Shape | None, str | None]:
    return (tile.shape, tile.dtype.name, tile.valid, tile.space)


def _dropped(valid: Shape | None, shape: Shape, kept: Shape) -> Shape | None:
    if valid is None:
        return None
    left = [v for v, n in zip(valid, shape, strict=True) if n != 1]
    lead = [1] * (len(kept) - len(left))
    return tuple(lead + left)


def _check_written(run: Run, tensor: Tensor, start: int, box: Shape, strides: Shape, op: str) -> None:
    buffer = tensor.buffer
    mask = np.ndarray(box, np.bool_, buffer=buffer.written, offset=start, strides=strides)
    if mask.all():
        return
    if not mask.any():
        message = f"pl.{op} reads {list(box)} of {buffer.name} {list(buffer.shape)}, of which nothing was ever written"
    else:
        message = (
            f"pl.{op} reads {list(box)} of {buffer.name} {list(buffer.shape)}, "
            "of which some elements were never written"
        )
    run.recorder.finding("unwritten", message)


def store_box(
    run: Run,
    tile: Tile,
    tensor: Tensor,
    offset: Sequence[Whole],
    atomic: AtomicType = AtomicType.None_,
    op: OpSpec = STORE,
) -> Tensor:
    """Writes the valid part of a tile into a tensor at these indices."""
    box = tile.valid or tile.shape
    rank, want = len(box), len(tensor.shape)
    whole = tile.shape
    if rank != want:
        # Tiles are two-dimensional on chip: leading axes of one come and go.
        if rank < want:
            box, whole = (1,) * (want - rank) + box, (1,) * (want - rank) + whole
        else:
            lead = rank - want
            if any(n != 1 for n in box[:lead]):
                raise fault(f"pl.{op.name}: a tile {describe(tile)} does not fit a tensor {describe(tensor)}")
            box, whole = box[lead:], whole[lead:]
    box = _kept(run, op.name, tensor, offset, box)
    check_room(op.name, tensor, offset, box, tensor.buffer.name)
    if atomic is AtomicType.Add and tensor.dtype not in _ADDS:
        raise fault(
            f"pl.{op.name}: no atomic add of {describe(tile)} into {tensor.buffer.name} {describe(tensor)}",
            f"The store unit adds {', '.join(d.name for d in _ADDS)}.",
        )
    if tile.dtype is not tensor.dtype:
        _check_narrowing(tile, tensor, op.name)
    adds = atomic is AtomicType.Add
    start = position(tensor, offset)
    mode = "add" if adds else "write"
    number = run.touch(tensor, mode, op.name)
    access = (number, mode, box, tensor.strides)
    run.emit(op, (tile,), None, (access,), (start,), plane="store")
    buffer = tensor.buffer
    if not run.computes and buffer.data is not None and buffer.known:
        will_write(run, buffer)
        if adds and tile.array is not None:
            AXES.only_first()
    if tile.array is None:
        buffer.known = False
    elif buffer.data is not None:
        at = _first(start)
        array = tile.array.reshape(whole)
        if box != whole:
            array = array[tuple([slice(n) for n in box])]
        write_box(run, tensor, at, box, array, tile.dtype, adds)
    return tensor


def write_box(run: Run, tensor: Tensor, start: int, box: Shape, array: Array, dtype: DataType, adds: bool) -> None:
    buffer = tensor.buffer
    if dtype is not tensor.dtype:
        array = rounding.cast(array, dtype, tensor.dtype, "rint")
    for counts in run.memories_of(buffer, None if run.block is None else run.block.task.id):
        view = strided(buffer, start, box, tensor.strides, tensor.dtype)
        value = rounding.round_to(np.add(storage.load(view, tensor.dtype), array), tensor.dtype) if adds else array
        storage.store(view, value, tensor.dtype)
        if counts and buffer.written is not None:
            np.ndarray(box, np.bool_, buffer=buffer.written, offset=start, strides=tensor.strides)[...] = True


def _check_narrowing(tile: Tile, tensor: Tensor, op: str) -> None:
    """Only an accumulator may change its type on the way to GM."""
    allowed = tile.space == "Acc" and tile.dtype is FP32 and tensor.dtype.is_float
    same = tile.dtype.is_int and tensor.dtype.is_int and tile.dtype.bytes == tensor.dtype.bytes
    if not allowed and not same:
        raise fault(
            f"pl.{op}: a tile {describe(tile)} cannot be written to {tensor.buffer.name} {describe(tensor)}",
            "Cast it first with pl.cast.",
        )


def span(first: int, count: int) -> slice:
    """A plain slice; `slice` is an op here."""
    return np.s_[first : first + count]
