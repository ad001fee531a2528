"""Moves that the chip has no instruction for.

Also those that nobody wrote: an accumulator that is still read after another product was added to it would have to be
copied.
"""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.check.findings import Finding
from npuscope.check.memory.each_body import Problem, problems
from npuscope.check.rule import Example, Rule
from npuscope.chip.devices import Rules
from npuscope.lower.model import Items, Lowered, Repeat, carried, instructions
from npuscope.lower.program import PlannedBody, Program
from npuscope.ops.spec import Role

THROUGH_RING = "Leave the memory space out: the tile is then handed over through the ring between the cores."
OWN_ACCUMULATOR = (
    "Store the first result before the second product adds to it, or give the second an accumulator of its own "
    "(pl.matmul of the first K step, then pl.matmul_acc)."
)


def check(program: Program) -> Iterator[Finding]:
    rules = program.device.rules
    assert rules is not None

    def found(body: PlannedBody) -> Iterator[Problem]:
        yield from _moves(body.lowered, rules)
        yield from _accumulators(body.lowered)

    yield from problems(RULE, program, found)


def _moves(lowered: Lowered, rules: Rules) -> Iterator[Problem]:
    for one in lowered.instructions:
        if one.plane != "move" or one.spec.is_a(Role.RECEIVE) or not one.reads:
            continue
        source = lowered.values[one.reads[0]]
        sends = one.spec.is_a(Role.SEND)
        number = one.attribute("tile") if sends else one.result
        if not isinstance(number, int):
            continue
        target = lowered.values[number]
        way = f"{source.space}->{target.space}"
        fix = ""
        if way == "Acc->Acc":
            fix = OWN_ACCUMULATOR
        elif source.space == target.space or way in rules.moves:
            if way == "Acc->Mat" and not rules.ring_on_chip and target.dtype not in ("BF16", "FP16"):
                fix = 'Only BF16 or FP16 can go this way: pl.cast(…, pl.BF16, mode="rint") it first.'
        elif not sends:
            fix = "Only a product writes to Acc: begin with pl.matmul." if target.space == "Acc" else THROUGH_RING
        elif target.said:
            fix = THROUGH_RING
        if fix:
            yield one.site, f"{source.name}: the chip has no move from {source.space} to {target.space}", fix


def _accumulators(lowered: Lowered) -> Iterator[Problem]:
    """Sums in place whose old value is still needed."""
    order = list(lowered.instructions)
    last = {number: n for n, one in enumerate(order) for number in one.reads}
    repeated = set(_read_every_turn(lowered.items))
    for n, one in enumerate(order):
        if one.plane != "cube" or one.operands[0] is None:
            continue
        old = one.operands[0]
        if (last[old] > n and order[last[old]].result != one.result) or old in repeated:
            name = lowered.values[old].name
            yield (
                one.site,
                f"{name} is still read after this product is added to it: that needs a copy from Acc to Acc, "
                "which the chip does not have",
                OWN_ACCUMULATOR,
            )


def _read_every_turn(items: Items) -> Iterator[int]:
    """Accumulators from before a loop that each of its turns would add to anew."""
    for item in items:
        if isinstance(item, Repeat) and item.kind != "l0":
            made = {one.result for one in instructions(item.items)} | set(carried((item,)))
            if item.count > 1:
                sums = (one.operands[0] for one in instructions(item.items) if one.plane == "cube")
                yield from (old for old in sums if old is not None and old not in made)
            yield from _read_every_turn(item.items)


RULE = Rule(
    "illegal-move",
    "error",
    "a move between memories that the chip does not have",
    "A tile reaches most memories only through another one; on chips without a ring on chip cube and vector cores "
    "hand over through global memory.",
    check,
    Example(
        "tile = pl.move(product, target_memory=pl.MemorySpace.Vec)  # Acc to Vec: not on 910B",
        "tile = pl.cast(product, target_type=pl.BF16)  # the compiler hands it over to the vector cores",
    ),
    about="chip",
)
