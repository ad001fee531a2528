"""Products that cross global memory on their way into a sum: attention cut into tasks, one per stage.

The pattern is that of flash attention by hand: a matmul per task, its product in a tensor; a vector task that rescales
a running sum and adds the product; another turn. Once the stages are one kernel, the products of several key tiles
can be summed in the accumulator: scores of several tiles first, one softmax over them, then `pl.matmul` and
`pl.matmul_acc` over the value tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from npuscope.lower.findings import Cost, Finding
from npuscope.lower.lint.dataflow import SAME, Flow, Step
from npuscope.lower.lint.places import Place, finding, places, shown
from npuscope.lower.program import Launch, Program

RESCALED = SAME | {"slice", "cast", "mul", "row_expand_mul", "row_expand_div"}


class Written(NamedTuple):
    """A step that stores to a buffer, in a task."""

    task: int
    body: int
    store: Step


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
            scores = _upstream(program, launches[values.task], values)
            for written in (scores, values):
                if written is not None and (written.body, written.store.number) not in seen:
                    seen.add((written.body, written.store.number))
                    yield _finding(rule, program, launches, written, place)


def _cube_store(program: Program, place: Place, operand: int) -> Written | None:
    """The store of a product, by a task of its own, that an operand was loaded from."""
    loads = place.flow.makers(place.step, operand, RESCALED)
    if not loads or not all(load.loads for load in loads):
        return None
    for written in writers(program, place.launch, loads[0]):
        makers = program.flows[written.body].makers(written.store, 0, SAME | {"cast"})
        if makers and all(maker.op.plane == "cube" for maker in makers):
            return written
    return None


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


def _upstream(program: Program, launch: Launch, values: Written) -> Written | None:
    """The store of scores: what a vector task loaded to make the left operand of the matmul behind `values`."""
    flow = program.flows[values.body]
    (product, *_) = flow.makers(values.store, 0, SAME | {"cast"})
    for left in flow.makers(product, 1, SAME):
        if not left.loads:
            continue
        for weights in writers(program, launch, left):
            task = program.recording.tasks[weights.task]
            if task.core != "AIV":
                continue
            between = next(one for one in program.launches if weights.task in one.tasks)
            for step in program.flows[weights.body].steps:
                if step.loads:
                    for scores in writers(program, between, step):
                        makers = program.flows[scores.body].makers(scores.store, 0, SAME | {"cast"})
                        if makers and all(maker.op.plane == "cube" for maker in makers):
                            return scores
    return None


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
        if into:
            found += [
                Written(number, group.body, step)
                for group in task.groups
                for step in program.flows[group.body].steps
                if step.stores and step.op.accesses[0].argument in into
            ]
    return found[::-1]


def _finding(rule: str, program: Program, launches: dict[int, Launch], written: Written, add: Place) -> Finding:
    launch = launches[written.task]
    blocks = dict(launch.bodies)[written.body]
    flow: Flow = program.flows[written.body]
    (product, *_) = flow.makers(written.store, 0, SAME | {"cast"})
    place = Place(program, launch, written.body, flow, product, product.times * blocks * len(launch.tasks))
    moved = place.other(written.store).bytes(written.store.op.accesses[0])
    return finding(
        rule,
        place,
        severity="hint",
        message=f"one product {shown(product.result)} per task, stored to global memory ({moved:,} bytes) on its way "
        f"into the running sum of {add.launch.kernel}",
        fix="Fuse the stages into one kernel; then take several tiles per softmax, so that pl.matmul_acc sums their "
        "products in the accumulator.",
        cost=Cost(bytes=moved * place.runs),
        also=((add.site.file, add.site.line),),
    )
