"""Changed jobs for the chip: classes that take less, tasks that are gone, tasks that became one, other edges."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

import numpy as np

from npuscope.simulate.chip.job import CLOSES, MIX, NONE, Floats, Ints, Job, Rings, rings_with

LEAST = 1.0  # nanoseconds of a block that costs nothing: the engine's blocks take time
Pairs = Iterable[tuple[int, int]]


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
    )


def pairs_of(job: Job) -> list[tuple[int, int]]:
    source = np.repeat(np.arange(len(job.shape)), np.diff(job.first_out))
    return list(zip(source.tolist(), job.out.tolist(), strict=True))


def with_pairs(job: Job, pairs: Pairs) -> Job:
    """The job with these edges in place of its own."""
    found = sorted(set(pairs))
    source, target = (np.array([pair[n] for pair in found], np.int64) for n in range(2))
    count = len(job.shape)
    return job._replace(
        producers=np.bincount(target, minlength=count).astype(np.int64),
        first_out=np.searchsorted(source, np.arange(count + 1)).astype(np.int64),
        out=target,
    )


def merged(job: Job, groups: Sequence[Sequence[int]]) -> Job | None:
    """Each group of tasks as one task with the blocks and the edges of all; None where one would wait for itself.

    A merged task takes the longest time of its members to submit, one slot of a ring, and the tensors of all.
    """
    lead = np.arange(len(job.shape))
    for group in groups:
        lead[list(group)] = group[0]
    pairs = {(int(lead[a]), int(lead[b])) for a, b in pairs_of(job) if lead[a] != lead[b]}
    order = _in_order(sorted(set(lead.tolist())), pairs)
    if order is None:
        return None
    place = {task: n for n, task in enumerate(order)}
    members: list[list[int]] = [[] for _ in order]
    for task, first in enumerate(lead.tolist()):
        members[place[first]].append(task)
    blocks = np.array([int(np.sum(job.blocks[group])) for group in members], np.int64)
    rows = [np.arange(job.first_block[t], job.first_block[t] + job.blocks[t]) for group in members for t in group]
    leads = np.array(order, np.int64)
    waits = [max((int(job.waits_host[t]) for t in group), default=-1) for group in members]
    return with_pairs(
        job._replace(
            shape=job.shape[leads],
            blocks=blocks,
            first_block=_firsts(blocks),
            block_class=job.block_class[np.concatenate(rows)] if rows else job.block_class,
            task_of=np.repeat(np.arange(len(order), dtype=np.int64), blocks),
            submit=np.array([float(np.max(job.submit[group])) for group in members]),
            early=np.array([int(np.min(job.early[group])) for group in members], np.int64),
            together=job.together[leads],
            waits_host=np.array([place[int(lead[t])] if t >= 0 else -1 for t in waits], np.int64),
            rings=_merged_rings(job.rings, members),
        ),
        ((place[a], place[b]) for a, b in pairs),
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


def _merged_rings(rings: Rings, members: Sequence[Sequence[int]]) -> Rings:
    """What the merged tasks take: the allocations before all members of a group, then one entry for the group."""
    if not len(rings.first_entry):
        return rings
    place = np.zeros(len(rings.first_entry) - 1, np.int64)
    kept: list[int] = []  # old entries in their new order
    first = [0]
    own = rings.first_entry[1:] - 1
    for number, group in enumerate(members):
        place[group] = number
        for task in group:
            kept += range(rings.first_entry[task], own[task])
        kept.append(own[group[0]])
        first.append(len(kept))
    new = np.full(rings.entry.shape[1], -1, np.int64)
    new[kept] = np.arange(len(kept))
    uses = []
    for group in members:
        new[own[group]] = new[own[group[0]]]
    for number, group in enumerate(members):
        used = (rings.use[rings.first_use[task] : rings.first_use[task + 1]] for task in group)
        uses.append({int(new[entry]) for one in used for entry in one} - {first[number + 1] - 1})
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
