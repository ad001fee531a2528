"""`x[a:b, c]` and `x[a:b] = v`."""

from __future__ import annotations

from collections.abc import Sequence

from npuscope.tile.calls import elements, shaping, slicing, transfer
from npuscope.tile.fault import fault
from npuscope.tile.run.state import current
from npuscope.tile.values.checks import Scalar, describe, is_number
from npuscope.tile.values.checks import index as whole
from npuscope.tile.values.lanes import Whole
from npuscope.tile.values.tensors import Operand, Tensor, Tile


def _box(x: Operand, index: object) -> tuple[list[Whole], list[Whole], list[int]]:
    """Offsets, extents and the axes that a single number drops."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if len(parts) > len(x.shape):
        raise fault(f"{len(parts)} indices for {describe(x)}")
    parts += [slice(None)] * (len(x.shape) - len(parts))
    offsets: list[Whole] = []
    extents: list[Whole] = []
    dropped = []
    for axis, (part, extent) in enumerate(zip(parts, x.shape, strict=True)):
        if isinstance(part, slice):
            if part.step not in (None, 1):
                raise fault(f"a slice of {describe(x)} with step {part.step}", "Slices have step 1.")
            first = 0 if part.start is None else part.start
            last = extent if part.stop is None else part.stop
            offsets.append(first)
            extents.append(last - first)
        elif is_number(part):
            offsets.append(whole(part, f"an index of {describe(x)}"))
            extents.append(1)
            dropped.append(axis)
        else:
            raise fault(f"an index of {describe(x)} must be a number or a slice, not {type(part).__name__}")
    return offsets, extents, dropped


def get(x: Operand, index: object) -> Tensor | Tile | Scalar:
    """A slice; one element where every axis has a number."""
    offsets, extents, dropped = _box(x, index)
    if len(dropped) == len(x.shape):
        return elements.read(x, offsets)
    return (
        slicing.slice(x, extents, offsets, drop_dims=dropped or None)
        if dropped and isinstance(x, Tensor)
        else _tile_slice(x, extents, offsets, dropped)
    )


def _tile_slice(x: Operand, extents: list[Whole], offsets: list[Whole], dropped: list[int]) -> Tensor | Tile:
    part = slicing.slice(x, extents, offsets)
    if not dropped:
        return part

    return shaping.reshape(part, [n for axis, n in enumerate(part.shape) if axis not in dropped])


def put(x: Operand, index: object, value: object) -> None:
    """Writes in place."""
    offsets, extents, dropped = _box(x, index)
    if len(dropped) == len(x.shape) and is_number(value):
        elements.write(x, offsets, value)
        return
    if is_number(value):
        raise fault(f"a slice of {describe(x)} = {value!r}", "Use pl.full for a tile of one value.")
    wanted = [int(n) for n in extents]
    # The slice may be as large as the tile or as the part of it that is written, its valid one.
    held = [_squeezed(shape) for shape in (getattr(value, "shape", None), getattr(value, "valid", None)) if shape]
    if held and _squeezed(wanted) not in held:
        raise fault(f"a slice {wanted} of {describe(x)} cannot take {describe(value)}")
    if isinstance(x, Tile):
        _put_tile(x, value, offsets)
        return
    transfer.assemble(x, value, offsets)


def _squeezed(shape: Sequence[int]) -> list[int]:
    return [n for n in shape if n != 1]


def _put_tile(x: Tile, value: object, offsets: list[Whole]) -> None:
    """A tile is a value; writing into it by subscript makes the name stand for the new one."""
    run = current()
    if x.block is not run.block:
        transfer.assemble(x, value, offsets)
        return
    if not run.is_new(x):
        run.shapes.only_first()  # the next turn finds another tile under the same name
    new = transfer.assemble(x, value, offsets)
    assert isinstance(new, Tile)
    x.array, x.frame, x.iteration, x.index = new.array, new.frame, new.iteration, new.index
