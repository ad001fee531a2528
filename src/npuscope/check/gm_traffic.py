"""What tasks move from and to GM, under which loops, how long that takes at peak rates, and who waits for whom.

Exact, and taken from bodies: every task of a launch moves the same bytes through the same arguments, only buffers and
offsets differ. Buffers that were assembled into another count as that one. Times are for ranking and for separating
short from long, never for a prediction: a block gets its even share of the memory's bandwidth and its core's cube rate,
whichever takes longer counts. Latency, vector work and what neighbours leave of the bandwidth are not in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from npuscope.base.frozen import dataclass
from npuscope.check.dataflow import Flow, flows_of
from npuscope.check.rule import Severity, Waste, once
from npuscope.chip.devices import Device
from npuscope.lower.program import KernelLaunch, Program
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile.graph.boxes import Offsets, Placement
from npuscope.tile.graph.exact import ExactEdge, Region, cells_of, exact_edges
from npuscope.tile.record.model import Access, BlockGroup, Core, Recording, Task
from npuscope.tile.record.summary import BodyWork, work_of
from npuscope.tile.record.walk import Step

BLOCK = 1 << 32
Ints = npt.NDArray[np.int64]


class Use(NamedTuple):
    """What a task moves through one of its arguments; bytes of all its blocks."""

    task: int
    argument: int
    buffer: int
    read: int
    written: int


@dataclass(frozen=True)
class Moved:
    """What one task of a launch moves: bytes per argument it touches, and cube work; all blocks together."""

    read: dict[int, int]
    written: dict[int, int]  # atomic adds included
    added: frozenset[int]  # arguments written by atomic adds only
    flops: int  # of products

    @cached_property
    def columns(self) -> list[tuple[int, int, int]]:
        """Argument, bytes read, bytes written."""
        return [
            (n, self.read.get(n, 0), self.written.get(n, 0)) for n in sorted(self.read.keys() | self.written.keys())
        ]

    @property
    def bytes(self) -> int:
        return sum(self.read.values()) + sum(self.written.values())


@dataclass(frozen=True, eq=False)
class Traffic:
    """`launch` has the number of each task's launch, `placement` where assembled buffers lie."""

    recording: Recording
    moved: tuple[Moved, ...]  # per launch
    launch: tuple[int, ...]
    placement: Placement

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """For each buffer the one it was assembled into."""
        return tuple(self.placement.root(buffer.id) for buffer in self.recording.buffers)

    def uses(self, task: int) -> list[Use]:
        """The arguments that a task touches."""
        arguments, roots = self.recording.tasks[task].arguments, self.roots
        columns = self.moved[self.launch[task]].columns
        return [Use(task, n, roots[arguments[n].buffer], read, written) for n, read, written in columns]

    def uses_of(self, buffer: int, tasks: Iterable[int] | None = None) -> list[Use]:
        """The arguments by which tasks touch a buffer, in the order of submission; of all tasks or of these."""
        chosen = self.touching[buffer] if tasks is None else tasks
        return [use for task in chosen for use in self.uses(task) if use.buffer == buffer]

    @cached_property
    def touching(self) -> dict[int, list[int]]:
        """Per buffer the tasks that read or write it, in the order of submission, each once."""
        found: dict[int, list[int]] = defaultdict(list)
        roots = self.roots
        for task, launch in zip(self.recording.tasks, self.launch, strict=True):
            for n, _, _ in self.moved[launch].columns:
                tasks = found[roots[task.arguments[n].buffer]]
                if not tasks or tasks[-1] != task.id:
                    tasks.append(task.id)
        return found

    @cached_property
    def turns(self) -> tuple[Ints, Ints]:
        """Per task the orchestration loops around it from the outermost in, and which turn of each; -1 beyond."""
        return turns_of(self.recording.tasks)

    @cached_property
    def by_turn(self) -> tuple[tuple[int, ...], ...]:
        """Tasks that stand in the same turn of the same loops, together; in the order of their first task."""
        together: dict[bytes, list[int]] = {}
        for task, place in enumerate(np.concatenate(self.turns, axis=1)):
            together.setdefault(place.tobytes(), []).append(task)
        return tuple(map(tuple, together.values()))

    def conflicts(self, tasks: Iterable[int]) -> tuple[ExactEdge, ...]:
        """Which of these tasks, in order of submission, depend on which, by the elements they touch."""
        chosen = tuple(self.recording.tasks[task] for task in tasks)
        return exact_edges(replace(self.recording, tasks=chosen), self.placement)

    def block_conflicts(self, *tasks: int) -> tuple[ExactEdge, ...]:
        """The same between blocks: block b of the n-th of the tasks given is called n * BLOCK + b."""
        blocks = [block for n, task in enumerate(tasks) for block in _blocks(self.recording.tasks[task], n * BLOCK)]
        return exact_edges(replace(self.recording, tasks=tuple(blocks)), self.placement)


def turns_of(tasks: Sequence[Task]) -> tuple[Ints, Ints]:
    """See `Traffic.turns`."""
    depth = max((len(task.turns) for task in tasks), default=0)
    loops = np.full((len(tasks), depth), -1, np.int64)
    turns = loops.copy()
    for n, task in enumerate(tasks):
        for k, turn in enumerate(task.turns):
            loops[n, k], turns[n, k] = turn.loop, turn.turn
    return loops, turns


@once
def traffic_of(program: Program) -> Traffic:
    """The table of a program."""
    recording, launches = program.recording, program.launches
    bodies = [work_of(body) for body in recording.bodies]
    moved = tuple(_moved(recording, recording.tasks[launch.tasks[0]], bodies) for launch in launches)
    launch_of = [0] * len(recording.tasks)
    for n, launch in enumerate(launches):
        for task in launch.tasks:
            launch_of[task] = n
    return Traffic(recording, moved, tuple(launch_of), Placement(recording))


def _moved(recording: Recording, task: Task, bodies: list[BodyWork]) -> Moved:
    kinds = [BY_NAME[recording.buffers[argument.buffer].dtype] for argument in task.arguments]
    sums: dict[str, dict[int, int]] = {"read": {}, "written": {}}
    plain: set[int] = set()
    flops = 0
    for group in task.groups:
        work, blocks = bodies[group.body], len(group.blocks)
        flops += work.cube_flops * blocks
        plain |= {argument for argument, elements in work.written.items() if elements > work.added.get(argument, 0)}
        for into, elements_of in (("read", work.read), ("written", work.written)):
            for argument, elements in elements_of.items():
                sums[into][argument] = sums[into].get(argument, 0) + kinds[argument].size(elements * blocks)
    return Moved(sums["read"], sums["written"], frozenset(sums["written"].keys() - plain), flops)


def _blocks(task: Task, first: int) -> Iterator[Task]:
    """A task's blocks as tasks of their own."""
    for group in task.groups:
        for n, block in enumerate(group.blocks.tolist()):
            offsets = tuple(o[..., n : n + 1] if o.shape[-1] > 1 else o for o in group.offsets)
            yield replace(task, id=first + block, groups=(BlockGroup(group.body, np.array([block]), offsets),))


LARGE = 0.05  # of what the whole program moves: a waste to warn of
MOST = 0.25  # of its tasks


def cores_of(device: Device, core: Core) -> int:
    """Cores of a kind; a mixed task takes a cube core with its two vector cores."""
    return int((device.cores.vector if core == "AIV" else device.cores.cube).value)


def block_seconds(program: Program, launch: KernelLaunch) -> float:
    """A block of a launch, on average over its blocks."""
    device = program.device
    moved = traffic_of(program).moved[program.launches.index(launch)]
    blocks = max(launch.blocks, 1)
    memory = moved.bytes / blocks / (device.reached_bandwidth / cores_of(device, launch.core))
    return max(memory, _cube_seconds(moved.flops / blocks, device) * device.cores.cube.value)


def least_seconds(program: Program) -> float:
    """The whole program at the memory's full bandwidth or at the cube's peak, whichever takes longer."""
    bytes_moved = flops = 0
    for launch, moved in zip(program.launches, traffic_of(program).moved, strict=True):
        bytes_moved += moved.bytes * len(launch.tasks)
        flops += moved.flops * len(launch.tasks)
    return max(bytes_moved / program.device.reached_bandwidth, _cube_seconds(flops, program.device))


def seconds_of(waste: Waste, device: Device) -> float:
    """One number to rank findings by: as if nothing overlapped, with a task at what the orchestrator and a scheduler
    thread spend on it, and a wait at the latter.
    """
    submit, task = (device.runtime[n].value if n in device.runtime else 0.0 for n in ("submit", "task_cost"))
    work = waste.bytes / device.reached_bandwidth + _cube_seconds(waste.flops, device)
    return work + waste.tasks * (submit + task) + waste.waits * task


def _cube_seconds(flops: float, device: Device) -> float:
    rate = device.peak("cube", "bf16")
    return flops / rate if rate else 0.0


def severity(program: Program, waste: Waste) -> Severity:
    """A warning where the bytes are a large part of what the program moves, or the tasks of those it has."""
    moved = zip(program.launches, traffic_of(program).moved, strict=True)
    whole = sum(move.bytes * len(launch.tasks) for launch, move in moved)
    large = waste.bytes >= LARGE * whole or waste.tasks >= MOST * len(program.recording.tasks)
    return "warning" if large else "hint"


Waits = dict[int, list[int]]

NEAR = 2000  # tasks submitted before or after: farther ones are not on the chip at the same time


@once
def waits_of(program: Program) -> Waits:
    """Task -> the tasks it waits for, by tensors and as declared; allocations left out."""
    found: Waits = defaultdict(list)
    for edge in program.graph.edges:
        if edge.src >= 0:
            found[edge.dst].append(edge.src)
    return found


def beside(program: Program, tasks: list[int]) -> list[int]:
    """Tasks submitted near these that neither wait for any of them nor are waited for."""
    waits = waits_of(program)
    first, last = max(min(tasks) - NEAR, 0), min(max(tasks) + NEAR, len(program.recording.tasks) - 1)
    before, after = set(tasks), set(tasks)
    for task in range(max(tasks), first - 1, -1):
        if task in before:
            before.update(waits.get(task, ()))
    for task in range(min(tasks), last + 1):
        if not after.isdisjoint(waits.get(task, ())):
            after.add(task)
    return [task for task in range(first, last + 1) if task not in before and task not in after]


class Touch(NamedTuple):
    """A step of a task met these cells in all iterations and blocks; a cell that it met twice is there twice."""

    task: int
    body: int
    step: Step
    access: Access
    cells: Offsets


def timeline(program: Program, buffer: int, tasks: Sequence[int]) -> tuple[list[Touch], int]:
    """What these tasks did to a buffer and its parts, and the number of cells."""
    met = list(_met(program, buffer, tasks))
    if not met:
        return [], 0
    cells, count = cells_of([region for _, region in met])
    return [touch._replace(cells=here) for (touch, _), here in zip(met, cells, strict=True)], count


def _met(program: Program, buffer: int, tasks: Sequence[int]) -> Iterator[tuple[Touch, Region]]:
    placement = traffic_of(program).placement
    for number in tasks:
        task = program.recording.tasks[number]
        inside = [placement.root(argument.buffer) == buffer for argument in task.arguments]
        for group in task.groups:
            for (step, access), offsets in zip(accesses(flows_of(program)[group.body]), group.offsets, strict=True):
                if not inside[access.argument] or 0 in access.shape:
                    continue
                places = np.broadcast_to(offsets, (*offsets.shape[:-1], len(group.blocks))).ravel()
                if access.mode == "add":  # places that stay the same are stored once, but add every time
                    places = np.repeat(places, max(step.times * len(group.blocks) // len(places), 1))
                part = task.arguments[access.argument].buffer
                pieces = placement.pieces((part, access.shape, access.strides, places))
                region = Region(number, access.mode, *pieces)
                yield Touch(number, group.body, step, access, places), region


def accesses(flow: Flow) -> Iterator[tuple[Step, Access]]:
    """The accesses of a body in the order of its offsets."""
    for step in flow.steps:
        for access in step.op.accesses:
            yield step, access
