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

from npuscope.check.findings import Finding, Waste
from npuscope.check.rule import Example, Rule
from npuscope.check.traffic.estimate import severity
from npuscope.check.traffic.table import Use, traffic_of
from npuscope.check.wording.told import access_site, listed, size, tensor_name
from npuscope.lower.program import Program
from npuscope.tile.record.model import Task, short_name
from npuscope.tile.record.walk import accesses_of

AGAIN = 2  # times that a tile is written on average

TileBox = tuple[tuple[int, ...], tuple[int, ...], int]  # shape, strides, offset


class RunningSum(NamedTuple):
    """Tasks of one kernel that update the tiles of a tensor one after the other."""

    first: Use
    tasks: int
    times: float  # that a tile is written
    moved: int  # bytes
    needed: int  # bytes, if every tile were written once


def gm_accumulations(program: Program) -> Iterator[Finding]:
    updated: dict[str, dict[int, None]] = defaultdict(dict)  # kernel -> tensors that its tasks read and write
    for launch, moved in zip(program.launches, traffic_of(program).moved, strict=True):
        both = (moved.read.keys() & moved.written.keys()) - moved.added
        if both:
            uses = (use for task in launch.tasks for use in traffic_of(program).uses(task))
            updated[launch.kernel].update((use.buffer, None) for use in uses if use.argument in both)
    for kernel, buffers in updated.items():
        sums = [found for buffer in buffers for found in _sums(program, kernel, buffer)]
        if sums:
            yield _told(program, sums)


def _sums(program: Program, kernel: str, buffer: int) -> Iterator[RunningSum]:
    """Runs of a kernel's tasks on a tensor with nobody between, that write its tiles several times."""
    tasks = program.recording.tasks
    for ours, run in groupby(traffic_of(program).touching[buffer], key=lambda task: tasks[task].kernel == kernel):
        if not ours:
            continue
        uses = [use for task in run for use in traffic_of(program).uses(task) if use.buffer == buffer]
        read: set[TileBox] = set()
        written: dict[TileBox, int] = defaultdict(int)
        for use in uses:
            read.update(_tiles(program, tasks[use.task], use.argument, "read"))
            for tile, often in _tiles(program, tasks[use.task], use.argument, "write").items():
                written[tile] += often
        times = sum(written.values()) / max(len(written), 1)
        if times >= AGAIN and written.keys() <= read:
            writes = sum(use.written for use in uses)
            yield RunningSum(uses[0], len(uses), times, writes + sum(use.read for use in uses), round(writes / times))


def _tiles(program: Program, task: Task, argument: int, mode: str) -> dict[TileBox, int]:
    """The tiles that a task reads or writes through an argument, and how often."""
    found: dict[TileBox, int] = defaultdict(int)
    for group in task.groups:
        plan = accesses_of(program.recording.bodies[group.body])
        for (_, access, counts), offsets in zip(plan, group.offsets, strict=True):
            if access.argument == argument and access.mode == mode:
                places, often = np.unique(offsets, return_counts=True)
                each = prod(counts) * len(group.blocks) // offsets.size
                for place, times in zip(places.tolist(), often.tolist(), strict=True):
                    found[access.shape, access.strides, place] += times * each
    return found


def _told(program: Program, sums: list[RunningSum]) -> Finding:
    first = sums[0].first
    launch = program.launches[traffic_of(program).launch[first.task]]
    site, read = access_site(program, first, "write"), access_site(program, first, "read")
    names = listed(tensor_name(program, found.first.buffer) for found in sums)
    moved = sum(found.moved for found in sums)
    cost = Waste(bytes=moved - sum(found.needed for found in sums))
    return RULE.at(
        site,
        f"{short_name(launch.kernel)} keeps a running sum in GM: every tile of {names} is read, updated and written "
        f"back up to {max(found.times for found in sums):.0f} times, {size(moved)} in all",
        f"Swap the loops: go over what is summed inside one region, keep the tile of {names} on chip and write it "
        "once.",
        kernel=launch.kernel,
        severity=severity(program, cost),
        waste=cost,
        count=sum(found.tasks for found in sums),
        also=[read],
    )


RULE = Rule(
    "gm-accumulate",
    "warning",
    "a running sum in global memory",
    "Every step of the sum is a round trip through global memory, and each waits for the one before; the accumulator "
    "of the cube or a tile in vector memory does it on chip.",
    gm_accumulations,
    Example(
        "for n0 in pl.range(0, INTER, 64):\n"
        "    with pl.at(level=CORE):\n"
        "        part = pl.matmul(mlp, w_down[n0 : n0 + 64, :])\n"
        "        down = pl.assemble(down, pl.add(down[:, :], part), [0, 0])  # the whole sum, every turn",
        "with pl.at(level=CORE):\n"
        "    acc = pl.matmul(mlp[:, 0:64], w_down[0:64, :], out_dtype=pl.FP32)\n"
        "    for n0 in pl.pipeline(64, INTER, 64, stage=2):\n"
        "        acc = pl.matmul_acc(acc, mlp[:, n0 : n0 + 64], w_down[n0 : n0 + 64, :])\n"
        "    down = pl.assemble(down, acc, [0, 0])",
        "bytes read and written beyond one write",
    ),
)
