"""Which block goes to which core, and when.

First a launch whose blocks start together, for which everything else waits; then mixed tasks on idle clusters, then
single tasks on idle cores (cube or vector first by the thread's parity); then places behind running blocks, unless a
peer has an idle place; then tasks whose producers are early, which wait on their core for a bell.
"""

from __future__ import annotations

from npuscope.time.chip.job import AIC, AIV, MIX, NONE, Ints, Job, Machine, Times
from npuscope.time.chip.queues import next_task, stage
from npuscope.time.chip.state import (
    BEHIND,
    BEHIND_BLOCK,
    BEHIND_GATED,
    BLOCK,
    DUE,
    EARLY,
    FAR,
    GATED,
    HANDED,
    HELD,
    IDLE,
    OWNER,
    STATE,
    TASK,
    TOGETHER,
    UNREADY,
    UNSEEN_COUNT,
    USED,
    WAITING,
    State,
)
from npuscope.time.compiled import compiled_part

UNSENT = -1.0  # the dispatch of a block that is prepared and has not left its thread


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
def publish(job: Job, s: State, task: int) -> None:
    """All blocks of an early task are handed out: who waits only for such may be staged."""
    if job.early[task] == 1 and s.todo[HANDED, task] >= job.blocks[task]:
        for n in range(job.first_out[task], job.first_out[task + 1]):
            s.todo[UNREADY, job.out[n]] -= 1
            stage(job, s, job.out[n])


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
