"""Blocks on their cores: they start, stop for another rank, go on and end, at the speed that HBM allows.

All running blocks are slowed down alike until together they take no more bytes than there are.
"""

from __future__ import annotations

from npuscope.time.chip.job import MIX, Floats, Ints, Job, Machine, Times
from npuscope.time.chip.state import (
    BEHIND,
    BEHIND_BLOCK,
    BEHIND_GATED,
    BLOCK,
    DUE,
    FAR,
    GATED,
    HELD,
    IDLE,
    KIND,
    MISSING,
    OWNER,
    PASSED,
    RUNNING,
    SPAN,
    STATE,
    STOPPED,
    TASK,
    UNKNOWN,
    UNSEEN_COUNT,
    WAITING,
    State,
    wake,
)
from npuscope.time.compiled import compiled, compiled_part


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
