"""Runs a job on the chip, event by event. The same code runs compiled and as plain Python.

Events: a block starts or ends (`blocks`), the orchestrator has submitted a task (`orchestrator`), a scheduler thread
comes round its loop (`scheduler`, or `resolving`'s).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from npuscope.time.chip.blocks import add_up, set_spans, stop_of, turn_blocks
from npuscope.time.chip.finishing import wake_for_deferred
from npuscope.time.chip.job import BYTES, CLOSES, HEAP, RING, SLOTS, Job, Machine, Rings, Times, new_times, with_room
from npuscope.time.chip.orchestrator import orchestrate
from npuscope.time.chip.resolving import resolve, scan
from npuscope.time.chip.scheduler import loop
from npuscope.time.chip.state import (
    AT,
    BOOTED,
    DUE,
    EVENTS,
    FAR,
    FINISHED,
    HEAD,
    LAST_DONE,
    NEXT,
    NOW,
    PAUSED,
    ROWS,
    STATE,
    STOPPED,
    STUCK,
    TAKEN,
    UNKNOWN,
    USED_BYTES,
    USED_SLOTS,
    State,
    new_state,
)
from npuscope.time.compiled import compiled

ANEW = 512  # turns of blocks after which the memory's rates are added up anew


@compiled
def run(job: Job, machine: Machine, times: Times, s: State, until: float) -> float:
    """Runs until all tasks are done: when the last was seen done, or STUCK where nobody can go on.

    PAUSED where the next event is not before `until`, or where a block has come to a stop of which nobody knows when it
    may go on. Called again it goes on from there, with what is known by then.
    """
    due, threads = s.clock[DUE], s.thread[AT]
    s.number[UNKNOWN] = 0
    for core in range(len(due)):
        if s.core[STATE, core] == STOPPED:
            due[core] = max(s.moment[NOW], job.stops.release[stop_of(job, s.core, core) - 1])
    if machine.hosted == 1 and s.number[BOOTED] == 0:
        s.number[BOOTED] = 1
        scan(job, machine, times, s)
    wake_for_deferred(job, machine, s, s.moment[NOW])
    while s.number[FINISHED] < len(job.shape):
        blocks = FAR
        for core in range(len(due)):
            blocks = min(blocks, due[core])
        when = blocks
        for thread in range(len(threads)):
            when = min(when, threads[thread])
        if s.number[NEXT] < len(job.shape):
            when = min(when, s.orchestrator[0])
        if when >= until:
            return STUCK if until >= FAR else PAUSED
        s.moment[NOW] = now = when
        if blocks <= now:
            s.number[EVENTS] += 1
            turn_blocks(job, machine, times, s, now)
            if s.number[EVENTS] % ANEW == 0:
                add_up(job, s)
            set_spans(job, machine, s, now)
        if s.orchestrator[0] <= now:
            orchestrate(job, machine, times, s, now)
        for thread in range(machine.threads):
            if threads[thread] <= now:
                s.moment[LAST_DONE] = max(s.moment[LAST_DONE], loop(job, machine, times, s, thread, now))
        if machine.resolver == 1 and threads[machine.threads] <= now:
            s.moment[LAST_DONE] = max(s.moment[LAST_DONE], resolve(job, machine, times, s, now))
        if s.number[UNKNOWN] == 1:
            return PAUSED
    return float(s.moment[LAST_DONE])


class GrownRing(NamedTuple):
    """A ring whose SLOTS or HEAP had too little room for the scope that `task` is submitted in."""

    ring: int
    what: int
    had: int
    needs: int
    task: int


def run_chip(job: Job, machine: Machine) -> tuple[Times, float]:
    """Times of every block and when all was done, in nanoseconds; -1 where nobody could go on."""
    return run_with_room(job, machine, grow=False)[:2]


def run_with_room(job: Job, machine: Machine, grow: bool = True) -> tuple[Times, float, tuple[GrownRing, ...]]:
    """As `run_chip`, with rings grown where they would deadlock, although devices run such programs.

    Nothing in a ring is given back before the scope of its oldest entry closes: all that is submitted until then must
    fit. With that much room the run begins anew.
    """
    found: dict[tuple[int, int], GrownRing] = {}
    while True:
        times, state = new_times(job), new_state(job, machine)
        end = run(job._replace(together=job.together.copy()), machine, times, state, FAR)
        more = _lacking(job.rings, state) if end < 0 and grow else []
        if not more:
            return times._replace(loops=times.loops[: state.number[ROWS]]), end, tuple(found.values())
        for one in more:
            before = found.get((one.ring, one.what), one)
            found[one.ring, one.what] = one._replace(had=before.had)
        job = with_grown(job, more)


def with_grown(job: Job, grown: Iterable[GrownRing]) -> Job:
    """The job with the room in its rings that it was found to need."""
    rings = job.rings
    for one in grown:
        rings = with_room(rings, one.what, one.ring, one.needs)
    return job._replace(rings=rings)


def _lacking(rings: Rings, state: State) -> list[GrownRing]:
    """The rings that have no room for the next task, with what they need; none where it waits for something else."""
    task = int(state.number[NEXT])
    found: list[GrownRing] = []
    if task >= len(rings.first_entry) - 1:
        return found
    numbers = np.arange(rings.entry.shape[1])
    first, end = rings.first_entry[task : task + 2]
    for ring in np.unique(rings.entry[RING, first:end]).tolist():
        mine = rings.entry[RING] == ring
        oldest = int(state.ring[HEAD, ring])
        closed = int(rings.entry[CLOSES, oldest]) if oldest < state.number[TAKEN] else task + 1
        last = rings.first_entry[min(max(closed, task + 1), len(rings.first_entry) - 1)]
        wanted = mine & (numbers >= first) & (numbers < end)
        held = mine & (numbers >= min(oldest, first)) & (numbers < last)
        sizes = np.stack([np.ones(len(numbers), np.int64), rings.entry[BYTES]])
        spare = (1, 0)  # one slot of a ring stays empty
        for what in (SLOTS, HEAP):
            now = int(state.ring[(USED_SLOTS, USED_BYTES)[what], ring]) + int(np.sum(sizes[what, wanted]))
            had = int(rings.room[what, ring])
            if now + spare[what] > had:
                needs = max(int(np.sum(sizes[what, held])), now) + spare[what]
                found.append(GrownRing(ring, what, had, needs, task))
    return found
