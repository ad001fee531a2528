"""A turn of a scheduler thread: it gives back room, sees what is done, and hands out what is ready."""

from __future__ import annotations

from npuscope.time.chip.finishing import deferred_until, finish, finish_deferred, wake_for_deferred
from npuscope.time.chip.handing_out import find_together, gated, hand_out, start_together
from npuscope.time.chip.job import (
    BEGIN,
    COMPLETED,
    DISPATCHED,
    NONE,
    POLLED,
    PREPARED,
    RELEASED,
    RETIRED,
    THREAD,
    Ints,
    Job,
    Machine,
    Times,
)
from npuscope.time.chip.orchestrator import go_on
from npuscope.time.chip.resolving import expand
from npuscope.time.chip.ring_room import release
from npuscope.time.chip.state import (
    ASLEEP,
    AT,
    BEHIND,
    DEFERRED,
    DONE,
    FAR,
    IDLE,
    LAST,
    PERIOD,
    ROWS,
    STATE,
    TOGETHER,
    UNSEEN_COUNT,
    State,
    wake,
)
from npuscope.time.compiled import compiled_part

EMPTY_AT_MOST = 8  # tasks without work that a turn of a scheduler thread retires


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
