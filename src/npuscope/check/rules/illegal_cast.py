"""Casts that the chip has no instruction for, and no chain of instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from npuscope.check.findings import Finding
from npuscope.check.memory.each_body import Problem, problems
from npuscope.check.rule import Example, Rule
from npuscope.lower.placement import chain
from npuscope.lower.program import PlannedBody, Program
from npuscope.ops.dtypes import BY_NAME
from npuscope.ops.spec import Role


def check(program: Program) -> Iterator[Finding]:
    rules = program.device.rules
    assert rules is not None

    def found(body: PlannedBody) -> Iterator[Problem]:
        values = body.lowered.values
        for one in body.lowered.instructions:
            if not one.spec.is_a(Role.CAST) or one.plane != "vector" or one.result is None or not one.reads:
                continue
            source, target = values[one.reads[0]], values[one.result]
            if source.dtype != target.dtype and not chain(source.dtype.lower(), target.dtype.lower(), rules.casts):
                told = (
                    f"{source.name}: the chip has no cast from {source.dtype} to {target.dtype}, and no chain of casts"
                )
                yield one.site, told, _fix(source.dtype, target.dtype, rules.casts)

    yield from problems(RULE, program, found)


def _fix(source: str, target: str, casts: Mapping[str, frozenset[str]]) -> str:
    """Over the type of the same width that can be cast, by its bits; else the types that can."""
    size = BY_NAME[source].bytes
    alike = [name for name, kind in BY_NAME.items() if not kind.is_float and name != source and kind.bytes == size]
    for name in alike:
        if name == target or chain(name.lower(), target.lower(), casts):
            cast = "" if name == target else f", then pl.cast that to {target}"
            read = f"Read its bits as {name} with pl.reinterpret_view(x, pl.{name}){cast}"
            return f"{read}: right for values below 2^{8 * size - 1}."
    ways = sorted(name.upper() for name in casts if chain(name, target.lower(), casts))
    return (
        f"Make it of another type: {', '.join(ways)} can be cast to {target}."
        if ways
        else f"Nothing can be cast to {target}."
    )


RULE = Rule(
    "illegal-cast",
    "error",
    "a cast between types that the chip does not have",
    "The vector unit casts between few pairs of types; the compiler joins them to chains, and where there is none it "
    "refuses the kernel. Unsigned 32-bit numbers, as sorting takes them, cannot be cast at all.",
    check,
    Example(
        "x = pl.cast(index, pl.FP32)  # index is UINT32",
        "x = pl.cast(pl.reinterpret_view(index, pl.INT32), pl.FP32)",
    ),
    about="chip",
)
