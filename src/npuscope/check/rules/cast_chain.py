"""Casts that the chip has no instruction for: the compiler goes through other types, one pass over the tile per hop."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from npuscope.check.findings import Finding, Waste
from npuscope.check.flow.places import Place, places, shown
from npuscope.check.rule import Example, Rule
from npuscope.lower.placement import chain
from npuscope.lower.program import Program
from npuscope.ops.spec import Role


def check(program: Program) -> Iterator[Finding]:
    rules = program.device.rules
    if rules is None:
        return
    for place in places(program):
        if not place.step.op.spec.is_a(Role.CAST) or place.step.op.plane != "vector" or _drains(place):
            continue
        for source in {maker.result.dtype for maker in place.flow.makers(place.step, 0)}:
            hops = chain(source.lower(), place.step.result.dtype.lower(), rules.casts)
            if len(hops) > 1 and source != place.step.result.dtype:
                yield _finding(place, (source, *(hop.upper() for hop in hops)))


def _finding(place: Place, way: tuple[str, ...]) -> Finding:
    elements = prod(place.step.result.shape)
    return RULE.at(
        place.site,
        f"casts {way[0]} to {shown(place.step.result)}, which takes {len(way) - 1} passes: {' -> '.join(way)}",
        f"Cast once from what the value was before, or stay in {way[1]}.",
        kernel=place.kernel,
        waste=Waste(flops=(len(way) - 2) * elements * place.runs),
        count=place.runs,
    )


def _drains(place: Place) -> bool:
    """Whether the cast is done on the way from the accumulator to GM, at no cost."""
    made = place.flow.makers(place.step, 0)
    used = place.flow.uses(place.step)
    return (
        bool(used) and all(maker.op.plane == "cube" for maker in made) and all(use.op.plane == "store" for use in used)
    )


RULE = Rule(
    "cast-chain",
    "hint",
    "a cast in several passes",
    "Each hop of a cast chain is a pass of the vector core over the whole tile, and may round again.",
    check,
    Example(
        "q = pl.cast(x, target_type=pl.INT8)  # BF16 to INT8: three passes",
        "q = pl.cast(x32, target_type=pl.INT8)  # from the FP32 it was made of: two",
        "elements that pass once more",
    ),
)
