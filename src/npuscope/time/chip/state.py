"""What is known of a chip while it runs: cores, tasks, scheduler threads, rings and queues, an array each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npuscope.time.chip.job import RING, Floats, Ints, Job, Machine
from npuscope.time.compiled import compiled_part

FAR = 1e300
# what a core does; HELD: a vector core of a mixed block, STOPPED: its block waits for another rank
IDLE, GATED, WAITING, RUNNING, HELD, STOPPED = range(6)
# rows of `core`: the front block and its class, the one behind, blocks nobody has seen, whether it ever ran, its
# thread, how many stops the front block is past
STATE, TASK, BLOCK, KIND, BEHIND, BEHIND_BLOCK, BEHIND_GATED, UNSEEN_COUNT, USED, OWNER, PASSED = range(11)
DUE, SPAN = range(2)  # rows of `clock`: when the front block starts or ends, its length at the present slow-down
# rows of `todo`: producers not done; those neither done, nor early and handed out; blocks handed out and done; flags
MISSING, UNREADY, HANDED, DONE, COMPLETE, SUBMITTED, STAGED = range(7)
AT, LAST, PERIOD, ASLEEP = range(4)  # rows of `thread`: next turn, last turn, length of an idle turn, nothing to do
# places of `number`; TAKEN: entries of rings, EVENTS: turns of blocks so far, UNKNOWN: a block came to a stop of which
# nobody knows when it may go on, BOOTED: a graph that the host has built was scanned, DEFERRED: tasks in `deferred`
FINISHED, NEXT, ORCHESTRATING, TOGETHER, ROWS, TAKEN, EVENTS, UNKNOWN, BOOTED, DEFERRED = range(10)
NOW, LAST_DONE = range(2)  # places of `moment`
STUCK, PAUSED = -1.0, -2.0  # what `run` gives where not all is done
HEAD, USED_SLOTS, USED_BYTES = range(3)  # rows of `ring`: its oldest entry and what is taken
FIRST_IN, WAITS, BEFORE = range(3)  # rows of `wake`: a task's first producer, its list's last waiter, the one before it
NODE, NODES = range(2)  # rows of `graph`: of each recorded graph the next of `nodes` to expand, and the end of its own
EARLY = 4  # ready tasks have queues 0 to 3 by shape, those that may be staged early 4 to 7
BELOW = 1e-9  # of a turn: rounding does not make a thread miss one


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
    wake: Ints  # a column per task, one more for the end; empty unless the host has built the graph
    into: Ints  # producers of each task, in order of submission
    done: Ints  # per scheduler thread the tasks it has seen done, for the resolver
    done_at: Floats
    graph: Ints  # a column per recorded graph
    nodes: Ints  # tasks that are nodes, graph by graph
    expanding: Ints  # graphs with nodes to expand, in a circle
    ahead: Ints  # of `done` per thread head and tail; then those of `expanding`
    moment: Floats  # how far the run is, and when a task was last seen done
    deferred: Ints  # tasks whose blocks are done and that wait for another rank


def new_state(job: Job, machine: Machine) -> State:
    cores, tasks = 3 * machine.clusters, len(job.shape)
    core = np.full((11, cores), -1, np.int64)
    core[[STATE, BEHIND_GATED, UNSEEN_COUNT, USED, PASSED]] = 0
    clusters = np.concatenate([np.arange(machine.clusters), np.repeat(np.arange(machine.clusters), 2)])
    core[OWNER] = clusters % machine.threads
    todo = np.zeros((7, tasks), np.int64)
    todo[[MISSING, UNREADY]] = job.producers
    thread = np.zeros((4, machine.threads + machine.resolver))
    thread[AT], thread[PERIOD], thread[ASLEEP] = FAR, machine.loop, 1.0
    count = np.zeros(10, np.int64)
    count[TOGETHER] = -1
    entries = job.rings.entry.shape[1]
    rings = np.zeros((3, job.rings.room.shape[1]), np.int64)
    rings[HEAD] = entries
    np.minimum.at(rings[HEAD], job.rings.entry[RING], np.arange(entries))
    lists = [np.flatnonzero(core[OWNER] == thread) for thread in range(machine.threads)]
    most = max(map(len, lists))
    own = np.array([np.pad(one, (0, most - len(one)), constant_values=-1) for one in lists], np.int64)
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
        rings,
        np.zeros(entries, np.int64),
        np.zeros(entries),
        np.array([0.0, 0.0, 1.0]),
        own,
        np.zeros(1),
        *_wake_lists(job, machine),
        np.zeros(2),
        np.zeros(tasks if len(job.stops.deferred) else 0, np.int64),
    )


def _wake_lists(job: Job, machine: Machine) -> tuple[Ints, Ints, Ints, Floats, Ints, Ints, Ints, Ints]:
    """The last fields of `State`."""
    tasks, threads = len(job.shape) * machine.hosted, machine.threads * machine.resolver
    wake = np.full((3, tasks + 1), -1, np.int64)
    producer = np.repeat(np.arange(len(job.shape), dtype=np.int64), np.diff(job.first_out))
    order = np.lexsort((producer, job.out))
    wake[FIRST_IN] = np.searchsorted(job.out[order], np.arange(tasks + 1))
    graphs = int(np.max(job.graph, initial=-1)) + 1
    nodes = np.argsort(job.graph, kind="stable")
    nodes = nodes[job.graph[nodes] >= 0]
    graph = np.searchsorted(job.graph[nodes], np.arange(graphs) + np.arange(2)[:, None]).astype(np.int64)
    ahead = np.zeros((machine.threads + 1, 2), np.int64)
    done = np.zeros((threads, tasks), np.int64)
    return wake, producer[order], done, np.zeros(done.shape), graph, nodes, np.zeros(graphs + 1, np.int64), ahead


@compiled_part
def wake(threads: Floats, thread: int, when: float) -> None:
    """An idle thread sees what happened when it next comes round its loop. (`threads` is the state's `thread`.)"""
    if threads[ASLEEP, thread] == 1:
        turns = np.ceil((when - threads[LAST, thread]) / threads[PERIOD, thread] - BELOW)
        at = threads[LAST, thread] + max(turns, 0.0) * threads[PERIOD, thread]
        if at < threads[AT, thread]:
            threads[AT, thread] = max(at, when)
