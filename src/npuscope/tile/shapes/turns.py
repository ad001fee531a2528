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
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from npuscope.ops.numeric.arrays import Array
from npuscope.tile.record import sites
from npuscope.tile.record.recorder import Frame
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
            kept = min(kept, _lanes_like(one, other, kept, axes))
        return kept


# --- what a name may hold


class _Same(NamedTuple):
    """Anything that is only ever itself."""

    value: object


class _List(NamedTuple):
    """Something that code may change in place."""

    held: Held


class _Tile(NamedTuple):
    """A tile by the op that made it and, where it is computed, by its elements; a tensor by where it lies."""

    key: tuple[object, ...]
    array: Array | None


class _Tuple(NamedTuple):
    entries: list[_Entry]


class _Number(NamedTuple):
    value: Number


_Entry: TypeAlias = _Same | _List | _Tile | _Tuple | _Number


def _lanes_like(one: _Entry, other: _Entry, width: int, axes: Axes) -> int:
    """How many of the lanes, from the first on, start from what one says if the first leaves the other."""
    same = False
    if isinstance(one, _Number) and isinstance(other, _Number):
        return _equal_lanes(one.value, other.value, width, axes)
    if isinstance(one, _Tuple) and isinstance(other, _Tuple):
        if len(one.entries) == len(other.entries):
            pairs = zip(one.entries, other.entries, strict=True)
            return min([width, *(_lanes_like(first, second, width, axes) for first, second in pairs)])
    elif isinstance(one, _Tile) and isinstance(other, _Tile):
        same = one.key == other.key and _equal(one.array, other.array)
    elif isinstance(one, _Same) and isinstance(other, _Same):
        same = one.value is other.value
    elif isinstance(one, _List) and isinstance(other, _List):
        same = unchanged(one.held, other.held)
    return width if same else 1


def _equal(one: Array | None, other: Array | None) -> bool:
    return one is other or (one is not None and other is not None and np.array_equal(one, other))


def _equal_lanes(one: Number, other: Number, width: int, axes: Axes) -> int:
    if isinstance(one, Lane):
        apart = one - other
    elif isinstance(other, Lane):
        apart = other - one
    else:
        return width if type(one) is type(other) and one == other else 1
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
