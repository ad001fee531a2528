"""What must hold of every run on the chip, read off its times and written without the engine's code.

`check` asserts all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from npuscope.time.chip.job import (
    AIV,
    BYTES,
    CLOSES,
    HEAP,
    MIX,
    NONE,
    RING,
    SLOTS,
    SLOW,
    Floats,
    Ints,
    Job,
    Machine,
    Rings,
    Times,
)

NEAR = 1e-3  # nanoseconds: sums of thousands of float64 times around 1e6 are that near


def check(job: Job, machine: Machine, times: Times) -> None:
    every_block_once_on_a_core_of_its_kind(job, machine, times)
    in_order_and_never_faster_than_alone(job, machine, times)
    nobody_before_its_producers(job, machine, times)
    no_ring_is_overfull(job, times)
    no_core_runs_two_blocks(job, machine, times)
    nobody_does_two_things_at_once(job, machine, times)
    threads_hand_out_to_their_own_cores(job, machine, times)
    what_starts_together_starts_together(job, machine, times)
    never_more_bytes_than_the_memory_gives(job, machine, times)


def every_block_once_on_a_core_of_its_kind(job: Job, machine: Machine, times: Times) -> None:
    vector = job.shape[job.task_of] == AIV
    assert np.all(np.where(vector, times.core >= machine.clusters, (times.core >= 0) & (times.core < machine.clusters)))
    assert np.all(times.core < 3 * machine.clusters)


def in_order_and_never_faster_than_alone(job: Job, machine: Machine, times: Times) -> None:
    submitted = times.submitted[job.task_of]
    assert np.all(times.began + job.submit <= times.submitted + NEAR)
    handing = np.where(_may_be_staged(job)[job.task_of], 0.0, machine.dispatch)  # staging costs once per task
    assert np.all(submitted + handing <= times.dispatch + NEAR)
    assert np.all(times.dispatch + machine.visible <= times.start + NEAR)  # a core cannot know sooner
    assert np.all(times.start + job.run[job.block_class, 0] <= times.end + NEAR)
    assert np.all(times.end + machine.fin + machine.complete <= times.finish + NEAR)


def _may_be_staged(job: Job) -> np.ndarray:
    """Per task whether a producer is early."""
    found = np.zeros(len(job.shape), bool)
    found[job.out[np.repeat(job.early, np.diff(job.first_out)) == 1]] = True
    return found


def done(job: Job, times: Times) -> Floats:
    """Per task when the scheduler had seen it done; one without blocks is done after its producers."""
    last = np.zeros(len(job.shape))
    np.maximum.at(last, job.task_of, times.finish)
    for task in range(len(job.shape)):  # edges go forward
        if job.shape[task] == NONE:
            last[task] = max([times.submitted[task], *last[producers(job, task)]])
    return last


def producers(job: Job, task: int) -> Ints:
    source = np.repeat(np.arange(len(job.shape)), np.diff(job.first_out))
    return source[job.out == task]


def nobody_before_its_producers(job: Job, machine: Machine, times: Times) -> None:
    ended = done(job, times)
    for task in range(len(job.shape)):
        mine = job.task_of == task
        for producer in producers(job, task):
            assert np.all(times.start[mine] >= ended[producer] + machine.resolve + machine.visible - NEAR)
            if not job.early[producer]:  # only for an early one may a block wait on its core
                assert np.all(times.dispatch[mine] >= ended[producer] - NEAR)
        if job.waits_host[task] >= 0:
            assert times.began[task] >= ended[job.waits_host[task]] - NEAR


def no_ring_is_overfull(job: Job, times: Times) -> None:
    """When a task is begun there is room for it beside what certainly has not been given back.

    That is an entry whose scope is open, or whose own task or a user from within its scope is not done.
    """
    rings, ended = job.rings, done(job, times)
    if len(rings.first_entry) == 0:
        return
    tasks = range(len(job.shape))
    users = [(use, task) for task in tasks for use in rings.use[rings.first_use[task] : rings.first_use[task + 1]]]
    users += [(rings.first_entry[task + 1] - 1, task) for task in tasks]
    for task in tasks:
        kept = rings.entry[CLOSES] > task
        for entry, user in users:
            if user < min(task, rings.entry[CLOSES, entry]) and ended[user] > times.began[task] + NEAR:
                kept[entry] = True
        assert _have_room(rings, task, kept)


def nobody_can_go_on(job: Job, times: Times) -> None:
    """Of a run that got stuck: even if all is done, the next task has no room until a scope closes that it is in."""
    task = int(np.flatnonzero(times.submitted == 0)[0])
    assert not _have_room(job.rings, task, job.rings.entry[CLOSES] > task)


def _have_room(rings: Rings, task: int, kept: np.ndarray) -> bool:
    """Whether the rings have room for a task where these entries are kept; one slot of a ring stays empty.

    What came after them in their ring is kept too: room comes back first in, first out.
    """
    numbers = np.arange(len(kept))
    first, end = rings.first_entry[task], rings.first_entry[task + 1]
    for ring in np.unique(rings.entry[RING, first:end]):
        mine = (rings.entry[RING] == ring) & (numbers < end)
        oldest = np.append(numbers[mine & kept], first)[0]
        there = mine & (numbers >= min(oldest, first))
        if np.sum(there) >= rings.room[SLOTS, ring] or np.sum(rings.entry[BYTES, there]) > rings.room[HEAP, ring]:
            return False
    return True


def held(job: Job, machine: Machine, times: Times, row: int) -> list[int]:
    """The cores that a block has for itself: a mixed one holds its cluster."""
    core = int(times.core[row])
    first = machine.clusters + 2 * core
    return [core, first, first + 1] if job.shape[job.task_of[row]] == MIX else [core]


def no_core_runs_two_blocks(job: Job, machine: Machine, times: Times) -> None:
    spans: dict[int, list[tuple[float, float]]] = {}
    for row in range(len(times.core)):
        for core in held(job, machine, times, row):
            spans.setdefault(core, []).append((times.start[row], times.end[row]))
    for mine in spans.values():
        mine.sort()
        gap = min(machine.switch, machine.visible)  # no core goes from one block to the next in no time
        assert all(before[1] + gap <= after[0] + NEAR for before, after in pairwise(mine))


def _thread(machine: Machine, times: Times) -> Ints:
    """Per block the scheduler thread that has its cluster."""
    cluster = np.where(times.core < machine.clusters, times.core, (times.core - machine.clusters) // 2)
    return cluster % machine.threads


def nobody_does_two_things_at_once(job: Job, machine: Machine, times: Times) -> None:
    """Neither the orchestrator nor a scheduler thread."""
    assert np.all(times.began[1:] >= times.submitted[:-1] - NEAR)
    for thread in range(machine.threads):
        turns = times.loops[times.loops[:, 0] == thread]
        assert np.all(turns[1:, 1] >= turns[:-1, 1] + np.sum(turns[:-1, 2:], axis=1) - NEAR)
        seen = np.sort(times.finish[_thread(machine, times) == thread])
        assert np.all(np.diff(seen) >= machine.complete - NEAR)


def threads_hand_out_to_their_own_cores(job: Job, machine: Machine, times: Times) -> None:
    """A block is handed out in a turn of its core's thread.

    What starts together is handed out by one thread for all; a turn that only stages more of a task takes no time.
    """
    own = _thread(machine, times)
    alone = (job.together == 0) & ~_may_be_staged(job)
    for row in np.flatnonzero(alone[job.task_of]):
        turns = times.loops[times.loops[:, 0] == own[row]]
        begin, end = turns[:, 1], turns[:, 1] + np.sum(turns[:, 2:], axis=1)
        assert np.any((begin <= times.dispatch[row] + NEAR) & (times.dispatch[row] <= end + NEAR))


def what_starts_together_starts_together(job: Job, machine: Machine, times: Times) -> None:
    """As many blocks as there are places; those beyond follow."""
    for task in np.flatnonzero(job.together):
        places = (2 if job.shape[task] == AIV else 1) * machine.clusters
        starts = times.start[job.task_of == task][:places]
        assert np.all(starts == starts[0])


def stretches(times: Times) -> Iterator[tuple[float, float, Ints]]:
    """Between every two moments at which a block starts or ends: from, to, and the blocks that run."""
    moments = np.unique(np.concatenate([times.start, times.end]))
    for begin, end in pairwise(moments.tolist()):
        yield begin, end, np.flatnonzero((times.start <= begin) & (times.end >= end))


def speeds(job: Job, limit: float, rows: Ints) -> Floats:
    """How long each of these blocks would take if they ran on together: all slowed down alike, just enough."""
    kinds = job.block_class[rows]
    rates = np.sum(job.draws[kinds], axis=0)  # at each slow-down, falling
    if rates[0] <= limit:
        slow = 1.0
    elif rates[-1] > limit:
        return job.run[kinds, -1] * rates[-1] / limit
    else:
        slow = float(np.interp(1 / limit, 1 / rates, SLOW))  # times are straight lines between slow-downs, not rates
    return np.array([np.interp(slow, SLOW, job.run[kind]) for kind in kinds])


def never_more_bytes_than_the_memory_gives(job: Job, machine: Machine, times: Times) -> None:
    """Whatever the blocks' speeds were: bytes that cannot have flowed outside of a stretch flowed in it.

    A block takes at most `draws` at no slow-down, so in the time that it ran outside of a stretch it got at most so
    much; the rest came inside, and that is no more than limit times length. For every stretch between two moments.
    """
    moments = np.unique(np.concatenate([times.start, times.end]))
    fastest = job.draws[job.block_class, 0]
    whole = fastest * job.run[job.block_class, 0]
    for n, begin in enumerate(moments[:-1]):
        ends = moments[n + 1 :, None]
        inside = np.clip(np.minimum(times.end, ends) - np.maximum(times.start, begin), 0, None)
        least = np.clip(whole - fastest * (times.end - times.start - inside), 0, None)
        assert np.all(np.sum(least, axis=1) <= machine.limit * (ends[:, 0] - begin + NEAR) * (1 + 1e-9))


def end_with_the_same_choices(job: Job, machine: Machine, times: Times, limit: float) -> float:
    """When the last block is seen done if the memory gives `limit`. Jobs in which the host waits are not for this."""
    before = _before(job, machine, times)
    waits = [producers(job, task) for task in range(len(job.shape))]
    start, end = np.full(len(times.core), np.inf), np.full(len(times.core), np.inf)
    left = np.ones(len(times.core))  # of each block's work
    then = _enabled(job, times, times.start, times.end, before, waits)
    lag, seen = times.start - then, times.finish - times.end
    now = 0.0
    while not np.all(np.isfinite(end)):
        starts = np.where(
            np.isfinite(start),
            np.inf,
            _enabled(job, times._replace(finish=end + seen), start, end, before, waits) + lag,
        )
        rows = np.flatnonzero(np.isfinite(start) & ~np.isfinite(end))
        spans = speeds(job, limit, rows) if len(rows) else np.zeros(0)
        ends = now + left[rows] * spans
        when = min([np.min(starts), *ends])
        left[rows] -= (when - now) / np.maximum(spans, 1e-12)
        now = when
        end[rows[ends <= now]] = now
        start[starts <= now] = now
    return float(np.max(end + seen))


def _before(job: Job, machine: Machine, times: Times) -> list[set[int]]:
    """Per block those right before it on its cores."""
    last: dict[int, int] = {}
    found: list[set[int]] = [set() for _ in times.core]
    for row in np.argsort(times.start, kind="stable").tolist():
        for core in held(job, machine, times, row):
            if core in last:
                found[row].add(last[core])
            last[core] = row
    return found


def _enabled(
    job: Job, times: Times, start: Floats, end: Floats, before: list[set[int]], waits: list[np.ndarray]
) -> Floats:
    """Per block when the last of what it waits for has happened."""
    done = np.zeros(len(job.shape))
    np.maximum.at(done, job.task_of, times.finish)
    ready = times.submitted.copy()
    for task in range(len(job.shape)):
        ready[task] = max([times.submitted[task], *done[waits[task]]])
        if job.shape[task] == NONE:
            done[task] = ready[task]
    return np.array([max([ready[job.task_of[row]], *(end[other] for other in before[row])]) for row in range(len(end))])
