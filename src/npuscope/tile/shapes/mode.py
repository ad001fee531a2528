"""What `shapes` mode owns of a run: the lanes it runs with, the whole numbers in GM that steer the program, and what
one turn of a loop hands to the next.

The numbers are kept real: reads see, and writes leave, what one turn after another would. A write of a turn waits
until it is known which turns count as one; a turn that touches what another would have changed goes on by itself.

A loop's body runs once for many turns (values/lanes.py). That is right only if each of them starts from what the first
one started from: if what a turn leaves behind is what it found, seen one turn later. So the state of a loop is noted
before a pass over it and compared after: the names its body may read before setting them, the lists in reach, and which
tensors the block holds whole.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import is_
from types import FrameType
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from npuscope.ops.dtypes import Array
from npuscope.tile.fault import NeedsValues
from npuscope.tile.record import sites
from npuscope.tile.record.recorder import Frame, Offset, Recorder, TaskDraft
from npuscope.tile.shapes.reuse import Reuse
from npuscope.tile.values import lanes
from npuscope.tile.values.checks import ValueArray, is_number
from npuscope.tile.values.lanes import Axes, Lane, Number, Unknown, Whole
from npuscope.tile.values.tensors import LiveBuffer, Tensor, Tile


class RestartWithoutLanes(BaseException):
    """Lanes cannot say what some tasks do: the program is run again, those turn by turn and block by block.

    The only restart there is. Not an Exception, for it is none that a program could handle.
    """

    def __init__(self, tasks: Iterable[int]) -> None:
        super().__init__()
        self.tasks = frozenset(tasks)  # the lines that launch them


class RunningBlock(Protocol):
    """What is asked here of a block; `whole_changes`: how often it loaded a tensor whole."""

    task: TaskDraft
    first: int
    blocks: int
    barriers: int
    whole_changes: int

    def whole_tiles(self) -> list[Tile]: ...


@dataclass
class _Meeting:
    """Of a task whose blocks meet: barriers that all came to as one, whole numbers that they read and wrote."""

    barriers: int = 0
    read: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)

    @property
    def shares_numbers(self) -> bool:
        """Whether a block may read what another wrote."""
        return bool(self.read & self.written)


class Shapes:
    """One run's; `on`: whether equal turns and blocks are run as one (else it stays idle).

    `stepwise`: lines that launch tasks for which they are not.
    """

    def __init__(self, on: bool, stepwise: frozenset[int], reuses: bool, recorder: Recorder) -> None:
        self.on = self.lanes = on  # `on` is off while a task runs turn by turn
        self.stepwise = stepwise
        self.axes = Axes()
        self.writes = 0  # of whole numbers that steer the program
        self.reuse = Reuse(recorder, self.axes, lambda: self.writes) if on and reuses else None
        self._task: int | None = None  # the line that launched the task under way
        self._lost: set[int] = set()  # lines that launch tasks which lost a number
        self._log: list[tuple[LiveBuffer, npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
        self._touched: set[int] = set()  # buffers that the turn under way read or wrote
        self._meetings: dict[int, _Meeting] = {}
        self._starts: list[TurnState | None] = []  # of each pass under way over a loop, where it runs several turns
        self._late: list[_LateWrites] = []

    # --- lanes

    def has_lanes(self, task: TaskDraft) -> bool:
        """Whether equal turns and blocks of a task are run as one."""
        return self.lanes and not task.computes and task.site not in self.stepwise

    def enter(self, task: TaskDraft) -> None:
        self.on, self._task = self.has_lanes(task), task.site

    def leave(self) -> None:
        self.on, self._task = self.lanes, None

    def lane_numbers(self, first: int, count: int, depth: int) -> int | Lane:
        """The numbers first, first + 1, … along the axis of a loop."""
        if count == 1:
            return first
        return Lane(np.arange(first, first + count, dtype=np.int64).reshape(-1, *(1,) * depth), self.axes)

    @contextmanager
    def one_lane(self) -> Iterator[None]:
        """A turn that is run by itself."""
        self.axes.open(1)
        try:
            yield
        finally:
            self.axes.close()

    def only_first(self) -> None:
        """Goes on with the first lane only, where the next would find something else."""
        self.axes.only_first()

    def others_see(self) -> None:
        """Before what other ranks see, or change: every turn and every block does it by itself."""
        self.only_first()
        self._flush_if_single()

    def one_place(self, start: Number) -> int:
        """Where the lanes that go on find something: the first lane only, where they differ."""
        start = lanes.plain(start)
        if isinstance(start, Lane):
            self.only_first()
        return int(start)

    def begin_pass(self, width: int, start: TurnState | None) -> None:
        """A pass over the next inner loop with this many lanes, and what its first turn starts from."""
        self.axes.open(width)
        self._starts.append(start)

    def end_pass(self) -> int:
        """Ends the innermost pass of a loop; how many lanes were left of it."""
        for late in [late for late in self._late if late.depth == len(self.axes.sizes)]:
            late.made()
        if self._log:
            self._log = [(buffer, self.axes.trim(at), self.axes.trim(value)) for buffer, at, value in self._log]
        left = self.axes.close()
        self._starts.pop()
        if self._log or self._touched:
            self._flush_if_single()
        return left

    def trimmed(self, offsets: list[Offset]) -> list[Offset]:
        """Offsets without the lanes that were dropped since."""
        return [self.axes.trim_offset(offset) for offset in offsets]

    def lose(self) -> None:
        """A whole number differs from lane to lane and is not computed."""
        if self.on and self._task is not None:
            self._lost.add(self._task)

    @contextmanager
    def computing_what_is_needed(self) -> Iterator[None]:
        """A value that is asked for and was lost to lanes: what lost numbers is run again without them."""
        try:
            yield
        except NeedsValues as error:
            if self._lost:
                raise RestartWithoutLanes(self._lost) from error
            raise

    # --- tiles

    def changes(self, tile: Tile) -> None:
        """Before another op makes what a tile is: turns of a loop that would not see it go on one by one."""
        if not all(start is None or start.knows(tile) for start in self._starts):
            self.only_first()

    def writes_late(self, tile: Tile, where: list[Whole], value: Number | Unknown) -> bool:
        """Whether an element that a turn writes can wait until it is known which turns count as one: none of them
        looks at the tile.
        """
        if isinstance(value, Unknown) or not tile.dtype.is_int or self.axes.is_single():
            return False
        if any(size > 1 for size in self.axes.sizes[:-1]):  # their passes end later than the writes can wait
            return False
        start = self._starts[-1]
        if start is None or start.looks.get(id(tile)) != tile.looks:
            return False
        late = tile.source
        if not isinstance(late, _LateWrites):
            late = tile.source = _LateWrites(tile, self)
            self._late.append(late)
        late.writes.append([np.asarray(lanes.of(number)) for number in (*where, value)])
        return True

    def forget(self, late: _LateWrites) -> None:
        self._late.remove(late)

    # --- whole numbers in GM

    def reads(self, buffer: LiveBuffer, block: RunningBlock | None) -> None:
        """Before numbers are read."""
        if any(entry[0] is buffer for entry in self._log):
            self.only_first()
            self._flush()
        self._touched.add(buffer.id)
        self._across_blocks(buffer, block, writes=False)

    def will_write(self, buffer: LiveBuffer, block: RunningBlock | None) -> None:
        """Before a write: what this turn read or wrote there already, the next turn would find changed."""
        self.writes += 1
        buffer.edits += 1
        if buffer.id in self._touched:
            self.only_first()
            self._flush()
        self._touched.add(buffer.id)
        self._across_blocks(buffer, block, writes=True)

    def write(self, buffer: LiveBuffer, offset: Number, value: Number, block: RunningBlock | None) -> None:
        """One element per lane, written when the lanes are known for good."""
        if any(size > 1 for size in self.axes.sizes[:-1]):  # their passes end later than the writes can wait
            self.only_first()
        self.will_write(buffer, block)
        self._log.append((buffer, np.asarray(lanes.of(offset)), np.asarray(lanes.of(value))))
        self._flush_if_single()

    def _flush_if_single(self) -> None:
        if self.axes.is_single():
            self._flush()

    def _flush(self) -> None:
        """Applies the waiting writes in the order the iterations would have made them: outermost loop slowest."""
        for buffer, offset, value in self._log:
            if buffer.data is None:
                continue
            where, what = np.broadcast_arrays(self.axes.trim(offset), self.axes.trim(value))
            buffer.data[where.T.reshape(-1)] = what.T.reshape(-1).astype(buffer.data.dtype)
        self._log.clear()
        self._touched.clear()

    # --- blocks that meet

    def _across_blocks(self, buffer: LiveBuffer, block: RunningBlock | None, writes: bool) -> None:
        """Blocks that meet at a barrier and share whole numbers cannot be run one after the other."""
        if block is None or not self.on or block.blocks == 1:
            return
        meeting = self._meetings.setdefault(block.task.id, _Meeting())
        (meeting.written if writes else meeting.read).add(buffer.id)
        if meeting.barriers and meeting.shares_numbers:
            raise RestartWithoutLanes({block.task.site})

    def meet(self, block: RunningBlock) -> None:
        """A barrier, by lanes: no waiting where all blocks come to it as one and share no numbers."""
        if block.blocks == 1:
            return
        meeting = self._meetings.setdefault(block.task.id, _Meeting())
        if block.first == 0 and self.axes.sizes[0] == block.blocks:
            meeting.barriers = block.barriers
        if block.barriers > meeting.barriers or meeting.shares_numbers:
            raise RestartWithoutLanes({block.task.site})


class _LateWrites:
    """Elements of a tile that several turns write as one: in it when their pass is over, or when somebody looks."""

    def __init__(self, tile: Tile, shapes: Shapes) -> None:
        assert isinstance(tile.source, np.ndarray)
        self.before, self.depth = tile.source, len(shapes.axes.sizes)
        self.writes: list[list[npt.NDArray[Any]]] = []  # places and value, in the order of a turn
        self._tile, self._shapes = tile, shapes

    def __call__(self) -> Array:
        """The next turn would look at what this one wrote."""
        self._shapes.only_first()
        return self.made()

    def made(self) -> Array:
        """The elements with all that is written, turn by turn."""
        axes, tile = self._shapes.axes, self._tile
        shape = axes.sizes[: self.depth][::-1]
        each = [[np.broadcast_to(axes.trim(n), shape).reshape(-1) for n in write] for write in self.writes]
        *places, value = [np.stack(column, axis=-1).reshape(-1) for column in zip(*each, strict=True)]
        tile.array = self.before
        array = tile.writable()
        array[tuple(places)] = value.astype(array.dtype)
        self._shapes.forget(self)
        return array


_MUTABLE = {list, dict, set, bytearray, ValueArray}
_UNBOUND = object()


def user_frame() -> FrameType | None:
    """The innermost frame of user code that led here."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and sites.is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def contents(value: object) -> list[object]:
    """What a list (or the like) holds now."""
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return list(value) if isinstance(value, Iterable) else [value]


def unchanged(one: list[object], other: list[object]) -> bool:
    return len(one) == len(other) and all(map(is_, one, other))


class TurnState:
    """What a loop finds at the start of a turn."""

    def __init__(self, block: RunningBlock, frame: Frame, turn: int, values: Iterable[object]) -> None:
        self._block, self._frame, self._turn = block, frame, turn
        # Tensors that were loaded whole, with what then became out of date; in a turn before or outside the loop.
        self._whole = (block.whole_changes, [self._where(tile) for tile in block.whole_tiles() if tile.frame])
        self.looks: dict[int, int] = {}  # how often each tile was looked at before
        self._entries = [self._entry(value) for value in values]

    def knows(self, tile: Tile) -> bool:
        """Whether another op behind a tile would be noticed: it is part of the state, or a new one in every turn."""
        made, iteration = tile.frame, tile.iteration
        while made is not None and made is not self._frame:
            iteration, made = made.parent_iteration, made.parent
        return id(tile) in self.looks or (made is not None and iteration == self._turn)

    def _entry(self, value: object) -> _Entry:
        if type(value) is Tile:
            kind = (value.shape, value.dtype, value.valid, value.space)
            self.looks[id(value)] = value.looks
            source = value.source
            return _Tile((self._where(value), kind), source.before if isinstance(source, _LateWrites) else source)
        if is_number(value):
            return _Objects(False, [value]) if isinstance(value, Unknown) else _Number(value)
        if isinstance(value, Tensor):
            seen = value.captured
            key = (value.offset, value.shape, value.strides, value.dtype, value.valid, seen.shape, seen.offset)
            return _Tile((value.buffer.id, *key), None)
        if isinstance(value, tuple):
            return _Tuple([self._entry(entry) for entry in value])
        if type(value) in _MUTABLE:
            return _Objects(True, contents(value))
        return _Objects(False, [value])

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
        same = axes.sizes[-1]
        for one, other in zip(self._entries, after._entries, strict=True):
            same = min(same, _lanes_like(one, other, same, axes))
        return same


# --- what a name may hold


class _Objects(NamedTuple):
    """Something that is only ever itself, or what something holds that code may change in place."""

    mutable: bool
    items: list[object]


class _Tile(NamedTuple):
    """A tile by the op that made it and, where it is computed, by its elements; a tensor by where it lies."""

    key: tuple[object, ...]
    array: Array | Callable[[], Array] | None


class _Tuple(NamedTuple):
    entries: list[_Entry]


class _Number(NamedTuple):
    value: Number


_Entry: TypeAlias = _Objects | _Tile | _Tuple | _Number


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
    elif isinstance(one, _Objects) and isinstance(other, _Objects):
        same = one.mutable == other.mutable and unchanged(one.items, other.items)
    return width if same else 1


def _equal(one: Array | Callable[[], Array] | None, other: Array | Callable[[], Array] | None) -> bool:
    return one is other or (
        isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and np.array_equal(one, other)
    )


def _equal_lanes(one: Number, other: Number, width: int, axes: Axes) -> int:
    if isinstance(one, Lane):
        gap = one - other
    elif isinstance(other, Lane):
        gap = other - one
    else:
        return width if type(one) is type(other) and one == other else 1
    differs = np.asarray(lanes.of(gap) != 0)
    if not np.any(differs):
        return width
    if differs.ndim < len(axes.sizes) or len(differs) < width:
        return 1
    return int(np.argmax(np.any(differs.reshape(len(differs), -1), axis=1))) + 1


def changeable(values: Iterable[object]) -> list[object]:
    """The lists and the like among some values, which code may change in place."""
    return [value for value in values if type(value) in _MUTABLE]


def bound(values: Mapping[str, object], names: tuple[str, ...]) -> list[object]:
    """What names hold; one that is not bound yet holds a mark."""
    return [values.get(name, _UNBOUND) for name in names]
