"""A task that does what one before it did is not run: its record is the other's, moved.

In `shapes` mode a task leaves nothing behind but its record, unless it writes whole numbers that steer the program or
hands on a tile. Tasks are of one *kind* if they have the same code, tensors of the same shapes that alias each other in
the same way, equal whole numbers in them, and other names alike. The first task of a kind runs as it is. If it left
nothing behind, the next one that was given other whole numbers runs with these numbers watched (values/given.py), which
tells how its record depends on them. From then on a task whose numbers only move boxes takes the record with the boxes
moved; one that was given the very numbers of a task before takes that task's.

Why that is the same: a body is Python that reads its arguments and, besides, only what cannot have changed
(outside.py), so it does the same again for the same arguments. Of other numbers it is known that nobody looked at them
except to place boxes, and how far these may move before one lies outside. Where anything else looked at a number it is
pinned: a task with another value there runs in its turn.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npuscope.tile.record.recorder import Recorder, TaskDraft, still
from npuscope.tile.shapes.likeness import NUMBER, Key, likeness
from npuscope.tile.shapes.outside import Code, Outside
from npuscope.tile.shapes.task_record import TaskRecord, recorded
from npuscope.tile.values.axes import Axes
from npuscope.tile.values.given import Given
from npuscope.tile.values.lanes import Lane
from npuscope.tile.values.tensors import Tensor

_KEPT = -1  # a name that a task does not bind
_TRIES = 8  # tasks of a kind that run with their numbers watched, though no other took a record of theirs
Names = dict[str, object]
Places = tuple[int, ...]  # among the numbers of a task
Values = tuple[int, ...]  # of numbers
Execute = Callable[[list[object]], Names]


class Reuse:
    """The kinds of tasks of one run."""

    def __init__(self, recorder: Recorder, axes: Axes, writes: Callable[[], int]) -> None:
        self._recorder, self._axes = recorder, axes
        self._writes = writes  # counts whole numbers that were written
        self._outside: dict[int, Outside] = {}
        self._kinds: dict[Key, _Kind | None] = {}  # None: its tasks leave something behind

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
        alike = likeness(values) if outside.known and outside.unchanged() else None
        if alike is None:
            return False, execute(values)
        about, numbers = alike
        key = (id(code.body.__code__), task.blocks, carries, task.kernel, about)
        kind = self._kinds[key] if key in self._kinds else _Kind(bool(numbers))
        if kind is None:
            return False, execute(values)
        found = kind.record_for(numbers)
        if found is not None:
            record, moved = found
            record.give(task, values, moved)
            return True, {name: values[k] for name, k in zip(left, record.hands_back, strict=True) if k != _KEPT}
        given = kind.watch(numbers)
        before, writes = marks(), self._writes()
        after = execute(values if given is None else self._followed(values, about, given))
        after = {name: _plain(after[name]) for name in left if name in after}
        hands_back = _hands_back(left, after, values)
        if hands_back is None or marks() != before:
            self._kinds[key] = None
            for _, rolled in task.groups.values():  # nobody will ask what they follow
                rolled.offsets = [[still(offset) for offset in part] for part in rolled.offsets]
        else:
            self._kinds[key] = kind
            kind.add(recorded(task, values, numbers, hands_back, given, self._recorder, self._writes() != writes))
        return False, after

    def _followed(self, values: list[object], about: Key, given: Given) -> list[object]:
        """The values of a task that runs with its numbers watched."""
        found = list(values)
        places = [k for k, entry in enumerate(about) if entry is NUMBER]
        for number, place in enumerate(places):
            found[place] = Lane(np.asarray(values[place], np.int64), self._axes, given.follow(number))
        return found


class _Kind:
    """Tasks that differ only in whole numbers and in where their tensors lie."""

    def __init__(self, watches: bool) -> None:
        self._watches = watches  # whether it can help to watch a task's numbers
        self._watched = self._moved = 0  # tasks that ran so, and tasks that took a record of theirs
        self._same: dict[Values, TaskRecord] = {}  # by all numbers
        self._moving: dict[Places, dict[Values, list[TaskRecord]]] = {}  # by what is pinned, and the numbers there

    def record_for(self, numbers: Values) -> tuple[TaskRecord, list[int] | None] | None:
        """The record of a task that does the same with these numbers, and how far what follows them moves."""
        found = self._same.get(numbers)
        if found is not None:
            return found, None
        for pinned, records in self._moving.items():
            for record in records.get(tuple([numbers[k] for k in pinned]), ()):
                moved = record.moved_to(numbers)
                if moved is not None:
                    self._moved += 1
                    return record, moved
        return None

    def watch(self, numbers: Values) -> Given | None:
        """For a task that is to run, unless it is the first or it has not helped so far."""
        if not self._watches or not self._same or self._watched > _TRIES + self._moved:
            return None
        self._watched += 1
        return Given(len(numbers))

    def add(self, record: TaskRecord) -> None:
        self._same[record.numbers] = record
        if record.pinned is None:
            return
        pinned = tuple(sorted(record.pinned))
        self._watches = len(pinned) < len(record.numbers)
        if self._watches:
            there = tuple([record.numbers[k] for k in pinned])
            self._moving.setdefault(pinned, {}).setdefault(there, []).append(record)


def _plain(value: object) -> object:
    """What a task hands on without the numbers that were followed in it."""
    if type(value) is Lane:
        return int(value)
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    return value


def _hands_back(left: tuple[str, ...], after: Names, values: list[object]) -> list[int] | None:
    """For each name, the argument that it stands for after the task; None where some stand for anything else."""
    places = {id(value): k for k, value in enumerate(values) if type(value) is Tensor}
    found: list[int] = []
    for name in left:
        place = places.get(id(after[name])) if name in after else _KEPT
        if place is None:
            return None
        found.append(place)
    return found
