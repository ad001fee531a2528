"""Runs a job on the chip, event by event. The same code runs compiled and as plain Python.

Events: a block starts or ends, the orchestrator has submitted a task, a scheduler thread comes round its loop. Between
events every running block gets on at the speed that the shared memory allows.
"""

from __future__ import annotations

import numpy as np

from npuscope.simulate.chip.job import MIX, NONE, Job, Machine, Times, new_times
from npuscope.simulate.chip.memory import add_up, set_spans
from npuscope.simulate.chip.scheduler import (
    find_together,
    finish,
    gated,
    hand_out,
    make_ready,
    stage,
    start_together,
    wake,
)
from npuscope.simulate.chip.state import (
    ASLEEP,
    AT,
    BEHIND,
    BEHIND_BLOCK,
    BEHIND_GATED,
    BLOCK,
    COMPLETE,
    DONE,
    DUE,
    FAR,
    FINISHED,
    GATED,
    HELD,
    IDLE,
    KIND,
    LAST,
    MISSING,
    NEXT,
    OLDEST,
    ORCHESTRATING,
    OWNER,
    PERIOD,
    ROWS,
    RUNNING,
    SPAN,
    STATE,
    SUBMITTED,
    TASK,
    TOGETHER,
    UNSEEN_COUNT,
    WAITING,
    State,
    new_state,
)
from npuscope.simulate.compiled import compiled

ANEW = 512  # turns of blocks after which the memory's rates are added up anew


@compiled
def run(job: Job, machine: Machine, times: Times, s: State) -> float:
    """Runs until all tasks are done; the time then, or -1 where nobody can go on."""
    now, events = 0.0, 0
    while s.number[FINISHED] < len(job.shape):
        blocks = np.min(s.clock[DUE])
        when = min(blocks, np.min(s.thread[AT]))
        if s.number[NEXT] < len(job.shape):
            when = min(when, s.orchestrator[0])
        if when >= FAR:
            return -1.0
        now = when
        if blocks <= now:
            events += 1
            turn_blocks(job, machine, times, s, now)
            if events % ANEW == 0:
                add_up(job, s)
            set_spans(job, machine, s, now)
        if s.orchestrator[0] <= now:
            orchestrate(job, machine, times, s, now)
        for thread in range(machine.threads):
            if s.thread[AT, thread] <= now:
                loop(job, machine, times, s, thread, now)
    return now


@compiled
def turn_blocks(job: Job, machine: Machine, times: Times, s: State, now: float) -> None:
    """Blocks that are due start or end; what waited behind one that ended goes on."""
    ended = False
    for core in range(s.core.shape[1]):
        if s.clock[DUE, core] > now:
            continue
        task = s.core[TASK, core]
        row = job.first_block[task] + s.core[BLOCK, core]
        kind = job.block_class[row]
        if s.core[STATE, core] == WAITING:
            s.core[STATE, core] = RUNNING
            s.core[KIND, core] = kind
            s.clock[SPAN, core] = job.run[kind, 0]
            s.clock[DUE, core] = now + job.run[kind, 0]
            times.start[row] = now
            for n in range(len(s.rates)):
                s.rates[n] += job.draws[kind, n]
            continue
        ended = True
        times.end[row] = now
        for n in range(len(s.rates)):
            s.rates[n] -= job.draws[kind, n]
        s.unseen[s.core[UNSEEN_COUNT, core], core] = row
        s.core[UNSEEN_COUNT, core] += 1
        s.core[STATE, core] = IDLE
        s.core[TASK, core] = -1
        s.clock[DUE, core] = FAR
        if job.shape[task] == MIX:
            for vector in range(machine.clusters + 2 * core, machine.clusters + 2 * core + 2):
                s.core[STATE, vector] = IDLE
                s.core[TASK, vector] = -1
        wake(s, s.core[OWNER, core], now + machine.fin)
    if ended:
        promote(job, machine, times, s, now)


@compiled
def promote(job: Job, machine: Machine, times: Times, s: State, now: float) -> None:
    """What waited behind a block that ended goes on by itself; a mixed block when all its cores are free."""
    for core in range(s.core.shape[1]):
        task = s.core[BEHIND, core]
        if task < 0 or s.core[STATE, core] != IDLE or (job.shape[task] == MIX and core >= machine.clusters):
            continue
        if job.shape[task] == MIX:
            vector = machine.clusters + 2 * core
            if s.core[STATE, vector] != IDLE or s.core[STATE, vector + 1] != IDLE:
                continue
            for n in range(vector, vector + 2):
                s.core[BEHIND, n] = -1
                s.core[TASK, n] = task
                s.core[STATE, n] = HELD
        s.core[TASK, core] = task
        s.core[BLOCK, core] = s.core[BEHIND_BLOCK, core]
        s.core[BEHIND, core] = -1
        if s.core[BEHIND_GATED, core] == 1 and s.todo[MISSING, task] > 0:
            s.core[STATE, core] = GATED
        else:
            s.core[STATE, core] = WAITING
            # A thread's turn takes time: what it hands out or makes ready may be on its way still.
            sent = max(times.dispatch[job.first_block[task] + s.core[BLOCK, core]], times.ready[task])
            s.clock[DUE, core] = max(now + machine.switch, sent + machine.visible)


@compiled
def orchestrate(job: Job, machine: Machine, times: Times, s: State, now: float) -> None:
    """The orchestrator submits one task after the other; it waits where it reads what a task writes, or for room."""
    if s.number[NEXT] >= len(job.shape) or s.orchestrator[0] > now:
        return
    if s.number[ORCHESTRATING] == 1:
        task = s.number[NEXT]
        times.submitted[task] = now
        s.todo[SUBMITTED, task] = 1
        s.number[ORCHESTRATING] = 0
        s.number[NEXT] += 1
        if s.todo[MISSING, task] == 0:
            times.ready[task] = now
            make_ready(job, s, task)
            for thread in range(machine.threads):
                wake(s, thread, now)
        else:
            stage(job, s, task)
            for thread in range(machine.threads):
                wake(s, thread, now)
    if s.number[NEXT] < len(job.shape):
        if may_submit(job, machine, s):
            task = s.number[NEXT]
            times.began[task] = now
            s.number[ORCHESTRATING] = 1
            s.orchestrator[0] = now + job.submit[task]
        else:
            s.orchestrator[0] = FAR  # the scheduler wakes it


@compiled
def may_submit(job: Job, machine: Machine, s: State) -> bool:
    task = s.number[NEXT]
    host = job.waits_host[task]
    return bool((host < 0 or s.todo[COMPLETE, host] == 1) and task - s.number[OLDEST] < machine.window)


@compiled
def loop(job: Job, machine: Machine, times: Times, s: State, thread: int, now: float) -> None:
    """One turn of a scheduler thread."""
    clock, polled, seen = now, 0.0, 0
    if thread == 0:
        while s.ends[NONE, 0] < s.ends[NONE, 1]:
            task = s.queue[NONE, s.ends[NONE, 0]]
            s.ends[NONE, 0] += 1
            seen += 1
            clock = finish(job, machine, times, s, task, max(clock, times.ready[task]) + machine.dummy)
    for core in range(s.core.shape[1]):
        if s.core[OWNER, core] != thread:
            continue
        if s.core[UNSEEN_COUNT, core] == 0 and (s.core[STATE, core] == IDLE or gated(machine, s, core)):
            continue
        clock += machine.poll
        polled += machine.poll
        while s.core[UNSEEN_COUNT, core] > 0 and times.end[s.unseen[0, core]] + machine.fin <= clock:
            row = s.unseen[0, core]
            for n in range(s.core[UNSEEN_COUNT, core] - 1):
                s.unseen[n, core] = s.unseen[n + 1, core]
            s.core[UNSEEN_COUNT, core] -= 1
            seen += 1
            clock += machine.complete
            times.finish[row] = clock
            task = job.task_of[row]
            s.todo[DONE, task] += 1
            if s.todo[DONE, task] == job.blocks[task]:
                clock = finish(job, machine, times, s, task, clock)
    while s.number[OLDEST] < len(job.shape) and s.todo[COMPLETE, s.number[OLDEST]] == 1:
        s.number[OLDEST] += 1
    if s.number[NEXT] < len(job.shape) and s.orchestrator[0] >= FAR and may_submit(job, machine, s):
        s.orchestrator[0] = clock
    handing = clock
    find_together(job, s)
    if s.number[TOGETHER] >= 0:
        clock = start_together(job, machine, times, s, clock)
    else:
        clock = hand_out(job, machine, times, s, thread, clock)
    s.thread[LAST, thread] = now
    s.thread[PERIOD, thread] = max(machine.loop, polled)
    if seen == 0 and clock == handing:
        sleep(machine, times, s, thread, now)
        return
    if s.number[ROWS] < len(times.loops):
        times.loops[s.number[ROWS], 0] = thread
        times.loops[s.number[ROWS], 1] = now
        times.loops[s.number[ROWS], 2] = polled
        times.loops[s.number[ROWS], 3] = handing - now - polled
        times.loops[s.number[ROWS], 4] = clock - handing
    s.number[ROWS] += 1
    s.thread[ASLEEP, thread] = 0
    s.thread[AT, thread] = max(clock, now + machine.loop)
    for peer in range(machine.threads):  # what became ready may be for a peer's cores
        if peer != thread:
            wake(s, peer, clock)


@compiled
def sleep(machine: Machine, times: Times, s: State, thread: int, now: float) -> None:
    """Nothing to do: the thread keeps polling and acts in the turn after something happened."""
    s.thread[ASLEEP, thread] = 1
    s.thread[AT, thread] = FAR
    for core in range(s.core.shape[1]):
        if s.core[OWNER, core] == thread and s.core[UNSEEN_COUNT, core] > 0:
            wake(s, thread, max(times.end[s.unseen[0, core]] + machine.fin, now + s.thread[PERIOD, thread]))


def run_chip(job: Job, machine: Machine) -> tuple[Times, float]:
    """Times of every block and when all was done, in nanoseconds; -1 where nobody could go on."""
    times = new_times(job)
    job = job._replace(together=job.together.copy())
    state = new_state(job, machine)
    end = run(job, machine, times, state)
    return times._replace(loops=times.loops[: state.number[ROWS]]), end
