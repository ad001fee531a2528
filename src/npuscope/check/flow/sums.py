"""Running sums of products and zeros in a body: which step adds to which, where a sum begins, where it lives in GM."""

from __future__ import annotations

from npuscope.check.flow.dataflow import SAME, Flow
from npuscope.ops.spec import Role
from npuscope.tile.record.walk import Step


def is_product(flow: Flow, step: Step, operand: int) -> bool:
    """Whether an operand comes from the cube and nothing else uses it."""
    makers = flow.makers(step, operand, SAME)
    return bool(makers) and all(
        maker.op.plane == "cube" and all(user is step for user in flow.uses(maker, SAME)) for maker in makers
    )


def acc_of(flow: Flow, step: Step) -> int | None:
    """The operand that a step adds a product to; None where it does not."""
    if step.op.spec.is_a(Role.SUM) and len(step.operands) == 2:
        for acc, product in ((0, 1), (1, 0)):
            if is_product(flow, step, product):
                return acc
    return None


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
        end.op.plane == "cube" or end.number in flow.zeros or (carried and len(end.around) < len(add.around))
        for end in ends
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


def zero_of(flow: Flow, store: Step) -> Step | None:
    """The `pl.full` of zeros that a step writes to GM, if it writes those."""
    if not store.stores or store.op.accesses[0].mode != "write":
        return None
    makers = flow.makers(store, 0, (Role.KEEPS_ZEROS,))
    return makers[0] if makers and all(maker.number in flow.zeros for maker in makers) else None
