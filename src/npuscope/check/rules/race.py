"""Accesses of global memory that conflict and that nothing orders; see `races/`."""

from __future__ import annotations

from npuscope.check.findings import Finding
from npuscope.check.races import Race, races
from npuscope.check.rule import Example, Rule
from npuscope.tile.record.model import Site


def race_finding(race: Race) -> Finding:
    """A race as a finding: at the later access, with the earlier one beside it."""
    first, second = race.sides
    return RULE.at(
        Site(second.file, second.line, ""),
        f"{second.region} of {second.kernel} and {first.region} of {first.kernel}: nothing orders them; {race.why}",
        race.fix,
        second.kernel,
        count=race.count,
        also=[Site(first.file, first.line, "")],
    )


RULE = Rule(
    "race",
    "error",
    "two accesses of global memory that nothing orders",
    "The runtime makes readers wait for writers, and writers for writers, but no writer for readers, and opt-outs "
    "silence even that. Which of the two comes first is then chance.",
    lambda program: map(race_finding, races(program)),
    Example(
        "with pl.at(level=CORE):\n"
        "    out = pl.assemble(out, pl.slice(tmp, [16, 64], [0, 0]), [0, 0])\n"
        "with pl.at(level=CORE):  # does not wait for the reader above\n"
        "    tmp = pl.assemble(tmp, tile, [0, 0])",
        "with pl.at(level=CORE) as reader:\n"
        "    out = pl.assemble(out, pl.slice(tmp, [16, 64], [0, 0]), [0, 0])\n"
        "with pl.at(level=CORE, deps=[reader]):\n"
        "    tmp = pl.assemble(tmp, tile, [0, 0])",
    ),
)
