"""Sums of matrix products that leave the cube's accumulator: `add(acc, matmul(…))` where `matmul_acc` fits.

A product may be added up on a vector core because it was written so (then one line changes), because the sum lives in
GM (then the loops change places), or because the product itself crosses GM on the way (then the stages are to be
fused first). A sum that is rescaled between two products, as in online softmax, is no `matmul_acc` and no finding.

The last is flash attention by hand: a matmul per task, its product in a tensor; a vector task that rescales a running
sum and adds the product; another turn. Once the stages are one kernel, the products of several key tiles can be summed
in the accumulator: scores of several tiles first, one softmax over them, then `pl.matmul` and `pl.matmul_acc` over the
value tiles. What the crossing itself costs is told by gm-round-trip.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from npuscope.check.findings import Finding, Waste
from npuscope.check.flow.dataflow import SAME, Flow, flows_of, tile_bytes
from npuscope.check.flow.places import Place, places, shown
from npuscope.check.flow.sums import acc_of, sum_in_gm, sums
from npuscope.check.once import once
from npuscope.check.rule import Example, Rule
from npuscope.check.source.changed_lines import accumulated
from npuscope.check.traffic.table import traffic_of
from npuscope.lower.program import Launch, Program
from npuscope.ops.spec import Role
from npuscope.tile.record.walk import Step

RESCALED = (*SAME, Role.PART, Role.CAST, Role.PRODUCT, Role.QUOTIENT)


def check(program: Program) -> Iterator[Finding]:
    for place in places(program):
        acc = acc_of(place.flow, place.step)
        found = None if acc is None else _on_chip(place, acc) or _through_gm(place, acc)
        if found is not None:
            yield found
    yield from _crossing_products(program)


def _on_chip(place: Place, acc: int) -> Finding | None:
    if not sums(place.flow, place.step, acc):
        return None
    return _told(
        place,
        "a sum",
        "Keep the sum in the accumulator: pl.matmul for the first step, pl.matmul_acc for the others.",
        change=accumulated(place.site),
    )


def _through_gm(place: Place, acc: int) -> Finding | None:
    """The sum is read from GM and written back there; that traffic is gm-accumulate's."""
    held = sum_in_gm(place.flow, place.step, acc)
    if held is None:
        return None
    name = place.buffer(held[0].op.accesses[0]).name
    fix = f"Put the loop over K inside, so that {name} is written once from the accumulator (pl.matmul_acc)."
    return _told(place, f"{name}, loaded and stored again,", fix)


def _told(place: Place, what: str, fix: str, change: str = "") -> Finding:
    product = place.step.result
    return RULE.at(
        place.site,
        f"adds a product {shown(product)} to {what} on a vector core: {tile_bytes(product):,} bytes leave the "
        "cube's accumulator at every step",
        fix,
        kernel=place.kernel,
        change=change,
        waste=_crossings(place),
        count=place.runs,
    )


def _crossings(place: Place) -> Waste:
    """What the product moves between cube and vector core (through GM where there is no ring on chip), and the adds."""
    rules = place.program.device.rules
    through_gm = rules is None or not rules.ring_on_chip
    size = tile_bytes(place.step.result)
    return Waste(bytes=2 * size * place.runs if through_gm else 0, flops=size // 4 * place.runs)


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
        if not place.step.op.spec.is_a(Role.SUM) or len(place.step.operands) != 2:
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


def _cube_store(program: Program, place: Place, operand: int) -> Written | None:
    """The store of a product, by a task of its own, that an operand was loaded from."""
    loads = place.flow.makers(place.step, operand, RESCALED)
    if not loads or not all(load.loads for load in loads):
        return None
    return next((written for written in _writers(program, place.launch, loads[0]) if written.product), None)


def _carried(program: Program, place: Place, operand: int) -> bool:
    """Whether an operand is a sum that tasks hand on: stored back where it came from, or by tasks of this kernel."""
    loads = [load for load in place.flow.makers(place.step, operand, RESCALED) if load.loads]
    stored = {use.op.accesses[0].argument for use in place.flow.uses(place.step, SAME) if use.stores}
    return any(
        load.op.accesses[0].argument in stored
        or any(
            program.recording.tasks[written.task].kernel == place.kernel
            for written in _writers(program, place.launch, load)
        )
        for load in loads
    )


def _upstream(program: Program, launches: dict[int, Launch], values: Written) -> Written | None:
    """The store of scores: what a vector task loaded to make the left operand of the matmul behind `values`."""
    assert values.product is not None
    flows = flows_of(program)
    lefts = flows[values.body].makers(values.product, 1, SAME)
    return next(
        (
            scores
            for left in lefts
            if left.loads
            for weights in _writers(program, launches[values.task], left)
            if program.recording.tasks[weights.task].core == "AIV"
            for load in flows[weights.body].steps
            if load.loads
            for scores in _writers(program, launches[weights.task], load)
            if scores.product
        ),
        None,
    )


def _writers(program: Program, launch: Launch, load: Step) -> list[Written]:
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
    return [[(step, _product(flow, step)) for step in flow.steps if step.stores] for flow in flows_of(program)]


def _product(flow: Flow, store: Step) -> Step | None:
    makers = flow.makers(store, 0, (*SAME, Role.CAST))
    return makers[0] if makers and all(maker.op.plane == "cube" for maker in makers) else None


def _crossing(program: Program, launch: Launch, written: Written, add: Place) -> Finding:
    product = written.product
    assert product is not None
    runs = product.times * dict(launch.bodies)[written.body] * len(launch.tasks)
    place = Place(program, launch, written.body, flows_of(program)[written.body], product, runs)
    moved = place.other(written.store).bytes(written.store.op.accesses[0])
    return RULE.at(
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


RULE = Rule(
    "add-matmul",
    "warning",
    "a sum of products outside the accumulator",
    "The cube adds to its accumulator for nothing; a product that is added on a vector core must be drained, moved and "
    "read back, on chips without a ring on chip through global memory.",
    check,
    Example(
        "acc = pl.add(acc, pl.matmul(a, b))",
        "acc = pl.matmul_acc(acc, a, b)",
        "bytes that leave the accumulator and come back, additions",
    ),
)
