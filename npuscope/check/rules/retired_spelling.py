"""retired-spelling: `pl.incore()`, `pl.auto_incore()` and `chunk=`, with which programs drew tasks before June 2026.

One finding per scope and spelling, at its first line; one per loop with `chunk=`, since each has a size to choose.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from npuscope.check.findings import Finding
from npuscope.check.program import Program
from npuscope.check.rule import Rule
from npuscope.check.shared.scopes import Scope, scope_of
from npuscope.check.shared.source import Source, read

REMOVED = "was removed in June 2026"
LOOPS = frozenset({"parallel", "range"})
SAID = {
    "incore": (
        "pl.incore() draws the task by hand in a spelling that PyPTO removed in June 2026 (pypto#1819)",
        "Write pl.at, or pl.spmd for equal turns of a loop; optimizations= there leaves placing and splitting to the "
        "compiler.",
    ),
    "auto_incore": (
        "pl.auto_incore() was removed from PyPTO in June 2026 (pypto#1819): the compiler draws no tasks any more",
        "Open each task with pl.at or pl.spmd, with optimizations=[pl.split(…)] where the scope was split.",
    ),
    "chunk": (
        "chunk= drew one task per so many turns until June 2026; PyPTO refuses it now",
        "Make the loop a pl.spmd whose blocks are that large, and try other sizes: the best chunk is a measurement.",
    ),
}


def check(program: Program) -> Iterator[Finding]:
    if not any(REMOVED in note for note in program.recording.notes):
        return
    sites = program.recording.sites
    for file in dict.fromkeys(site.file for site in sites):
        source = read(file)
        if source is None:
            continue
        ran = {id(source.function_at(site.line)) for site in sites if site.file == file}
        yield from _findings(source, ran)


def _findings(source: Source, ran: set[int]) -> Iterator[Finding]:
    places: dict[tuple[Scope, str, int], list[int]] = defaultdict(list)
    for node in source.nodes:
        spelling = _spelling(node) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and spelling and id(source.function_at(node.lineno)) in ran:
            own = node.lineno if spelling == "chunk" else 0
            places[scope_of(source.file, node.lineno), spelling, own].append(node.lineno)
    for (_, spelling, _), lines in sorted(places.items(), key=lambda item: min(item[1])):
        first, *others = sorted(set(lines))
        message, fix = SAID[spelling]
        function = source.function_at(first)
        yield Finding(
            id=RULE.id,
            severity=RULE.severity,
            file=source.file,
            line=first,
            message=f"{message}; {len(lines)} times in this scope" if others else message,
            fix=fix,
            function="" if function is None else function.name,
            change=_changed(source.line(first).strip(), spelling),
            count=len(lines),
            also=tuple((source.file, line) for line in others),
        )


def _spelling(node: ast.Call) -> str:
    if not isinstance(node.func, ast.Attribute):
        return ""
    if node.func.attr in ("incore", "auto_incore"):
        return node.func.attr
    return "chunk" if node.func.attr in LOOPS and any(k.arg == "chunk" for k in node.keywords) else ""


def _changed(line: str, spelling: str) -> str:
    plain = "pl.incore()"
    return line.replace(plain, "pl.at(level=pl.Level.CORE_GROUP)") if spelling == "incore" and plain in line else ""


RULE = Rule(
    id="retired-spelling",
    severity="warning",
    title="a spelling that PyPTO has removed",
    why="Today's compiler refuses pl.incore, pl.auto_incore and chunk=. npuscope still runs them, so that old "
    "programs can be measured against new ones.",
    check=check,
    about="quality",
)
