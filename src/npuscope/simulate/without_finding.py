"""A job without what a finding costs, reckoned simply and told in words.

Bytes: their share of what the kernel's blocks move (in whole lines) is not moved, and the blocks are shorter by that
share of the time that their busiest memory pipe works. FLOPs: the time they take at a cube core's peak is gone from
the blocks. Pipes work side by side, so of both savings the larger counts. Tasks: equal tasks become blocks of fewer
launches; tasks that only write zeros are gone; tasks of a turn that hand over through GM become one, whose blocks do
the work of all; others that could be fewer are submitted in no time. Waits: the kernel's tasks wait for nothing but
what they touch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from npuscope.check.findings import Finding
from npuscope.simulate.change_job import as_one, dropped, merged, pairs_of, scaled_each, with_pairs
from npuscope.simulate.chip.job import Ints, Job
from npuscope.simulate.chip.prepare import Prepared
from npuscope.simulate.core.costs import NS
from npuscope.simulate.core.stream import PIPES
from npuscope.tile.graph.exact import exact_edges
from npuscope.tile.record.names import short_name

MEMORY = [n for n, pipe in enumerate(PIPES) if pipe in ("MTE2", "MTE3", "FIXP")]
STILL_MOVED = ("unpipelined-k",)  # its bytes are those that could be loaded while others are multiplied
NOTHING_ELSE = ("zero-fill",)  # its tasks do nothing that is needed
BLOCKS_OF_ONE = ("many-tasks", "short-task")
ONE_TASK = ("gm-round-trip", "split-halves")  # what passes between its tasks, and the tasks but one
NO_PRICE = "it names no bytes, FLOPs, tasks or waits of a kernel"
Way = tuple[str, Job | None]  # how, and the job then; None where it cannot be


class Owners:
    """Tasks and classes of every kernel that runs, and how many bytes of whole lines its blocks move."""

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        program, job, classes = prepared.program, prepared.job, prepared.classes
        tasks: dict[str, list[int]] = defaultdict(list)
        for task in program.recording.tasks:
            if job.blocks[task.id]:
                tasks[task.kernel].append(task.id)
        self.tasks = {kernel: np.array(ids, np.int64) for kernel, ids in tasks.items()}
        self.classes: dict[str, Ints] = {}
        self.blocks: dict[str, int] = {}
        self.bytes: dict[str, int] = {}
        for kernel, ids in self.tasks.items():
            numbers, counts = np.unique(job.block_class[np.isin(job.task_of, ids)], return_counts=True)
            streams = [classes.streams[prepared.kind_of(number)[0]] for number in numbers.tolist()]
            self.classes[kernel], self.blocks[kernel] = numbers, int(np.sum(counts))
            moved = ((s.read + s.written) * n for s, n in zip(streams, counts.tolist(), strict=True))
            self.bytes[kernel] = sum(moved)

    def memory(self, number: int) -> float:
        """The share of a block of a class that its busiest memory pipe works."""
        timing = self.prepared.classes.timed[self.prepared.kind_of(number)][0]
        return float(np.max(timing.busy[MEMORY])) / timing.duration if timing.duration else 0.0


def without(finding: Finding, owner: Owners) -> Way:
    """The job without what the finding costs."""
    job: Job | None = owner.prepared.job
    told = []
    for step in (_less_work, _fewer_tasks, _fewer_waits):
        if job is not None and finding.kernel in owner.tasks:
            for how, changed in step(finding, owner, job):
                told.append(how)
                job = changed
    return ("; ".join(told), job) if told else (NO_PRICE, None)


def _less_work(finding: Finding, owner: Owners, job: Job) -> Iterator[Way]:
    cost = finding.waste
    if not cost.bytes and not cost.flops:
        return
    kernels = _kernels(finding, owner)
    name = short_name(kernels[0]) + (f" and {len(kernels) - 1} more" if len(kernels) > 1 else "")
    moved_bytes = sum(owner.bytes[kernel] for kernel in kernels)
    device = owner.prepared.program.device
    peak = (device.peak("cube", "bf16") or 0.0) / device.cores.cube.value
    less = min(cost.bytes / moved_bytes, 1.0) if moved_bytes else 0.0
    saved_ns = cost.flops / peak / sum(owner.blocks[kernel] for kernel in kernels) * NS if peak else 0.0
    time = np.ones(len(job.run))
    for number in (number for kernel in kernels for number in owner.classes[kernel].tolist()):
        saved = max(less * owner.memory(number), saved_ns / float(job.run[number, 0]))
        time[number] = 1 - min(saved, 1.0)
    told = [f"{less:.1%} of the bytes of {name} "] if cost.bytes else []
    moved = 1 - less
    if cost.bytes and finding.id in STILL_MOVED:
        told, moved = [f"the time of {less:.1%} of the bytes of {name} "], 1.0
    told += [f"{saved_ns / NS * 1e6:.2f} µs of each block of {name} "] if cost.flops else []
    yield "and ".join(told) + "taken away", scaled_each(job, time, moved)


def _fewer_tasks(finding: Finding, owner: Owners, job: Job) -> Iterator[Way]:
    tasks, count, name = owner.tasks[finding.kernel], finding.waste.tasks, short_name(finding.kernel)
    if not count:
        return
    if finding.id in NOTHING_ELSE:
        yield f"the {len(tasks):,} tasks of {name} taken away", dropped(job, tasks)
    elif finding.id in BLOCKS_OF_ONE:
        groups = _alike(job, tasks) or _in_row(tasks, max(len(tasks) - count, 1))
        left = len(tasks) - sum(len(group) - 1 for group in groups)
        fewer = merged(job, groups)
        why = "" if fewer is not None else ": one would wait for itself"
        yield f"{len(tasks):,} tasks of {name} as blocks of {left:,} launch{'es' * (left > 1)}{why}", fewer
    elif chains := _chains(finding, owner) if finding.id in ONE_TASK else []:
        fewer = as_one(job, chains)
        why = "" if fewer is not None else ": one would wait for itself"
        yield f"{sum(map(len, chains)):,} tasks as {len(chains):,}{why}", fewer
    else:
        submit = job.submit.copy()
        submit[tasks[:count]] = 0.0
        yield f"{min(count, len(tasks)):,} tasks of {name} submitted in no time", job._replace(submit=submit)


def _fewer_waits(finding: Finding, owner: Owners, job: Job) -> Iterator[Way]:
    if not finding.waste.waits or len(job.shape) != len(owner.prepared.job.shape):
        return
    into = set(owner.tasks[finding.kernel].tolist())
    kept = [pair for pair in pairs_of(job) if pair[1] not in into]
    true = [(edge.src, edge.dst) for edge in exact_edges(owner.prepared.program.recording) if edge.dst in into]
    yield f"tasks of {short_name(finding.kernel)} wait for nothing but what they touch", with_pairs(job, [*kept, *true])


def _chains(finding: Finding, owner: Owners) -> list[list[int]]:
    """The tasks of each turn that were launched where the finding is and where else it points, of as many blocks."""
    recording, job = owner.prepared.program.recording, owner.prepared.job
    places = {(finding.file, finding.line), *finding.also}
    turns: dict[object, list[int]] = defaultdict(list)
    for task in recording.tasks:
        site = recording.sites[task.site]
        if job.blocks[task.id] and (site.file, site.line) in places:
            turns[task.turns, task.layer, int(job.blocks[task.id])].append(task.id)
    sites = [[recording.tasks[task].site for task in tasks] for tasks in turns.values()]
    return [tasks for tasks, of in zip(turns.values(), sites, strict=True) if 1 < len(of) == len(set(of))]


def _kernels(finding: Finding, owner: Owners) -> list[str]:
    """The kernels whose bytes a finding is about."""
    chains = _chains(finding, owner) if finding.id in ONE_TASK and finding.waste.tasks else []
    tasks = owner.prepared.program.recording.tasks
    return list(dict.fromkeys(tasks[task].kernel for chain in chains for task in chain)) or [finding.kernel]


def _alike(job: Job, tasks: Ints) -> list[list[int]]:
    """Tasks that wait for the same, two and more of them together."""
    producers: dict[int, list[int]] = defaultdict(list)
    for src, dst in pairs_of(job):
        producers[dst].append(src)
    together: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for task in tasks.tolist():
        together[tuple(producers[task])].append(task)
    return [group for group in together.values() if len(group) > 1]


def _in_row(tasks: Ints, left: int) -> list[list[int]]:
    """Neighbours together, so that so many tasks are left."""
    parts: Sequence[Ints] = np.array_split(tasks, left)
    return [part.tolist() for part in parts]
