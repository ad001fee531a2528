"""Sums of matrix products that leave the cube's accumulator: `add(acc, matmul(…))` where `matmul_acc` fits.

A product may be added up on a vector core because it was written so (then one line changes), because the sum lives in
GM (then the loops change places), or because the product itself crosses GM on the way (then the stages are to be
fused first). A sum that is rescaled between two products, as in online softmax, is no `matmul_acc` and no finding.
"""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.check.findings import Cost, Finding
from npuscope.check.program import Program
from npuscope.check.rule import Rule
from npuscope.check.shared.across_tasks import crossing_products
from npuscope.check.shared.changes import accumulated
from npuscope.check.shared.dataflow import SAME, Flow, Step, tile_bytes
from npuscope.check.shared.places import Place, finding, places, shown

ID = "add-matmul"


def check(program: Program) -> Iterator[Finding]:
    for place in places(program):
        acc = acc_of(place.flow, place.step)
        found = None if acc is None else _on_chip(place, acc) or _through_gm(place, acc)
        if found is not None:
            yield found
    yield from crossing_products(program, ID)


def is_product(flow: Flow, step: Step, operand: int) -> bool:
    """Whether an operand comes from the cube and nothing else uses it."""
    makers = flow.makers(step, operand, SAME)
    return bool(makers) and all(
        maker.op.plane == "cube" and all(user is step for user in flow.uses(maker, SAME)) for maker in makers
    )


def sums(flow: Flow, add: Step, operand: int) -> bool:
    """Whether an operand of an add is a running sum of products: zeros, products, sums of those, and nothing in
    between. What a loop's sum begins with may be anything that was there before: it can be added once, at the end.
    """
    ends: list[Step] = []
    seen: set[int] = set()
    carried = False
    todo = [(add, operand)]
    for step, acc in todo:  # grows as it goes
        for maker in flow.makers(step, acc, SAME):
            if maker.number in seen:
                continue
            seen.add(maker.number)
            inner = acc_of(flow, maker)
            if inner is None:
                ends.append(maker)
            else:
                carried = carried or (bool(add.loops) and maker.loops == add.loops)
                todo.append((maker, inner))
    return bool(seen) and all(
        end.op.plane == "cube" or end.zero or (carried and len(end.loops) < len(add.loops)) for end in ends
    )


def acc_of(flow: Flow, step: Step) -> int | None:
    """The operand that a step adds a product to; None where it does not."""
    if step.name == "add" and len(step.operands) == 2:
        for acc, product in ((0, 1), (1, 0)):
            if is_product(flow, step, product):
                return acc
    return None


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
    return finding(
        ID,
        place,
        severity="warning",
        message=f"adds a product {shown(product)} to {what} on a vector core: {tile_bytes(product):,} bytes leave the "
        "cube's accumulator at every step",
        fix=fix,
        change=change,
        cost=_crossings(place),
    )


def sum_in_gm(flow: Flow, add: Step, acc: int) -> tuple[Step, Step] | None:
    """The load and the store of a running sum that lives in GM: x += … of one box."""
    loads = flow.makers(add, acc, SAME)
    stores = flow.uses(add, SAME)
    if len(loads) != 1 or not loads[0].loads or len(stores) != 1 or not stores[0].stores:
        return None
    (read,), (written,) = loads[0].op.accesses, stores[0].op.accesses
    same = (read.argument, read.shape, read.strides) == (written.argument, written.shape, written.strides)
    return (loads[0], stores[0]) if same else None


def _crossings(place: Place) -> Cost:
    """What the product moves between cube and vector core (through GM where there is no ring on chip), and the adds."""
    rules = place.program.device.rules
    through_gm = rules is None or not rules.ring_on_chip
    elements = tile_bytes(place.step.result) // 4
    return Cost(bytes=2 * tile_bytes(place.step.result) * place.runs if through_gm else 0, flops=elements * place.runs)


RULE = Rule(
    ID,
    "warning",
    "a sum of products outside the accumulator",
    "The cube adds to its accumulator for nothing; a product that is added on a vector core must be drained, moved and "
    "read back, on chips without a ring on chip through global memory.",
    check,
)
