"""Tiles that waste what they move or multiply: tile-size, short-row, padded-rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import prod

import numpy as np

from npuscope.check.dataflow import SAME, StepPlace, as_one, flows_of, places, shown, zero_of
from npuscope.check.gm_traffic import accesses, traffic_of
from npuscope.check.rule import Example, Finding, Waste, rule
from npuscope.chip.devices import PER_CYCLE
from npuscope.lower.program import Program
from npuscope.ops.dtypes import BY_NAME
from npuscope.ops.spec import OpRole
from npuscope.tile.graph.boxes import Offsets, dims
from npuscope.tile.record.model import Access, Task, TileType
from npuscope.tile.record.walk import Step, are_in

STARTING = 0.5


@rule(
    "tile-size",
    "hint",
    "a matmul smaller than its start",
    "Every matmul instruction takes a fixed number of cycles before the first product; small tiles pay it often.",
    Example(
        "acc = pl.matmul_acc(acc, x[:, k0 : k0 + 16], w[k0 : k0 + 16, 0:16])",
        "acc = pl.matmul_acc(acc, x[:, k0 : k0 + 128], w[k0 : k0 + 128, 0:128])",
        "FLOPs that fit into the starts",
    ),
)
def tile_size(program: Program) -> Iterator[Finding]:
    core = program.device.core
    if not {"l0_head", "l0_cycles", "l0_cycles_fp32", "fractal", "fractal_k"} <= set(core):
        return
    head = core["l0_head"].value
    small: dict[tuple[int, str, str], list[Finding]] = defaultdict(list)
    for place in places(program):
        lefts, rights = (place.flow.makers(place.step, n) if place.step.op.plane == "cube" else () for n in (1, 2))
        if not lefts or not rights or not _has_more(place):
            continue
        left = lefts[0].result
        work = _cycles(program, left, place.step.result)
        share = head / (head + work)
        if share <= STARTING:
            continue
        rate = program.device.cube.get(left.dtype.lower())
        per_cycle = rate.value if rate is not None and rate.unit == PER_CYCLE else 0.0
        tiles = shown(left), shown(rights[0].result)
        finding = tile_size.at(
            place.site,
            f"multiplies {tiles[0]} by {tiles[1]}: of {head + work:.0f} cycles {head:.0f} go into starting it "
            f"({share:.0%})",
            "Take a larger tile of the right operand: more columns, or more of K per step.",
            kernel=place.kernel,
            waste=Waste(flops=round(head * per_cycle * place.runs)),
            count=place.runs,
        )
        small[id(place.launch), *tiles].append(finding)
    yield from map(as_one, small.values())


def _cycles(program: Program, left: TileType, product: TileType) -> float:
    """Cycles of the multiply-adds alone."""
    core = program.device.core
    size = BY_NAME[left.dtype].bytes
    rows, columns = product.shape[-2:]
    depth = left.shape[-1] * left.shape[-2] // rows
    fractal, step = core["fractal"].value, core["fractal_k"].value / size
    per = core["l0_cycles_fp32" if size == 4 else "l0_cycles"].value
    return per * prod(product.shape[:-2]) * -(-rows // fractal) * -(-depth // step) * -(-columns // fractal)


def _has_more(place: StepPlace) -> bool:
    """Whether the right operand is a part of its tensor."""
    loads = place.flow.makers(place.step, 2, SAME)
    if len(loads) != 1 or not loads[0].loads:
        return False
    (access,) = loads[0].op.accesses
    extents = place.argument(access).shape
    return any(more > here for more, here in zip(extents, access.shape, strict=False))


NOTICEABLE = 0.02  # of all bytes that the program moves from and to GM
LEAST_BYTES = 4096  # bytes


@rule(
    "short-row",
    "hint",
    "rows shorter than a line of global memory",
    "Global memory is read and written in lines; the rest of the line is paid for and thrown away. Reported where "
    "that is 2% of all the program moves, and where the tensor's rows are longer than the tile's.",
    Example(
        "w_tile = pl.slice(w, [128, 64], [k0, n0])  # BF16: 128 bytes of each line of 512",
        "w_tile = pl.slice(w, [128, 256], [k0, n0])",
        "bytes of lines that are paid for and thrown away",
    ),
)
def short_row(program: Program) -> Iterator[Finding]:
    if "gm_line" not in program.device.core:
        return
    line = int(program.device.core["gm_line"].value)
    moved = 0
    short: dict[tuple[int, int, bool], list[Finding]] = defaultdict(list)
    for place in places(program):
        for access in place.step.op.accesses:
            moved += place.bytes(access) * place.runs
            if place.step.op.plane in ("load", "store") and (finding := _short_row(place, access, line)) is not None:
                short[id(place.launch), access.argument, access.mode == "read"].append(finding)
    for finding in map(as_one, short.values()):
        if finding.waste.bytes >= max(NOTICEABLE * moved, LEAST_BYTES):
            yield finding


def _short_row(place: StepPlace, access: Access, line: int) -> Finding | None:
    """Lost are bytes of lines that are moved beside what a step wants, as far as the tensor's rows could fill them."""
    buffer, argument = place.buffer(access), place.argument(access)
    size = BY_NAME[buffer.dtype].bytes
    joined = dims(access.shape, access.strides)
    moved, row = place.bytes(access), size * (joined[0][0] if joined and joined[0][1] == 1 else 1)
    whole = size * argument.shape[-1] if argument.shape and argument.strides[-1] == 1 else 0
    lost = (min(whole, line) - row) * (moved // row) * place.runs
    if lost <= 0:
        return None
    return short_row.at(
        place.site,
        f"{'reads' if access.mode == 'read' else 'writes'} {moved:,} bytes of {buffer.name} as "
        f"{moved // row:,} x {row} B; a line of global memory is {line} B",
        f"Make the tile wider: {min(line, whole) // size} columns of {buffer.dtype} "
        f"{'fill a line' if whole >= line else 'are a whole row'}.",
        kernel=place.kernel,
        waste=Waste(bytes=lost),
        count=place.runs,
    )


@rule(
    "padded-rows",
    "hint",
    "matmul rows without data",
    "Rows of padding are multiplied like others, and undeclared ones are loaded, stored and carried along as well. The "
    "cube does 16 rows at least, so a tile filled up to 16 and declared with valid_shape= is no finding; FLOPs of such "
    "rows are saved only by more rows that share the right operand.",
    Example(
        "q = pl.slice(q_padded, [16, 128], [0, 0])  # 8 rows are data",
        "q = pl.slice(q_padded, [16, 128], [0, 0], valid_shape=[8, 128])",
        "bytes and FLOPs of the rows without data",
    ),
)
def padded_rows(program: Program) -> Iterator[Finding]:
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


def _declared(place: StepPlace, least: int) -> Iterator[Finding]:
    """Padding that the tile declares, beyond what the cube needs."""
    lefts = place.flow.makers(place.step, 1)
    if not lefts or any(left.result.valid is None for left in lefts):
        return
    rows = lefts[0].result.shape[-2]
    valid = max(left.result.valid[-2] for left in lefts if left.result.valid is not None)
    needed = -(-valid // least) * least
    if valid and rows > needed:
        yield padded_rows.at(
            place.site,
            f"multiplies {rows} rows of which {valid} are valid: {valid / rows:.0%} useful",
            f"Make the tile {needed} rows high, the least the cube can do for {valid}.",
            kernel=place.kernel,
            waste=Waste(flops=place.step.op.flops * (rows - needed) // rows * place.runs),
            count=place.runs,
        )


def _undeclared(place: StepPlace) -> Iterator[tuple[int, Finding]]:
    """Padding that nothing declares, with the argument that has it."""
    loads = place.flow.makers(place.step, 1, (OpRole.SAME_PLACES,))
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
    finding = padded_rows.at(
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
    yield access.argument, finding


def _rows(load: StepPlace, access: Access) -> tuple[int, int]:
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
    written = np.zeros((2, rows), np.bool_)  # with data, with zeros
    for empty, where, offsets in _writes(program, root, reader.id):
        written[int(empty)] |= np.any(are_in(where, offsets, elements).reshape(rows, -1), axis=1)
        if np.all(written[0]):
            break
    return int(np.sum(written[0])), int(np.sum(written[1] & ~written[0]))


def _offsets(program: Program, task: Task, wanted: Step, access: Access) -> Offsets:
    return next(
        offsets.ravel()
        for group in task.groups
        for (step, one), offsets in zip(accesses(flows_of(program)[group.body]), group.offsets, strict=True)
        if step is wanted and one is access
    )


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
