"""A running sum in global memory: read, added to and written back by task after task, or turn after turn.

Found where a kernel reads and writes the same tiles of one tensor again and again and nobody else touches it in
between; with the loop over the summed dimension inside, an accumulator on chip is written once. Atomic adds are
another matter: they let split-K parts run side by side and are not read back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from math import prod
from typing import NamedTuple

import numpy as np

from npuscope.check.findings import Cost, Finding
from npuscope.check.program import Program
from npuscope.check.rule import Rule
from npuscope.check.shared.estimate import severity
from npuscope.check.shared.told import access_site, kernel_name, listed, size, tensor_name
from npuscope.check.traffic import Use
from npuscope.tile.record.model import Task
from npuscope.tile.record.walk import ops_of

AGAIN = 2  # times that a tile is written on average

Tile = tuple[tuple[int, ...], tuple[int, ...], int]  # shape, strides, offset


class Sum(NamedTuple):
    """Tasks of one kernel that update the tiles of a tensor one after the other."""

    first: Use
    tasks: int
    times: float  # that a tile is written
    moved: int  # bytes
    needed: int  # bytes, if every tile were written once


def gm_accumulations(program: Program) -> Iterator[Finding]:
    updated: dict[str, dict[int, None]] = defaultdict(dict)  # kernel -> tensors that its tasks read and write
    for launch, moved in zip(program.launches, program.traffic.moved, strict=True):
        both = (moved.read.keys() & moved.written.keys()) - moved.added
        if both:
            uses = (use for task in launch.tasks for use in program.traffic.uses(task))
            updated[launch.kernel].update((use.buffer, None) for use in uses if use.argument in both)
    for kernel, buffers in updated.items():
        sums = [found for buffer in buffers for found in _sums(program, kernel, buffer)]
        if sums:
            yield _told(program, sums)


def _sums(program: Program, kernel: str, buffer: int) -> Iterator[Sum]:
    """Runs of a kernel's tasks on a tensor with nobody between, that write its tiles several times."""
    tasks = program.recording.tasks
    for ours, run in groupby(program.traffic.touching[buffer], key=lambda task: tasks[task].kernel == kernel):
        if not ours:
            continue
        uses = [use for task in run for use in program.traffic.uses(task) if use.buffer == buffer]
        read: set[Tile] = set()
        written: dict[Tile, int] = defaultdict(int)
        for use in uses:
            read.update(_tiles(program, tasks[use.task], use.argument, "read"))
            for tile, often in _tiles(program, tasks[use.task], use.argument, "write").items():
                written[tile] += often
        times = sum(written.values()) / max(len(written), 1)
        if times >= AGAIN and written.keys() <= read:
            writes = sum(use.written for use in uses)
            yield Sum(uses[0], len(uses), times, writes + sum(use.read for use in uses), round(writes / times))


def _tiles(program: Program, task: Task, argument: int, mode: str) -> dict[Tile, int]:
    """The tiles that a task reads or writes through an argument, and how often."""
    found: dict[Tile, int] = defaultdict(int)
    for group in task.groups:
        plan = ((counts, a) for op, counts in ops_of(program.recording.bodies[group.body]) for a in op.accesses)
        for (counts, access), offsets in zip(plan, group.offsets, strict=True):
            if access.argument == argument and access.mode == mode:
                places, often = np.unique(offsets, return_counts=True)
                each = prod(counts) * len(group.blocks) // offsets.size
                for place, times in zip(places.tolist(), often.tolist(), strict=True):
                    found[access.shape, access.strides, place] += times * each
    return found


def _told(program: Program, sums: list[Sum]) -> Finding:
    first = sums[0].first
    launch = program.launches[program.traffic.launch[first.task]]
    site, read = access_site(program, first, "write"), access_site(program, first, "read")
    names = listed(tensor_name(program, found.first.buffer) for found in sums)
    moved = sum(found.moved for found in sums)
    cost = Cost(bytes=moved - sum(found.needed for found in sums))
    return Finding(
        id="gm-accumulate",
        severity=severity(program, cost),
        file=site.file,
        line=site.line,
        function=site.function,
        kernel=launch.kernel,
        message=f"{kernel_name(launch)} keeps a running sum in GM: every tile of {names} is read, updated and written "
        f"back up to {max(found.times for found in sums):.0f} times, {size(moved)} in all",
        fix=f"Swap the loops: go over what is summed inside one region, keep the tile of {names} on chip and write it "
        "once.",
        cost=cost,
        count=sum(found.tasks for found in sums),
        also=((read.file, read.line),),
    )


RULE = Rule(
    "gm-accumulate",
    "warning",
    "a running sum in global memory",
    "Every step of the sum is a round trip through global memory, and each waits for the one before; the accumulator "
    "of the cube or a tile in vector memory does it on chip.",
    gm_accumulations,
)
