"""What the tasks of a program take of the rings, as the arrays that the chip runs on."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np

from npuscope.lower.program import Program
from npuscope.lower.rings import RingEntry, entries_of, limits_of
from npuscope.time.chip.job import ENDLESS, Ints, Rings, rings_with


def rings_of(program: Program, edges: Iterable[tuple[int, int]]) -> Rings:
    """A task keeps its own entry, those of its producers and of the allocations that it uses until it is done."""
    slots, heap = limits_of(program, "task_window"), limits_of(program, "heap")
    entries = list(entries_of(program)) if slots and heap else []
    if not entries:
        return ENDLESS
    tasks = program.recording.tasks
    own = {entry.task: n for n, entry in enumerate(entries) if entry.is_task}
    maker = {buffer: n for n, entry in enumerate(entries) for buffer in entry.buffers}
    uses: list[set[int]] = [
        {maker[argument.buffer] for argument in task.arguments if argument.buffer in maker} for task in tasks
    ]
    for producer, consumer in edges:
        uses[consumer].add(own[producer])
    rows = [[entry.ring for entry in entries], [entry.bytes for entry in entries], _closes(entries)]
    first = [0, *(own[task.id] + 1 for task in tasks)]
    return rings_with(first, np.array(rows, np.int64), uses, np.array([slots, heap], np.int64))


def _closes(entries: list[RingEntry]) -> Ints:
    """The first task that is submitted after the scope of each entry has closed; the runtime's own never does."""
    last: dict[tuple[Hashable, ...], int] = {}
    for entry in entries:
        for depth in range(1, len(entry.path) + 1):
            last[entry.path[:depth]] = entry.task + entry.is_task
    tasks = sum(entry.is_task for entry in entries)
    return np.array([last[entry.path] if entry.ring else tasks for entry in entries], np.int64)
