"""What happened to one buffer, access by access in the order of submission, on a grid of cells all accesses fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from npuscope.check.flow.dataflow import Flow, flows_of
from npuscope.check.traffic.table import traffic_of
from npuscope.lower.program import Program
from npuscope.tile.graph.boxes import Offsets
from npuscope.tile.graph.exact import Region, cells_of
from npuscope.tile.record.model import Access
from npuscope.tile.record.walk import Step


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
