"""Products that cross global memory on their way into a sum: attention cut into tasks, one per stage.

The pattern is that of flash attention by hand: a matmul per task, its product in a tensor; a vector task that rescales
a running sum and adds the product; another turn. Once the stages are one kernel, the products of several key tiles
can be summed in the accumulator: scores of several tiles first, one softmax over them, then `pl.matmul` and
`pl.matmul_acc` over the value tiles. What the crossing itself costs is told by gm-round-trip.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from npuscope.check.findings import Finding
from npuscope.check.program import Launch, Program
from npuscope.check.shared.dataflow import SAME, Step
from npuscope.check.shared.places import Place, finding, places, shown

RESCALED = SAME | {"slice", "cast", "mul", "row_expand_mul", "row_expand_div"}


class Written(NamedTuple):
    """A step that stores to a buffer, in a task; `product` is the matmul whose result it stores, if it does."""

    task: int
    body: int
    store: Step
    product: Step | None


def crossing_products(program: Program, rule: str) -> Iterator[Finding]:
    """A finding for every matmul whose product another task adds to a running sum, and for the matmul before it."""
    launches = {task: launch for launch in program.launches for task in launch.tasks}
    seen: set[tuple[int, int]] = set()
    for place in places(program):
        if place.step.name != "add" or len(place.step.operands) != 2:
            continue
        for summed, product in ((0, 1), (1, 0)):
            values = _cube_store(program, place, product)
            if values is None or not _carried(program, place, summed):
                continue
            scores = _upstream(program, launches, values)
            for written in (scores, values):
                if written is not None and (written.body, written.store.number) not in seen:
                    seen.add((written.body, written.store.number))
                    yield _finding(rule, program, launches[written.task], written, place)


def _cube_store(program: Program, place: Place, operand: int) -> Written | None:
    """The store of a product, by a task of its own, that an operand was loaded from."""
    loads = place.flow.makers(place.step, operand, RESCALED)
    if not loads or not all(load.loads for load in loads):
        return None
    return next((written for written in writers(program, place.launch, loads[0]) if written.product), None)


def _carried(program: Program, place: Place, operand: int) -> bool:
    """Whether an operand is a sum that tasks hand on: stored back where it came from, or by tasks of this kernel."""
    loads = [load for load in place.flow.makers(place.step, operand, RESCALED) if load.loads]
    stored = {use.op.accesses[0].argument for use in place.flow.uses(place.step, SAME) if use.stores}
    return any(
        load.op.accesses[0].argument in stored
        or any(
            program.recording.tasks[written.task].kernel == place.launch.kernel
            for written in writers(program, place.launch, load)
        )
        for load in loads
    )


def _upstream(program: Program, launches: dict[int, Launch], values: Written) -> Written | None:
    """The store of scores: what a vector task loaded to make the left operand of the matmul behind `values`."""
    assert values.product is not None
    lefts = program.flows[values.body].makers(values.product, 1, SAME)
    return next(
        (
            scores
            for left in lefts
            if left.loads
            for weights in writers(program, launches[values.task], left)
            if program.recording.tasks[weights.task].core == "AIV"
            for load in program.flows[weights.body].steps
            if load.loads
            for scores in writers(program, launches[weights.task], load)
            if scores.product
        ),
        None,
    )


def writers(program: Program, launch: Launch, load: Step) -> list[Written]:
    """The steps that wrote to the buffer that a step of the launch's first task loads from, before it; newest first."""
    first = program.first_task(launch)
    root = program.placement.root(first.arguments[load.op.accesses[0].argument].buffer)
    found = []
    for number in program.touching[root]:
        if number >= first.id:
            break
        task = program.recording.tasks[number]
        into = {n for n, a in enumerate(task.arguments) if a.writes and program.placement.root(a.buffer) == root}
        for group in task.groups if into else ():
            flow = program.flows[group.body]
            for step in flow.steps:
                if step.stores and step.op.accesses[0].argument in into:
                    makers = flow.makers(step, 0, SAME | {"cast"})
                    cube = bool(makers) and all(maker.op.plane == "cube" for maker in makers)
                    found.append(Written(number, group.body, step, makers[0] if cube else None))
    return found[::-1]


def _finding(rule: str, program: Program, launch: Launch, written: Written, add: Place) -> Finding:
    product = written.product
    assert product is not None
    runs = product.times * dict(launch.bodies)[written.body] * len(launch.tasks)
    place = Place(program, launch, written.body, program.flows[written.body], product, runs)
    moved = place.other(written.store).bytes(written.store.op.accesses[0])
    return finding(
        rule,
        place,
        severity="hint",
        message=f"one product {shown(product.result)} per task, stored to global memory ({moved:,} bytes) on its way "
        f"into the running sum of {add.launch.kernel}",
        fix="Fuse the stages into one kernel; then take several tiles per softmax, so that pl.matmul_acc sums their "
        "products in the accumulator.",
        also=((add.site.file, add.site.line),),
    )
