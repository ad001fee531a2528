"""Changed jobs and machines for the chip: classes that take less, tasks that are gone or became one, other edges, no
limits, noise on durations."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from npuscope.explain.changes import Fewest
from npuscope.tile.graph.exact import once
from npuscope.time.chip.job import AIV, CLOSES, MIX, NONE, Floats, Ints, Job, Machine, Rings, rings_with, stops_at
from npuscope.time.chip.prepare import Prepared
from npuscope.time.run import Simulated, run

LEAST = 1.0  # nanoseconds of a block that costs nothing: the engine's blocks take time
Pairs = Iterable[tuple[int, int]]
TINY = 1e-6  # share of a cost that counts as nothing: the engine's steps take time
ENDLESS = 1e9  # times the bandwidth
COSTS = {  # the scheduler's costs by what waits for them
    "dispatch": ("dispatch", "stage", "dummy", "scan", "expand"),
    "FIN": ("fin", "poll", "complete", "resolve", "release", "settle"),
    "pickup": ("pickup", "pickup_first", "switch", "visible"),
}
SCHEDULER = tuple(name for names in COSTS.values() for name in names)
LEVELS = 16


def scaled(job: Job, classes: Ints, time: float, bytes: float) -> Job:
    """Blocks of these classes take a share of their time and move a share of their bytes."""
    run, draws = job.run.copy(), job.draws.copy()
    run[classes] = np.maximum(run[classes] * time, LEAST)
    draws[classes] *= job.run[classes] / run[classes] * bytes  # bytes per nanosecond
    return job._replace(run=run, draws=draws)


def scaled_each(job: Job, time: Floats, bytes: float) -> Job:
    """As `scaled`, with a share of time per class; classes at 1 keep their bytes."""
    for number in np.flatnonzero(time < 1).tolist():
        job = scaled(job, np.array([number]), float(time[number]), bytes)
    return job


def dropped(job: Job, tasks: Ints) -> Job:
    """These tasks do nothing: no blocks, no time to submit; who waited for them waits for what they waited for."""
    gone = np.zeros(len(job.shape), bool)
    gone[tasks] = True
    kept = ~gone[job.task_of] if len(job.task_of) else np.zeros(0, bool)
    blocks = np.where(gone, 0, job.blocks)
    return job._replace(
        shape=np.where(gone, NONE, job.shape),
        blocks=blocks,
        first_block=_firsts(blocks),
        block_class=job.block_class[kept],
        task_of=job.task_of[kept],
        submit=np.where(gone, 0.0, job.submit),
        stops=stops_at(job.stops, np.flatnonzero(kept)),
    )


def edges_of(job: Job) -> tuple[Ints, Ints]:
    """Who is waited for, and by whom."""
    return np.repeat(np.arange(len(job.shape)), np.diff(job.first_out)), job.out


def pairs_of(job: Job) -> list[tuple[int, int]]:
    source, target = edges_of(job)
    return list(zip(source.tolist(), target.tolist(), strict=True))


def with_pairs(job: Job, pairs: Pairs) -> Job:
    """The job with these edges in place of its own."""
    source, target = np.array(list(pairs), np.int64).reshape(-1, 2).T
    return with_edges(job, source, target)


def with_edges(job: Job, source: Ints, target: Ints) -> Job:
    """The same, of those waited for and those who wait."""
    count = len(job.shape)
    source, target = np.divmod(np.unique(source * count + target), max(count, 1))
    return job._replace(
        producers=np.bincount(target, minlength=count).astype(np.int64),
        first_out=np.searchsorted(source, np.arange(count + 1)).astype(np.int64),
        out=target,
    )


def with_fewer_edges(
    job: Job, reduced: Container[int], joined: Container[int], launch: Sequence[object], submit_edge: float
) -> Job:
    """Some tasks wait for nobody whom another of their producers comes after, others for the last of each launch alone.

    `launch` says which one a task is of; an edge less is submitted sooner by `submit_edge`.
    """
    waits: dict[int, list[int]] = {}
    for a, b in pairs_of(job):
        waits.setdefault(b, []).append(a)
    before: dict[int, int] = {}  # of each task whom it comes after, and itself, as bits
    kept, submit = [], job.submit.copy()
    for task in range(len(job.shape)):
        own = waits.get(task, [])
        after = far = 0
        for producer in own:
            done = before.get(producer, 1 << producer)  # the end of a recorded graph comes after all tasks
            after |= done
            far |= done & ~(1 << producer)
        left = [one for one in own if task not in reduced or not far >> one & 1]
        if task in joined:
            last = {launch[one] if one < len(launch) else one: one for one in left}
            left = [*last.values()]
        submit[task] -= submit_edge * (len(own) - len(left))
        kept += [(one, task) for one in left]
        before[task] = after | 1 << task
    return with_pairs(job._replace(submit=submit), kept)


def merged(job: Job, groups: Sequence[Sequence[int]]) -> Job | None:
    """Each group of tasks as one task with the blocks and the edges of all; None where one would wait for itself.

    A merged task takes the longest time of its members to submit, one slot of a ring, and the tensors of all.
    """
    count = len(job.shape)
    lead = np.arange(count)
    for group in groups:
        lead[list(group)] = group[0]
    ends = np.stack([lead[np.repeat(np.arange(count), np.diff(job.first_out))], lead[job.out]])
    pairs = list(zip(*ends[:, ends[0] != ends[1]].tolist(), strict=True))
    order = _in_order(once(lead).tolist(), set(pairs))
    if order is None:
        return None
    leads = np.array(order, np.int64)
    place = np.zeros(count, np.int64)
    place[leads] = np.arange(len(order))
    new = place[lead]  # of each task: the merged one's number
    sorted_tasks = np.argsort(new, kind="stable")
    blocks = np.bincount(new, job.blocks, len(order)).astype(np.int64)
    taken = job.blocks[sorted_tasks]
    rows = np.arange(int(np.sum(taken))) + np.repeat(job.first_block[sorted_tasks] - _firsts(taken), taken)
    submit, early = np.zeros(len(order)), np.ones(len(order), np.int64)
    waits = np.full(len(order), -1, np.int64)
    np.maximum.at(submit, new, job.submit)
    np.minimum.at(early, new, job.early)
    np.maximum.at(waits, new, job.waits_host)
    return with_edges(
        job._replace(
            shape=job.shape[leads],
            blocks=blocks,
            first_block=_firsts(blocks),
            block_class=job.block_class[rows],
            task_of=np.repeat(np.arange(len(order), dtype=np.int64), blocks),
            submit=submit,
            early=early,
            together=job.together[leads],
            waits_host=np.where(waits >= 0, new[waits], -1),
            graph=job.graph[leads] if len(job.graph) else job.graph,
            stops=stops_at(job.stops, rows),
            rings=_merged_rings(job.rings, np.split(sorted_tasks, np.cumsum(np.bincount(new))[:-1])),
        ),
        *place[ends[:, ends[0] != ends[1]]],
    )


def as_one(job: Job, groups: Sequence[Sequence[int]]) -> Job | None:
    """Each group of tasks, of as many blocks each, as one task whose nth block does what theirs did, one after another.

    Tasks on cube and on vector cores become one on both. None where one would wait for itself.
    """
    return merged(in_first(job, groups), groups)


def in_first(job: Job, groups: Sequence[Sequence[int]]) -> Job:
    """The first task of each group does the work of all, block by block; the others have none left."""
    block_class, shape = job.block_class.copy(), job.shape.copy()
    numbers: dict[tuple[int, ...], int] = {}
    for group in groups:
        first = job.first_block[list(group)]
        for n in range(int(job.blocks[group[0]])):
            classes = tuple(job.block_class[first + n].tolist())
            block_class[first[0] + n] = numbers.setdefault(classes, len(job.run) + len(numbers))
        if len(set(shape[list(group)].tolist())) > 1:
            shape[group[0]] = MIX
    run = np.array([np.sum(job.run[list(classes)], axis=0) for classes in numbers])
    moved = np.array([np.sum((job.run * job.draws)[list(classes)], axis=0) for classes in numbers])
    longer = job._replace(
        block_class=block_class,
        shape=shape,
        run=np.concatenate([job.run, run]),
        draws=np.concatenate([job.draws, moved / run]),
    )
    return dropped(longer, np.array([task for group in groups for task in group[1:]], np.int64))


def _merged_rings(rings: Rings, members: Sequence[Ints]) -> Rings:
    """What the merged tasks take: the allocations before all members of a group, then one entry for the group."""
    if not len(rings.first_entry):
        return rings
    place = np.zeros(len(rings.first_entry) - 1, np.int64)
    kept: list[int] = []  # old entries in their new order
    first = [0]
    own = rings.first_entry[1:] - 1
    starts, ends = rings.first_entry.tolist(), own.tolist()
    for number, group in enumerate(members):
        place[group] = number
        tasks = group.tolist()
        for task in tasks:
            kept += range(starts[task], ends[task])
        kept.append(ends[tasks[0]])
        first.append(len(kept))
    new = np.full(rings.entry.shape[1], -1, np.int64)
    new[kept] = np.arange(len(kept))
    uses = []
    for group in members:
        new[own[group]] = new[own[group[0]]]
    used, starts = new[rings.use].tolist(), rings.first_use.tolist()
    for number, group in enumerate(members):
        entries = {entry for task in group.tolist() for entry in used[starts[task] : starts[task + 1]]}
        uses.append(entries - {first[number + 1] - 1})
    entry = np.ascontiguousarray(rings.entry[:, kept])  # another layout would be compiled anew, which takes 15 s
    submitted = np.concatenate([[0], np.maximum.accumulate(place) + 1])  # all tasks before an old one, in the new order
    entry[CLOSES] = submitted[entry[CLOSES]]
    return rings_with(first, entry, uses, rings.room)


def _firsts(blocks: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(blocks)[:-1]]).astype(np.int64)


def _in_order(tasks: list[int], pairs: Iterable[tuple[int, int]]) -> list[int] | None:
    """The tasks so that every one comes after those it waits for, otherwise as submitted; None where they go round."""
    waits = dict.fromkeys(tasks, 0)
    consumers: dict[int, list[int]] = {}
    for a, b in pairs:
        waits[b] += 1
        consumers.setdefault(a, []).append(b)
    free = [task for task in tasks if waits[task] == 0]
    heapq.heapify(free)
    order = []
    while free:
        task = heapq.heappop(free)
        order.append(task)
        for consumer in consumers.get(task, ()):
            waits[consumer] -= 1
            if waits[consumer] == 0:
                heapq.heappush(free, consumer)
    return order if len(order) == len(tasks) else None


def cheaper(machine: Machine, names: Sequence[str], share: float) -> Machine:
    """The machine with these costs at a share of what they are."""
    return machine._replace(**{name: getattr(machine, name) * share for name in names})


def fewer_bytes(machine: Machine, share: float) -> Machine:
    """The machine on which this share of all bytes need not be moved: there is as much more room for the rest."""
    return machine._replace(limit=machine.limit / (1 - share))


def submitted_in(job: Job, share: float) -> Job:
    """The job with the orchestrator's time per task at a share of what it is."""
    return job._replace(submit=job.submit * share)


def without_limit(prepared: Prepared, limit: str) -> tuple[Job, Machine]:
    """The job and the machine without the limit of the memory, or without dependencies."""
    job, machine = prepared.job, prepared.machine
    if limit == "memory":
        return job, machine._replace(limit=machine.limit * ENDLESS)
    return with_pairs(job, ()), machine


def without_scheduler(simulated: Simulated, share: float, submitting: float | None = None) -> int:
    """The wall in nanoseconds where handing out costs a share of what it does, and submitting the same or another, but
    for what every run pays once: its first task started, its last one seen done."""
    job, machine, times = simulated.prepared.job, simulated.prepared.machine, simulated.times
    wall = simulated.program_wall
    once = wall - (np.max(times.end, initial=0.0) - np.min(times.start, initial=wall))
    job = submitted_in(job, share if submitting is None else submitting)
    least = simulated.trials.wall(job, cheaper(machine, SCHEDULER, share))
    return round(min(least + once * (1 - share), simulated.wall))


def fewest_tasks(prepared: Prepared) -> Fewest:
    """As few launches and blocks as the program's graph and the chip's cores allow."""
    job, clusters = prepared.job, prepared.machine.clusters
    names = [task.kernel for task in prepared.program.recording.tasks]
    names += [""] * (len(job.shape) - len(names))  # calls of recorded graphs follow the tasks
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    kernel = np.array([numbers[name] for name in names], np.int64)
    source = np.repeat(np.arange(len(job.shape)), np.diff(job.first_out))
    return Fewest.of(kernel, job.blocks, np.where(job.shape == AIV, 2, 1) * clusters, source, job.out)


def jittered(job: Job, seed: int, spread: float) -> Job:
    """The job with another duration for every block; `spread` is the standard deviation of its logarithm."""
    steps = np.array([NormalDist().inv_cdf((n + 0.5) / LEVELS) for n in range(LEVELS)])
    factors = np.exp(spread * steps)
    factors /= np.mean(factors)
    level = np.random.default_rng(seed).integers(LEVELS, size=len(job.block_class))
    return job._replace(
        block_class=job.block_class * LEVELS + level,
        run=np.repeat(job.run, LEVELS, axis=0) * np.tile(factors, len(job.run))[:, None],
        draws=np.repeat(job.draws, LEVELS, axis=0) / np.tile(factors, len(job.draws))[:, None],
    )


def with_jitter(simulated: Simulated, seed: int) -> Simulated:
    """The same program run once more, with noise."""
    prepared = simulated.prepared
    spread = prepared.program.device.timing["block_spread"].value
    return run(replace(prepared, job=jittered(prepared.job, seed, spread)))
