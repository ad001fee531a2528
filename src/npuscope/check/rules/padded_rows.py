"""Matmuls whose left operand has rows without data: never written, or zeros put there to fill the tile up.

The cube works on 16 rows at a time, so 8 heads cost as much as 16; packing more rows that share the right operand is
all that helps, and where there are none, nothing does. What is always avoidable is to move the padding: a tile that
says which rows are valid loads and stores only those. So a tile padded to the next multiple of 16 and declared so
(`valid_shape=`) is no finding; undeclared padding and padding beyond that multiple are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from npuscope.check.findings import Finding, Waste
from npuscope.check.flow.dataflow import flows_of
from npuscope.check.flow.places import Place, as_one, places
from npuscope.check.flow.sums import zero_of
from npuscope.check.flow.timeline import accesses
from npuscope.check.rule import Example, Rule
from npuscope.check.traffic.table import traffic_of
from npuscope.lower.program import Program
from npuscope.ops.spec import Role
from npuscope.tile.graph.boxes import Offsets
from npuscope.tile.record.model import Access, Task
from npuscope.tile.record.walk import Step, are_in


def check(program: Program) -> Iterator[Finding]:
    if "fractal" not in program.device.core:
        return
    least = int(program.device.core["fractal"].value)
    undeclared: dict[tuple[int, int], list[Finding]] = defaultdict(list)
    for place in places(program):
        if place.step.op.plane != "cube" or ("a_trans", True) in place.step.op.attributes:
            continue
        yield from _declared(place, least)
        for argument, one in _undeclared(place):
            undeclared[id(place.launch), argument].append(one)
    yield from map(as_one, undeclared.values())


def _declared(place: Place, least: int) -> Iterator[Finding]:
    """Padding that the tile declares, beyond what the cube needs."""
    lefts = place.flow.makers(place.step, 1)
    if not lefts or any(left.result.valid is None for left in lefts):
        return
    rows = lefts[0].result.shape[-2]
    valid = max(left.result.valid[-2] for left in lefts if left.result.valid is not None)
    needed = -(-valid // least) * least
    if valid and rows > needed:
        yield RULE.at(
            place.site,
            f"multiplies {rows} rows of which {valid} are valid: {valid / rows:.0%} useful",
            f"Make the tile {needed} rows high, the least the cube can do for {valid}.",
            kernel=place.kernel,
            waste=Waste(flops=place.step.op.flops * (rows - needed) // rows * place.runs),
            count=place.runs,
        )


def _undeclared(place: Place) -> Iterator[tuple[int, Finding]]:
    """Padding that nothing declares, with the argument that has it."""
    loads = place.flow.makers(place.step, 1, (Role.SAME_PLACES,))
    if len(loads) != 1 or not loads[0].loads or len(loads[0].result.shape) < 2:
        return
    load = place.other(loads[0])
    (access,) = load.step.op.accesses
    rows = load.step.result.shape[-2]
    buffer = load.buffer(access)
    if buffer.origin == "parameter" or len(access.shape) < 2 or access.shape[-2] != rows:
        return
    data, zeros = _rows(load, access)
    if not 0 < data < rows:
        return
    padding = rows - data
    what = "hold zeros" if zeros == padding else "were never written" if not zeros else "hold no data"
    columns = load.step.result.shape[-1]
    told = RULE.at(
        place.site,
        f"multiplies all {rows} rows of a tile of {buffer.name}, {padding} of which {what}: {data / rows:.0%} useful",
        "Say which rows are valid, so that only those are loaded and stored; put more rows into the tile where "
        "they share the right operand (the cube does no fewer than 16).",
        kernel=place.kernel,
        severity="warning" if zeros < padding else "hint",
        change=f"pl.slice({buffer.name}, [{rows}, {columns}], [...], valid_shape=[{data}, {columns}])",
        waste=Waste(
            flops=place.step.op.flops * padding // rows * place.runs,
            bytes=load.bytes(access) * padding // rows * load.runs,
        ),
        count=place.runs,
        also=[load.site],
    )
    yield access.argument, told


def _rows(load: Place, access: Access) -> tuple[int, int]:
    """Rows of what a step loads first that some task wrote data to, and rows that got only zeros."""
    program = load.program
    reader = program.first_task(load.launch)
    start = _offsets(load.program, reader, load.step, access)[0]
    rows, columns = access.shape[-2:]
    row, column = access.strides[-2:]
    across = np.unique([0, columns // 2, columns - 1]) * column  # a row counts as written if one of these is
    elements = np.add.outer(np.arange(rows) * row, across).ravel() + start
    root, _, _, elements = traffic_of(program).placement.pieces(
        (reader.arguments[access.argument].buffer, (), (), elements)
    )
    data = np.zeros(rows, np.bool_)
    zeros = np.zeros(rows, np.bool_)
    for empty, where, offsets in _writes(program, root, reader.id):
        hit = np.any(are_in(where, offsets, elements).reshape(rows, -1), axis=1)
        if empty:
            zeros |= hit
        else:
            data |= hit
        if np.all(data):
            break
    return int(np.sum(data)), int(np.sum(zeros & ~data))


def _offsets(program: Program, task: Task, wanted: Step, access: Access) -> Offsets:
    for group in task.groups:
        for (step, one), offsets in zip(accesses(flows_of(program)[group.body]), group.offsets, strict=True):
            if step is wanted and one is access:
                return offsets.ravel()
    raise AssertionError("a step of another task")


def _writes(program: Program, root: int, until: int) -> Iterator[tuple[bool, Access, Offsets]]:
    """Every write to a buffer by tasks up to one: whether it is padding, box and places.

    Zeros are padding where data are written beside them by the same body. Zeros of a body of their own are a branch
    that a row takes today and not tomorrow: a sequence that has ended.
    """
    placement = traffic_of(program).placement
    for number in traffic_of(program).touching[root]:
        if number > until:
            return
        task = program.recording.tasks[number]
        into = {n for n, a in enumerate(task.arguments) if a.writes and placement.root(a.buffer) == root}
        for group in task.groups if into else ():
            flow = flows_of(program)[group.body]
            writes = [
                (access, offsets, zero_of(flow, step) is not None)
                for (step, access), offsets in zip(accesses(flow), group.offsets, strict=True)
                if access.mode != "read" and access.argument in into
            ]
            beside_data = not all(zero for _, _, zero in writes)
            for access, offsets, zero in writes:
                part = task.arguments[access.argument].buffer
                _, shape, strides, where = placement.pieces((part, access.shape, access.strides, offsets.ravel()))
                yield zero and beside_data, Access(0, access.mode, shape, strides), where


RULE = Rule(
    "padded-rows",
    "hint",
    "matmul rows without data",
    "Rows of padding are multiplied like others, and undeclared ones are loaded, stored and carried along as well. The "
    "cube does 16 rows at least, so a tile filled up to 16 and declared with valid_shape= is no finding; FLOPs of such "
    "rows are saved only by more rows that share the right operand.",
    check,
    Example(
        "q = pl.slice(q_padded, [16, 128], [0, 0])  # 8 rows are data",
        "q = pl.slice(q_padded, [16, 128], [0, 0], valid_shape=[8, 128])",
        "bytes and FLOPs of the rows without data",
    ),
)
