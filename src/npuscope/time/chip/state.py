"""Where everything is while the chip runs: few arrays, so that compiling is quick; rows have names.

A core has a block at its front and may have one behind it. `unseen` are blocks that ended and that the scheduler has
not polled yet: at most two, for the place behind is filled by the scheduler only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npuscope.time.chip.job import RING, Floats, Ints, Job, Machine

FAR = 1e300
IDLE, GATED, WAITING, RUNNING, HELD = range(5)  # what a core does; HELD: a vector core of a mixed block
# rows of `core`: the front block and its class, the one behind, blocks nobody has seen, whether it ever ran, its thread
STATE, TASK, BLOCK, KIND, BEHIND, BEHIND_BLOCK, BEHIND_GATED, UNSEEN_COUNT, USED, OWNER = range(10)
DUE, SPAN = range(2)  # rows of `clock`: when the front block starts or ends, its length at the present slow-down
# rows of `todo`: producers not done; those neither done, nor early and handed out; blocks handed out and done; flags
MISSING, UNREADY, HANDED, DONE, COMPLETE, SUBMITTED, STAGED = range(7)
AT, LAST, PERIOD, ASLEEP = range(4)  # rows of `thread`: next turn, last turn, length of an idle turn, nothing to do
FINISHED, NEXT, ORCHESTRATING, TOGETHER, ROWS, TAKEN = range(6)  # places of `number`; TAKEN: entries of rings
HEAD, USED_SLOTS, USED_BYTES = range(3)  # rows of `ring`: its oldest entry and what is taken
EARLY = 4  # ready tasks have queues 0 to 3 by shape, those that may be staged early 4 to 7


class State(NamedTuple):
    """`core` and `clock` have a column per core (cube cores first), `todo` per task, `thread` per scheduler thread."""

    core: Ints
    clock: Floats
    unseen: Ints
    todo: Ints
    seen: Floats  # per task: when the last of its blocks so far was seen done
    queue: Ints
    ends: Ints  # of the queues: head and tail
    thread: Floats
    rates: Floats  # bytes per nanosecond that running blocks would take at each slow-down
    number: Ints
    ring: Ints  # a column per ring
    kept: Ints  # per entry of the rings: its own task and users that are submitted and not done
    free: Floats  # per entry: when the last of those was done
    slow: Floats  # the memory's present slow-down
    own: Ints  # per scheduler thread its cores, cube cores first, -1 beyond the last
    orchestrator: Floats  # when it is next at work


def new_state(job: Job, machine: Machine) -> State:
    cores, tasks = 3 * machine.clusters, len(job.shape)
    core = np.full((10, cores), -1, np.int64)
    core[[STATE, BEHIND_GATED, UNSEEN_COUNT, USED]] = 0
    clusters = np.concatenate([np.arange(machine.clusters), np.repeat(np.arange(machine.clusters), 2)])
    core[OWNER] = clusters % machine.threads
    todo = np.zeros((7, tasks), np.int64)
    todo[[MISSING, UNREADY]] = job.producers
    thread = np.zeros((4, machine.threads))
    thread[AT], thread[PERIOD], thread[ASLEEP] = FAR, machine.loop, 1.0
    count = np.zeros(6, np.int64)
    count[TOGETHER] = -1
    return State(
        core,
        np.full((2, cores), FAR),
        np.full((3, cores), -1, np.int64),
        todo,
        np.zeros(tasks),
        np.full((8, tasks + 1), -1, np.int64),
        np.zeros((8, 2), np.int64),
        thread,
        np.zeros(job.draws.shape[1]),
        count,
        _rings(job),
        np.zeros(job.rings.entry.shape[1], np.int64),
        np.zeros(job.rings.entry.shape[1]),
        np.array([0.0, 0.0, 1.0]),
        _own(core[OWNER], machine.threads),
        np.zeros(1),
    )


def _rings(job: Job) -> Ints:
    rings = np.zeros((3, job.rings.room.shape[1]), np.int64)
    rings[HEAD] = job.rings.entry.shape[1]
    np.minimum.at(rings[HEAD], job.rings.entry[RING], np.arange(job.rings.entry.shape[1]))
    return rings


def _own(owner: Ints, threads: int) -> Ints:
    lists = [np.flatnonzero(owner == thread) for thread in range(threads)]
    own = np.full((threads, max(len(one) for one in lists)), -1, np.int64)
    for thread, one in enumerate(lists):
        own[thread, : len(one)] = one
    return own
