"""Atomic adds of a type that global memory cannot add."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.check.findings import Finding
from npuscope.check.memory.each_body import Problem, problems
from npuscope.check.rule import Example, Rule
from npuscope.lower.program import PlannedBody, Program


def check(program: Program) -> Iterator[Finding]:
    assert program.device.rules is not None
    types = program.device.rules.atomic_types
    told = ", ".join(sorted(types)).upper()

    def found(body: PlannedBody) -> Iterator[Problem]:
        for one in body.lowered.instructions:
            if one.plane == "store" and one.reads and any(access.mode == "add" for access in one.accesses):
                tile = body.lowered.values[one.reads[0]]
                if tile.dtype.lower() not in types:
                    message = f"{tile.name}: global memory cannot add {tile.dtype}"
                    yield one.site, message, f"Add one of {told}, or sum the parts in a task of their own."

    yield from problems(RULE, program, found)


RULE = Rule(
    "atomic-type",
    "error",
    "an atomic add of a type that global memory cannot add",
    "The memory itself adds, and it knows a few types only.",
    check,
    Example(
        "out = pl.assemble(out, tile, [0, 0], atomic=pl.AtomicType.Add)  # BF16 on the 950",
        "out = pl.assemble(out, pl.cast(tile, pl.FP32), [0, 0], atomic=pl.AtomicType.Add)  # out is FP32",
    ),
    about="chip",
)
