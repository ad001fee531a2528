"""What one turn of a loop hands to the next, and whether several turns may count as one.

`shapes` mode runs a loop's body once for many turns (values/lanes.py). That is right only if each of them starts from
what the first one started from: if what a turn leaves behind is what it found, seen one turn later. So the state of a
loop is noted before a pass over it and compared after: the names its body may read before setting them, the lists in
reach, and which tensors the block holds whole.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from operator import is_
from types import FrameType
from typing import Protocol

import numpy as np

from npuscope.ops.numeric.arrays import Array
from npuscope.tile.record import sites
from npuscope.tile.record.frames import Frame
from npuscope.tile.values import lanes
from npuscope.tile.values.axes import Axes
from npuscope.tile.values.checks import is_number
from npuscope.tile.values.lanes import Lane, Number
from npuscope.tile.values.task_ids import ValueArray
from npuscope.tile.values.tensors import Tensor, Tile
from npuscope.tile.values.unknown import Unknown

_MUTABLE = {list, dict, set, bytearray, ValueArray}
_UNBOUND = object()
Held = list[object]  # what a list, or the like, holds


class HoldsWhole(Protocol):
    """What is asked here of a block: how often it loaded tensors whole, and what it has of them."""

    whole_changes: int

    def whole_tiles(self) -> list[Tile]: ...


def user_frame() -> FrameType | None:
    """The innermost frame of user code that led here."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and sites.is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def inside(held: object) -> Held:
    """What a list (or the like) holds now."""
    if isinstance(held, dict):
        return [*held.keys(), *held.values()]
    return list(held) if isinstance(held, Iterable) else [held]


def unchanged(one: Held, other: Held) -> bool:
    return len(one) == len(other) and all(map(is_, one, other))


class TurnState:
    """What a loop finds at the start of a turn."""

    def __init__(
        self, block: HoldsWhole, frame: Frame, turn: int, values: Iterable[object], lists: list[object]
    ) -> None:
        self._block, self._frame, self._turn = block, frame, turn
        # Tensors that were loaded whole, with what then became out of date; in a turn before or outside the loop.
        self._whole = (block.whole_changes, [self._where(tile) for tile in block.whole_tiles() if tile.frame])
        self._entries = [self._entry(value) for value in values] + [_List(inside(held)) for held in lists]

    def _entry(self, value: object) -> _Entry:
        if type(value) is Tile:
            kind = (value.shape, value.dtype, value.valid, value.space)
            return _Tile((self._where(value), kind), value.array)
        if is_number(value):
            return _Same(value) if isinstance(value, Unknown) else _Number(value)
        if isinstance(value, Tensor):
            seen = value.captured
            key = (value.offset, value.shape, value.strides, value.dtype, value.valid, seen.shape, seen.offset)
            return _Tile((value.buffer.id, *key), None)
        if isinstance(value, tuple):
            return _Tuple([self._entry(entry) for entry in value])
        if type(value) in _MUTABLE:
            return _List(inside(value))
        return _Same(value)

    def _where(self, tile: Tile) -> tuple[object, ...]:
        """The op that made a tile, as this loop's next turn sees it."""
        made = tile.frame
        if made is None or id(tile.block) != id(self._block):
            return ("elsewhere", id(tile))
        path: tuple[int, ...] = (tile.index,)
        iteration = tile.iteration
        while made is not self._frame and not made.open and made.parent is not None:
            path = (made.index, *path)
            iteration = made.parent_iteration
            made = made.parent
        if made is self._frame:
            return ("here", min(self._turn - iteration, 2), path)
        return ("around", made.depth, iteration, path)

    def same_turns(self, after: TurnState, axes: Axes) -> int:
        """How many lanes of the innermost pass, which led from this state to the other, started from this one."""
        if self._whole != after._whole:
            return 1
        kept = axes.sizes[-1]
        for one, other in zip(self._entries, after._entries, strict=True):
            kept = min(kept, one.lanes_like(other, kept, axes))
        return kept


# --- what a name may hold


class _Entry:
    def lanes_like(self, other: _Entry, width: int, axes: Axes) -> int:
        """How many of the lanes, from the first on, start from what this one says if the first leaves the other."""
        return width if type(self) is type(other) and self.same(other) else 1

    def same(self, other: _Entry) -> bool:
        raise NotImplementedError


class _Same(_Entry):
    """Anything that is only ever itself."""

    def __init__(self, value: object) -> None:
        self._value = value

    def same(self, other: _Entry) -> bool:
        return isinstance(other, _Same) and self._value is other._value


class _List(_Entry):
    """Something that code may change in place."""

    def __init__(self, held: Held) -> None:
        self._held = held

    def same(self, other: _Entry) -> bool:
        return isinstance(other, _List) and unchanged(self._held, other._held)


class _Tile(_Entry):
    """A tile by the op that made it and, where it is computed, by its elements; a tensor by where it lies."""

    def __init__(self, key: tuple[object, ...], array: Array | None) -> None:
        self._key, self._array = key, array

    def same(self, other: _Entry) -> bool:
        if not isinstance(other, _Tile) or self._key != other._key:
            return False
        one, two = self._array, other._array
        return one is two or (one is not None and two is not None and np.array_equal(one, two))


class _Tuple(_Entry):
    def __init__(self, entries: list[_Entry]) -> None:
        self._entries = entries

    def lanes_like(self, other: _Entry, width: int, axes: Axes) -> int:
        if not isinstance(other, _Tuple) or len(self._entries) != len(other._entries):
            return 1
        pairs = zip(self._entries, other._entries, strict=True)
        return min([width, *(one.lanes_like(two, width, axes) for one, two in pairs)])


class _Number(_Entry):
    def __init__(self, value: Number) -> None:
        self._value = value

    def lanes_like(self, other: _Entry, width: int, axes: Axes) -> int:
        if not isinstance(other, _Number):
            return 1
        one, two = self._value, other._value
        if isinstance(one, Lane):
            apart = one - two
        elif isinstance(two, Lane):
            apart = two - one
        else:
            return width if type(one) is type(two) and one == two else 1
        differs = np.asarray(lanes.of(apart) != 0)
        if not np.any(differs):
            return width
        if differs.ndim < len(axes.sizes) or len(differs) < width:
            return 1
        return int(np.argmax(np.any(differs.reshape(len(differs), -1), axis=1))) + 1


def lists_of(values: Iterable[object]) -> list[object]:
    """Those of some values that code may change in place."""
    return [value for value in values if type(value) in _MUTABLE]


def bound(values: Mapping[str, object], names: tuple[str, ...]) -> list[object]:
    """What names hold; one that is not bound yet holds a mark."""
    return [values.get(name, _UNBOUND) for name in names]
