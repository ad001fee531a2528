"""Where a tensor really lies: an orchestration-level assemble makes the part a box of the whole, from its creation on.

The compiler turns `create` + `assemble` into a slice of the target, so tasks before the assemble already write the
target's memory. That holds for a part assembled once; a part assembled twice has no one place, and nothing is known
about its edges.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from npuscope.errors import NpuscopeError
from npuscope.tile.graph.boxes import Box, row_major
from npuscope.tile.record.model import Alias, Recording

Offsets = npt.NDArray[np.int64]
Piece = tuple[int, tuple[int, ...], tuple[int, ...], Offsets]  # buffer, shape, strides, offsets: equal boxes


class Placement:
    """Boxes of parts as boxes of what they were assembled into; other boxes as they are."""

    def __init__(self, recording: Recording) -> None:
        self.buffers = recording.buffers
        self.aliases: dict[int, Alias] = {}
        for alias in recording.aliases:
            if alias.part in self.aliases and _where(self.aliases[alias.part]) != _where(alias):
                site = recording.sites[alias.site]
                raise NpuscopeError(
                    f"'{self.buffers[alias.part].name}' is assembled into two places, so its dependencies are unknown",
                    path=site.file,
                    line=site.line,
                    remedy="Create one tensor per assemble.",
                )
            self.aliases[alias.part] = alias

    def root(self, buffer: int) -> int:
        """The buffer that holds it."""
        while buffer in self.aliases:
            buffer = self.aliases[buffer].whole
        return buffer

    def footprint(self, box: Box) -> Box:
        """The box where it lies; one that is no box there counts as the whole part."""
        while (alias := self.aliases.get(box.buffer)) is not None:
            part = self.buffers[box.buffer].shape
            found = _inside(alias, self._axes(alias), part, box.shape, box.strides, np.array([box.offset]))
            if found is None:
                strides = row_major(part)
                found = _inside(alias, self._axes(alias), part, part, strides, np.zeros(1, np.int64))
            assert found is not None  # the whole part always lies in its own box
            box = Box(found[0], int(found[3][0]), found[1], found[2])
        return box

    def pieces(self, piece: Piece) -> Piece:
        """Equal boxes where they lie, exactly: what is no box there falls apart into elements."""
        while (alias := self.aliases.get(piece[0])) is not None:
            buffer, shape, strides, offsets = piece
            part = self.buffers[buffer].shape
            found = _inside(alias, self._axes(alias), part, shape, strides, offsets)
            if found is None:
                elements = offsets.ravel()
                for size, stride in zip(shape, strides, strict=True):
                    elements = np.add.outer(elements, np.arange(size) * stride).ravel()
                found = _inside(alias, self._axes(alias), part, (), (), elements)
            assert found is not None
            piece = found
        return piece

    def _axes(self, alias: Alias) -> tuple[int, ...]:
        """Strides of the part's axes in the whole."""
        rank = len(self.buffers[alias.part].shape)
        padded = (*(0,) * rank, *alias.strides)  # leading axes of one element may be missing in the whole
        return padded[len(padded) - rank :]


def _where(alias: Alias) -> tuple[object, ...]:
    return alias.whole, alias.offset, alias.shape, alias.strides


def _inside(
    alias: Alias,
    axes: tuple[int, ...],
    part: tuple[int, ...],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offsets: Offsets,
) -> Piece | None:
    """Equal boxes of the part as boxes of the whole, or None if an axis of theirs runs over the part's edge."""
    steps = row_major(part)
    digits, rest = [], offsets
    for step in steps:
        digit, rest = np.divmod(rest, step)
        digits.append(digit)
    moved = []
    last = [int(np.max(digit, initial=0)) for digit in digits]
    for place, (size, stride) in enumerate(zip(shape, strides, strict=True), len(part) - len(shape)):
        axis = _axis(place, steps, part, last, size, stride)
        if axis is None:
            return None
        last[axis] += (size - 1) * (stride // steps[axis])
        moved.append(axes[axis] * (stride // steps[axis]))
    placed = alias.offset + sum((d * a for d, a in zip(digits, axes, strict=True)), np.zeros_like(offsets))
    lead = max(len(alias.shape) - len(part), 0)
    ones = (1,) * lead if len(shape) == len(part) else ()  # the runtime pads a slice of higher rank with ones in front
    return alias.whole, (*ones, *shape), (*alias.strides[: len(ones)], *moved), placed


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
