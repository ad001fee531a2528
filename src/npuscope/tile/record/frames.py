"""The frames of a block under recording: one per open loop, with equal iterations rolled up as they close.

Items are numbers of interned ops (see recorder.py), so comparing two iterations is comparing two tuples of ints.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from npuscope.tile.record.model import RegionLoopKind

Numbers = npt.NDArray[np.int64]
Factors = tuple[int, ...]  # of each whole number that a task was given


class Moving(NamedTuple):
    """Offsets that follow the numbers a task was given: `ways` has the factors, several where not all do so alike."""

    at: int | Numbers
    ways: frozenset[Factors]


Offset = int | Numbers | Moving


@dataclass(slots=True)
class Rolled:
    """Consecutive iterations of equal structure: how many each time, and their offsets access by access."""

    items: tuple[int, ...]
    counts: list[int] = field(default_factory=list)
    offsets: list[list[Offset]] = field(default_factory=list)

    def along(self, depth: int) -> list[Offset]:
        """The offsets of each access over all iterations, the iteration on axis -1 - depth."""
        if len(self.offsets) == 1:  # the same in all iterations, or arrays that have an axis for them already
            return self.offsets[0]
        return [_joined([part[k] for part in self.offsets], self.counts, depth) for k in range(len(self.offsets[0]))]


def still(offset: Offset) -> int | Numbers:
    """Where something lies, whatever it follows."""
    return offset.at if isinstance(offset, Moving) else offset


def _joined(parts: list[Offset], counts: list[int], depth: int) -> Offset:
    joined = _in_one([still(part) for part in parts], counts, depth)
    ways = [part.ways if isinstance(part, Moving) else _STILL for part in parts]
    return Moving(joined, frozenset().union(*ways)) if any(way is not _STILL for way in ways) else joined


_STILL: frozenset[Factors] = frozenset([()])


def _in_one(parts: list[int | Numbers], counts: list[int], depth: int) -> Numbers:
    if all(type(part) is int for part in parts):
        joined = np.repeat(np.array(parts, dtype=np.int64), counts) if len(parts) < sum(counts) else np.array(parts)
        return joined.reshape(-1, *(1,) * depth)
    arrays = [np.asarray(part) for part in parts]
    ndim = max(depth + 1, *(array.ndim for array in arrays))
    arrays = [array.reshape((1,) * (ndim - array.ndim) + array.shape) for array in arrays]
    axis = ndim - 1 - depth
    # Lanes of the loops around may have been dropped between the parts: what all have is what is left.
    rest = [min([n for n in sizes if n > 1], default=1) for sizes in zip(*(a.shape for a in arrays), strict=True)]
    full = []
    for array, count in zip(arrays, counts, strict=True):
        left = array[tuple([slice(None) if k == axis else slice(n) for k, n in enumerate(rest)])]
        full.append(np.broadcast_to(left, (*rest[:axis], count, *rest[axis + 1 :])))
    return np.concatenate(full, axis=axis)


class Frame:
    """An open loop, or the block itself (depth 0)."""

    __slots__ = (
        "depth",
        "index",
        "items",
        "iteration",
        "loop",
        "offsets",
        "open",
        "parent",
        "parent_iteration",
        "rolled",
    )

    def __init__(self, parent: Frame | None, loop: tuple[RegionLoopKind, int, int] | None = None) -> None:
        self.parent = parent
        self.loop = loop  # its kind, stage, site
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.index = 0 if parent is None else len(parent.items)  # where the closed loop will stand in its parent
        self.parent_iteration: int = 0 if parent is None else parent.iteration
        self.iteration: int = 0
        self.open = True
        self.items: list[int] = []
        self.offsets: list[Offset] = []
        self.rolled: list[Rolled] = []

    def turn(self, count: int) -> None:
        """Closes `count` iterations that were recorded as one."""
        items = tuple(self.items)
        if not self.rolled or self.rolled[-1].items != items:
            self.rolled.append(Rolled(items))
        last = self.rolled[-1]
        last.counts.append(count)
        last.offsets.append(self.offsets)
        self.items, self.offsets = [], []
        self.iteration += 1
