"""What the chip is given (`Job`, `Machine`, `Rings`) and what came out (`Times`), as arrays.

Times are nanoseconds. A class is a kind of block: how long it runs at each slow-down of the memory (`run`), and how
many bytes per nanosecond it then takes from HBM (`draws`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
MIX, AIC, AIV, NONE = range(4)  # shapes of tasks; NONE does no work
SLOW = np.array([1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0])  # slow-downs at which classes are timed


class Machine(NamedTuple):
    """Cores and costs. Cluster c is cube core c and vector cores 2c, 2c + 1; thread c mod `threads` schedules it."""

    clusters: int
    threads: int
    limit: float  # bytes per nanosecond of HBM
    poll: float
    dispatch: float  # per block handed out
    dispatch_turn: float  # and once in a turn that hands out any
    complete: float  # per block seen done
    complete_turn: float
    resolve: float
    visible: float
    fin: float
    pickup: float
    pickup_first: float
    switch: float
    stage: float
    dummy: float
    loop: float  # a scheduler turn that polls nobody
    release: float  # per task or tensor whose room a ring gets back
    hosted: int = 0  # 1: the host has built the whole graph before; tasks hang on wake lists of their producers
    resolver: int = 0  # 1: one more thread, without cores, takes finished tasks and makes ready who waits for them
    attach: float = 0.0  # before the threads scan the tasks of a graph that the host built
    scan: float = 0.0  # per task scanned, the threads side by side
    settle: float = 0.0  # per finished task whose flag is set and whose wake list is taken
    expand: float = 0.0  # per node of a recorded graph that a scheduler thread expands


class Rings(NamedTuple):
    """What submitting takes of the runtime's rings. An entry is a task, or an allocation of tensors before it.

    Entries are in order of submission, a task's own is the last of its rows. A ring gives room back first in, first
    out: of an entry whose task and users are done and whose scope has closed. Users are counted when submitted.
    """

    first_entry: Ints  # per task; empty where nothing is known of the rings: they are never full then
    entry: Ints  # rows RING, BYTES, CLOSES (the first task submitted after its scope has closed), FOLLOWER in its ring
    first_use: Ints  # per task
    use: Ints  # entries that a task keeps until it is done
    room: Ints  # rows SLOTS, HEAP; a column per ring


RING, BYTES, CLOSES, FOLLOWER = range(4)
SLOTS, HEAP = range(2)
_NONE = np.zeros(0, np.int64)
ENDLESS = Rings(_NONE, np.zeros((4, 0), np.int64), _NONE, _NONE, np.zeros((2, 0), np.int64))


def rings_with(first_entry: Sequence[int], entry: Ints, uses: Sequence[Iterable[int]], room: Ints) -> Rings:
    """Rings of entries with their RING, BYTES and CLOSES, and of what each task keeps beside its own entry."""
    follower = np.full(entry.shape[1], entry.shape[1], np.int64)  # the number of entries after the last of a ring
    for ring in range(room.shape[1]):
        mine = np.flatnonzero(entry[RING] == ring)
        follower[mine[:-1]] = mine[1:]
    kept = [sorted(one) for one in uses]
    return Rings(
        np.array(first_entry, np.int64),
        np.vstack([entry[:FOLLOWER], follower]),
        np.cumsum([0, *map(len, kept)], dtype=np.int64),
        np.array([number for one in kept for number in one], np.int64),
        room,
    )


class Stops(NamedTuple):
    """Where blocks stop to talk to other ranks: signals that they send, and signals that they wait for.

    A block is in parts between its stops. `release`: from when on it may go on after a stop; FAR until that is known.
    """

    first: Ints  # of each block its stops in the rows below, and one more; empty where no block has any
    share: Floats  # [stop, slow-down]: how much of the block's run is over then
    release: Floats
    deferred: Ints = _NONE  # 1: the block goes on and its task is not done before; empty where none is


NO_STOPS = Stops(_NONE, np.zeros((0, len(SLOW))), np.zeros(0))


def stops_at(stops: Stops, blocks: Ints) -> Stops:
    """The stops of these blocks, in their order."""
    if not len(stops.first):
        return stops
    count = np.diff(stops.first)[blocks]
    first = np.concatenate([[0], np.cumsum(count)])
    rows = np.arange(first[-1]) + np.repeat(stops.first[blocks] - first[:-1], count)
    deferred = stops.deferred[rows] if len(stops.deferred) else _NONE
    return Stops(first, stops.share[rows], stops.release[rows], deferred)


NO_END = 1 << 48  # slots or bytes: more than anybody takes


def without_end(rings: Rings) -> Rings:
    """The rings with more room than anybody takes."""
    return rings._replace(room=np.full_like(rings.room, NO_END))


def with_room(rings: Rings, what: int, ring: int, size: int) -> Rings:
    """The rings with other room in one store of one ring: its SLOTS or its HEAP."""
    room = rings.room.copy()
    room[what, ring] = size
    return rings._replace(room=room)


class Job(NamedTuple):
    """Tasks in order of submission; edges in rows (`first_out[t]` to `first_out[t + 1]` of `out`)."""

    shape: Ints
    blocks: Ints
    first_block: Ints  # of each task, in `block_class`
    block_class: Ints
    task_of: Ints  # of each block
    producers: Ints  # how many
    first_out: Ints
    out: Ints
    submit: Floats  # the orchestrator's time for each
    early: Ints  # may its consumers be staged before it is done
    together: Ints  # all its blocks start at once
    waits_host: Ints  # the task that the orchestrator waits for before it submits this one; -1 for none
    run: Floats  # [class, slow-down]
    draws: Floats  # [class, slow-down]
    rings: Rings = ENDLESS
    graph: Ints = _NONE  # per task the recorded graph that it is a node of, PLAIN or LEAVES; empty where none is
    stops: Stops = NO_STOPS


PLAIN, LEAVES = -1, -2  # `Job.graph`: an ordinary task, and what stands for the end of a recorded graph
SLICE = 4  # nodes of a recorded graph that a visit expands


class Times(NamedTuple):
    """What came out, per block: where and when it was handed out, ran and was seen done; per task when submitted.

    `core` is the cube core's number, or clusters + the vector core's; a mixed block holds its whole cluster.
    """

    core: Ints
    dispatch: Floats
    start: Floats
    end: Floats
    finish: Floats
    submitted: Floats  # per task: when the orchestrator was done with it
    began: Floats  # per task: when it began with it
    ready: Floats  # per task: when the last producer was seen done
    loops: Floats  # rows of the scheduler's turns that did something: THREAD, BEGIN and how long each part took
    reached: Floats  # per stop of the blocks: when the block came to it


# columns of `Times.loops`
THREAD, BEGIN, POLLED, COMPLETED, RETIRED, DISPATCHED, RELEASED, PREPARED = range(8)


def new_times(job: Job) -> Times:
    """Times of a run that has not begun."""
    blocks, tasks = len(job.block_class), len(job.shape)
    zeros = [np.zeros(size) for size in (*[blocks] * 4, *[tasks] * 3)]
    # a turn that did something handed out a block, saw one or a task done, expanded a node, or gave back room
    turns = 2 * blocks + 2 * tasks + job.rings.entry.shape[1]
    return Times._make([np.full(blocks, -1, np.int64), *zeros, np.zeros((turns, 8)), np.zeros(len(job.stops.release))])
