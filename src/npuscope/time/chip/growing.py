"""A ring that the model calls deadlocked, although devices run such programs, is made as large as its scope needs.

Where nobody can go on, the next task finds no room, and nothing in the ring is given back before the scope of its
oldest entry closes: all that is submitted until then must fit. With that much room the run begins anew.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npuscope.time.chip.engine import run_and_look
from npuscope.time.chip.job import BYTES, CLOSES, HEAP, RING, SLOTS, Job, Machine, Rings, Times
from npuscope.time.chip.state import HEAD, NEXT, TAKEN, USED_BYTES, USED_SLOTS, State


class Grown(NamedTuple):
    """A ring whose SLOTS or HEAP had too little room for the scope that `task` is submitted in."""

    ring: int
    what: int
    had: int
    needs: int
    task: int


def run_on(job: Job, machine: Machine) -> tuple[Times, float, tuple[Grown, ...]]:
    """As `run_chip`, with rings grown where they would deadlock; -1 where nobody can go on for another reason."""
    found: dict[tuple[int, int], Grown] = {}
    while True:
        times, end, state = run_and_look(job, machine)
        more = _lacking(job.rings, state) if end < 0 else []
        if not more:
            return times, end, tuple(found.values())
        room = job.rings.room.copy()
        for one in more:
            room[one.what, one.ring] = one.needs
            before = found.get((one.ring, one.what), one)
            found[one.ring, one.what] = one._replace(had=before.had)
        job = job._replace(rings=job.rings._replace(room=room))


def _lacking(rings: Rings, state: State) -> list[Grown]:
    """The rings that have no room for the next task, with what they need; none where it waits for something else."""
    task = int(state.number[NEXT])
    found: list[Grown] = []
    if task >= len(rings.first_entry) - 1:
        return found
    numbers = np.arange(rings.entry.shape[1])
    first, end = rings.first_entry[task : task + 2]
    for ring in np.unique(rings.entry[RING, first:end]).tolist():
        mine = rings.entry[RING] == ring
        wanted = mine & (numbers >= first) & (numbers < end)
        slots = int(state.ring[USED_SLOTS, ring]) + int(np.sum(wanted))
        heap = int(state.ring[USED_BYTES, ring]) + int(np.sum(rings.entry[BYTES, wanted]))
        oldest = int(state.ring[HEAD, ring])
        closed = int(rings.entry[CLOSES, oldest]) if oldest < state.number[TAKEN] else task + 1
        last = rings.first_entry[min(max(closed, task + 1), len(rings.first_entry) - 1)]
        held = mine & (numbers >= min(oldest, first)) & (numbers < last)
        if slots >= rings.room[SLOTS, ring]:
            needs = max(int(np.sum(held)), slots) + 1  # one slot of a ring stays empty
            found.append(Grown(ring, SLOTS, int(rings.room[SLOTS, ring]), needs, task))
        if heap > rings.room[HEAP, ring]:
            needs = max(int(np.sum(rings.entry[BYTES, held])), heap)
            found.append(Grown(ring, HEAP, int(rings.room[HEAP, ring]), needs, task))
    return found
