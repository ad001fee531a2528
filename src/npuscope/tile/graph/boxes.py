"""Strided boxes of a buffer: whether two share an element (exactly, not by their bounds), and where they really lie.

An orchestration-level assemble makes the part a box of the whole, from its creation on: the compiler turns `create` +
`assemble` into a slice of the target, so tasks before the assemble already write the target's memory. That holds for a
part assembled once; a part assembled twice has no one place, and nothing is known about its edges.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from math import gcd, prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from npuscope.base.errors import NpuscopeError
from npuscope.tile.record.model import Alias, Buffer, Recording

Dims = tuple[tuple[int, int], ...]  # (size, stride) of the axes that matter, sizes > 1, strides > 0


class Box(NamedTuple):
    """Elements `offset + sum(i[k] * strides[k])` of a buffer, `0 <= i[k] < shape[k]`."""

    buffer: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def extent(self) -> int:
        """From the first element to one past the last; 0 for a box without elements."""
        return extent(self.shape, self.strides)


def extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a packed tensor; an axis of no length counts as one so that no stride is 0."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def overlaps(a: Box, b: Box) -> bool:
    """True if the two boxes share an element."""
    if a.buffer != b.buffer or 0 in a.shape or 0 in b.shape:
        return False
    return offsets_meet(b.offset - a.offset, dims(a.shape, a.strides), dims(b.shape, b.strides))


@lru_cache(maxsize=1 << 12)
def dims(shape: tuple[int, ...], strides: tuple[int, ...]) -> Dims:
    """Axes as (size, stride), without those of one element, adjacent ones that run on joined."""
    joined: list[tuple[int, int]] = []
    for size, stride in sorted(zip(shape, strides, strict=True), key=lambda axis: axis[1]):
        if size == 1 or stride == 0:
            continue
        if joined and joined[-1][0] * joined[-1][1] == stride:
            joined[-1] = (joined[-1][0] * size, joined[-1][1])
        else:
            joined.append((size, stride))
    return tuple(joined)


@lru_cache(maxsize=1 << 16)
def offsets_meet(distance: int, a: Dims, b: Dims) -> bool:
    """True if sum(i·stride of a) = distance + sum(j·stride of b) for indices inside both boxes.

    Axes of one stride become one number i − j with a range. From the widest stride down, only the few values are
    tried that the smaller strides can still make good: one or two in a row-major buffer.
    """
    low: Counter[int] = Counter()
    high: Counter[int] = Counter()
    for size, stride in a:
        high[stride] += size - 1
    for size, stride in b:
        low[stride] -= size - 1
    terms = [(stride, low[stride], high[stride]) for stride in sorted({*low, *high}, reverse=True)]
    rest = [(0, 0, 0)]  # of the terms from each place on: lowest sum, highest sum, greatest common divisor
    for stride, least, most in reversed(terms):
        below, above, divisor = rest[-1]
        rest.append((below + stride * least, above + stride * most, gcd(divisor, stride)))
    rest.reverse()

    def reachable(place: int, wanted: int) -> bool:
        below, above, divisor = rest[place]
        if not below <= wanted <= above or (wanted % divisor if divisor else wanted):
            return False
        if place == len(terms):
            return True
        stride, least, most = terms[place]
        below, above, _ = rest[place + 1]
        first = max(least, -((above - wanted) // stride))
        last = min(most, (wanted - below) // stride)
        return any(reachable(place + 1, wanted - stride * number) for number in range(first, last + 1))

    return reachable(0, distance)


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
