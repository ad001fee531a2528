"""Comments that silence a rule there is not."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.check.findings import Finding
from npuscope.check.rule import Example, Rule
from npuscope.check.rules import all_rules
from npuscope.check.select import nearest
from npuscope.check.source.ignores import ignores_in
from npuscope.lower.program import Program
from npuscope.tile.record.model import Site


def check(program: Program) -> Iterator[Finding]:
    known = {rule.id for rule in all_rules()}
    for file in dict.fromkeys(site.file for site in program.recording.sites):
        for ignore in ignores_in(file):
            for id in sorted(ignore.rules - known):
                meant = nearest(id, known)
                yield RULE.at(
                    Site(file, ignore.line, ""),
                    f"this comment silences nothing: there is no rule '{id}'",
                    f"Write {meant}." if meant else "npuscope check --list-rules lists the rules.",
                )


RULE = Rule(
    "unknown-ignore",
    "hint",
    "a comment that silences a rule there is not",
    "A finding that someone meant to silence will come back, or was never there.",
    check,
    Example(
        "tile = pl.slice(w, [128, 64], [k0, n0])  # npuscope: ignore[short-rows]",
        "tile = pl.slice(w, [128, 64], [k0, n0])  # npuscope: ignore[short-row]",
    ),
    about="quality",
)
