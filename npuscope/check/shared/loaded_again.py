"""What one kernel loads more often than need be.

Two findings: a load in a loop that loads the same tile every turn; and a tile so narrow that every block of a matmul
loads the whole of its other operand again for a few columns (narrow: its rows are shorter than a line of memory).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

import numpy as np

from npuscope.check.findings import Cost, Finding
from npuscope.check.program import Launch, Program
from npuscope.check.shared.fusable import room
from npuscope.check.shared.told import listed, size, tensor_name
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile.graph.aliases import Offsets
from npuscope.tile.record.model import Access, Op, Task
from npuscope.tile.record.walk import Counts, ops_of

SHARE = 0.05  # of what a kernel reads: less is not worth a change
RELOADED = 0.1


class Load(NamedTuple):
    """An access of a task that reads a tile of a tensor it does not write."""

    op: Op
    counts: Counts
    access: Access
    offsets: Offsets
    bytes: int  # of one tile
    times: int  # over all blocks of the task


def least(program: Program) -> float:
    """Bytes below which a transfer is not worth talking about: a line of memory."""
    return program.device.core["gm_line"].value if "gm_line" in program.device.core else 0.0


def loaded_again(program: Program) -> Iterator[Finding]:
    for number, launch in enumerate(program.launches):
        loads = list(_loads(program, program.first_task(launch)))
        yield from _every_turn(program, number, loads)
        yield from _for_few_columns(program, number, loads)


def _loads(program: Program, task: Task) -> Iterator[Load]:
    recording = program.recording
    for group in task.groups:
        plan = [(op, counts, a) for op, counts in ops_of(recording.bodies[group.body]) for a in op.accesses]
        for (op, counts, access), offsets in zip(plan, group.offsets, strict=True):
            argument = task.arguments[access.argument]
            if access.mode == "read" and op.plane != "scalar" and not argument.writes:
                width = BY_NAME[recording.buffers[argument.buffer].dtype].bytes
                times = prod(counts) * len(group.blocks)
                yield Load(op, counts, access, offsets, access.elements * width, times)


def _every_turn(program: Program, number: int, loads: list[Load]) -> Iterator[Finding]:
    """Loads whose place does not change in the innermost loop around them."""
    launch = program.launches[number]
    reads = sum(program.traffic.moved[number].read.values())
    for load in loads:
        turns = load.counts[-1] if load.counts else 1
        again = load.bytes * (load.times - load.times // turns)
        fits = least(program) <= load.bytes <= room(program, "Vec" if launch.core == "AIV" else "Mat")
        if turns > 1 and fits and again >= SHARE * reads and not _moves(load):
            name = tensor_name(program, program.first_task(launch).arguments[load.access.argument].buffer)
            yield _finding(
                program,
                launch,
                load,
                f"the same {size(load.bytes)} of {name} are loaded in each of {turns} turns of a loop",
                f"Load the tile of {name} once, before the loop.",
                Cost(bytes=again * len(launch.tasks)),
            )


def _moves(load: Load) -> bool:
    """Whether the place changes along the innermost loop: its axis is the first, if there are as many as loops."""
    if load.offsets.ndim <= len(load.counts):
        return False
    return bool(np.any(load.offsets != load.offsets[:1]))


def _for_few_columns(program: Program, number: int, loads: list[Load]) -> Iterator[Finding]:
    """An operand that every block of every task loads whole, for columns that do not fill a line."""
    launch, moved = program.launches[number], program.traffic.moved[number]
    blocks = len(launch.tasks) * launch.blocks
    reads = sum(moved.read.values())
    if not moved.flops or blocks < 2:
        return
    rows = {load.access.argument: load.bytes // prod(load.access.shape[:-1]) for load in loads if load.bytes}
    most = max(moved.read.values())
    streamed = [argument for argument in rows if moved.read[argument] == most]
    if not streamed or rows[streamed[0]] >= least(program) or not _part_of_a_row(program, launch, loads, streamed[0]):
        return
    for argument in rows:
        if argument in streamed or moved.read[argument] < RELOADED * reads:
            continue
        places = {_places(program, program.recording.tasks[task], argument) for task in launch.tasks}
        tensors = {place[0] for place in places if place is not None}
        if None in places or len(tensors) < len(places):
            continue
        here = [load for load in loads if load.access.argument == argument]
        whole = sum(np.unique(load.offsets).size * load.bytes for load in here) * len(tensors)
        times = moved.read[argument] * len(launch.tasks) // whole
        arguments = program.first_task(launch).arguments
        name = tensor_name(program, arguments[argument].buffer)
        others = listed(tensor_name(program, arguments[n].buffer) for n in streamed)
        if times > 1:
            yield _finding(
                program,
                launch,
                here[0],
                f"{name} ({size(whole / len(tensors))}) is loaded {times:,} times, once for every {rows[streamed[0]]} "
                f"bytes of the rows of {others}: {moved.read[argument] / reads:.0%} of what the kernel reads",
                f"Take wider tiles of {others}, {least(program):.0f} bytes a row or more, to load {name} less often.",
                Cost(bytes=moved.read[argument] * len(launch.tasks) - whole),
            )


def _part_of_a_row(program: Program, launch: Launch, loads: list[Load], argument: int) -> bool:
    """Whether tiles of an argument could be wider: it has longer rows."""
    width = program.first_task(launch).arguments[argument].shape[-1]
    return all(load.access.shape[-1] < width for load in loads if load.access.argument == argument)


def _places(program: Program, task: Task, argument: int) -> tuple[int, bytes] | None:
    """Where every block of a task loads an argument's tensor; None where blocks do not do the same."""
    if len(task.groups) != 1:
        return None
    (group,) = task.groups
    found = b""
    plan = (access for op, _ in ops_of(program.recording.bodies[group.body]) for access in op.accesses)
    for access, offsets in zip(plan, group.offsets, strict=True):
        if access.argument == argument:
            if np.any(offsets != offsets[..., :1]):
                return None
            found += offsets[..., :1].tobytes()
    return task.arguments[argument].buffer, found


def _finding(program: Program, launch: Launch, load: Load, message: str, fix: str, cost: Cost) -> Finding:
    site = program.site(load.op.site)
    return Finding(
        id="shared-load",
        severity="hint",
        file=site.file,
        line=site.line,
        function=site.function,
        kernel=launch.kernel,
        message=message,
        fix=fix,
        cost=cost,
        count=len(launch.tasks),
    )
