"""Room in the runtime's rings: taken when a task is submitted, given back first in, first out."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np

from npuscope.lower.program import Program
from npuscope.lower.rings import RingEntry, entries_of, limits_of
from npuscope.time.chip.job import (
    BYTES,
    CLOSES,
    ENDLESS,
    FOLLOWER,
    HEAD,
    HEAP,
    NEXT,
    RING,
    SLOTS,
    TAKEN,
    USED_BYTES,
    USED_SLOTS,
    Ints,
    Rings,
    State,
    rings_with,
)
from npuscope.time.compiled import compiled_part


@compiled_part
def has_room(rings: Rings, s: State, task: int) -> bool:
    """Whether the rings have room for a task and the tensors allocated before it; one slot of a ring stays empty."""
    if len(rings.first_entry) == 0:
        return True
    for ring in range(rings.room.shape[1]):
        slots, bytes = s.ring[USED_SLOTS, ring], s.ring[USED_BYTES, ring]
        for entry in range(rings.first_entry[task], rings.first_entry[task + 1]):
            if rings.entry[RING, entry] == ring:
                slots += 1
                bytes += rings.entry[BYTES, entry]
        taken = slots > s.ring[USED_SLOTS, ring]
        if taken and (slots >= rings.room[SLOTS, ring] or bytes > rings.room[HEAP, ring]):
            return False
    return True


@compiled_part
def take_room(rings: Rings, s: State, task: int) -> None:
    if len(rings.first_entry) == 0:
        return
    for entry in range(rings.first_entry[task], rings.first_entry[task + 1]):
        s.ring[USED_SLOTS, rings.entry[RING, entry]] += 1
        s.ring[USED_BYTES, rings.entry[RING, entry]] += rings.entry[BYTES, entry]
    s.number[TAKEN] = rings.first_entry[task + 1]
    count_users(rings, s, task, 1, 0.0)


@compiled_part
def count_users(rings: Rings, s: State, task: int, by: int, clock: float) -> None:
    """A task keeps its own slot and what it uses from its submission to its end at `clock`."""
    if len(rings.first_entry) == 0:
        return
    own = rings.first_entry[task + 1] - 1
    s.kept[own] += by
    s.free[own] = max(s.free[own], clock)
    for n in range(rings.first_use[task], rings.first_use[task + 1]):
        s.kept[rings.use[n]] += by
        s.free[rings.use[n]] = max(s.free[rings.use[n]], clock)


@compiled_part
def release(rings: Rings, s: State, now: float) -> int:
    """Gives back what nobody keeps any longer; how many entries."""
    released = 0
    for ring in range(rings.room.shape[1]):
        entry = s.ring[HEAD, ring]
        while (
            entry < s.number[TAKEN]
            and s.kept[entry] == 0
            and s.free[entry] <= now
            and rings.entry[CLOSES, entry] <= s.number[NEXT]
        ):
            s.ring[USED_SLOTS, ring] -= 1
            s.ring[USED_BYTES, ring] -= rings.entry[BYTES, entry]
            entry = rings.entry[FOLLOWER, entry]
            released += 1
        s.ring[HEAD, ring] = entry
    return released


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
