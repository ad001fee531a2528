"""Sums of matrix products that leave the cube's accumulator: add-matmul, and those that live in GM: gm-accumulate.

A product may be added up on a vector core because it was written so (then one line changes), because the sum lives in
GM (then the loops change places), or because the product itself crosses GM on the way (then the stages are to be
fused first). A sum that is rescaled between two products, as in online softmax, is no `matmul_acc` and no finding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from math import prod
from typing import NamedTuple

import numpy as np

from npuscope.check.dataflow import SAME, Flow, StepPlace, acc_of, flows_of, places, shown, sum_in_gm, sums, tile_bytes
from npuscope.check.gm_traffic import Use, severity, traffic_of
from npuscope.check.phrases import access_site, listed, size, tensor_name
from npuscope.check.rule import Example, Finding, Waste, once, rule
from npuscope.check.source_text import accumulated
from npuscope.lower.program import KernelLaunch, Program
from npuscope.ops.spec import OpRole
from npuscope.tile.record.model import Task, short_name
from npuscope.tile.record.walk import Step, accesses_of

RESCALED = (*SAME, OpRole.PART, OpRole.CAST, OpRole.PRODUCT, OpRole.QUOTIENT)


@rule(
    "add-matmul",
    "warning",
    "a sum of products outside the accumulator",
    "The cube adds to its accumulator for nothing; a product that is added on a vector core must be drained, moved and "
    "read back, on chips without a ring on chip through global memory.",
    Example(
        "acc = pl.add(acc, pl.matmul(a, b))",
        "acc = pl.matmul_acc(acc, a, b)",
        "bytes that leave the accumulator and come back, additions",
    ),
)
def add_matmul(program: Program) -> Iterator[Finding]:
    rules = program.device.rules
    through_gm = rules is None or not rules.ring_on_chip
    for place in places(program):
        acc = acc_of(place.flow, place.step)
        if acc is None:
            continue
        if sums(place.flow, place.step, acc):
            what, change = "a sum", accumulated(place.site)
            fix = "Keep the sum in the accumulator: pl.matmul for the first step, pl.matmul_acc for the others."
        elif (steps := sum_in_gm(place.flow, place.step, acc)) is not None:  # that traffic is gm-accumulate's
            name = place.buffer(steps[0].op.accesses[0]).name
            what, change = f"{name}, loaded and stored again,", ""
            fix = f"Put the loop over K inside, so that {name} is written once from the accumulator (pl.matmul_acc)."
        else:
            continue
        moved = tile_bytes(place.step.result)
        yield add_matmul.at(
            place.site,
            f"adds a product {shown(place.step.result)} to {what} on a vector core: {moved:,} bytes leave the "
            "cube's accumulator at every step",
            fix,
            kernel=place.kernel,
            change=change,
            waste=Waste(bytes=2 * moved * place.runs if through_gm else 0, flops=moved // 4 * place.runs),
            count=place.runs,
        )
    yield from _crossing_products(program)


# --- products that cross global memory on their way into a sum


class Written(NamedTuple):
    """A step that stores to a buffer, in a task; `product` is the matmul whose result it stores, if it does."""

    task: int
    body: int
    store: Step
    product: Step | None


def _crossing_products(program: Program) -> Iterator[Finding]:
    """A finding for every matmul whose product another task adds to a running sum, and for the matmul before it."""
    launches = {task: launch for launch in program.launches for task in launch.tasks}
    seen: set[tuple[int, int]] = set()
    for place in places(program):
        if not place.step.op.spec.is_a(OpRole.SUM) or len(place.step.operands) != 2:
            continue
        for summed, product in ((0, 1), (1, 0)):
            values = _cube_store(program, place, product)
            if values is None or not _carried(program, place, summed):
                continue
            scores = _upstream(program, launches, values)
            for written in (scores, values):
                if written is not None and (written.body, written.store.number) not in seen:
                    seen.add((written.body, written.store.number))
                    yield _crossing(program, launches[written.task], written, place)


def _cube_store(program: Program, place: StepPlace, operand: int) -> Written | None:
    """The store of a product, by a task of its own, that an operand was loaded from."""
    loads = place.flow.makers(place.step, operand, RESCALED)
    if not loads or not all(load.loads for load in loads):
        return None
    return next((written for written in _writers(program, place.launch, loads[0]) if written.product), None)


def _carried(program: Program, place: StepPlace, operand: int) -> bool:
    """Whether an operand is a sum that tasks hand on: stored back where it came from, or by tasks of this kernel."""
    loads = [load for load in place.flow.makers(place.step, operand, RESCALED) if load.loads]
    stored = {use.op.accesses[0].argument for use in place.flow.uses(place.step, SAME) if use.stores}
    if any(load.op.accesses[0].argument in stored for load in loads):
        return True
    tasks = (written.task for load in loads for written in _writers(program, place.launch, load))
    return any(program.recording.tasks[task].kernel == place.kernel for task in tasks)


def _upstream(program: Program, launches: dict[int, KernelLaunch], values: Written) -> Written | None:
    """The store of scores: what a vector task loaded to make the left operand of the matmul behind `values`."""
    assert values.product is not None
    flows = flows_of(program)
    lefts = (left for left in flows[values.body].makers(values.product, 1, SAME) if left.loads)
    for weights in (one for left in lefts for one in _writers(program, launches[values.task], left)):
        if program.recording.tasks[weights.task].core == "AIV":
            loads = (step for step in flows[weights.body].steps if step.loads)
            for scores in (one for load in loads for one in _writers(program, launches[weights.task], load)):
                if scores.product:
                    return scores
    return None


def _writers(program: Program, launch: KernelLaunch, load: Step) -> list[Written]:
    """The steps that wrote to the buffer that a step of the launch's first task loads from, before it; newest first."""
    traffic, stores = traffic_of(program), _stores(program)
    first = program.first_task(launch)
    root = traffic.roots[first.arguments[load.op.accesses[0].argument].buffer]
    found = []
    for number in traffic.touching[root]:
        if number >= first.id:
            break
        task = program.recording.tasks[number]
        into = {n for n, a in enumerate(task.arguments) if a.writes and traffic.roots[a.buffer] == root}
        for group in task.groups if into else ():
            found += [
                Written(number, group.body, store, product)
                for store, product in stores[group.body]
                if store.op.accesses[0].argument in into
            ]
    return found[::-1]


@once
def _stores(program: Program) -> list[list[tuple[Step, Step | None]]]:
    """Of each body its stores, each with the matmul whose product it stores, if it does."""

    def product(flow: Flow, store: Step) -> Step | None:
        makers = flow.makers(store, 0, (*SAME, OpRole.CAST))
        return makers[0] if {maker.op.plane for maker in makers} == {"cube"} else None

    return [[(step, product(flow, step)) for step in flow.steps if step.stores] for flow in flows_of(program)]


def _crossing(program: Program, launch: KernelLaunch, written: Written, add: StepPlace) -> Finding:
    product = written.product
    assert product is not None
    runs = product.times * dict(launch.bodies)[written.body] * len(launch.tasks)
    place = StepPlace(program, launch, written.body, flows_of(program)[written.body], product, runs)
    moved = place.other(written.store).bytes(written.store.op.accesses[0])
    return add_matmul.at(
        place.site,
        f"one product {shown(product.result)} per task, stored to global memory ({moved:,} bytes) on its way "
        f"into the running sum of {add.kernel}",
        "Fuse the stages into one kernel; then take several tiles per softmax, so that pl.matmul_acc sums their "
        "products in the accumulator.",
        kernel=place.kernel,
        severity="hint",
        count=place.runs,
        also=[add.site],
    )


AGAIN = 2  # times that a tile is written on average

TileBox = tuple[tuple[int, ...], tuple[int, ...], int]  # shape, strides, offset


@rule(
    "gm-accumulate",
    "warning",
    "a running sum in global memory",
    "Every step of the sum is a round trip through global memory, and each waits for the one before; the accumulator "
    "of the cube or a tile in vector memory does it on chip.",
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
def gm_accumulate(program: Program) -> Iterator[Finding]:
    updated: dict[str, dict[int, None]] = defaultdict(dict)  # kernel -> tensors that its tasks read and write
    for launch, moved in zip(program.launches, traffic_of(program).moved, strict=True):
        both = (moved.read.keys() & moved.written.keys()) - moved.added
        if both:
            uses = (use for task in launch.tasks for use in traffic_of(program).uses(task))
            updated[launch.kernel].update((use.buffer, None) for use in uses if use.argument in both)
    for kernel, buffers in updated.items():
        sums = [found for buffer in buffers for found in _sums(program, kernel, buffer)]
        if not sums:
            continue
        first = sums[0][0][0]
        names = listed(tensor_name(program, uses[0].buffer) for uses, _ in sums)
        total = sum(use.read + use.written for uses, _ in sums for use in uses)
        needed = sum(round(sum(use.written for use in uses) / times) for uses, times in sums)
        waste = Waste(bytes=total - needed)
        yield gm_accumulate.at(
            access_site(program, first, "write"),
            f"{short_name(kernel)} keeps a running sum in GM: every tile of {names} is read, updated and written "
            f"back up to {max(times for _, times in sums):.0f} times, {size(total)} in all",
            f"Swap the loops: go over what is summed inside one region, keep the tile of {names} on chip and write it "
            "once.",
            kernel=kernel,
            severity=severity(program, waste),
            waste=waste,
            count=sum(len(uses) for uses, _ in sums),
            also=[access_site(program, first, "read")],
        )


def _sums(program: Program, kernel: str, buffer: int) -> Iterator[tuple[list[Use], float]]:
    """Runs of a kernel's tasks on a tensor with nobody between, and how often (several times) they write its tiles."""
    tasks = program.recording.tasks
    for ours, run in groupby(traffic_of(program).touching[buffer], key=lambda task: tasks[task].kernel == kernel):
        if not ours:
            continue
        uses = traffic_of(program).uses_of(buffer, run)
        read: set[TileBox] = set()
        written: dict[TileBox, int] = defaultdict(int)
        for use in uses:
            read.update(_tiles_of(program, tasks[use.task], use.argument, "read"))
            for tile, often in _tiles_of(program, tasks[use.task], use.argument, "write").items():
                written[tile] += often
        times = sum(written.values()) / max(len(written), 1)
        if times >= AGAIN and written.keys() <= read:
            yield uses, times


def _tiles_of(program: Program, task: Task, argument: int, mode: str) -> dict[TileBox, int]:
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
