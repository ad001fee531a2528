"""Where a tensor really lies: an orchestration-level assemble makes the part a box of the whole, from its creation on.

The compiler turns `create` + `assemble` into a slice of the target, so tasks before the assemble already write the
target's memory. That holds for a part assembled once; a part assembled twice has no one place, and nothing is known
about its edges.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from npuscope.base.errors import NpuscopeError
from npuscope.tile.graph.boxes import Box, row_major
from npuscope.tile.record.model import Alias, Buffer, Recording

Offsets = npt.NDArray[np.int64]
Piece = tuple[int, tuple[int, ...], tuple[int, ...], Offsets]  # buffer, shape, strides, offsets: equal boxes


class _AssembledPart(NamedTuple):
    """Where a part lies: its axes as it was assembled, and the strides they have in the whole."""

    whole: int
    offset: int
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    lead: tuple[int, ...]  # strides of axes of the whole that the part lacks: the runtime pads the slice with ones


class Placement:
    """Boxes of parts as boxes of what they were assembled into; other boxes as they are."""

    def __init__(self, recording: Recording) -> None:
        self.parts: dict[int, _AssembledPart] = {}
        for alias in recording.aliases:
            part = _part(alias, recording.buffers[alias.part])
            if part is None:
                raise _unknown(alias, recording, "only in part", "Assemble whole tensors, or write a slice in place.")
            if self.parts.setdefault(alias.part, part) != part:
                raise _unknown(alias, recording, "into two places", "Create one tensor per assemble.")
            if self.root(alias.whole, alias.part) == alias.part:
                raise _unknown(alias, recording, "into itself", "Create another tensor for the result.")

    def root(self, buffer: int, stop: int = -1) -> int:
        """The buffer that holds it; `stop` ends the search."""
        while buffer in self.parts and buffer != stop:
            buffer = self.parts[buffer].whole
        return buffer

    def footprint(self, box: Box) -> Box:
        """The box where it lies; one that is no box there counts as the whole part."""
        while (part := self.parts.get(box.buffer)) is not None:
            found = _inside(part, box.shape, box.strides, np.array([box.offset]))
            found = found or _inside(part, part.shape, row_major(part.shape), np.zeros(1, np.int64))
            assert found is not None  # the whole part always lies in its own box
            box = Box(found[0], int(found[3][0]), found[1], found[2])
        return box

    def pieces(self, piece: Piece) -> Piece:
        """Equal boxes where they lie, exactly: what is no box there falls apart into elements."""
        while (part := self.parts.get(piece[0])) is not None:
            _, shape, strides, offsets = piece
            found = _inside(part, shape, strides, offsets)
            if found is None:
                for size, stride in zip(shape, strides, strict=True):
                    offsets = np.add.outer(offsets, np.arange(size) * stride).ravel()
                found = _inside(part, (), (), offsets)
            assert found is not None
            piece = found
        return piece


def _part(alias: Alias, buffer: Buffer) -> _AssembledPart | None:
    """The part's place; None if only a slice of the buffer was assembled, for then the compiler does not fuse."""
    shape = alias.shape  # of the tensor that was assembled: the buffer reshaped, or with less of it valid
    if prod(shape) != prod(buffer.shape):
        if len(shape) != len(buffer.shape) or any(a > b for a, b in zip(shape, buffer.shape, strict=True)):
            return None
        shape = buffer.shape
    rank = len(shape)
    padded = (*(0,) * rank, *alias.strides)  # leading axes of one element may be missing in the whole
    lead = alias.strides[: max(len(alias.strides) - rank, 0)]
    return _AssembledPart(alias.whole, alias.offset, shape, padded[len(padded) - rank :], lead)


def _unknown(alias: Alias, recording: Recording, how: str, remedy: str) -> NpuscopeError:
    site, name = recording.sites[alias.site], recording.buffers[alias.part].name
    what = f"'{name}' is assembled {how}, so its dependencies are unknown"
    return NpuscopeError(what, path=site.file, line=site.line, remedy=remedy)


def _inside(part: _AssembledPart, shape: tuple[int, ...], strides: tuple[int, ...], offsets: Offsets) -> Piece | None:
    """Equal boxes of the part as boxes of the whole, or None if an axis of theirs runs over the part's edge."""
    steps = row_major(part.shape)
    digits, rest = [], offsets
    for step in steps:
        digit, rest = np.divmod(rest, step)
        digits.append(digit)
    moved = []
    last = [int(np.max(digit, initial=0)) for digit in digits]
    for place, (size, stride) in enumerate(zip(shape, strides, strict=True), len(part.shape) - len(shape)):
        axis = _axis(place, steps, part.shape, last, size, stride)
        if axis is None:
            return None
        last[axis] += (size - 1) * (stride // steps[axis])
        moved.append(part.axes[axis] * (stride // steps[axis]))
    placed = part.offset + sum((d * a for d, a in zip(digits, part.axes, strict=True)), np.zeros_like(offsets))
    lead = part.lead if len(shape) == len(part.shape) else ()
    return part.whole, (*(1,) * len(lead), *shape), (*lead, *moved), placed


def _axis(
    place: int, steps: tuple[int, ...], part: tuple[int, ...], last: list[int], size: int, stride: int
) -> int | None:
    """The axis of the part along which this many steps stay inside it: its own if it can, else the widest."""
    axes = sorted(range(len(steps)), key=lambda axis: axis != place)
    for axis in axes:
        count = (size - 1) * (stride // steps[axis])
        if stride % steps[axis] == 0 and last[axis] + count < part[axis]:
            return axis
    return None
