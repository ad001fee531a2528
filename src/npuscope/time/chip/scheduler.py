"""What a scheduler thread does in its turn, which is in engine.py: make ready, stage, hand out, start together.

Handed out first: a launch whose blocks start together, for which everything else waits; then mixed tasks on idle
clusters, then single tasks on idle cores (cube or vector first by the thread's parity); then places behind running
blocks, unless a peer has an idle place; then tasks whose producers are early, which wait on their core for a bell.
"""

from __future__ import annotations

import numpy as np

from npuscope.time.chip.job import AIV, MIX, NONE, Floats, Ints, Job, Machine, Times
from npuscope.time.chip.ring_room import count_users
from npuscope.time.chip.state import (
    ASLEEP,
    AT,
    BEHIND,
    BEHIND_BLOCK,
    BEHIND_GATED,
    BLOCK,
    COMPLETE,
    DUE,
    EARLY,
    FAR,
    FINISHED,
    GATED,
    HANDED,
    HELD,
    IDLE,
    LAST,
    MISSING,
    OWNER,
    PERIOD,
    STAGED,
    STATE,
    SUBMITTED,
    TASK,
    TOGETHER,
    UNREADY,
    UNSEEN_COUNT,
    USED,
    WAITING,
    State,
)
from npuscope.time.compiled import compiled_part

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
def make_ready(job: Job, s: State, task: int) -> None:
    shape = job.shape[task]
    s.queue[shape, s.ends[shape, 1]] = task
    s.ends[shape, 1] += 1


@compiled_part
def stage(job: Job, s: State, task: int) -> None:
    """A task all of whose missing producers are early and handed out may be put on a core before they are done."""
    todo = s.todo
    if todo[UNREADY, task] > 0 or todo[MISSING, task] == 0 or todo[SUBMITTED, task] == 0 or todo[STAGED, task] == 1:
        return
    shape = job.shape[task]
    if shape != NONE and job.together[task] == 0:
        todo[STAGED, task] = 1
        s.queue[EARLY + shape, s.ends[EARLY + shape, 1]] = task
        s.ends[EARLY + shape, 1] += 1


@compiled_part
def finish(job: Job, machine: Machine, times: Times, s: State, task: int, clock: float) -> float:
    """A task is done: its consumers have one producer less to wait for."""
    todo, out = s.todo, job.out
    todo[COMPLETE, task] = 1
    s.number[FINISHED] += 1
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
            if todo[STAGED, consumer] == 1:
                ring_bell(job, machine, times, s, consumer)
            make_ready(job, s, consumer)
    return clock


@compiled_part
def ring_bell(job: Job, machine: Machine, times: Times, s: State, task: int) -> None:
    """Blocks of a task that wait on their cores for its producers start; one may be on its way there still."""
    cores = s.core
    for core in range(cores.shape[1]):
        if cores[TASK, core] == task and cores[STATE, core] == GATED:
            cores[STATE, core] = WAITING
            sent = times.dispatch[job.first_block[task] + cores[BLOCK, core]]
            s.clock[DUE, core] = max(times.ready[task], sent) + machine.visible


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
def next_ready(job: Job, s: State, shape: int) -> int:
    """The first ready task of a shape that still has blocks to hand out; -1 where there is none."""
    queue, ends, todo, blocks = s.queue, s.ends, s.todo, job.blocks
    while ends[shape, 0] < ends[shape, 1]:
        task = queue[shape, ends[shape, 0]]
        if todo[HANDED, task] < blocks[task]:
            return int(task)
        ends[shape, 0] += 1
    return -1


@compiled_part
def next_early(job: Job, s: State, shape: int) -> int:
    queue, ends, todo, blocks = s.queue, s.ends, s.todo, job.blocks
    while ends[EARLY + shape, 0] < ends[EARLY + shape, 1]:
        task = queue[EARLY + shape, ends[EARLY + shape, 0]]
        if todo[MISSING, task] > 0 and todo[HANDED, task] < blocks[task]:
            return int(task)
        ends[EARLY + shape, 0] += 1
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
    """Ready blocks to the thread's own cores: idle places, then places behind, then early tasks."""
    cores, own, clusters, handed = s.core, s.own, machine.clusters, 0
    for kind in range(3):
        for turn in range(3):
            shape = turn if thread % 2 == 0 or turn == 0 else 3 - turn
            task = next_early(job, s, shape) if kind == 2 else next_ready(job, s, shape)
            if task < 0 or (kind == 1 and peer_idle(machine, s, shape, thread)):
                continue
            for n in range(own.shape[1]):
                core = own[thread, n]
                if core < 0 or (core >= clusters) != (shape == AIV):
                    continue
                if task < 0 or job.together[task] == 1:
                    break
                now = idle(clusters, cores, shape, core)
                if not now and (kind == 0 or not room_behind(clusters, cores, shape, core)):
                    continue
                clock = max(clock, times.ready[task])  # a peer whose turn is under way may make it ready only then
                if kind != 2:
                    clock += machine.dispatch + (machine.dispatch_turn if handed == 0 else 0.0)
                    handed += 1
                elif s.todo[HANDED, task] == 0:  # staging costs once per task
                    clock += machine.stage
                if not now:
                    place_behind(job, machine, times, s, task, core, clock, kind == 2)
                elif kind == 2:
                    place(job, machine, times, s, task, core, clock, -1.0)
                else:
                    pickup = machine.pickup if cores[USED, core] == 1 else machine.pickup_first
                    place(job, machine, times, s, task, core, clock, clock + pickup)
                publish(job, s, task)
                task = next_early(job, s, shape) if kind == 2 else next_ready(job, s, shape)
            if kind == 0 and shape == MIX and next_ready(job, s, MIX) >= 0:
                break  # mixed work remains: single tasks leave idle cores to it
    return clock


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
        task = next_ready(job, s, shape)
        if s.number[TOGETHER] < 0 and task >= 0 and job.together[task] == 1:
            s.number[TOGETHER] = task
