"""A task that does what one before it did is not run: its record is the other's, moved.

In `shapes` mode a task leaves nothing behind but its record, unless it writes whole numbers that steer the program or
hands on a tile. Tasks are of one *kind* if they have the same code, tensors of the same shapes that alias each other in
the same way, equal whole numbers in them, and other names alike. The first task of a kind runs as it is. If it left
nothing behind, the next one that was given other whole numbers runs with these numbers watched (values/lanes.py), which
shows how its record depends on them. From then on a task whose numbers only move boxes takes the record with the boxes
moved; one that was given the very numbers of a task before takes that task's.

Why that is the same: a body is Python that reads its arguments and, besides, only what cannot have changed (`Outside`),
so it does the same again for the same arguments. Of other numbers it is known that nobody looked at them except to
place boxes, and how far these may move before one lies outside. Where anything else looked at a number it is fixed: a
task with another value there runs in its turn.
"""

from __future__ import annotations

import builtins
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import is_, sub
from types import CellType, FunctionType, ModuleType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from npuscope.ops.dtypes import Array, DataType
from npuscope.tile.record.recorder import (
    ArgumentDraft,
    BodyKey,
    Factors,
    Moving,
    Numbers,
    Offset,
    Recorder,
    Rolled,
    TaskDraft,
    TensorKey,
    still,
)
from npuscope.tile.values.checks import TaskId
from npuscope.tile.values.lanes import Axes, Lane, Unknown, WatchedNumbers
from npuscope.tile.values.tensors import Tensor

_TRIES = 8  # tasks of a kind that run with their numbers watched, though no other took a record of theirs
_UNBOUND = -1  # a name that a task does not bind
_MOST_BYTES = 1 << 20  # of whole numbers that are compared one by one
_WIDE = 1 << 31  # a number from here on is part of the kind
_NUMBER = object()  # stands in a key for a number in which tasks may differ
Key = tuple[object, ...]
Names = dict[str, object]
Places = tuple[int, ...]  # among the numbers of a task
Values = tuple[int, ...]  # of numbers
Terms = tuple[tuple[int, int], ...]  # numbers with their factors
Execute = Callable[[list[object]], Names]


class Reuse:
    """The kinds of tasks of one run."""

    def __init__(self, recorder: Recorder, axes: Axes, writes: Callable[[], int]) -> None:
        self._recorder, self._axes = recorder, axes
        self._writes = writes  # counts whole numbers that were written
        self._outside: dict[int, Outside] = {}
        self._kinds: dict[Key, _TaskKind | None] = {}  # None: its tasks leave something behind

    def perform(
        self,
        task: TaskDraft,
        code: Code,
        values: list[object],
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
        alike = _kind_of(values) if outside.known and outside.unchanged() else None
        if alike is None:
            return False, execute(values)
        about, numbers = alike
        key = (id(code.body.__code__), task.blocks, carries, task.kernel, about)
        kind = self._kinds[key] if key in self._kinds else _TaskKind(bool(numbers))
        if kind is None:
            return False, execute(values)
        reusable = kind.record_for(numbers)
        if reusable is not None:
            record, moved = reusable
            record.apply_to(task, values, moved)
            return True, {name: values[k] for name, k in zip(left, record.hands_back, strict=True) if k != _UNBOUND}
        watched = kind.watch(numbers)
        before, writes = marks(), self._writes()
        after = execute(values if watched is None else self._watched(values, about, watched))
        after = {name: _plain(after[name]) for name in left if name in after}
        hands_back = _hands_back(left, after, values)
        if hands_back is None or marks() != before:
            self._kinds[key] = None
            for _, rolled in task.groups.values():  # nobody will ask how they move
                rolled.offsets = [[still(offset) for offset in part] for part in rolled.offsets]
        else:
            self._kinds[key] = kind
            kind.add(_record_of(task, values, numbers, hands_back, watched, self._recorder, self._writes() != writes))
        return False, after

    def _watched(self, values: list[object], about: Key, watched: WatchedNumbers) -> list[object]:
        """The values of a task that runs with its numbers watched."""
        result = list(values)
        places = [k for k, entry in enumerate(about) if entry is _NUMBER]
        for number, place in enumerate(places):
            result[place] = Lane(np.asarray(values[place], np.int64), self._axes, watched.form(number))
        return result


class _TaskKind:
    """Tasks that differ only in whole numbers and in where their tensors lie."""

    def __init__(self, watches: bool) -> None:
        self._watches = watches  # whether it can help to watch a task's numbers
        self._watched = self._moved = 0  # tasks that ran so, and tasks that took a record of theirs
        self._same: dict[Values, TaskRecord] = {}  # by all numbers
        self._moving: dict[Places, dict[Values, list[TaskRecord]]] = {}  # by what is fixed, and the numbers there

    def record_for(self, numbers: Values) -> tuple[TaskRecord, list[int] | None] | None:
        """The record of a task that does the same with these numbers, and how far what depends on them moves."""
        same = self._same.get(numbers)
        if same is not None:
            return same, None
        for fixed, records in self._moving.items():
            for record in records.get(tuple([numbers[k] for k in fixed]), ()):
                moved = record.moved_to(numbers)
                if moved is not None:
                    self._moved += 1
                    return record, moved
        return None

    def watch(self, numbers: Values) -> WatchedNumbers | None:
        """For a task that is to run, unless it is the first or it has not helped so far."""
        if not self._watches or not self._same or self._watched > _TRIES + self._moved:
            return None
        self._watched += 1
        return WatchedNumbers(len(numbers))

    def add(self, record: TaskRecord) -> None:
        self._same[record.numbers] = record
        if record.fixed is None:
            return
        fixed = tuple(sorted(record.fixed))
        self._watches = len(fixed) < len(record.numbers)
        if self._watches:
            there = tuple([record.numbers[k] for k in fixed])
            self._moving.setdefault(fixed, {}).setdefault(there, []).append(record)


def _plain(value: object) -> object:
    """What a task hands on, without the numbers that were watched in it."""
    if type(value) is Lane:
        return int(value)
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    return value


def _hands_back(left: tuple[str, ...], after: Names, values: list[object]) -> list[int] | None:
    """For each name, the argument that it stands for after the task; None where some stand for anything else."""
    places = {id(value): k for k, value in enumerate(values) if type(value) is Tensor}
    standing_for = [places.get(id(after[name])) if name in after else _UNBOUND for name in left]
    known = [place for place in standing_for if place is not None]
    return known if len(known) == len(left) else None


# --- whether tasks are of one kind, as far as their arguments say


def argument_key(tensor: Tensor) -> TensorKey:
    """What a task knows an argument by."""
    return (tensor.buffer.id, tensor.offset, tensor.shape, tensor.strides)


def _kind_of(values: list[object]) -> tuple[Key, tuple[int, ...]] | None:
    """Equal for tasks of one kind, and the whole numbers in which they may differ; None for one that is like no
    other.
    """
    key: list[object] = []
    numbers: list[int] = []
    objects: dict[int, int] = {}
    buffers: dict[int, int] = {}
    for place, value in enumerate(values):
        kind = type(value)
        if type(value) is int:
            if -_WIDE < value < _WIDE:
                key.append(_NUMBER)
                numbers.append(value)
            else:
                key.append(value)
        elif type(value) is Tensor:
            same = objects.setdefault(id(value), place)
            if same != place:
                key.append((same,))
                continue
            buffer = value.buffer
            around = buffers.setdefault(buffer.id, place)
            about: Key | None = _kept_numbers(value) if buffer.keeps_values else None
            if value.captured is not value or (about is None and buffer.keeps_values):
                return None
            if around != place:  # several views of one buffer: which of them are the same argument
                about = (about, around, _first_like(values, value))
            flags = (buffer.read_only, buffer.rows_at_run_time)
            key.append((value.shape, value.strides, value.dtype.name, value.valid, buffer.shape, flags, about))
        elif value is None or kind is object:  # object: a name without a value
            key.append(("is", id(value)))
        elif kind is Unknown:
            key.append((Unknown,))
        elif is_constant(value) and kind is not TaskId:
            key.append((kind, repr(value)))
        else:
            return None
    return tuple(key), tuple(numbers)


def _kept_numbers(tensor: Tensor) -> Key:
    """Whole numbers that a task may steer by: all of them, and where the tensor lies among them."""
    buffer = tensor.buffer
    if not buffer.known:
        return (tensor.offset, None)
    if not buffer.is_made or buffer.size_in_bytes > _MOST_BYTES:  # known to be the same only where it is the same
        return (tensor.offset, buffer.id, buffer.edits)
    assert buffer.data is not None
    return (tensor.offset, buffer.data.tobytes())


def _first_like(values: Sequence[object], tensor: Tensor) -> int:
    wanted = argument_key(tensor)
    return next(k for k, value in enumerate(values) if type(value) is Tensor and argument_key(value) == wanted)


# --- what a task did


@dataclass
class _Group:
    """Blocks of equal structure: where each access lies, and which of the record's `moves` it makes."""

    key: BodyKey
    blocks: list[int]
    offsets: list[Numbers]
    moves: list[int]


@dataclass
class TaskRecord:
    """What a task did."""

    numbers: tuple[int, ...]
    fixed: set[int] | None  # None: its numbers were not watched
    places: list[int]  # of each argument among the values
    tensors: list[int]  # and where it lay
    arguments: list[ArgumentDraft]
    hands_back: list[int]
    kernel: str
    firsts: list[tuple[int, int]]  # of each sum that offsets depend on: its first number with its factor
    rest: list[tuple[int, int, int]]  # and the others, with the sum that they belong to
    reach: list[tuple[int, int, int]]  # how far sums may move, down and up
    moves: list[tuple[int, int]]  # with an argument, and with a sum or (-1) none
    groups: list[_Group]
    rows_at_run_time: list[int]  # arguments whose number of rows it learned not to know
    whole: list[tuple[int, Array, bool]]  # where it wrote numbers that steer the program: what it left
    last: tuple[list[Tensor], list[ArgumentDraft]] = field(default_factory=lambda: ([], []))

    def moved_to(self, numbers: tuple[int, ...]) -> list[int] | None:
        """How far the sums move with these numbers; None where a box would lie outside."""
        away = list(map(sub, numbers, self.numbers))
        moved = [away[k] * factor for k, factor in self.firsts]
        for way, k, factor in self.rest:
            moved[way] += away[k] * factor
        for way, low, high in self.reach:
            if not low <= moved[way] <= high:
                return None
        return moved

    def apply_to(self, task: TaskDraft, values: list[object], moved: list[int] | None) -> None:
        """The record as that of another task."""
        task.kernel = self.kernel
        tensors = _tensors(values, self.places)
        away = [tensor.offset - before for tensor, before in zip(tensors, self.tensors, strict=True)]
        if moved is None:
            shifts = [away[argument] for argument, _ in self.moves]
        else:
            shifts = [away[argument] if way < 0 else away[argument] + moved[way] for argument, way in self.moves]
        for group in self.groups:
            offsets: list[Offset] = [
                offset + shifts[move] if shifts[move] else offset
                for offset, move in zip(group.offsets, group.moves, strict=True)
            ]
            task.groups[group.key] = (group.blocks, Rolled(group.key[1], [len(group.blocks)], [offsets]))
        if not all(map(is_, tensors, self.last[0])) or len(tensors) != len(self.last[0]):
            arguments = [a.like(argument_key(tensor)) for a, tensor in zip(self.arguments, tensors, strict=True)]
            self.last = (tensors, arguments)
        task.arguments = self.last[1]  # tasks with the same tensors share them
        for argument in self.rows_at_run_time:
            tensors[argument].buffer.rows_at_run_time = True
        for place, data, known in self.whole:
            (tensor,) = _tensors(values, [place])
            tensor.buffer.copy_on_write()
            assert tensor.buffer.data is not None
            tensor.buffer.data[...], tensor.buffer.known = data, known
            tensor.buffer.edits += 1


def _record_of(
    task: TaskDraft,
    values: list[object],
    numbers: tuple[int, ...],
    hands_back: list[int],
    watched: WatchedNumbers | None,
    recorder: Recorder,
    wrote: bool,
) -> TaskRecord:
    """What a task did that has just ended."""
    where = {argument_key(value): place for place, value in enumerate(values) if type(value) is Tensor}
    places = [where[argument.key] for argument in task.arguments]
    tensors = _tensors(values, places)
    for _, rolled in task.groups.values():
        rolled.offsets, rolled.counts = [rolled.along(0)], [sum(rolled.counts)]
    fixed = None
    free: list[int] = []
    if watched is not None:
        accesses = [offset for _, rolled in task.groups.values() for offset in rolled.offsets[0]]
        disputed = [_disputed(offset.ways, len(numbers)) for offset in accesses if isinstance(offset, Moving)]
        fixed = watched.fixed.union(*disputed)
        free = [k for k in range(len(numbers)) if k not in fixed]
    sums: dict[Terms, int] = {}
    moves: dict[tuple[int, int], int] = {}
    groups = []
    for key, (blocks, rolled) in task.groups.items():
        moved = []
        for argument, offset in zip(recorder.arguments_of(key), rolled.offsets[0], strict=True):
            terms = _terms(next(filter(None, offset.ways)), free) if isinstance(offset, Moving) else ()
            way = sums.setdefault(terms, len(sums)) if terms else -1
            moved.append(moves.setdefault((argument, way), len(moves)))
        plain = [np.atleast_1d(np.asarray(still(offset), np.int64)) for offset in rolled.offsets[0]]
        rolled.offsets = [list(plain)]
        groups.append(_Group(key, blocks, plain, moved))
    reach: dict[int, tuple[int, int]] = {}
    for factors, (low, high) in {}.items() if watched is None else watched.reach.items():
        terms = _terms(factors, free)
        if terms:
            way = sums.setdefault(terms, len(sums))
            down, up = reach.get(way, (low, high))
            reach[way] = (max(low, down), min(high, up))
    buffers = {x.buffer.id: (k, x.buffer) for k, x in enumerate(values) if wrote and type(x) is Tensor}
    return TaskRecord(
        numbers=numbers,
        fixed=fixed,
        places=places,
        tensors=[tensor.offset for tensor in tensors],
        arguments=[argument.like(argument.key) for argument in task.arguments],
        hands_back=hands_back,
        kernel=task.kernel,
        firsts=[terms[0] for terms in sums],
        rest=[(way, *term) for way, terms in enumerate(sums) for term in terms[1:]],
        reach=[(way, low, high) for way, (low, high) in reach.items()],
        moves=list(moves),
        groups=groups,
        rows_at_run_time=[k for k, tensor in enumerate(tensors) if tensor.buffer.rows_at_run_time],
        whole=[(k, b.data.copy(), b.known) for k, b in buffers.values() if b.is_made and b.data is not None],
    )


def _disputed(ways: frozenset[Factors], count: int) -> set[int]:
    """The numbers on which some of an access's offsets depend in one way and some in another."""
    full = [way or (0,) * count for way in ways]
    return {k for k in range(count) if len({way[k] for way in full}) > 1}


def _terms(factors: Factors, free: list[int]) -> Terms:
    """A sum without what is fixed."""
    return tuple([(k, factors[k]) for k in free if factors[k]])


def _tensors(values: list[object], places: list[int]) -> list[Tensor]:
    return [value for value in (values[place] for place in places) if isinstance(value, Tensor)]


# --- what a piece of code reads besides its arguments: names of its module and of the functions around it

_CONSTANTS = (bool, int, float, str, bytes, type(None), DataType, enum.Enum)
_MODULES = {"math", "npuscope"}
_BUILTINS = {
    *("abs", "all", "any", "bool", "dict", "divmod", "enumerate", "float", "int", "len", "list", "max", "min", "pow"),
    *("range", "reversed", "set", "slice", "sorted", "str", "sum", "tuple", "zip", "ValueError", "AssertionError"),
}


class Code(NamedTuple):
    """A function, and the names that it reads besides its arguments; None where it may change something else."""

    body: Callable[..., Any]
    names: tuple[str, ...] | None


@runtime_checkable
class Readable(Protocol):
    """A function of the language that can say what it reads."""

    def code(self) -> Code: ...


def is_constant(value: object) -> bool:
    """A value that cannot change."""
    if isinstance(value, tuple | frozenset):
        return all(is_constant(entry) for entry in value)
    return isinstance(value, _CONSTANTS)


class Outside:
    """All that a function reads besides its arguments, and what it found there; `known`: whether that could be seen.

    Not to run code again is right only if it would read what it read before. Which names it reads, and that it changes
    none of them, comes from its source when it is rewritten. Everything it can reach by them, function by function, is
    looked up once; only constants and tile functions count, and that they are still there is seen by identity.
    """

    def __init__(self, code: Code) -> None:
        self._cells: dict[int, tuple[CellType, object]] = {}
        self._names: dict[tuple[int, str], tuple[dict[str, Any], str, object]] = {}
        self._visited: set[int] = set()
        self.known = self._is_known(code)

    def unchanged(self) -> bool:
        """Whether everything is still what it was."""
        for cell, value in self._cells.values():
            if cell.cell_contents is not value:
                return False
        return all(held.get(name) is value for held, name, value in self._names.values())

    def _is_known(self, code: Code) -> bool:
        function = code.body
        if code.names is None or not isinstance(function, FunctionType):
            return False
        if id(function.__code__) in self._visited:
            return True
        self._visited.add(id(function.__code__))
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        if not all(is_constant(value) for value in defaults):
            return False
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        held = function.__globals__
        for name in code.names:
            if name in cells:
                cell = cells[name]
                try:
                    value = cell.cell_contents
                except ValueError:  # not bound yet
                    return False
                self._cells[id(cell)] = (cell, value)
            elif name in held:
                value = held[name]
                self._names[id(held), name] = (held, name, value)
            elif name in _BUILTINS and hasattr(builtins, name):
                continue
            else:
                return False
            if not self._is_fixed(value):
                return False
        return True

    def _is_fixed(self, value: object) -> bool:
        if is_constant(value):
            return True
        if isinstance(value, ModuleType):
            return value.__name__.partition(".")[0] in _MODULES
        if isinstance(value, type | FunctionType):
            return value.__module__.partition(".")[0] in ("npuscope", "builtins")
        return isinstance(value, Readable) and self._is_known(value.code())
