"""A task that does what one before it did is not run: its record is the other's, moved.

In `shapes` mode a task leaves nothing behind but its record, unless it writes whole numbers that steer the program or
hands on a tile. Tasks are of one *kind* if they have the same code, tensors of the same shapes that alias each other in
the same way, equal whole numbers in them, and other names alike. The first task of a kind runs as it is. If it left
nothing behind, the next one that was given other whole numbers runs with these numbers watched (`lanes.Given`), which
tells how its record depends on them. From then on a task whose numbers only move boxes takes the record with the boxes
moved; one that was given the very numbers of a task before takes that task's.

Why that is the same: a body is Python that reads its arguments and, besides, only what cannot have changed
(outside.py), so it does the same again for the same arguments. Of other numbers it is known that nobody looked at them
except to place boxes, and how far these may move before one lies outside. Where anything else looked at a number it is
pinned: a task with another value there runs in its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any

import numpy as np
import numpy.typing as npt

from npuscope.tile.record.frames import Factors, Moving, Offset, Rolled, still
from npuscope.tile.record.recorder import ArgumentDraft, Key, Recorder, TaskDraft
from npuscope.tile.shapes.outside import Code, Outside, is_constant
from npuscope.tile.values.lanes import Given, Lane
from npuscope.tile.values.task_ids import TaskId
from npuscope.tile.values.tensors import Tensor
from npuscope.tile.values.unknown import Unknown

_KEPT = -1  # a name that a task does not bind
_MOST_BYTES = 1 << 20  # of whole numbers that a task may look at and still be like another
_WIDE = 1 << 31  # a number from here on is part of the kind
_MOST_RECORDS = 8  # that move, of one kind and the same pinned numbers
_NUMBER = object()

Names = dict[str, Any]
Numbers = npt.NDArray[np.int64]
Terms = tuple[tuple[int, int], ...]
Execute = Callable[[list[Any]], Names]


class Replay:
    """The kinds of tasks of one run."""

    def __init__(self, recorder: Recorder, writes: Callable[[], int]) -> None:
        self._recorder, self._writes = recorder, writes  # the latter counts whole numbers that were written
        self._outside: dict[int, Outside] = {}
        self._kinds: dict[Key, _Kind | None] = {}  # None: its tasks leave something behind

    def task(
        self,
        task: TaskDraft,
        code: Code,
        values: list[Any],
        left: tuple[str, ...],
        marks: Callable[[], Key],
        carries: bool,
        execute: Execute,
    ) -> tuple[bool, Names]:
        """Runs a task's body on these values, or takes the record of one like it: whether it did, and the names that
        the task leaves, of those asked for. `marks` counts what a task can leave behind besides its record.
        """
        outside = self._outside.get(id(code.body.__code__))
        if outside is None:
            outside = self._outside[id(code.body.__code__)] = Outside(code)
        key = _likeness(values) if outside.known and outside.unchanged() else None
        if key is None:
            return False, execute(values)
        key = (id(code.body.__code__), task.blocks, carries, task.kernel, *key)
        kind = self._kinds.get(key, _NEW)
        if kind is None:
            return False, execute(values)
        numbers = tuple([value for value in values if type(value) is int and -_WIDE < value < _WIDE])
        if kind is _NEW:
            kind = _Kind(bool(numbers))
        found = kind.record_for(numbers)
        if found is not None:
            record, moved = found
            record.give(task, values, moved)
            return True, {name: values[k] for name, k in zip(left, record.hands_back, strict=True) if k != _KEPT}
        given = kind.watched(numbers)
        before, writes = marks(), self._writes()
        after = execute(values if given is None else _followed(values, given))
        after = {name: _plain(after[name]) for name in left if name in after}
        hands_back = _hands_back(left, after, values)
        if hands_back is None or marks() != before:
            self._kinds[key] = None
            for _, rolled in task.groups.values():  # nobody will ask what they follow
                rolled.offsets = [[still(offset) for offset in part] for part in rolled.offsets]
        else:
            made = _recorded(task, values, numbers, hands_back, given, self._recorder, self._writes() != writes)
            self._kinds[key] = kind
            kind.add(made)
        return False, after


_NEW: Any = object()


class _Kind:
    """Tasks that differ only in whole numbers and in where their tensors lie."""

    def __init__(self, watches: bool) -> None:
        self._watches = watches  # whether it may help to watch a task's numbers
        self._same: dict[tuple[int, ...], _Record] = {}  # by all numbers
        self._moving: dict[tuple[int, ...], dict[tuple[int, ...], list[_Record]]] = {}  # by what is pinned, and there

    def record_for(self, numbers: tuple[int, ...]) -> tuple[_Record, list[int] | None] | None:
        """The record of a task that does the same with these numbers, and how far what follows them moves."""
        found = self._same.get(numbers)
        if found is not None:
            return found, None
        for pinned, records in self._moving.items():
            for record in records.get(tuple([numbers[k] for k in pinned]), ()):
                moved = record.moved_to(numbers)
                if moved is not None:
                    return record, moved
        return None

    def watched(self, numbers: tuple[int, ...]) -> Given | None:
        """Of a task that is to run: its numbers as they are followed, unless it is the first or that never helps."""
        return Given(numbers) if self._watches and self._same else None

    def add(self, record: _Record) -> None:
        self._same[record.numbers] = record
        if record.pinned is None:
            return
        pinned = tuple(sorted(record.pinned))
        if len(pinned) == len(record.numbers):
            self._watches = False
            return
        records = self._moving.setdefault(pinned, {}).setdefault(tuple([record.numbers[k] for k in pinned]), [])
        records.append(record)
        self._watches = len(records) < _MOST_RECORDS


@dataclass
class _Group:
    """Blocks of equal structure: where each access lies, and which of the record's `moves` it makes."""

    key: tuple[tuple[int, ...], tuple[int, ...]]
    blocks: list[int]
    offsets: list[Numbers]
    moves: list[int]


@dataclass
class _Record:
    """What a task did."""

    numbers: tuple[int, ...]
    pinned: set[int] | None  # None: its numbers were not watched
    places: list[int]  # of each argument among the values
    tensors: list[int]  # and where it lay
    arguments: list[ArgumentDraft]
    hands_back: list[int]
    kernel: str
    sums: list[list[tuple[int, int]]]  # what offsets follow: numbers with their factors
    reach: list[tuple[int, int, int]]  # how far sums may move, down and up
    moves: list[tuple[int, int]]  # with an argument, and with a sum or (-1) none
    groups: list[_Group]
    whole: list[
        tuple[int, npt.NDArray[Any], bool]
    ]  # numbers that steer the program as it left them, where it wrote any
    last: tuple[list[Tensor], list[ArgumentDraft]] = field(default_factory=lambda: ([], []))

    def moved_to(self, numbers: tuple[int, ...]) -> list[int] | None:
        """How far the sums move with these numbers; None where a box would lie outside."""
        away = [new - old for new, old in zip(numbers, self.numbers, strict=True)]
        moved = [sum([factor * away[k] for k, factor in terms]) for terms in self.sums]
        return moved if all(low <= moved[way] <= high for way, low, high in self.reach) else None

    def give(self, task: TaskDraft, values: list[Any], moved: list[int] | None) -> None:
        """The record as that of another task."""
        task.kernel = self.kernel
        tensors = [values[place] for place in self.places]
        away = [tensor.offset - before for tensor, before in zip(tensors, self.tensors, strict=True)]
        shifts = [
            away[argument] if way < 0 or moved is None else away[argument] + moved[way] for argument, way in self.moves
        ]
        for group in self.groups:
            offsets: list[Offset] = [
                offset + shifts[move] if shifts[move] else offset
                for offset, move in zip(group.offsets, group.moves, strict=True)
            ]
            task.groups[group.key] = (group.blocks, Rolled(group.key[1], [len(group.blocks)], [offsets]))
        if not all(map(is_, tensors, self.last[0])) or len(tensors) != len(self.last[0]):
            arguments = [a.like(_argument_key(tensor)) for a, tensor in zip(self.arguments, tensors, strict=True)]
            self.last = (tensors, arguments)
        task.arguments = self.last[1]  # tasks with the same tensors share them
        for place, data, known in self.whole:
            buffer = values[place].buffer
            buffer.data[...], buffer.known = data, known


def _recorded(
    task: TaskDraft, values: list[Any], numbers: tuple[int, ...], hands_back: list[int], given: Given | None,
    recorder: Recorder, wrote: bool,
) -> _Record:  # fmt: skip
    """What a task did that has just ended."""
    where = {_argument_key(value): place for place, value in enumerate(values) if type(value) is Tensor}
    places = [where[argument.key] for argument in task.arguments]
    for _, rolled in task.groups.values():
        rolled.offsets, rolled.counts = [rolled.along(0)], [sum(rolled.counts)]
    pinned = None
    free: list[int] = []
    if given is not None:
        accesses = [offset for _, rolled in task.groups.values() for offset in rolled.offsets[0]]
        disputed = [_disputed(offset.ways, len(numbers)) for offset in accesses if isinstance(offset, Moving)]
        pinned = given.pinned.union(*disputed)
        free = [k for k in range(len(numbers)) if k not in pinned]
    sums: dict[Terms, int] = {}
    moves: dict[tuple[int, int], int] = {}
    groups = []
    for key, (blocks, rolled) in task.groups.items():
        found = []
        for argument, offset in zip(recorder.arguments_of(key), rolled.offsets[0], strict=True):
            terms = _terms(next(filter(None, offset.ways)), free) if isinstance(offset, Moving) else ()
            way = sums.setdefault(terms, len(sums)) if terms else -1
            found.append(moves.setdefault((argument, way), len(moves)))
        plain = [np.atleast_1d(np.asarray(still(offset), np.int64)) for offset in rolled.offsets[0]]
        rolled.offsets = [list(plain)]
        groups.append(_Group(key, blocks, plain, found))
    reach = []
    for factors, (low, high) in [] if given is None else given.reach.items():
        terms = _terms(factors, free)
        if terms:
            reach.append((sums.setdefault(terms, len(sums)), low, high))
    kept = {v.buffer.id: k for k, v in enumerate(values) if wrote and type(v) is Tensor and v.buffer.data is not None}
    return _Record(
        numbers=numbers,
        pinned=pinned,
        places=places,
        tensors=[values[place].offset for place in places],
        arguments=[argument.like(argument.key) for argument in task.arguments],
        hands_back=hands_back,
        kernel=task.kernel,
        sums=[list(terms) for terms in sums],
        reach=reach,
        moves=list(moves),
        groups=groups,
        whole=[(k, values[k].buffer.data.copy(), values[k].buffer.known) for k in kept.values()],
    )


def _disputed(ways: frozenset[Factors], count: int) -> set[int]:
    """The numbers that some of an access's offsets follow in one way and some in another."""
    full = [way or (0,) * count for way in ways]
    return {k for k in range(count) if len({way[k] for way in full}) > 1}


def _terms(factors: Factors, free: list[int]) -> Terms:
    """A sum without what is pinned."""
    return tuple([(k, factors[k]) for k in free if factors[k]])


def _followed(values: list[Any], given: Given) -> list[Any]:
    lanes = iter(given.lanes)
    return [next(lanes) if type(value) is int and -_WIDE < value < _WIDE else value for value in values]


def _plain(value: Any) -> Any:
    """What a task hands on without the numbers that were followed in it."""
    if type(value) is Lane:
        return int(value)
    return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value


def _hands_back(left: tuple[str, ...], after: Names, values: list[Any]) -> list[int] | None:
    """For each name, the argument that it stands for after the task; None where some stand for anything else."""
    places = {id(value): k for k, value in enumerate(values) if type(value) is Tensor}
    found: list[int] = []
    for name in left:
        place = places.get(id(after[name])) if name in after else _KEPT
        if place is None:
            return None
        found.append(place)
    return found


def _argument_key(tensor: Tensor) -> Key:
    """What a task knows an argument by."""
    return (tensor.buffer.id, tensor.offset, tensor.shape, tensor.strides)


def _likeness(values: list[Any]) -> Key | None:
    """Equal for tasks of one kind; None for one that is like no other."""
    key: list[Any] = []
    objects: dict[int, int] = {}
    buffers: dict[int, int] = {}
    for place, value in enumerate(values):
        kind = type(value)
        if kind is int:
            key.append(_NUMBER if -_WIDE < value < _WIDE else value)
        elif kind is Tensor:
            same = objects.setdefault(id(value), place)
            if same != place:
                key.append((same,))
                continue
            buffer = value.buffer
            around = buffers.setdefault(buffer.id, place)
            about = _kept_numbers(value) if buffer.data is not None else None
            if value.captured is not value or (about is None and buffer.data is not None):
                return None
            if around != place:  # several views of one buffer: which of them are the same argument
                about = (about, around, _first_like(values, value))
            flags = (buffer.read_only, buffer.rows_at_run_time)
            key.append((value.shape, value.strides, value.dtype.name, value.valid, buffer.shape, flags, about))
        elif value is None or kind is Unknown or kind is object:  # object: a name without a value
            key.append(("is", id(value)))
        elif is_constant(value) and kind is not TaskId:
            key.append((kind, repr(value)))
        else:
            return None
    return tuple(key)


def _kept_numbers(tensor: Tensor) -> Key | None:
    """Whole numbers that a task may steer by: all of them, and where the tensor lies among them."""
    buffer = tensor.buffer
    assert buffer.data is not None
    if not buffer.known:
        return (tensor.offset, None)
    return None if buffer.data.nbytes > _MOST_BYTES else (tensor.offset, buffer.data.tobytes())


def _first_like(values: Sequence[Any], tensor: Tensor) -> int:
    wanted = _argument_key(tensor)
    return next(k for k, value in enumerate(values) if type(value) is Tensor and _argument_key(value) == wanted)
