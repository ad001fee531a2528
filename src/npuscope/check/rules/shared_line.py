"""Scalar writes of two cores to one line of GM: each writes back its copy of the whole line, and one write is lost.

Two blocks of a launch between two barriers, or two tasks that nothing orders. Stores of tiles do not go through that
cache.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from npuscope.check.findings import Finding
from npuscope.check.flow.dataflow import flows_of
from npuscope.check.races.between_blocks import Phased, phased
from npuscope.check.races.order import order_of
from npuscope.check.rule import Example, Rule
from npuscope.lower.program import Program
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile.graph.boxes import Offsets


class _Writer(NamedTuple):
    """A block that wrote elements between two barriers at one line of the source; `lines` of GM that they lie in."""

    task: int
    block: int
    phase: int
    site: int
    lines: Offsets


def check(program: Program) -> Iterator[Finding]:
    if "scalar_line" not in program.device.core:
        return
    size = int(program.device.core["scalar_line"].value)
    for buffer, writers in _writers(program, size).items():
        told = set()
        for one, other in _sharing(program, writers):
            if (one.site, other.site) not in told:
                told.add((one.site, other.site))
                yield _finding(program, buffer, one, other, size)


def _writers(program: Program, size: int) -> dict[int, list[_Writer]]:
    recording = program.recording

    @cache
    def scalar(body: int) -> list[tuple[int, Phased]]:
        steps = flows_of(program)[body].steps
        if not any(step.op.plane == "scalar" and step.op.accesses for step in steps):
            return []
        plan = phased(steps)
        return [(n, p) for n, p in enumerate(plan) if p.op.plane == "scalar" and p.access.mode == "write"]

    found: dict[int, list[_Writer]] = defaultdict(list)
    for task in recording.tasks:
        for group in task.groups:
            for n, (op, access, phase) in scalar(group.body):
                buffer = task.arguments[access.argument].buffer
                lines = group.offsets[n] * BY_NAME[recording.buffers[buffer].dtype].bytes // size
                shape = np.broadcast_shapes(lines.shape, phase.shape, (len(group.blocks),))
                where, when = np.broadcast_to(lines, shape), np.broadcast_to(phase, shape)
                for k, block in enumerate(group.blocks.tolist()):
                    for number in np.unique(when[..., k]).tolist():
                        mine = np.unique(where[..., k][when[..., k] == number])
                        found[buffer].append(_Writer(task.id, block, number, op.site, mine))
    return found


def _sharing(program: Program, writers: Sequence[_Writer]) -> Iterator[tuple[_Writer, _Writer]]:
    """Pairs that write to one line and are not ordered: for every writer the first such one before it."""
    owner = np.repeat(np.arange(len(writers)), [len(writer.lines) for writer in writers])
    lines = np.concatenate([writer.lines for writer in writers])
    together = np.lexsort((owner, lines))
    ends = np.flatnonzero(np.diff(lines[together], append=-1)) + 1
    lists = {tuple(part.tolist()) for part in np.split(owner[together], ends) if len(part) > 1}
    for numbers in sorted(lists):
        here = [writers[n] for n in numbers]
        for n, later in enumerate(here):
            before = order_of(program).before[later.task]
            for earlier in here[:n]:
                if earlier.task == later.task:
                    loose = earlier.block != later.block and earlier.phase == later.phase
                else:
                    loose = not before >> earlier.task & 1
                if loose:
                    yield earlier, later
                    break


def _finding(program: Program, buffer: int, one: _Writer, other: _Writer, size: int) -> Finding:
    recording = program.recording
    site, first = recording.sites[other.site], recording.sites[one.site]
    kernels = [recording.tasks[writer.task].kernel for writer in (one, other)]
    name, width = recording.buffers[buffer].name, BY_NAME[recording.buffers[buffer].dtype].bytes
    who = f"blocks {one.block} and {other.block} of {kernels[1]}"
    if one.task != other.task:
        who = f"two tasks of {kernels[1]}" if kernels[0] == kernels[1] else f"{kernels[0]} and {kernels[1]}"
        who += ", which nothing orders,"
    return RULE.at(
        site,
        f"{who} write elements of one {size}-byte line of {name} by pl.write: a core writes back the whole line, "
        "and what the other put there is lost",
        f"Keep them {size // width} elements apart, let one block write them all, or store them as a tile.",
        kernel=kernels[1],
        also=[] if first == site else [first],
    )


RULE = Rule(
    "shared-line",
    "warning",
    "two cores write to one line of GM element by element",
    "pl.write goes through a core's cache, which writes back whole lines: neighbours' elements come back with it.",
    check,
    Example(
        "for b in pl.spmd(16):\n    pl.write(lengths, [b], n)  # 16 numbers in one line of 512 bytes",
        "for b in pl.spmd(16):\n    pl.write(lengths, [b, 0], n)  # [16, 128] INT32: a line each",
    ),
)
