"""Boxes of GM that a program names: whether they may be touched, and writing tiles to them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from npuscope.ops.dtypes import BF16, FP16, FP32, INT8, INT16, INT32
from npuscope.ops.spec import OpSpec
from npuscope.ops.transfers import STORE
from npuscope.tile.enums import AtomicType
from npuscope.tile.fault import fault
from npuscope.tile.record.model import PAST_THE_END, AccessMode
from npuscope.tile.record.recorder import AccessKey
from npuscope.tile.run.boxes import position, write_box
from npuscope.tile.run.state import Run
from npuscope.tile.values.checks import check_offsets, describe
from npuscope.tile.values.lanes import Lane, Whole
from npuscope.tile.values.tensors import Shape, Tensor, Tile

_ADDS = (FP32, FP16, BF16, INT32, INT16, INT8)  # what the store unit can add to GM


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
    mode: AccessMode = "add" if adds else "write"
    number = run.touch(tensor, mode, op.name)
    access: AccessKey = (number, mode, box, tensor.strides)
    run.emit(op, (tile,), None, (access,), (start,), plane="store")
    buffer = tensor.buffer
    if not run.computes and buffer.data is not None and buffer.known:
        run.shapes.will_write(tensor.buffer, run.block)
        if adds and tile.array is not None:
            run.shapes.only_first()
    if tile.array is None:
        buffer.known = False
    elif buffer.data is not None:
        at = run.shapes.one_place(start)
        array = tile.array.reshape(whole)
        if box != whole:
            array = array[tuple([slice(n) for n in box])]
        write_box(run, tensor, at, box, array, tile.dtype, adds)
    return tensor


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
