"""Runs a job on the chip, event by event. The same code runs compiled and as plain Python.

Events: a block starts or ends, the orchestrator has submitted a task, a scheduler thread comes round its loop. Between
events every running block gets on at the speed that the shared memory allows.
"""

from __future__ import annotations

from npuscope.time.chip.hbm import add_up, set_spans
from npuscope.time.chip.job import (
    BEGIN,
    COMPLETED,
    DISPATCHED,
    MIX,
    NONE,
    POLLED,
    RELEASED,
    RETIRED,
    THREAD,
    Job,
    Machine,
    Times,
    new_times,
)
from npuscope.time.chip.ring_room import has_room, release, take_room
from npuscope.time.chip.scheduler import (
    find_together,
    finish,
    hand_out,
    make_ready,
    stage,
    start_together,
    wake,
)
from npuscope.time.chip.state import (
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
from npuscope.time.compiled import compiled, compiled_part

ANEW = 512  # turns of blocks after which the memory's rates are added up anew


@compiled
def run(job: Job, machine: Machine, times: Times, s: State) -> float:
    """Runs until all tasks are done; when the last was seen done, or -1 where nobody can go on."""
    now, last, events, due, threads = 0.0, 0.0, 0, s.clock[DUE], s.thread[AT]
    while s.number[FINISHED] < len(job.shape):
        blocks = FAR
        for core in range(len(due)):
            blocks = min(blocks, due[core])
        when = blocks
        for thread in range(machine.threads):
            when = min(when, threads[thread])
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
            if threads[thread] <= now:
                last = max(last, loop(job, machine, times, s, thread, now))
    return last


@compiled_part
def turn_blocks(job: Job, machine: Machine, times: Times, s: State, now: float) -> None:
    """Blocks that are due start or end; what waited behind one that ended goes on."""
    cores, clock, rates, draws, clusters = s.core, s.clock, s.rates, job.draws, machine.clusters
    first, last = clusters, -1  # clusters where something ended
    for core in range(cores.shape[1]):
        if clock[DUE, core] > now:
            continue
        task = cores[TASK, core]
        row = job.first_block[task] + cores[BLOCK, core]
        kind = job.block_class[row]
        if cores[STATE, core] == WAITING:
            cores[STATE, core] = RUNNING
            cores[KIND, core] = kind
            clock[SPAN, core] = job.run[kind, 0]
            clock[DUE, core] = now + job.run[kind, 0]
            times.start[row] = now
            for n in range(len(rates)):
                rates[n] += draws[kind, n]
            continue
        cluster = core if core < clusters else (core - clusters) // 2
        first, last = min(first, cluster), max(last, cluster)
        times.end[row] = now
        for n in range(len(rates)):
            rates[n] -= draws[kind, n]
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
            make_ready(job, s, task)
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
    if thread == 0:
        while s.ends[NONE, 0] < s.ends[NONE, 1]:
            task = s.queue[NONE, s.ends[NONE, 0]]
            s.ends[NONE, 0] += 1
            seen += 1
            done = max(clock, times.ready[task]) + machine.dummy
            s.seen[task] = done
            clock = finish(job, machine, times, s, task, done)
    go_on(job, s, clock)
    handing = clock
    find_together(job, s)
    if s.number[TOGETHER] >= 0:
        clock = start_together(job, machine, times, s, clock)
    else:
        clock = hand_out(job, machine, times, s, thread, clock)
    s.thread[LAST, thread] = now
    s.thread[PERIOD, thread] = max(machine.loop, polled)
    if released == 0 and seen == 0 and clock == handing:
        sleep(machine, times, s, thread, now)
        return 0.0
    if s.number[ROWS] < len(times.loops):
        row = times.loops[s.number[ROWS]]
        row[THREAD], row[BEGIN], row[POLLED], row[COMPLETED] = thread, now, polled, retiring - begin - polled
        row[RETIRED], row[DISPATCHED], row[RELEASED] = handing - retiring, clock - handing, begin - now
    s.number[ROWS] += 1
    s.thread[ASLEEP, thread] = 0
    s.thread[AT, thread] = max(clock, now + machine.loop)
    for peer in range(machine.threads):  # what became ready may be for a peer's cores
        if peer != thread:
            wake(s.thread, peer, clock)
    return done


@compiled_part
def poll(
    job: Job, machine: Machine, times: Times, s: State, thread: int, now: float
) -> tuple[float, float, int, float]:
    """Looks at the thread's cores: time spent looking, when it is through, blocks seen done, when the last task was."""
    clock, polled, seen, done = now, 0.0, 0, 0.0
    cores, own, unseen, ends = s.core, s.own, s.unseen, times.end
    for n in range(own.shape[1]):
        core = own[thread, n]
        if core < 0:
            break
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
                clock = finish(job, machine, times, s, task, done)
    return polled, clock, seen, done


@compiled_part
def sleep(machine: Machine, times: Times, s: State, thread: int, now: float) -> None:
    """Nothing to do: the thread keeps polling and acts in the turn after something happened."""
    s.thread[ASLEEP, thread] = 1
    s.thread[AT, thread] = FAR
    cores, own = s.core, s.own
    for n in range(own.shape[1]):
        core = own[thread, n]
        if core >= 0 and cores[UNSEEN_COUNT, core] > 0:
            wake(s.thread, thread, max(times.end[s.unseen[0, core]] + machine.fin, now + s.thread[PERIOD, thread]))


def run_chip(job: Job, machine: Machine) -> tuple[Times, float]:
    """Times of every block and when all was done, in nanoseconds; -1 where nobody could go on."""
    times, end, _ = run_and_look(job, machine)
    return times, end


def run_and_look(job: Job, machine: Machine) -> tuple[Times, float, State]:
    """As `run_chip`, with where everything was at the end."""
    times = new_times(job)
    job = job._replace(together=job.together.copy())
    state = new_state(job, machine)
    end = run(job, machine, times, state)
    return times._replace(loops=times.loops[: state.number[ROWS]]), end, state
