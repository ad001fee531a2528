"""Accumulators stored as a type that they cannot leave Acc in."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.check.findings import Finding
from npuscope.check.memory.each_body import Problem, problems
from npuscope.check.rule import Example, Rule
from npuscope.lower.program import PlannedBody, Program


def check(program: Program) -> Iterator[Finding]:
    assert program.device.rules is not None
    types = program.device.rules.store_types
    told = ", ".join(sorted(types)).upper()

    def found(body: PlannedBody) -> Iterator[Problem]:
        for one in body.lowered.instructions:
            tile = body.lowered.values[one.reads[0]] if one.plane == "store" and one.reads else None
            if tile is not None and tile.space == "Acc" and tile.dtype.lower() not in types:
                message = f"{tile.name}: an accumulator cannot be stored as {tile.dtype}"
                yield one.site, message, f"Store it as one of {told}, or cast it on the vector cores first."

    yield from problems(RULE, program, found)


RULE = Rule(
    "store-type",
    "error",
    "an accumulator stored as a type it cannot have",
    "Draining the accumulator converts to a few types only; others go through a vector core.",
    check,
    Example(
        "out = pl.assemble(out, pl.matmul(a, b, out_dtype=pl.BF16), [0, 0])  # on a chip that drains FP32 only",
        "out = pl.assemble(out, pl.cast(pl.matmul(a, b, out_dtype=pl.FP32), pl.BF16), [0, 0])",
    ),
    about="chip",
)
