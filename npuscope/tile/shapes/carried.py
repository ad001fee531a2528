"""What one turn of a loop hands to the next, and whether several turns may count as one.

`shapes` mode runs a loop's body once for many turns (see lanes.py). That is right only if each of them starts from
what the first one started from: if what a turn leaves behind is what it found, seen one turn later. So the state of a
loop is noted before a pass over it and compared after: the names its body may read before setting them, the lists in
reach, and which tensors the block holds whole.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from operator import is_
from types import FrameType
from typing import Any

import numpy as np

from npuscope.tile.record import sites
from npuscope.tile.record.frames import Frame
from npuscope.tile.run.block import Block
from npuscope.tile.values import lanes
from npuscope.tile.values.axes import AXES
from npuscope.tile.values.checks import is_number
from npuscope.tile.values.lanes import Lane
from npuscope.tile.values.task_ids import ValueArray
from npuscope.tile.values.tensors import Tensor, Tile
from npuscope.tile.values.unknown import Unknown

MUTABLE = {list, dict, set, bytearray, ValueArray}
_UNBOUND = object()


def user_frame() -> FrameType | None:
    """The innermost frame of user code that led here."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and sites.is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def inside(held: Any) -> tuple[Any, ...]:
    """What a list (or the like) holds now."""
    return ("inside", [*held.keys(), *held.values()] if isinstance(held, dict) else list(held))


def unchanged(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return len(one[1]) == len(other[1]) and all(map(is_, one[1], other[1]))


class State:
    """What a loop finds at the start of a turn."""

    def __init__(self, block: Block, frame: Frame, turn: int, values: list[Any], lists: list[Any]) -> None:
        self.block, self.frame, self.turn = block, frame, turn
        # Tensors that were loaded whole, with what then became out of date; in a turn before or outside the loop.
        self.whole = (block.whole_changes, [self._where(tile) for _, _, tile in block.whole.values() if tile.frame])
        self.entries = [self._entry(value) for value in values] + [inside(held) for held in lists]

    def _entry(self, value: Any) -> tuple[Any, ...]:
        if type(value) is Tile:
            kind = (value.shape, value.dtype, value.valid, value.space)
            return ("tile", (self._where(value), kind), value.array)
        if is_number(value):
            return ("number", value)
        if isinstance(value, Tensor):
            seen = value.captured
            key = (value.offset, value.shape, value.strides, value.dtype, value.valid, seen.shape, seen.offset)
            return ("tensor", (value.buffer.id, *key))
        if isinstance(value, tuple):
            return ("list", len(value), *(self._entry(entry) for entry in value))
        if type(value) in MUTABLE:
            return inside(value)
        return ("is", value)

    def _where(self, tile: Tile) -> tuple[Any, ...]:
        """The op that made a tile, as this loop's next turn sees it."""
        made = tile.frame
        if made is None or tile.block is not self.block:
            return ("elsewhere", id(tile))
        path: tuple[int, ...] = (tile.index,)
        iteration = tile.iteration
        while made is not self.frame and not made.open and made.parent is not None:
            path = (made.index, *path)
            iteration = made.parent_iteration
            made = made.parent
        if made is self.frame:
            return ("here", min(self.turn - iteration, 2), path)
        return ("around", made.depth, iteration, path)

    def same_turns(self, after: State) -> int:
        """How many lanes of the innermost pass, which led from this state to the other, started from this one."""
        if self.whole != after.whole:
            return 1
        kept = AXES.sizes[-1]
        for one, other in zip(self.entries, after.entries, strict=True):
            kept = min(kept, _equal(one, other, kept))
        return kept


def _equal(one: tuple[Any, ...], other: tuple[Any, ...], width: int) -> int:
    kind = one[0]
    if kind != other[0]:
        return 1
    if kind == "number":
        return _equal_numbers(one[1], other[1], width)
    if kind == "is":
        return width if one[1] is other[1] else 1
    if kind == "inside":
        return width if unchanged(one, other) else 1
    if one[1] != other[1]:
        return 1
    if kind == "tile":
        if one[2] is other[2]:
            return width
        return width if one[2] is not None and other[2] is not None and np.array_equal(one[2], other[2]) else 1
    if kind == "list":
        return min([width, *(_equal(a, b, width) for a, b in zip(one[2:], other[2:], strict=True))])
    return width


def _equal_numbers(one: Any, other: Any, width: int) -> int:
    if isinstance(one, Unknown) or isinstance(other, Unknown):
        return width if one is other else 1
    if type(one) is not Lane and type(other) is not Lane:
        return width if type(one) is type(other) and one == other else 1
    differs = np.asarray(lanes.of(one - other) != 0)
    if not np.any(differs):
        return width
    if differs.ndim < len(AXES.sizes) or len(differs) < width:
        return 1
    return int(np.argmax(np.any(differs.reshape(len(differs), -1), axis=1))) + 1


def lists_of(values: Iterable[Any]) -> list[Any]:
    """Those of some values that code may change in place."""
    return [value for value in values if type(value) in MUTABLE]


def bound(values: Any, names: tuple[str, ...]) -> list[Any]:
    """What names hold; one that is not bound yet holds a mark."""
    return [values.get(name, _UNBOUND) for name in names]
