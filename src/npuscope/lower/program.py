"""A program on a chip: what checks and the simulator both need of it, each part made once.

Neither may grow with the number of tasks: they look at each `KernelLaunch` (tasks of equal work) once. What only
checks need they keep for themselves (`check/once.py`).
"""

from __future__ import annotations

import marshal
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

import msgspec

from npuscope.base.files import cached, source_digest
from npuscope.chip.devices import Device
from npuscope.lower.assembly_body import Assembly
from npuscope.lower.build import build, name_of_result, sites_of
from npuscope.lower.epilogue import FOLDED
from npuscope.lower.lowering import LoweringOptions, passed
from npuscope.lower.memory_plan import MemoryPlan, SpacePlan, plan_memory
from npuscope.lower.model import Lowered
from npuscope.ops.table import ADDED, FAMILIES
from npuscope.tile.graph.task_graph import Graph, task_graph
from npuscope.tile.record.model import Body, Core, Loop, Op, Recording, Ref, Site, Task
from npuscope.tile.record.walk import ops_of

KIND = "bodies"


class Lowerer:
    """Lowers and plans bodies of one recording, or takes them from where they are kept."""

    def __init__(self, recording: Recording, device: Device, options: LoweringOptions) -> None:
        self.recording, self.device, self.options = recording, device, options

    @cached_property
    def _around(self) -> tuple[Any, ...]:
        return source_digest(), device_content(self.device), self.options.ring_slots, self.options.stream

    def planned(self, task: Task, body: int) -> tuple[Lowered, MemoryPlan, str | None]:
        """A body of a task, and the hash of its content; None where it cannot be kept."""
        key = self._hash(task, body)
        if key is None:
            return *self._made(build(self.recording, task, body)), None
        lowered, plan = cached(
            KIND, key, lambda: self._made(replace(build(self.recording, task, body), kernel="", body=0, sites=()))
        )
        sites = sites_of(self.recording.bodies[body])
        return replace(lowered, kernel=task.kernel, body=body, sites=sites), plan, key

    def _made(self, recorded: Lowered) -> tuple[Lowered, MemoryPlan]:
        lowered = passed(recorded, self.device, self.options)
        return lowered, plan_memory(lowered, self.device)

    def _hash(self, task: Task, number: int) -> str | None:
        body = self.recording.bodies[number]
        tensors = tuple(self.recording.buffers[argument.buffer].name for argument in task.arguments)
        lines = {site: line for line, site in enumerate(sites_of(body))}
        added = {spec.name for spec in FAMILIES.get(ADDED, ())}

        def content(items: tuple[Op | Loop, ...]) -> Iterator[Any]:
            for item in items:
                line = lines[item.site]
                if isinstance(item, Loop):
                    turns = [(segment.count, tuple(content(segment.items))) for segment in item.segments]
                    yield item.kind, item.stage, line, tuple(turns)
                    continue
                if item.name in added:  # what it is, no file of ours says
                    raise ValueError
                result = item.result
                yield (
                    item.name, item.plane, line, tuple(map(_operand, item.operands)),
                    None if result is None else (result.shape, result.dtype, result.valid, result.space),
                    None if result is None else name_of_result(item, self.recording.sites, tensors),
                    tuple(map(tuple, item.accesses)),
                    item.attributes, item.flops,
                )  # fmt: skip

        try:
            around = (*self._around, task.split, task.ring_slots, task.ring_bytes)
            whole = (*around, *content(body.prologue), None, *content(body.items))
            data = marshal.dumps(whole, 2)  # the version in which equal things are equal bytes
        except ValueError:
            return None
        return sha256(data).hexdigest()


def device_content(device: Device) -> bytes:
    """All that a device file says."""
    return msgspec.msgpack.encode(device, order="deterministic")


def _operand(given: object) -> object:
    if isinstance(given, Ref):
        return given.up, given.back, given.path
    return given if given is None or isinstance(given, int | float | str) else ("tile", repr(given))


@dataclass(frozen=True)
class KernelLaunch:
    """Tasks that do the same: one kernel at one place in the source, with the same bodies in as many blocks each."""

    kernel: str
    site: int
    core: Core
    blocks: int
    bodies: tuple[tuple[int, int], ...]  # body, how many blocks of a task have it
    tasks: tuple[int, ...]  # ids, in order of submission


PlannedKey = tuple[str, int, str, int]  # what makes bodies lower alike: kernel, body, split and ring slots of the task


def planned_key(task: Task, body: int) -> PlannedKey:
    return task.kernel, body, task.split, task.ring_slots


@dataclass(frozen=True)
class PlannedBody:
    """One body of a kernel, lowered and planned; `task` is the first that has it.

    A mixed kernel is two functions, one per kind of core, named as the compiler names them: `gate_proj_aic`,
    `gate_proj_aiv`. `content`: the hash of what it is, where what follows from it can be kept between runs.
    """

    kernel: str
    task: int
    lowered: Lowered
    plan: MemoryPlan
    content: str | None = None

    @cached_property
    def mixed(self) -> bool:
        return len({one.unit for one in self.lowered.instructions if one.unit}) > 1

    def function(self, space: SpacePlan) -> str:
        return f"{self.kernel}_{space.unit.lower()}" if self.mixed else self.kernel


@dataclass(frozen=True, eq=False)
class Program:
    """One recorded program on one chip, as the compiler with these options lowers it.

    `golden`: the function its results are held against, if the run had one. `assemblies`: what the user's compiler
    made of its bodies, where that is known.
    """

    recording: Recording
    device: Device
    lowering: LoweringOptions = field(default_factory=LoweringOptions)
    golden: Callable[..., object] | None = None
    assemblies: Mapping[PlannedKey, Assembly] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "recording", _without_idle_cores(self.recording, self.device, self.lowering))

    def with_timing(self, device: Device) -> Program:
        """On a device that differs in what takes how long, which lowering, planning and the graph do not look at."""
        other = replace(self, device=device)
        other.__dict__.update(planned=self.planned, graph=self.graph)
        return other

    @cached_property
    def graph(self) -> Graph:
        return task_graph(self.recording)

    @cached_property
    def launches(self) -> tuple[KernelLaunch, ...]:
        """In order of their first task."""
        together: dict[tuple[str, int, Core, int, tuple[tuple[int, int], ...]], list[int]] = defaultdict(list)
        for task in self.recording.tasks:
            bodies = tuple((group.body, len(group.blocks)) for group in task.groups)
            together[task.kernel, task.site, task.core, task.blocks, bodies].append(task.id)
        return tuple(KernelLaunch(*key, tuple(tasks)) for key, tasks in together.items())

    @cached_property
    def planned(self) -> dict[PlannedKey, PlannedBody]:
        """Every distinct body of every kernel, in order of the first task."""
        found: dict[PlannedKey, PlannedBody] = {}
        lowerer = Lowerer(self.recording, self.device, self.lowering)
        for launch in self.launches:
            task = self.first_task(launch)
            for body, _ in launch.bodies:
                if (key := planned_key(task, body)) not in found:
                    found[key] = PlannedBody(task.kernel, task.id, *lowerer.planned(task, body))
        return found

    @cached_property
    def compiled(self) -> dict[PlannedKey, PlannedBody]:
        """The bodies whose assembly is known, as the compiler laid them out."""
        found = {}
        for task in self.recording.tasks:
            for group in task.groups:
                one = self.assemblies.get(key := planned_key(task, group.body))
                if one is not None and key not in found:
                    found[key] = PlannedBody(task.kernel, task.id, one.lowered, one.plan)
        return found

    @cached_property
    def in_memory(self) -> dict[PlannedKey, PlannedBody]:
        """Every body as it lies in memory: the compiler's own where it is known."""
        return {**self.planned, **self.compiled}

    @property
    def assembly_notes(self) -> tuple[str, ...]:
        """What is not known of assemblies, and what only run-time data decides in them."""
        return tuple(dict.fromkeys(note for one in self.assemblies.values() for note in one.notes))

    def runs(self, key: PlannedKey) -> PlannedBody:
        """The body that is timed: the compiler's, but for one in which only run-time data says how much it does."""
        one = self.assemblies.get(key)
        return self.planned[key] if one is None or one.assumed else self.compiled[key]

    def site(self, number: int) -> Site:
        return self.recording.sites[number]

    def site_in(self, lowered: Lowered, line: int) -> Site:
        """The place of a line as a lowered body numbers them."""
        return self.recording.sites[lowered.sites[line]]

    def first_task(self, launch: KernelLaunch) -> Task:
        return self.recording.tasks[launch.tasks[0]]


def _without_idle_cores(recording: Recording, device: Device, options: LoweringOptions) -> Recording:
    """Mixed tasks whose only vector work the cube core's way out does need no vector core."""
    lowerer, tasks, core = Lowerer(recording, device, options), list(recording.tasks), dict[PlannedKey, Core]()
    drains = [vector <= FOLDED for vector in map(_vector_ops, recording.bodies)]
    for n, task in enumerate(tasks):
        if task.core != "MIX" or task.form == "extern" or not all(drains[group.body] for group in task.groups):
            continue
        for body in {group.body for group in task.groups}:
            if (key := planned_key(task, body)) not in core:
                units = {one.unit for one in lowerer.planned(task, body)[0].instructions}
                core[key] = "MIX" if "AIV" in units else "AIC"
        if all(core[planned_key(task, group.body)] == "AIC" for group in task.groups):
            tasks[n] = replace(task, core="AIC")
    return recording if not core else replace(recording, tasks=tuple(tasks))


def _vector_ops(body: Body) -> set[str]:
    return {op.name for op, _ in ops_of(body) if op.plane == "vector"}
