"""Boxes of a buffer as a reader writes them: q_proj[0:16, 512:1024]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from npuscope.check.wording.told import tensor_name
from npuscope.lower.program import Program
from npuscope.tile.graph.boxes import dims, extent, row_major
from npuscope.tile.record.model import Buffer

Span = tuple[int, int, int]  # first, one past the last, step


def named(program: Program, number: int) -> Buffer:
    """A buffer under the name that the user knows: a value that left its region has that of its variable."""
    buffer = program.recording.buffers[number]
    return replace(buffer, name=tensor_name(program, number)) if buffer.origin == "promoted" else buffer


def region_text(buffer: Buffer, shape: tuple[int, ...], strides: tuple[int, ...], offsets: Sequence[int]) -> str:
    """Equal boxes at these offsets: as one box if they are one, else the first of them and how many more."""
    boxes = [_axes(buffer.shape, shape, strides, offset) for offset in offsets]
    known = [box for box in boxes if box is not None]
    if len(known) < len(boxes):
        last = max(offsets) + extent(shape, strides)
        return f"{buffer.name}.flat[{min(offsets)}:{last}]"
    around = [(min(a[0] for a in axis), max(a[1] for a in axis), axis[0][2]) for axis in zip(*known, strict=True)]
    if len(known) == 1 or _sizes(around) == sum(_sizes(box) for box in known):
        return f"{buffer.name}[{', '.join(map(_shown, around))}]"
    more = len(known) - 1
    return f"{buffer.name}[{', '.join(map(_shown, known[0]))}] and {more} more"


def _sizes(box: Sequence[Span]) -> int:
    return prod(-(-(end - start) // step) for start, end, step in box)


def _shown(axis: Span) -> str:
    start, end, step = axis
    return f"{start}:{end}" if step == 1 else f"{start}:{end}:{step}"


def _axes(whole: tuple[int, ...], shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> list[Span] | None:
    """The box along the buffer's own axes; None if it is no box there, as in a view that was reshaped."""
    steps = row_major(whole)
    starts, rest = [], offset
    for step in steps:
        start, rest = divmod(rest, step)
        starts.append(start)
    axes: list[Span | None] = [None] * len(whole)
    todo = list(dims(shape, strides))
    while todo:
        size, stride = todo.pop()
        k = next((k for k, step in enumerate(steps) if step <= stride and whole[k] > 1), -1)
        if k < 0 or stride % steps[k] or axes[k] is not None:
            return None
        step = stride // steps[k]
        if starts[k] + (size - 1) * step >= whole[k]:
            if step != 1 or starts[k] or size % whole[k]:
                return None
            todo.append((size // whole[k], stride * whole[k]))  # whole rows, one after the other
            size = whole[k]
        axes[k] = (starts[k], starts[k] + (size - 1) * step + 1, step)
    return [axis or (start, start + 1, 1) for axis, start in zip(axes, starts, strict=True)]
