"""What findings are worth: each taken away alone, all that save time together, and the program simulated again.

Bytes: their share of what the kernel's blocks move (in whole lines) is not moved, and the blocks are shorter by that
share of the time that their busiest memory pipe works. FLOPs: the time they take at a cube core's peak is gone from
the blocks. Pipes work side by side, so of both savings the larger counts; what is hidden behind other work leaves the
busiest pipe as it is. Tasks: what becomes of them a rule says (`Rule.without`). Waits: the kernel's tasks wait for
nothing but what they touch. A finding that cannot be expressed as a change has no price: then nobody names
microseconds for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce

import numpy as np

from npuscope.base import progress
from npuscope.check.rule import ONLY_IF_IT_SAVES, Finding, Price, Waste
from npuscope.table.formats import duration, many, percent
from npuscope.tile.graph.exact import exact_edges
from npuscope.tile.record.model import short_name
from npuscope.time.change_job import (
    dropped,
    edges_of,
    in_first,
    merged,
    pairs_of,
    scaled_each,
    with_edges,
    with_fewer_edges,
)
from npuscope.time.chip.job import Floats, Ints, Job, without_end
from npuscope.time.chip.prepare import Prepared
from npuscope.time.core.costs import NS
from npuscope.time.core.stream import PIPES
from npuscope.time.run import Simulated

WORTH = 0.001  # of the wall: findings that must save time and save less are none
MEMORY = [n for n, pipe in enumerate(PIPES) if pipe in ("MTE2", "MTE3", "FIXP")]
EVERY = range(len(PIPES))
NO_PRICE = "it names no bytes, FLOPs, tasks or waits of a kernel"
ITSELF = ": one would wait for itself"
Groups = list[list[int]]


@dataclass(frozen=True)
class Priced:
    """Findings of one program with their prices, the one that saves most first; `wall_ns` is the program as it is.

    `together_ns` is the wall without all findings that save time, None where they are fewer than two, cannot go
    together, or save nothing together: work that one moves may stand in another's way.
    """

    wall_ns: int
    findings: tuple[Finding, ...]
    together_ns: int | None = None
    costly: tuple[Finding, ...] = ()  # what would take longer mended: these are no findings

    @property
    def savers(self) -> list[Finding]:
        """Those without which the run is shorter."""
        return [one for one in self.findings if (one.saves_ns or 0) > 0]


def priced(base: Simulated, findings: Sequence[Finding]) -> Priced:
    """Every finding taken away alone, and all that save time together."""
    owner = Owners(base.prepared)
    found: list[Finding] = []
    removals: dict[Finding, Removal] = {}
    for done, finding in enumerate(findings):
        progress.report("simulating findings", done, len(findings))
        removal = removal_of(finding, owner)
        price = Price(NO_PRICE) if removal is None else _price(base, owner, removal)
        if finding.without in ONLY_IF_IT_SAVES and (price.saves_ns or 0) < WORTH * base.wall_ns:
            continue
        found.append(replace(finding, price=price))
        if removal is not None:
            removals[found[-1]] = removal
    costly = tuple(one for one in found if (one.saves_ns or 0) < 0 and one.severity != "error")
    worth = sorted((one for one in found if one not in costly), key=lambda one: -max(one.saves_ns or 0, 0))
    result = Priced(base.wall_ns, tuple(worth), costly=costly)
    savers = [one for one in found if (one.saves_ns or 0) > 0]
    if len(savers) < 2:
        return result
    job = without((removals[one] for one in savers), owner)
    together = None if job is None else base.trials.wall_ns(job)
    return result if together is None or together >= base.wall_ns else replace(result, together_ns=together)


def _price(base: Simulated, owner: Owners, removal: Removal) -> Price:
    how, job = "; ".join(removal.how), without([removal], owner)
    if job is None:
        return Price(how + ITSELF)
    wall_ns = base.trials.wall_ns(job)
    return Price(how, wall_ns, base.wall_ns - wall_ns)


def half_ns(base: Simulated, owner: Owners, finding: Finding) -> int | None:
    """The wall with the finding at half its cost; None where it costs tasks or waits, half of which would be which?"""
    cost = finding.waste
    if cost.tasks or cost.waits:
        return None
    half = replace(finding, waste=Waste(bytes=cost.bytes // 2, flops=cost.flops // 2))
    removal = removal_of(half, owner)
    job = None if removal is None else without([removal], owner)
    return None if job is None else base.trials.wall_ns(job)


def named(finding: Finding) -> str:
    """many-tasks layer.py:261 gate_proj"""
    return f"{finding.id} {finding.file.rpartition('/')[2]}:{finding.line} {short_name(finding.kernel)}".strip()


@dataclass(frozen=True)
class Removal:
    """What goes with a finding, by the numbers that tasks and classes have in the job as it is; `how` says it in words.

    `less` are shares of time that classes keep, each set with the share of bytes; `alike` are tasks that become blocks
    of one, `chains` tasks whose blocks do one after another what theirs did.
    """

    how: tuple[str, ...] = ()
    less: tuple[tuple[Floats, float], ...] = ()
    gone: tuple[int, ...] = ()
    in_no_time: tuple[int, ...] = ()  # to submit
    alike: Groups = field(default_factory=list)
    chains: Groups = field(default_factory=list)
    fewer_waits: frozenset[int] = frozenset()
    early: tuple[int, ...] = ()  # tasks whose consumers may be staged
    reduced: frozenset[int] = frozenset()  # tasks whose implied edges go
    joined: frozenset[int] = frozenset()  # tasks that keep an edge per launch
    endless: bool = False  # rings that are never full

    def and_also(self, other: Removal) -> Removal:
        """Both at once."""
        return Removal(
            self.how + other.how,
            self.less + other.less,
            self.gone + other.gone,
            self.in_no_time + other.in_no_time,
            self.alike + other.alike,
            self.chains + other.chains,
            self.fewer_waits | other.fewer_waits,
            self.early + other.early,
            self.reduced | other.reduced,
            self.joined | other.joined,
            self.endless or other.endless,
        )


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

    @cached_property
    def true_waits(self) -> tuple[Ints, Ints]:
        """Tasks that one touches what the other wrote: the writers, and who waits for each."""
        edges = exact_edges(self.prepared.program.recording)
        return np.array([edge.src for edge in edges], np.int64), np.array([edge.dst for edge in edges], np.int64)

    def busiest(self, number: int, pipes: Sequence[int]) -> float:
        """The share of a block of a class that the busiest of these pipes works."""
        timing = self.prepared.classes.timed[self.prepared.kind_of(number)][0]
        return float(np.max(timing.busy[pipes])) / timing.duration if timing.duration else 0.0


def removal_of(finding: Finding, owner: Owners) -> Removal | None:
    """What of the job goes with a finding; None where it names nothing that could."""
    if finding.without == "room":
        return Removal(("rings that are never full",), endless=True)
    if finding.kernel not in owner.tasks:
        return None
    if finding.without in ("early", "implied", "joined"):
        return _other_edges(finding, owner)
    found = _less_work(finding, owner).and_also(_fewer_tasks(finding, owner))
    if finding.waste.waits and not found.alike and not found.chains:
        into = frozenset(owner.tasks[finding.kernel].tolist())
        text = f"tasks of {short_name(finding.kernel)} wait for nothing but what they touch"
        found = found.and_also(Removal((text,), fewer_waits=into))
    return found if found.how else None


def _other_edges(finding: Finding, owner: Owners) -> Removal:
    """Tasks that were launched where the finding is, or where else it points."""
    recording = owner.prepared.program.recording
    places = {(finding.file, finding.line), *finding.also}
    sites = {n for n, site in enumerate(recording.sites) if (site.file, site.line) in places}
    chosen = tuple(task.id for task in recording.tasks if task.site in sites)
    name = short_name(finding.kernel)
    if finding.without == "early":
        return Removal((f"consumers of {name} staged before it is done",), early=chosen)
    if finding.without == "joined":
        return Removal((f"tasks of {name} wait for the last of each launch",), joined=frozenset(chosen))
    return Removal((f"tasks of {name} wait for nobody whom their producers wait for",), reduced=frozenset(chosen))


def _waiting_for_what_they_touch(job: Job, owner: Owners, tasks: Ints) -> Job:
    chosen = np.zeros(len(job.shape), bool)
    chosen[tasks] = True
    (source, target), (writers, touching) = edges_of(job), owner.true_waits
    kept, true = ~chosen[target], chosen[touching]
    return with_edges(
        job, np.concatenate([source[kept], writers[true]]), np.concatenate([target[kept], touching[true]])
    )


def without(removals: Iterable[Removal], owner: Owners) -> Job | None:
    """The job with all of this gone; None where a task would wait for itself."""
    whole = reduce(Removal.and_also, removals, Removal())
    job = owner.prepared.job
    if whole.endless:
        job = job._replace(rings=without_end(job.rings))
    if whole.early:
        early = job.early.copy()
        early[list(whole.early)] = 1
        job = job._replace(early=early)
    edge = owner.prepared.program.device.timing["submit_edge"].value * NS * (1 - owner.prepared.machine.hosted)
    if whole.reduced or whole.joined:
        tasks = owner.prepared.program.recording.tasks
        job = with_fewer_edges(job, whole.reduced, whole.joined, [(one.kernel, one.site) for one in tasks], edge)
    for time, moved in whole.less:
        job = scaled_each(job, time, moved)
    if whole.fewer_waits:
        fewer = _waiting_for_what_they_touch(job, owner, np.array(list(whole.fewer_waits), np.int64))
        saved = np.maximum(job.producers - fewer.producers, 0) * edge  # of each edge that need not be submitted
        job = fewer._replace(submit=np.maximum(job.submit - saved, 0.0))
    if whole.in_no_time:
        submit = job.submit.copy()
        submit[list(whole.in_no_time)] = 0.0
        job = job._replace(submit=submit)
    if whole.gone:
        job = dropped(job, np.array(whole.gone, np.int64))
    gone = set(whole.gone)
    chains = [left for chain in _joined(whole.chains) if len(left := [t for t in chain if t not in gone]) > 1]
    if chains:
        job = in_first(job, chains)
    groups = _joined([*whole.chains, *whole.alike])
    return merged(job, groups) if groups else job


def _joined(groups: Groups) -> Groups:
    """Groups that have a task in common as one, each in the order of submission."""
    of: dict[int, list[int]] = {}
    for group in groups:
        met = {id(of[task]): of[task] for task in group if task in of}
        whole = sorted({*group, *(task for one in met.values() for task in one)})
        of.update(dict.fromkeys(whole, whole))
    return list({id(group): group for group in of.values()}.values())


def _less_work(finding: Finding, owner: Owners) -> Removal:
    cost, job = finding.waste, owner.prepared.job
    if not cost.bytes and not cost.flops:
        return Removal()
    kernels = _kernels(finding, owner)
    name = short_name(kernels[0]) + (f" and {len(kernels) - 1} more" if len(kernels) > 1 else "")
    moved_bytes = sum(owner.bytes[kernel] for kernel in kernels)
    device = owner.prepared.program.device
    peak = (device.peak("cube", "bf16") or 0.0) / device.cores.cube.value
    less = min(cost.bytes / moved_bytes, 1.0) if moved_bytes else 0.0
    saved_ns = cost.flops / peak / sum(owner.blocks[kernel] for kernel in kernels) * NS if peak else 0.0
    time, longest = np.ones(len(job.run)), 0.0
    for number in (number for kernel in kernels for number in owner.classes[kernel].tolist()):
        saved = max(less * owner.busiest(number, MEMORY), saved_ns / float(job.run[number, 0]))
        if finding.without == "hidden":  # behind the busiest pipe, which works as long as before
            saved = min(saved, 1 - owner.busiest(number, EVERY))
        time[number] = 1 - min(saved, 1.0)
        longest = max(longest, saved * float(job.run[number, 0]))
    parts = [f"{percent(less)} of the bytes of {name} "] if cost.bytes else []
    moved = 1 - less
    if cost.bytes and finding.without == "hidden":
        parts, moved = [f"the time of {percent(less)} of the bytes of {name} "], 1.0
    parts += [f"{duration(min(saved_ns, longest))} of each block of {name} "] if cost.flops else []
    return Removal(("and ".join(parts) + "taken away",), less=((time, moved),))


def _fewer_tasks(finding: Finding, owner: Owners) -> Removal:
    tasks, count, name = owner.tasks[finding.kernel], finding.waste.tasks, short_name(finding.kernel)
    if not count:
        return Removal()
    if finding.without == "gone":
        return Removal((f"{many(len(tasks), 'task')} of {name} taken away",), gone=tuple(tasks.tolist()))
    if finding.without == "blocks":
        groups = _alike(owner.prepared.job, tasks) or _in_row(tasks, max(len(tasks) - count, 1))
        left = len(tasks) - sum(len(group) - 1 for group in groups)
        text = f"{many(len(tasks), 'task')} of {name} as blocks of {many(left, 'launch', 'launches')}"
        return Removal((text,), alike=groups)
    if finding.without == "one task" and (chains := _chains(finding, owner)):
        return Removal((f"{sum(map(len, chains)):,} tasks as {len(chains):,}",), chains=chains)
    first = tuple(tasks[:count].tolist())
    return Removal((f"{many(len(first), 'task')} of {name} submitted in no time",), in_no_time=first)


def _chains(finding: Finding, owner: Owners) -> Groups:
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
    chains = _chains(finding, owner) if finding.without == "one task" and finding.waste.tasks else []
    tasks = owner.prepared.program.recording.tasks
    return list(dict.fromkeys(tasks[task].kernel for chain in chains for task in chain)) or [finding.kernel]


def _alike(job: Job, tasks: Ints) -> Groups:
    """Tasks that wait for the same, two and more of them together."""
    producers: dict[int, list[int]] = defaultdict(list)
    for src, dst in pairs_of(job):
        producers[dst].append(src)
    together: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for task in tasks.tolist():
        together[tuple(producers[task])].append(task)
    return [group for group in together.values() if len(group) > 1]


def _in_row(tasks: Ints, left: int) -> Groups:
    """Neighbours together, so that so many tasks are left."""
    parts: Sequence[Ints] = np.array_split(tasks, left)
    return [part.tolist() for part in parts]
