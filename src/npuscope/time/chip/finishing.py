"""A task is done: whoever waited for it is ready, or waits for one producer less."""

from __future__ import annotations

from npuscope.time.chip.job import Job, Machine, Times
from npuscope.time.chip.queues import push, stage
from npuscope.time.chip.ring_room import count_users
from npuscope.time.chip.state import (
    BEFORE,
    BLOCK,
    COMPLETE,
    DEFERRED,
    DUE,
    FAR,
    FINISHED,
    FIRST_IN,
    GATED,
    MISSING,
    STAGED,
    STATE,
    SUBMITTED,
    TASK,
    UNREADY,
    WAITING,
    WAITS,
    State,
    wake,
)
from npuscope.time.compiled import compiled_part


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
