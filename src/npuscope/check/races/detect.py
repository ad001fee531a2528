"""Races: between tasks that no path of the graph orders, between blocks of a launch, and with host reads.

Blocks of one SPMD launch are never ordered, except by the barriers (`syncall`) that they all reach: a phase is what
runs between two barriers, and accesses of two blocks conflict only within a phase. Launches that touch the same places
up to a shift (the next layer's) are looked at once. The orchestration's reads wait for the writers that the runtime
knows: a task of a manual scope, or a tensor with `manual_dep=True`, leaves nothing behind that the read could wait for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import takewhile
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import to_builtins

from npuscope.base.frozen import dataclass
from npuscope.check.dataflow import flows_of
from npuscope.check.phrases import named, region_text
from npuscope.check.races.conflicts import (
    ElementClasses,
    Lines,
    classes_of,
    conflicts_of,
    hazard,
    ones,
    order_of,
    regions_of,
    unordered,
)
from npuscope.check.races.remedy import remedy
from npuscope.check.rule import once
from npuscope.lower.program import Program
from npuscope.ops.spec import OpRole
from npuscope.tile.graph.boxes import Box, Offsets, dims, offsets_meet
from npuscope.tile.graph.exact import Hazard, Region
from npuscope.tile.graph.exact import once as distinct
from npuscope.tile.record.model import Access, Op, Recording, Task, short_name
from npuscope.tile.record.walk import Step


@dataclass(frozen=True)
class Side:
    """One of the two accesses: whose, the op's place, the place of the region it is in, what it touches."""

    task: int  # -1: the orchestration's read
    kernel: str
    file: str
    line: int
    launch: tuple[str, int]  # file, line of the `with` or the call
    region: str  # q_proj[0:16, 512:1024]
    block: int | None = None  # of a launch whose blocks race


@dataclass(frozen=True)
class ChangedOutput:
    """An output that another legal order leaves different: how many elements, by how much at most, where first."""

    output: str
    elements: int
    of: int
    largest: float | None  # None: somewhere there is no number (NaN) in one of them
    first: tuple[int, ...]


@dataclass(frozen=True)
class Race:
    """Two accesses that conflict and that nothing orders; `count` pairs of tasks (or blocks) do so at these lines.

    `sides[0]` comes first in the program: it is what the later one must wait for. `changes` is what a replay showed:
    None if there was none, and then `unplayed` says why if one was asked for.
    """

    hazard: Hazard
    buffer: str
    sides: tuple[Side, Side]
    count: int
    why: str  # there is no order
    remedy: str
    changes: tuple[ChangedOutput, ...] | None = None
    unplayed: str = ""

    def as_dict(self) -> dict[str, object]:
        """The JSON contract of a race."""
        blocks = [{} if side.block is None else {"block": side.block} for side in self.sides]
        tasks = [{"task": side.task, "kernel": side.kernel, "launch": list(side.launch)} for side in self.sides]
        return {
            "lines": [[side.file, side.line] for side in self.sides],
            "regions": [side.region for side in self.sides],
            "hazard": self.hazard,
            "buffer": self.buffer,
            "tasks": [{**task, **block} for task, block in zip(tasks, blocks, strict=True)],
            "count": self.count,
            "why": self.why,
            "remedy": self.remedy,
            **({} if self.changes is None else {"changes": to_builtins(self.changes)}),
            **({"unplayed": self.unplayed} if self.unplayed else {}),
        }


@once
def races(program: Program) -> tuple[Race, ...]:
    """Every race of a program, in the order of the later task; equal ones of many tasks counted together."""
    found = [*_task_races(program), *_block_races(program), *_host_races(program)]
    return tuple(sorted(found, key=lambda race: (race.sides[1].task, race.sides[0].task)))


def _side(program: Program, task: Task, site: int, region: Region, block: int | None = None) -> Side:
    """A task's access, as it is shown."""
    place, launch = program.site(site), program.site(task.site)
    text = _text(program, region)
    return Side(task.id, task.kernel, place.file, place.line, (launch.file, launch.line), text, block)


def _text(program: Program, region: Region) -> str:
    return region_text(named(program, region.buffer), region.shape, region.strides, region.offsets.tolist())


# --- between tasks

MOST_SHOWN = 1 << 14  # pairs of boxes that are compared to show which of them meet
AccessName = tuple[str, int]  # kernel and site: accesses of one kernel at one line are one race


def _task_races(program: Program) -> Iterator[Race]:
    """One race per pair of kernels and lines, hazard and name of the buffer."""
    recording, racing = program.recording, conflicts_of(program).racing
    if not racing:
        return
    lines = Lines(recording)
    regions: dict[int, list[Region]] = defaultdict(list)
    names: dict[int, list[AccessName]] = defaultdict(list)
    wanted: dict[int, set[int]] = defaultdict(set)
    for buffer, tasks in racing.items():
        for task in ones(tasks):
            wanted[task].add(buffer)
    for task, buffers in sorted(wanted.items()):
        for region, site in lines.of(task, buffers):
            regions[region.buffer].append(region)
            names[region.buffer].append((recording.tasks[task].kernel, site))
    # names of both, hazard and buffer -> buffer, and per later task the earlier ones
    found: dict[tuple[AccessName, AccessName, Hazard, str], list[tuple[int, dict[int, int]]]] = defaultdict(list)
    for buffer in racing:
        together = unordered(regions[buffer], names[buffer], order_of(program).before, classes_of(program))
        for (one, other, kind), pairs in together.items():
            found[one, other, kind, named(program, buffer).name].append((buffer, pairs))
    for (one, other, kind, name), parts in found.items():
        buffer, pairs = parts[0]
        later = min(pairs)
        earlier = pairs[later].bit_length() - 1  # the nearest before it
        ours, theirs = (
            [region for region, site in lines.of(task, (buffer,)) if site == access[1]]
            for task, access in ((earlier, one), (later, other))
        )
        shown = _meeting(ours, theirs, kind)
        first = _side(program, recording.tasks[earlier], one[1], shown[0])
        second = _side(program, recording.tasks[later], other[1], shown[1])
        why, fix = remedy(program, pairs[later], later, kind, buffer)
        count = sum(mask.bit_count() for _, part in parts for mask in part.values())
        yield Race(kind, name, (first, second), count, why, fix)


def _meeting(ours: Sequence[Region], theirs: Sequence[Region], kind: Hazard) -> tuple[Region, Region]:
    """Of equal boxes here and there the first that conflict in this way, each with only the boxes that meet."""
    for one in ours:
        for other in theirs:
            if hazard(one.mode, other.mode) != kind:
                continue
            if len(one.offsets) * len(other.offsets) > MOST_SHOWN:
                return one, other
            a, b = dims(one.shape, one.strides), dims(other.shape, other.strides)
            pairs = [(x, y) for x in one.offsets.tolist() for y in other.offsets.tolist() if offsets_meet(y - x, a, b)]
            if pairs:
                left, right = (np.array(sorted(set(places))) for places in zip(*pairs, strict=True))
                return one._replace(offsets=left), other._replace(offsets=right)
    return ours[0], theirs[0]


# --- between the blocks of a launch

WHY = "the blocks of one launch run at once, in any order"
SEPARATE = "give each block elements of its own"
IN_TURN = (
    f"{SEPARATE}, put pl.system.syncall() between the two, or make it two launches, the second with deps= on the first"
)


Plan = Callable[[int], "list[Phased]"]


class Phased(NamedTuple):
    """An access of a body, and how many barriers its block has passed: a number, or one per iteration as offsets."""

    op: Op
    access: Access
    phase: Offsets


BlockPair = tuple[Task, tuple[int, int], tuple[Region, Region]]  # task, blocks, regions


def _block_races(program: Program) -> Iterator[Race]:
    """One race per kernel, pair of lines, hazard and name of the buffer; `count` pairs of blocks over all launches."""
    recording = program.recording
    plan = cache(lambda body: phased(flows_of(program)[body].steps))
    alike: dict[Hashable, list[Task]] = defaultdict(list)
    for task in recording.tasks:
        if task.blocks > 1 and task.groups and task.form != "extern":
            alike[_shifted(task, recording, plan)].append(task)
    found: dict[tuple[AccessName, AccessName, Hazard, str], tuple[BlockPair, int]] = {}
    for tasks in alike.values():
        for key, example, pairs in _races_of(tasks[0], recording, plan):
            known, count = found.get(key, (example, 0))
            found[key] = known, count + pairs * len(tasks)
    for (one, other, kind, name), (example, count) in found.items():
        task, numbers, regions = example
        first = _side(program, task, one[1], regions[0], numbers[0])
        second = _side(program, task, other[1], regions[1], numbers[1])
        yield Race(kind, name, (first, second), count, WHY, SEPARATE if one[1] == other[1] else IN_TURN)


def _races_of(
    task: Task, recording: Recording, plan: Plan
) -> Iterator[tuple[tuple[AccessName, AccessName, Hazard, str], BlockPair, int]]:
    """The races of one launch: what is shown of each, and how many pairs of blocks have it."""
    touched: dict[tuple[int, int], list[tuple[Region, AccessName]]] = defaultdict(list)
    for phase, site, region in _touches(task, plan):
        touched[region.buffer, phase].append((region, (task.kernel, site)))
    itself = {block: 1 << block for group in task.groups for block in group.blocks.tolist()}
    for (buffer, _), entries in touched.items():
        entries.sort(key=lambda entry: entry[0].task)
        regions, names = [entry[0] for entry in entries], [entry[1] for entry in entries]
        for (one, other, kind), pairs in unordered(regions, names, itself, ElementClasses()).items():
            later = min(pairs)
            earlier = pairs[later].bit_length() - 1
            shown = _meeting(
                [r for r, name in entries if r.task == earlier and name == one],
                [r for r, name in entries if r.task == later and name == other],
                kind,
            )
            count = sum(mask.bit_count() for mask in pairs.values())
            key = (one, other, kind, recording.buffers[buffer].name)
            yield key, (task, (earlier, later), shown), count


def _touches(task: Task, plan: Plan) -> Iterator[tuple[int, int, Region]]:
    """Phase, site and region (its task is the block) of every access to a buffer that the launch writes."""
    written = {argument.buffer for argument in task.arguments if argument.writes}
    for group in task.groups:
        for (op, access, phase), offsets in zip(plan(group.body), group.offsets, strict=True):
            buffer = task.arguments[access.argument].buffer
            if buffer not in written or 0 in access.shape:
                continue
            shape = np.broadcast_shapes(offsets.shape, phase.shape, (len(group.blocks),))
            places, phases = np.broadcast_to(offsets, shape), np.broadcast_to(phase, shape)
            for n, block in enumerate(group.blocks.tolist()):
                for number in distinct(phases[..., n].ravel()).tolist():
                    mine = distinct(places[..., n][phases[..., n] == number])
                    yield number, op.site, Region(block, access.mode, buffer, access.shape, access.strides, mine)


def _shifted(task: Task, recording: Recording, plan: Plan) -> Hashable:
    """Equal for launches whose blocks touch the same places, counted from the first one in each buffer."""
    written = {argument.buffer for argument in task.arguments if argument.writes}
    first: dict[int, int] = {}
    touched = []
    for group in task.groups:
        for (_, access, _), offsets in zip(plan(group.body), group.offsets, strict=True):
            buffer = task.arguments[access.argument].buffer
            if buffer in written:
                touched.append((group.body, access.argument, buffer, offsets))
                first[buffer] = min(first.get(buffer, int(offsets.flat[0])), int(np.min(offsets)))
    names = tuple(recording.buffers[buffer].name for buffer in first)
    places = tuple((body, argument, (o - first[b]).tobytes()) for body, argument, b, o in touched)
    return task.kernel, task.site, tuple(group.blocks.tobytes() for group in task.groups), names, places


def phased(steps: Sequence[Step]) -> list[Phased]:
    """The accesses of a body in the order of its offsets."""
    barriers = [step for step in steps if step.op.spec.is_a(OpRole.BARRIER)]
    return [Phased(step.op, access, _phase(step, barriers)) for step in steps for access in step.op.accesses]


def _phase(step: Step, barriers: Sequence[Step]) -> Offsets:
    """How many barriers a block has passed at a step: in the first turns of its loops, and by every further turn."""
    passed: Offsets = np.zeros(1, np.int64)
    for barrier in barriers:
        shared = _shared(step, barrier)
        if barrier.number <= step.number:
            passed = passed + prod(barrier.counts[shared:])
        for depth, count in enumerate(step.counts[:shared]):
            turns = np.arange(count).reshape(-1, *(1,) * (depth + 1))
            passed = passed + turns * prod(barrier.counts[depth + 1 :])
    return passed


def _shared(one: Step, other: Step) -> int:
    """How many loops are around both, in the same segment."""
    places = [[(loop.index, loop.segment) for loop in step.around] for step in (one, other)]
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*places, strict=False)))


# --- with reads of the orchestration

HOST = "orchestration"


def _host_races(program: Program) -> Iterator[Race]:
    """One race per writing line, reading line and name of the buffer."""
    recording = program.recording
    if not recording.host_reads:
        return
    lines = Lines(recording)
    found: dict[tuple[str, int, int, str], tuple[Race, int]] = {}
    for read, done in zip(recording.host_reads, order_of(program).read, strict=True):
        place = lines.placement.footprint(Box(read.buffer, read.offset, (1,), (1,)))
        element = Region(-1, "read", place.buffer, place.shape, place.strides, np.array([place.offset]))
        loose = [
            r for r in regions_of(program).get(place.buffer, ()) if r.task < read.before_task and not done >> r.task & 1
        ]
        for task in dict.fromkeys(region.task for region in loose if region.writes and _has(region, element)):
            writes = lines.of(task, (place.buffer,))
            region, site = next((r, site) for r, site in writes if r.writes and _has(r, element))
            kernel, name = recording.tasks[task].kernel, recording.buffers[place.buffer].name
            race = _race(program, _meeting([region], [element], "raw")[0], site, element, read.site)
            known, count = found.get((kernel, site, read.site, name), (race, 0))
            found[kernel, site, read.site, name] = known, count + 1
    for race, count in found.values():
        yield replace(race, count=count)


def _has(region: Region, element: Region) -> bool:
    axes, wanted = dims(region.shape, region.strides), int(element.offsets[0])
    return any(offsets_meet(wanted - place, axes, ()) for place in region.offsets.tolist())


def _race(program: Program, written: Region, site: int, element: Region, read_site: int) -> Race:
    recording = program.recording
    task, buffer = recording.tasks[written.task], named(program, written.buffer)
    kernel = short_name(task.kernel)
    here, launch = recording.sites[read_site], recording.sites[task.site]
    reading = Side(-1, HOST, here.file, here.line, (here.file, here.line), _text(program, element))
    sides = (_side(program, task, site, written), reading)
    hidden = f"{buffer.name} is manual_dep=True" if buffer.manual_dep else f"{kernel} is in a manual scope"
    if not task.manual_scope and not buffer.manual_dep:
        hidden = f"{kernel} takes {buffer.name} as no_dep"
    why = f"the orchestration waits for the writers that the runtime knows, and {hidden}"
    place = f"{Path(launch.file).name}:{launch.line}"
    fix = f"read the element inside a task with deps= on {kernel} ({place}), or let the runtime track that write"
    return Race("raw", buffer.name, sides, 1, why, fix)
