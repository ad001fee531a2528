"""Runs a job on the chip, event by event. The same code runs compiled and as plain Python.

Events: a block starts or ends, the orchestrator has submitted a task, a scheduler thread comes round its loop. Between
events every running block gets on at the speed that HBM allows: all are slowed down alike until together they take no
more than there is.

Handed out first: a launch whose blocks start together, for which everything else waits; then mixed tasks on idle
clusters, then single tasks on idle cores (cube or vector first by the thread's parity); then places behind running
blocks, unless a peer has an idle place; then tasks whose producers are early, which wait on their core for a bell.

Where the host has built the graph (`Machine.hosted`) nobody submits: all threads scan the tasks side by side, ready
ones go to their queue, each other one hangs on the wake list of its latest unfinished producer. A finished task's
waiters move on to their queue or to the next unfinished producer: with a resolver a thread of its own does that, which
owns no core. Nodes of recorded graphs are expanded by the scheduler threads, a few at each visit, graph by graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from npuscope.time.chip.job import (
    AIC,
    AIV,
    BEGIN,
    BYTES,
    CLOSES,
    COMPLETED,
    DISPATCHED,
    FOLLOWER,
    HEAP,
    LEAVES,
    MIX,
    NONE,
    PLAIN,
    POLLED,
    PREPARED,
    RELEASED,
    RETIRED,
    RING,
    SLICE,
    SLOTS,
    THREAD,
    Floats,
    Ints,
    Job,
    Machine,
    Rings,
    Times,
    new_times,
    with_room,
)
from npuscope.time.compiled import compiled, compiled_part

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
EMPTY_AT_MOST = 8  # tasks without work that a turn of a scheduler thread retires
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


@compiled_part
def stop_of(job: Job, cores: Ints, core: int) -> int:
    """The number of the stop that a core's front block comes to next. (`cores` is the state's `core`.)"""
    return int(job.stops.first[job.first_block[cores[TASK, core]] + cores[BLOCK, core]] + cores[PASSED, core])


@compiled_part
def part(job: Job, cores: Ints, core: int, slow: int) -> float:
    """How much of its block's run a core is in: all of it where the block has no stops."""
    if len(job.stops.first) == 0:
        return 1.0
    row = job.first_block[cores[TASK, core]] + cores[BLOCK, core]
    stop = job.stops.first[row] + cores[PASSED, core]
    begin = job.stops.share[stop - 1, slow] if cores[PASSED, core] > 0 else 0.0
    end = job.stops.share[stop, slow] if stop < job.stops.first[row + 1] else 1.0
    return float(end - begin)


@compiled_part
def begin_part(job: Job, s: State, core: int, now: float) -> None:
    """A block starts, or goes on after a stop."""
    kind = s.core[KIND, core]
    s.core[STATE, core] = RUNNING
    s.clock[SPAN, core] = job.run[kind, 0] * part(job, s.core, core, 0)
    s.clock[DUE, core] = now + s.clock[SPAN, core]
    for n in range(len(s.rates)):
        s.rates[n] += job.draws[kind, n]


@compiled_part
def comes_to_stop(job: Job, times: Times, s: State, core: int, now: float) -> bool:
    """Whether a part of a block ends here and another follows: at once, or when another rank has sent its signal."""
    if len(job.stops.first) == 0:
        return False
    row, stop = job.first_block[s.core[TASK, core]] + s.core[BLOCK, core], stop_of(job, s.core, core)
    if stop >= job.stops.first[row + 1]:
        return False
    times.reached[stop] = now
    s.core[PASSED, core] += 1
    if job.stops.release[stop] <= now or (len(s.deferred) > 0 and job.stops.deferred[stop] == 1):
        begin_part(job, s, core, now)
        if job.stops.release[stop] >= FAR:
            s.number[UNKNOWN] = 1
    else:
        s.core[STATE, core] = STOPPED
        s.clock[DUE, core] = job.stops.release[stop]
        if job.stops.release[stop] >= FAR:
            s.number[UNKNOWN] = 1
    return True


@compiled_part
def turn_blocks(job: Job, machine: Machine, times: Times, s: State, now: float) -> None:
    """Blocks that are due start, stop, go on or end; what waited behind one that ended goes on."""
    cores, clock, rates, draws, clusters = s.core, s.clock, s.rates, job.draws, machine.clusters
    first, last = clusters, -1  # clusters where something ended
    for core in range(cores.shape[1]):
        if clock[DUE, core] > now:
            continue
        if cores[STATE, core] == STOPPED:
            begin_part(job, s, core, now)
            continue
        task = cores[TASK, core]
        row = job.first_block[task] + cores[BLOCK, core]
        kind = job.block_class[row]
        if cores[STATE, core] == WAITING:
            cores[KIND, core] = kind
            cores[PASSED, core] = 0
            times.start[row] = now
            begin_part(job, s, core, now)
            continue
        for n in range(len(rates)):
            rates[n] -= draws[kind, n]
        if comes_to_stop(job, times, s, core, now):
            continue
        cluster = core if core < clusters else (core - clusters) // 2
        first, last = min(first, cluster), max(last, cluster)
        times.end[row] = now
        s.unseen[cores[UNSEEN_COUNT, core], core] = row
        cores[UNSEEN_COUNT, core] += 1
        cores[STATE, core] = IDLE
        cores[TASK, core] = -1
        clock[DUE, core] = FAR
        if job.shape[task] == MIX:
            for vector in range(clusters + 2 * core, clusters + 2 * core + 2):
                cores[STATE, vector] = IDLE
                cores[TASK, vector] = -1
        wake(s.thread, cores[OWNER, core], now + machine.fin)
    for cluster in range(first, last + 1):
        for n in range(3):
            core = cluster if n == 0 else clusters + 2 * cluster + n - 1
            if cores[BEHIND, core] >= 0 and cores[STATE, core] == IDLE:
                promote(job, machine, times, s, core, now)


@compiled_part
def promote(job: Job, machine: Machine, times: Times, s: State, core: int, now: float) -> None:
    """What waits behind a block that ended goes on by itself; a mixed block when all its cores are free."""
    cores, task = s.core, s.core[BEHIND, core]
    if job.shape[task] == MIX:
        vector = machine.clusters + 2 * core
        if core >= machine.clusters or cores[STATE, vector] != IDLE or cores[STATE, vector + 1] != IDLE:
            return
        for n in range(vector, vector + 2):
            cores[BEHIND, n] = -1
            cores[TASK, n] = task
            cores[STATE, n] = HELD
    cores[TASK, core] = task
    cores[BLOCK, core] = cores[BEHIND_BLOCK, core]
    cores[BEHIND, core] = -1
    if cores[BEHIND_GATED, core] == 1 and s.todo[MISSING, task] > 0:
        cores[STATE, core] = GATED
    else:
        cores[STATE, core] = WAITING
        # A thread's turn takes time: what it hands out or makes ready may be on its way still.
        sent = max(times.dispatch[job.first_block[task] + cores[BLOCK, core]], times.ready[task])
        s.clock[DUE, core] = max(now + machine.switch, sent + machine.visible)


@compiled_part
def orchestrate(job: Job, machine: Machine, times: Times, s: State, now: float) -> None:
    """The orchestrator submits one task after the other; it waits where it reads what a task writes, or for room."""
    if s.number[ORCHESTRATING] == 1:
        task = s.number[NEXT]
        times.submitted[task] = now
        s.todo[SUBMITTED, task] = 1
        s.number[ORCHESTRATING] = 0
        s.number[NEXT] += 1
        if s.todo[MISSING, task] == 0:
            times.ready[task] = max(now, times.ready[task])
            push(s, job.shape[task], task)
        else:
            stage(job, s, task)
        for thread in range(machine.threads):
            wake(s.thread, thread, now)
    if s.number[NEXT] < len(job.shape):
        if may_submit(job, s):
            task = s.number[NEXT]
            take_room(job.rings, s, task)
            host = job.waits_host[task]  # it may be done only later in a thread's turn that is under way
            times.began[task] = max(now, s.seen[host] if host >= 0 else 0.0)
            s.number[ORCHESTRATING] = 1
            s.orchestrator[0] = times.began[task] + job.submit[task]
        else:
            s.orchestrator[0] = FAR  # the scheduler wakes it


@compiled_part
def may_submit(job: Job, s: State) -> bool:
    task = s.number[NEXT]
    host = job.waits_host[task]
    return bool((host < 0 or s.todo[COMPLETE, host] == 1) and has_room(job.rings, s, task))


@compiled_part
def go_on(job: Job, s: State, clock: float) -> None:
    """The orchestrator goes on if it waited for what has happened."""
    if s.number[NEXT] < len(job.shape) and s.orchestrator[0] >= FAR and may_submit(job, s):
        s.orchestrator[0] = clock


@compiled_part
def loop(job: Job, machine: Machine, times: Times, s: State, thread: int, now: float) -> float:
    """One turn of a scheduler thread; when it last saw a task done, 0 if it saw none."""
    released = release(job.rings, s, now)
    begin = now + machine.release * released
    go_on(job, s, begin)
    polled, clock, seen, done = poll(job, machine, times, s, thread, begin)
    retiring = clock
    if machine.resolver == 0:
        for _ in range(min(EMPTY_AT_MOST, s.ends[NONE, 1] - s.ends[NONE, 0])):
            task = s.queue[NONE, s.ends[NONE, 0]]
            if times.ready[task] > clock:  # a peer's turn makes it ready only then, and takes it
                break
            s.ends[NONE, 0] += 1
            seen += 1
            done = clock + machine.dummy
            s.seen[task] = done
            clock = finish(job, machine, times, s, task, done)
    if thread == 0 and machine.resolver == 0:
        before = s.number[DEFERRED]
        clock = finish_deferred(job, machine, times, s, clock)
        if s.number[DEFERRED] < before:
            seen, done = seen + 1, clock
    go_on(job, s, clock)
    preparing = clock
    if len(s.expanding) > 1:
        clock = expand(job, machine, times, s, clock)
    handing = clock
    find_together(job, s)
    if s.number[TOGETHER] >= 0:
        clock = start_together(job, machine, times, s, clock)
    else:
        clock = hand_out(job, machine, times, s, thread, clock)
    s.thread[LAST, thread] = now
    s.thread[PERIOD, thread] = polled + machine.loop
    if released == 0 and seen == 0 and clock == preparing:  # it keeps polling and acts in the turn after something
        s.thread[ASLEEP, thread] = 1
        s.thread[AT, thread] = FAR
        for n in range(s.own.shape[1]):
            core = s.own[thread, n]
            if core >= 0 and s.core[UNSEEN_COUNT, core] > 0:
                ended = times.end[s.unseen[0, core]]
                wake(s.thread, thread, max(ended + machine.fin, now + s.thread[PERIOD, thread]))
        wake_for_deferred(job, machine, s, now + s.thread[PERIOD, thread])
        return 0.0
    if s.number[ROWS] < len(times.loops):
        row = times.loops[s.number[ROWS]]
        row[THREAD], row[BEGIN], row[POLLED], row[COMPLETED] = thread, now, polled, retiring - begin - polled
        row[RETIRED], row[DISPATCHED], row[RELEASED] = preparing - retiring, clock - handing, begin - now
        row[PREPARED] = handing - preparing
    s.number[ROWS] += 1
    s.thread[ASLEEP, thread] = 0
    s.thread[AT, thread] = clock if clock > handing else clock + machine.loop
    for peer in range(machine.threads):  # what became ready may be for a peer's cores
        if peer != thread:
            wake(s.thread, peer, clock)
    return done


@compiled_part
def poll(
    job: Job, machine: Machine, times: Times, s: State, thread: int, now: float
) -> tuple[float, float, int, float]:
    """Reads the thread's cores that run something: time spent so, when it is through, blocks seen done, when the last
    task was."""
    clock, polled, seen, done = now, 0.0, 0, 0.0
    cores, own, unseen, ends = s.core, s.own, s.unseen, times.end
    for n in range(own.shape[1]):
        core = own[thread, n]
        if core < 0:
            break
        if not read(machine.clusters, cores, core):
            continue
        clock += machine.poll
        polled += machine.poll
        while cores[UNSEEN_COUNT, core] > 0 and ends[unseen[0, core]] + machine.fin <= clock:
            row = unseen[0, core]
            for place in range(cores[UNSEEN_COUNT, core] - 1):
                unseen[place, core] = unseen[place + 1, core]
            cores[UNSEEN_COUNT, core] -= 1
            clock += machine.complete + (machine.complete_turn if seen == 0 else 0.0)
            seen += 1
            times.finish[row] = clock
            task = job.task_of[row]
            s.todo[DONE, task] += 1
            s.seen[task] = max(s.seen[task], clock)
            if s.todo[DONE, task] == job.blocks[task]:
                done = s.seen[task]  # a peer whose turn is under way may see its block later
                if deferred_until(job, s, task) > done:
                    s.deferred[s.number[DEFERRED]] = task
                    s.number[DEFERRED] += 1
                elif machine.resolver == 1:
                    tail = s.ahead[thread, 1]
                    s.done[thread, tail], s.done_at[thread, tail] = task, done
                    s.ahead[thread, 1] += 1
                    wake(s.thread, machine.threads, done)
                else:
                    clock = finish(job, machine, times, s, task, done)
    return polled, clock, seen, done


@compiled_part
def read(clusters: int, cores: Ints, core: int) -> bool:
    """Whether a turn reads a core: it holds a block that may be done. (`cores` is the state's `core`.)"""
    if cores[UNSEEN_COUNT, core] > 0 or cores[BEHIND, core] >= 0:
        return True
    return bool(cores[STATE, core] != IDLE and not gated(clusters, cores, core))


@compiled_part
def deferred_until(job: Job, s: State, task: int) -> float:
    """When the last of the signals is there that a task left to the runtime to wait for; 0 where it left none."""
    until = 0.0
    if len(s.deferred) > 0:
        first = job.first_block[task]
        for stop in range(job.stops.first[first], job.stops.first[first + job.blocks[task]]):
            if job.stops.deferred[stop] == 1:
                until = max(until, job.stops.release[stop])
    return until


@compiled_part
def finish_deferred(job: Job, machine: Machine, times: Times, s: State, clock: float) -> float:
    """A thread looks at the tasks that wait for another rank: those whose signals are there are done."""
    place = 0
    while place < s.number[DEFERRED]:
        task = s.deferred[place]
        if deferred_until(job, s, task) > clock:
            place += 1
            continue
        s.number[DEFERRED] -= 1
        s.deferred[place] = s.deferred[s.number[DEFERRED]]
        s.seen[task] = clock + machine.dummy
        clock = finish(job, machine, times, s, task, s.seen[task])
    return clock


@compiled_part
def wake_for_deferred(job: Job, machine: Machine, s: State, soonest: float) -> None:
    """The thread that looks at them wakes when a signal is there that one of them waits for."""
    for place in range(s.number[DEFERRED]):
        until = deferred_until(job, s, s.deferred[place])
        if until < FAR:
            wake(s.thread, machine.threads if machine.resolver == 1 else 0, max(until, soonest))


BELOW = 1e-9


@compiled_part
def wake(threads: Floats, thread: int, when: float) -> None:
    """An idle thread sees what happened when it next comes round its loop. (`threads` is the state's `thread`.)"""
    if threads[ASLEEP, thread] == 1:
        turns = np.ceil((when - threads[LAST, thread]) / threads[PERIOD, thread] - BELOW)
        at = threads[LAST, thread] + max(turns, 0.0) * threads[PERIOD, thread]
        if at < threads[AT, thread]:
            threads[AT, thread] = max(at, when)


@compiled_part
def push(s: State, line: int, task: int) -> None:
    """A task at the end of a queue."""
    s.queue[line, s.ends[line, 1]] = task
    s.ends[line, 1] += 1


@compiled_part
def stage(job: Job, s: State, task: int) -> None:
    """A task all of whose missing producers are early and handed out may be put on a core before they are done."""
    todo = s.todo
    if todo[UNREADY, task] > 0 or todo[MISSING, task] == 0 or todo[SUBMITTED, task] == 0 or todo[STAGED, task] == 1:
        return
    shape = job.shape[task]
    if shape != NONE and job.together[task] == 0:
        todo[STAGED, task] = 1
        push(s, EARLY + shape, task)


@compiled_part
def finish(job: Job, machine: Machine, times: Times, s: State, task: int, clock: float) -> float:
    """A task is done: its consumers have one producer less to wait for."""
    todo, out = s.todo, job.out
    todo[COMPLETE, task] = 1
    s.number[FINISHED] += 1
    if machine.hosted == 1:
        clock += machine.settle
        waiter = s.wake[WAITS, task]
        while waiter >= 0:
            before = s.wake[BEFORE, waiter]
            clock += machine.resolve
            hang(job, times, s, waiter, clock)
            waiter = before
        return clock
    count_users(job.rings, s, task, -1, clock)
    late = 1 - job.early[task]
    for n in range(job.first_out[task], job.first_out[task + 1]):
        consumer = out[n]
        clock += machine.resolve
        times.ready[consumer] = max(times.ready[consumer], clock)  # a peer may have resolved another one later
        todo[MISSING, consumer] -= 1
        todo[UNREADY, consumer] -= late
        if todo[MISSING, consumer] > 0:
            stage(job, s, consumer)
        elif todo[SUBMITTED, consumer] == 1:
            for core in range(s.core.shape[1] if todo[STAGED, consumer] == 1 else 0):  # what waits on a core starts
                if s.core[TASK, core] == consumer and s.core[STATE, core] == GATED:
                    s.core[STATE, core] = WAITING
                    sent = times.dispatch[job.first_block[consumer] + s.core[BLOCK, core]]  # it may be on its way
                    s.clock[DUE, core] = max(times.ready[consumer], sent) + machine.visible
            push(s, job.shape[consumer], consumer)
    return clock


@compiled_part
def hang(job: Job, times: Times, s: State, task: int, clock: float) -> None:
    """A task goes to its queue, or onto the wake list of its latest unfinished producer."""
    for n in range(s.wake[FIRST_IN, task + 1] - 1, s.wake[FIRST_IN, task] - 1, -1):
        producer = s.into[n]
        if s.todo[COMPLETE, producer] == 0:
            s.wake[BEFORE, task] = s.wake[WAITS, producer]
            s.wake[WAITS, producer] = task
            return
    times.ready[task] = clock
    push(s, job.shape[task], task)


@compiled_part
def scan(job: Job, machine: Machine, times: Times, s: State) -> None:
    """All threads look at the tasks that the host has submitted, each at a stretch of its own; then they begin."""
    tasks, lanes = len(job.shape), machine.threads + machine.resolver
    submitted = 0  # what is looked at: nodes of recorded graphs and their ends are not
    for task in range(tasks):
        s.todo[SUBMITTED, task] = 1
        if len(job.graph) == 0 or job.graph[task] == PLAIN:
            s.queue[EARLY, submitted] = task  # nobody is early here: the queue is free
            submitted += 1
    longest = (submitted + lanes - 1) // lanes
    begin = machine.attach + machine.scan * longest
    for step in range(longest):
        for lane in range(lanes):
            at = lane * submitted // lanes + step
            if at < (lane + 1) * submitted // lanes:
                hang(job, times, s, s.queue[EARLY, at], begin)
    for task in range(tasks if len(job.graph) > 0 else 0):
        if job.graph[task] == LEAVES:
            hang(job, times, s, task, begin)
    ends = s.ahead[machine.threads]
    for graph in range(s.graph.shape[1]):
        if s.graph[NODE, graph] < s.graph[NODES, graph]:
            s.expanding[ends[1]] = graph
            ends[1] += 1
    s.number[NEXT] = tasks
    s.orchestrator[0] = FAR
    for lane in range(lanes):
        s.thread[AT, lane], s.thread[LAST, lane], s.thread[ASLEEP, lane] = begin, begin, 0


@compiled_part
def expand(job: Job, machine: Machine, times: Times, s: State, clock: float) -> float:
    """A visit to the recorded graph that is next: a few of its nodes become tasks."""
    ends, size = s.ahead[machine.threads], len(s.expanding)
    if ends[0] == ends[1]:
        return clock
    graph = s.expanding[ends[0] % size]
    ends[0] += 1
    for _ in range(min(SLICE, s.graph[NODES, graph] - s.graph[NODE, graph])):
        clock += machine.expand
        hang(job, times, s, s.nodes[s.graph[NODE, graph]], clock)
        s.graph[NODE, graph] += 1
    if s.graph[NODE, graph] < s.graph[NODES, graph]:
        s.expanding[ends[1] % size] = graph
        ends[1] += 1
    return clock


@compiled_part
def resolve(job: Job, machine: Machine, times: Times, s: State, now: float) -> float:
    """A turn of the thread that owns no core: finished tasks of each scheduler thread, then tasks that do nothing."""
    own, clock, done, seen = machine.threads, now, 0.0, 0
    for thread in range(own):
        ends = s.ahead[thread]
        while ends[0] < ends[1] and s.done_at[thread, ends[0]] <= clock:
            done = clock + machine.settle
            clock = finish(job, machine, times, s, s.done[thread, ends[0]], clock)
            ends[0] += 1
            seen += 1
    retiring = clock
    while s.ends[NONE, 0] < s.ends[NONE, 1]:
        task = s.queue[NONE, s.ends[NONE, 0]]
        s.ends[NONE, 0] += 1
        clock = max(clock, times.ready[task]) + machine.dummy
        s.seen[task] = clock
        done = clock + machine.settle
        clock = finish(job, machine, times, s, task, clock)
        seen += 1
    before = s.number[DEFERRED]
    clock = finish_deferred(job, machine, times, s, clock)
    if s.number[DEFERRED] < before:
        seen, done = seen + 1, clock
    s.thread[LAST, own] = now
    if seen == 0:
        s.thread[ASLEEP, own] = 1
        s.thread[AT, own] = FAR
        for thread in range(own):
            if s.ahead[thread, 0] < s.ahead[thread, 1]:
                wake(s.thread, own, max(s.done_at[thread, s.ahead[thread, 0]], now + machine.loop))
        wake_for_deferred(job, machine, s, now + machine.loop)
        return 0.0
    if s.number[ROWS] < len(times.loops):
        row = times.loops[s.number[ROWS]]
        row[THREAD], row[BEGIN], row[COMPLETED], row[RETIRED] = own, now, retiring - now, clock - retiring
    s.number[ROWS] += 1
    s.thread[ASLEEP, own] = 0
    s.thread[AT, own] = max(clock, now + machine.loop)
    for thread in range(own):
        wake(s.thread, thread, clock)
    return done


@compiled_part
def publish(job: Job, s: State, task: int) -> None:
    """All blocks of an early task are handed out: who waits only for such may be staged."""
    if job.early[task] == 1 and s.todo[HANDED, task] >= job.blocks[task]:
        for n in range(job.first_out[task], job.first_out[task + 1]):
            s.todo[UNREADY, job.out[n]] -= 1
            stage(job, s, job.out[n])


@compiled_part
def idle(clusters: int, cores: Ints, shape: int, core: int) -> bool:
    """Whether a block of this shape could start on a core at once. (`cores` is the state's `core`.)

    A core has two slots, and a slot is free when the scheduler has seen its block done.
    """
    if cores[STATE, core] != IDLE or cores[BEHIND, core] >= 0 or cores[UNSEEN_COUNT, core] > 1:
        return False
    if shape == MIX:
        for vector in range(clusters + 2 * core, clusters + 2 * core + 2):
            if cores[STATE, vector] != IDLE or cores[BEHIND, vector] >= 0 or cores[UNSEEN_COUNT, vector] > 1:
                return False
    return True


@compiled_part
def gated(clusters: int, cores: Ints, core: int) -> bool:
    """Whether the block at a core's front waits for its bell: it cannot be done."""
    if cores[STATE, core] == HELD:
        return bool(cores[STATE, (core - clusters) // 2] == GATED)
    return bool(cores[STATE, core] == GATED)


@compiled_part
def room_behind(clusters: int, cores: Ints, shape: int, core: int) -> bool:
    """Whether a block could wait behind what runs on a core; behind a block that waits for its bell none may."""
    if cores[BEHIND, core] >= 0 or cores[UNSEEN_COUNT, core] > 0 or gated(clusters, cores, core):
        return False
    if shape == MIX:
        for vector in range(clusters + 2 * core, clusters + 2 * core + 2):
            if cores[BEHIND, vector] >= 0 or cores[UNSEEN_COUNT, vector] > 0:
                return False
    return True


@compiled_part
def place(job: Job, machine: Machine, times: Times, s: State, task: int, core: int, when: float, begin: float) -> None:
    """The next block of a task on a core: at its front from `begin`, at a bell if that is negative."""
    row = job.first_block[task] + s.todo[HANDED, task]
    times.core[row] = core
    times.dispatch[row] = when
    s.core[TASK, core] = task
    s.core[BLOCK, core] = s.todo[HANDED, task]
    s.core[STATE, core] = WAITING if begin >= 0 else GATED
    s.clock[DUE, core] = begin if begin >= 0 else FAR
    s.core[USED, core] = 1
    s.todo[HANDED, task] += 1
    if job.shape[task] == MIX:
        for vector in range(machine.clusters + 2 * core, machine.clusters + 2 * core + 2):
            s.core[TASK, vector] = task
            s.core[STATE, vector] = HELD
            s.core[USED, vector] = 1


@compiled_part
def place_behind(
    job: Job, machine: Machine, times: Times, s: State, task: int, core: int, when: float, gated: bool
) -> None:
    """The next block of a task behind the one that runs on a core."""
    row = job.first_block[task] + s.todo[HANDED, task]
    times.core[row] = core
    times.dispatch[row] = when
    s.core[BEHIND, core] = task
    s.core[BEHIND_BLOCK, core] = s.todo[HANDED, task]
    s.core[BEHIND_GATED, core] = 1 if gated else 0
    s.todo[HANDED, task] += 1
    if job.shape[task] == MIX:
        s.core[BEHIND, machine.clusters + 2 * core] = task
        s.core[BEHIND, machine.clusters + 2 * core + 1] = task


@compiled_part
def next_task(job: Job, s: State, line: int) -> int:
    """The first task of a queue that still has blocks to hand out; -1 where there is none. EARLY ones are unready."""
    queue, ends, todo, blocks = s.queue, s.ends, s.todo, job.blocks
    while ends[line, 0] < ends[line, 1]:
        task = queue[line, ends[line, 0]]
        if todo[HANDED, task] < blocks[task] and (line < EARLY or todo[MISSING, task] > 0):
            return int(task)
        ends[line, 0] += 1
    return -1


@compiled_part
def peer_idle(machine: Machine, s: State, shape: int, thread: int) -> bool:
    """Whether another thread has an idle place of this shape."""
    cores, clusters = s.core, machine.clusters
    first = clusters if shape == AIV else 0
    last = 3 * clusters if shape == AIV else clusters
    for core in range(first, last):  # noqa: SIM110 (compiled)
        if cores[OWNER, core] != thread and idle(clusters, cores, shape, core):
            return True
    return False


@compiled_part
def hand_out(job: Job, machine: Machine, times: Times, s: State, thread: int, clock: float) -> float:
    """Ready blocks to the thread's own cores: idle places, then places behind, then early tasks where nobody is ready.

    What is prepared for one kind of place is sent together, when the last of it is prepared.
    """
    cores, own, clusters, handed, mixed = s.core, s.own, machine.clusters, 0, False
    for kind in range(3):
        if kind == 2 and (next_task(job, s, MIX) >= 0 or next_task(job, s, AIC) >= 0 or next_task(job, s, AIV) >= 0):
            break
        for turn in range(3):
            shape = turn if thread % 2 == 0 or turn == 0 else 3 - turn
            if shape != MIX and mixed:
                break  # mixed work remained: single tasks leave cores to it
            task = next_task(job, s, EARLY + shape if kind == 2 else shape)
            prepared = 0
            for n in range(own.shape[1]):
                core = own[thread, n]
                if (
                    task < 0
                    or job.together[task] == 1
                    or (kind == 1 and n == 0 and peer_idle(machine, s, shape, thread))
                ):
                    break
                if core < 0 or (core >= clusters) != (shape == AIV):
                    continue
                now = idle(clusters, cores, shape, core)
                if not now and (kind == 0 or not room_behind(clusters, cores, shape, core)):
                    continue
                clock = max(clock, times.ready[task])  # a peer whose turn is under way may make it ready only then
                if kind != 2:
                    clock += machine.dispatch + (machine.dispatch_turn if handed == 0 else 0.0)
                    handed += 1
                elif s.todo[HANDED, task] == 0:  # staging costs once per task
                    clock += machine.stage
                prepared += 1
                if now:
                    pickup = machine.pickup if cores[USED, core] == 1 else machine.pickup_first
                    place(job, machine, times, s, task, core, UNSENT, -1.0 if kind == 2 else pickup)
                else:
                    place_behind(job, machine, times, s, task, core, UNSENT, kind == 2)
                publish(job, s, task)
                task = next_task(job, s, EARLY + shape if kind == 2 else shape)
            if prepared > 0:
                send(job, machine, times, s, thread, clock)
            mixed = mixed or (kind < 2 and shape == MIX and next_task(job, s, MIX) >= 0)
    return clock


UNSENT = -1.0  # the dispatch of a block that is prepared and has not left its thread


@compiled_part
def send(job: Job, machine: Machine, times: Times, s: State, thread: int, clock: float) -> None:
    """What a thread has prepared for its cores leaves it; until then `DUE` is how long after that a block starts."""
    cores, first = s.core, job.first_block
    for n in range(s.own.shape[1]):
        core = s.own[thread, n]
        if core < 0:
            break
        task = cores[BEHIND, core]
        if task >= 0 and (core < machine.clusters or job.shape[task] != MIX):
            row = first[task] + cores[BEHIND_BLOCK, core]
            if times.dispatch[row] == UNSENT:
                times.dispatch[row] = clock
        if cores[STATE, core] == WAITING or cores[STATE, core] == GATED:
            row = first[cores[TASK, core]] + cores[BLOCK, core]
            if times.dispatch[row] == UNSENT:
                times.dispatch[row] = clock
                if cores[STATE, core] == WAITING:
                    s.clock[DUE, core] += clock


@compiled_part
def start_together(job: Job, machine: Machine, times: Times, s: State, clock: float) -> float:
    """A launch whose blocks start at once, as soon as there is a place for each (or for as many as the chip has)."""
    task = s.number[TOGETHER]
    shape = job.shape[task]
    first = machine.clusters if shape == AIV else 0
    last = 3 * machine.clusters if shape == AIV else machine.clusters
    room = 0
    for core in range(first, last):
        if idle(machine.clusters, s.core, shape, core):
            room += 1
    wanted = min(job.blocks[task], last - first)
    if room < wanted:
        return clock
    turns = (wanted + machine.threads - 1) // machine.threads  # the threads hand out side by side
    clock = max(clock, times.ready[task])
    begin = clock + turns * machine.dispatch + machine.pickup
    for core in range(first, last):
        if s.todo[HANDED, task] < wanted and idle(machine.clusters, s.core, shape, core):
            when = clock + (s.todo[HANDED, task] // machine.threads + 1) * machine.dispatch
            place(job, machine, times, s, task, core, when, begin)
    job.together[task] = 0  # blocks beyond the chip's places follow as usual
    s.number[TOGETHER] = -1
    publish(job, s, task)
    return float(clock + turns * machine.dispatch)


@compiled_part
def find_together(job: Job, s: State) -> None:
    """The first ready launch whose blocks start together, if no other is waited for."""
    for shape in range(NONE):
        task = next_task(job, s, shape)
        if s.number[TOGETHER] < 0 and task >= 0 and job.together[task] == 1:
            s.number[TOGETHER] = task


@compiled
def slow_down(rates: Floats, limit: float) -> tuple[int, float, float]:
    """Between which two slow-downs the memory is: index, share towards the next, and a factor beyond the last.

    A block's time grows evenly between the two, so that of equal blocks one over the rate does; mixtures then take a
    little less than the limit, never more.
    """
    if rates[0] <= limit:
        return 0, 0.0, 1.0
    last = len(rates) - 1
    for g in range(1, last + 1):
        if rates[g] <= limit:
            return g - 1, (rates[g - 1] / limit - 1) / (rates[g - 1] / rates[g] - 1), 1.0
    return last - 1, 1.0, rates[last] / limit


@compiled_part
def set_spans(job: Job, machine: Machine, s: State, now: float) -> None:
    """How long the block on each core runs from start to end at the present slow-down, and when it is then due."""
    g, share, factor = slow_down(s.rates, machine.limit)
    if s.slow[0] == s.slow[1] == g == share == 0 and s.slow[2] == factor == 1:
        return  # nobody was or is slowed down
    s.slow[0], s.slow[1], s.slow[2] = g, share, factor
    cores, clock, run = s.core, s.clock, job.run
    for core in range(cores.shape[1]):
        if cores[STATE, core] == RUNNING and clock[SPAN, core] > 0:
            kind = cores[KIND, core]
            fast = run[kind, g] * part(job, cores, core, g)
            slower = run[kind, g + 1] * part(job, cores, core, g + 1)
            span = (fast + share * (slower - fast)) * factor
            clock[DUE, core] = now + (clock[DUE, core] - now) / clock[SPAN, core] * span
            clock[SPAN, core] = span


@compiled_part
def add_up(job: Job, s: State) -> None:
    """The rates of all running blocks anew: sums that only grow and shrink would drift."""
    s.rates[:] = 0.0
    for core in range(s.core.shape[1]):
        if s.core[STATE, core] == RUNNING:
            kind = s.core[KIND, core]
            for n in range(len(s.rates)):
                s.rates[n] += job.draws[kind, n]


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
