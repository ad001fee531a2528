"""Races inside one SPMD launch: its blocks are never ordered, except by the barriers (`syncall`) that they all reach.

A phase is what runs between two barriers; accesses of two blocks conflict only within a phase. Launches that touch
the same places up to a shift (the next layer's) are looked at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cache
from itertools import takewhile
from math import prod
from typing import NamedTuple

import numpy as np

from npuscope.check.flow.dataflow import flows_of
from npuscope.check.races.between_tasks import AccessName, meeting
from npuscope.check.races.conflicts import unordered
from npuscope.check.races.element_classes import ElementClasses
from npuscope.check.races.model import Race, side_of
from npuscope.lower.program import Program
from npuscope.ops.spec import Role
from npuscope.tile.graph.boxes import Offsets
from npuscope.tile.graph.exact import Hazard, Region, once
from npuscope.tile.record.model import Access, Op, Recording, Task
from npuscope.tile.record.walk import Step

WHY = "the blocks of one launch run at once, in any order"
APART = "give each block elements of its own"
IN_TURN = (
    f"{APART}, put pl.system.syncall() between the two, or make it two launches, the second with deps= on the first"
)


Plan = Callable[[int], "list[Phased]"]


class Phased(NamedTuple):
    """An access of a body, and how many barriers its block has passed: a number, or one per iteration as offsets."""

    op: Op
    access: Access
    phase: Offsets


class _Example(NamedTuple):
    task: Task
    blocks: tuple[int, int]
    regions: tuple[Region, Region]


def block_races(program: Program) -> Iterator[Race]:
    """One race per kernel, pair of lines, hazard and name of the buffer; `count` pairs of blocks over all launches."""
    recording = program.recording
    plan = cache(lambda body: phased(flows_of(program)[body].steps))
    alike: dict[Hashable, list[Task]] = defaultdict(list)
    for task in recording.tasks:
        if task.blocks > 1 and task.groups and task.form != "extern":
            alike[_shifted(task, recording, plan)].append(task)
    found: dict[tuple[AccessName, AccessName, Hazard, str], tuple[_Example, int]] = {}
    for tasks in alike.values():
        for key, example, pairs in _races_of(tasks[0], recording, plan):
            known, count = found.get(key, (example, 0))
            found[key] = known, count + pairs * len(tasks)
    for (one, other, kind, name), (example, count) in found.items():
        sides = [
            side_of(program, example.task, access.site, region, block)
            for block, access, region in zip(example.blocks, (one, other), example.regions, strict=True)
        ]
        yield Race(kind, name, (sides[0], sides[1]), count, WHY, APART if one.site == other.site else IN_TURN)


def _races_of(
    task: Task, recording: Recording, plan: Plan
) -> Iterator[tuple[tuple[AccessName, AccessName, Hazard, str], _Example, int]]:
    """The races of one launch: what is shown of each, and how many pairs of blocks have it."""
    touched: dict[tuple[int, int], list[tuple[Region, AccessName]]] = defaultdict(list)
    for phase, site, region in _touches(task, plan):
        touched[region.buffer, phase].append((region, AccessName(task.kernel, site)))
    alone = {block: 1 << block for group in task.groups for block in group.blocks.tolist()}
    for (buffer, _), entries in touched.items():
        entries.sort(key=lambda entry: entry[0].task)
        regions, names = [entry[0] for entry in entries], [entry[1] for entry in entries]
        for (one, other, kind), pairs in unordered(regions, names, alone, ElementClasses()).items():
            later = min(pairs)
            earlier = pairs[later].bit_length() - 1
            shown = meeting(
                [r for r, name in entries if r.task == earlier and name == one],
                [r for r, name in entries if r.task == later and name == other],
                kind,
            )
            count = sum(mask.bit_count() for mask in pairs.values())
            key = (one, other, kind, recording.buffers[buffer].name)
            yield key, _Example(task, (earlier, later), shown), count


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
                for number in once(phases[..., n].ravel()).tolist():
                    mine = once(places[..., n][phases[..., n] == number])
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
    barriers = [step for step in steps if step.op.spec.is_a(Role.BARRIER)]
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
