"""Casts that the chip has no instruction for: the compiler goes through other types, one pass over the tile per hop."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod

from npuscope.device.chip import Rules
from npuscope.lower.findings import Cost, Finding
from npuscope.lower.lint.places import Place, finding, places, shown
from npuscope.lower.lint.rule import Rule
from npuscope.lower.program import Program

ID = "cast-chain"


def check(program: Program) -> Iterator[Finding]:
    rules = program.device.rules
    if rules is None:
        return
    for place in places(program):
        if place.step.name != "cast" or place.step.op.plane != "vector" or _drains(place):
            continue
        for source in {maker.result.dtype for maker in place.flow.makers(place.step, 0)}:
            chain = shortest(rules, source.lower(), place.step.result.dtype.lower())
            if chain is not None and len(chain) > 2:
                yield _finding(place, chain)


def _finding(place: Place, chain: tuple[str, ...]) -> Finding:
    extra = len(chain) - 2
    elements = prod(place.step.result.shape)
    return finding(
        ID,
        place,
        severity="hint",
        message=f"casts {chain[0].upper()} to {shown(place.step.result)}, which takes {len(chain) - 1} passes: "
        f"{' -> '.join(name.upper() for name in chain)}",
        fix=f"Cast once from what the value was before, or stay in {chain[1].upper()}.",
        cost=Cost(flops=extra * elements * place.runs),
    )


def _drains(place: Place) -> bool:
    """Whether the cast is done on the way from the accumulator to GM, at no cost."""
    made = place.flow.makers(place.step, 0)
    used = place.flow.uses(place.step)
    return (
        bool(used) and all(maker.op.plane == "cube" for maker in made) and all(use.op.plane == "store" for use in used)
    )


def shortest(rules: Rules, source: str, target: str) -> tuple[str, ...] | None:
    """The types on the shortest way, both ends included; None where there is no way or a type is unknown."""
    return _shortest(tuple(sorted((name, tuple(sorted(to))) for name, to in rules.casts.items())), source, target)


@lru_cache(maxsize=256)
def _shortest(casts: tuple[tuple[str, tuple[str, ...]], ...], source: str, target: str) -> tuple[str, ...] | None:
    ways = dict(casts)
    if source == target:
        return (source,)
    reached: dict[str, tuple[str, ...]] = {source: (source,)}
    open_ = [source]
    for name in open_:  # grows as it goes, nearest first
        for further in ways.get(name, ()):
            if further not in reached:
                reached[further] = (*reached[name], further)
                open_.append(further)
    return reached.get(target)


RULE = Rule(
    ID,
    "hint",
    "a cast in several passes",
    "Each hop of a cast chain is a pass of the vector core over the whole tile, and may round again.",
    check,
)
