"""Slices: views in orchestration, loads in a region, parts of tiles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuscope.ops.numeric import storage
from npuscope.ops.shaping import SLICE
from npuscope.tile.calls import filling, shaping
from npuscope.tile.calls.gm import check_bounds, span
from npuscope.tile.calls.own import own
from npuscope.tile.fault import fault
from npuscope.tile.run.boxes import load_box, position
from npuscope.tile.run.state import Run, current
from npuscope.tile.values.checks import check_offsets, describe, flag, index, shape_of, shown
from npuscope.tile.values.lanes import Lane, Whole
from npuscope.tile.values.tensors import Shape, Tensor, Tile


@own(SLICE)
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
    run, x = current(), input
    box = shape_of(shape)
    clamp = flag(clamp, "slice", "clamp=")
    valid = None if valid_shape is None else shape_of(valid_shape)
    dropped = None if drop_dims is None else _dropped(box, drop_dims)
    if isinstance(x, Tile) and x.block is not run.block:
        x = run.promoted(x)
    if isinstance(x, Tile):
        tile: Tensor | Tile = _slice_tile(run, x, box, offset, valid, clamp)
        if dropped:
            tile = shaping.reshape(tile, [n for axis, n in enumerate(box) if axis not in dropped])
    elif isinstance(x, Tensor):
        if len(box) != len(x.shape):
            raise fault(f"pl.slice: a box {list(box)} of a tensor {describe(x)}")
        reach = None if valid or clamp else overhang(run, x, box, offset, "slice")
        valid = inside(x, reach or box, offset, valid, clamp)
        if run.block is None:
            return _view(x, box, offset, reach or valid, dropped)
        tile = load_box(run, x, position(x, offset), box, valid, op=SLICE, kept=_without(box, dropped), reach=reach)
    else:
        raise fault(f"pl.slice takes a tensor or a tile, not {describe(x)}")
    if pad_value is not None and tile.valid is not None:
        return filling.fillpad(tile, pad_value)
    return tile


def overhang(run: Run, x: Tensor, box: Shape, offset: Sequence[Whole], op: str) -> Shape | None:
    """What exists of a slice that runs past the last row of a parameter whose number of rows the program does not know.

    The chip reads on into whatever lies there. Programs do it where they drop those rows later, so it is a finding and
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
    run.recorder.finding(
        "out_of_bounds",
        f"pl.{op} reads rows {first} to {first + box[0]} of {x.buffer.name} {list(x.shape)}: "
        f"{box[0] - rows} of them lie outside and hold anything",
    )
    return (rows, *box[1:])


def inside(
    x: Tensor | Tile, box: Shape, offset: Sequence[Whole], valid: Shape | None, clamp: bool, op: str = "slice"
) -> Shape | None:
    """The valid part of a box; what it reads must lie in the source."""
    if valid is not None and len(valid) != len(box):
        raise fault(f"pl.{op}: valid_shape {list(valid)} for a box {list(box)}")
    if clamp or x.valid is not None:
        check_offsets(offset, len(box), op)
    if clamp:
        valid = tuple(max(0, min(n, e - int(o))) for n, e, o in zip(valid or box, x.shape, offset, strict=True))
    if x.valid is not None:
        valid = tuple(max(0, min(n, v - int(o))) for n, v, o in zip(valid or box, x.valid, offset, strict=True))
    if valid is not None:
        if any(v > n for v, n in zip(valid, box, strict=True)):
            raise fault(f"pl.{op}: valid_shape {list(valid)} is larger than the box {list(box)}")
        if valid == box:
            valid = None
    check_bounds(op, x.shape, offset, valid or box, x.buffer.name if isinstance(x, Tensor) else "the tile")
    return valid


def _dropped(box: Shape, drop_dims: object) -> tuple[int, ...]:
    """The axes of one that a slice leaves out, counted from the front."""
    if not isinstance(drop_dims, list | tuple):
        raise fault(f"pl.slice: drop_dims= must be a list of axes, not {shown(drop_dims)}")
    axes = [int(index(axis, "pl.slice", "an axis of drop_dims=")) for axis in drop_dims]
    for axis in axes:
        if not -len(box) <= axis < len(box) or box[axis] != 1:
            raise fault(f"pl.slice: drop_dims={list(drop_dims)} of a box {list(box)}: only an axis of 1 can go")
    return tuple(axis % len(box) for axis in axes)


def _without(box: Shape, dropped: tuple[int, ...] | None) -> Shape | None:
    return None if dropped is None else tuple(n for axis, n in enumerate(box) if axis not in dropped)


def _view(
    x: Tensor, box: Shape, offset: Sequence[Whole], valid: Shape | None, dropped: tuple[int, ...] | None
) -> Tensor:
    start = position(x, offset)
    shape, strides = box, x.strides
    if dropped is not None:
        keep = [axis for axis in range(len(box)) if axis not in dropped]
        shape, strides = tuple(box[a] for a in keep), tuple(strides[a] for a in keep)
        valid = None if valid is None else tuple(valid[a] for a in keep)
    return Tensor(x.buffer, int(start), shape, strides, x.dtype, valid)


def _slice_tile(run: Run, x: Tile, box: Shape, offset: Sequence[Whole], valid: Shape | None, clamp: bool) -> Tile:
    if len(box) != len(x.shape):
        raise fault(f"pl.slice: a box {list(box)} of a tile {describe(x)}")
    valid = inside(x, box, offset, valid, clamp)
    within = valid or box
    tile = Tile(None, box, x.dtype, valid, x.space)
    run.emit(SLICE, (x,), tile, plane="view")
    if x.array is not None:
        first = [int(o) for o in offset]
        part = x.array[tuple([span(o, n) for o, n in zip(first, within, strict=True)])]
        if within == box:
            tile.array = np.ascontiguousarray(part)
        else:
            tile.array = storage.new(box, x.dtype, 0)
            tile.array[tuple([span(0, n) for n in within])] = part
    return tile
