"""retired-spelling: what programs since spring 2026 have and today's PyPTO lacks (tile/language/history.py).

One finding per scope and spelling, at its first line; one per loop with `chunk=`, since each has a size to choose.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from npuscope.check.findings import Finding
from npuscope.check.rule import Example, Rule
from npuscope.check.source.sections import Section, section_of
from npuscope.lower.program import Program
from npuscope.lower.source import SourceFile, read
from npuscope.tile.language.history import HISTORY, Spelling
from npuscope.tile.record.model import Site

OLD = {spelling.old: spelling for spelling in HISTORY}
WORDS = frozenset(part for old in OLD for part in old.replace("(", ".").replace("=)", "").split("."))


def check(program: Program) -> Iterator[Finding]:
    sites = program.recording.sites
    for file in dict.fromkeys(site.file for site in sites):
        source = read(file)
        if source is None:
            continue
        ran = {id(source.function_at(site.line)) for site in sites if site.file == file}
        yield from _findings(source, ran)


def _findings(source: SourceFile, ran: set[int]) -> Iterator[Finding]:
    places: dict[tuple[Section, str, int], list[int]] = defaultdict(list)
    for node in source.nodes:
        for spelling in _spellings(node):
            line: int = node.lineno  # type: ignore[attr-defined]
            if id(source.function_at(line)) in ran:
                own = line if spelling.old.endswith("(chunk=)") else 0
                places[section_of(source.file, line), spelling.old, own].append(line)
    for (_, old, _), lines in sorted(places.items(), key=lambda item: min(item[1])):
        first, *others = sorted(set(lines))
        spelling, function = OLD[old], source.function_at(first)
        message = f"{old} was removed from PyPTO in {spelling.until} ({spelling.change})"
        yield RULE.at(
            Site(source.file, first, "" if function is None else function.name),
            f"{message}; {len(lines)} times in this scope" if others else message,
            f"Write {spelling.now}.{_advice(spelling)}",
            change=_changed(source.line(first).strip(), old),
            count=len(lines),
            also=[Site(source.file, line, "") for line in others],
        )


def _spellings(node: ast.AST) -> Iterator[Spelling]:
    """The old spellings that a node has: a call, one of its keywords, a name of the language."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WORDS:
        name = _name(node.func)
        told = [f"{name}()", *(f"{name}({option.arg}=)" for option in node.keywords)]
    elif isinstance(node, ast.Attribute) and node.attr in WORDS:
        told = [_name(node)]
    else:
        return
    yield from (OLD[old] for old in told if old in OLD)


def _name(node: ast.Attribute) -> str:
    """`pl.tile.sum`, by whatever name the program calls the language."""
    parts, value = [node.attr], node.value
    while isinstance(value, ast.Attribute):
        parts.insert(0, value.attr)
        value = value.value
    return ".".join(["pl", *parts])


def _advice(spelling: Spelling) -> str:
    if spelling.old.endswith("(chunk=)"):
        return " Try several sizes of blocks: the best is a measurement."
    return f" npuscope: {spelling.does}" if spelling.does else ""


def _changed(line: str, old: str) -> str:
    return line.replace(old, "pl.at(level=pl.Level.CORE_GROUP)") if old == "pl.incore()" and old in line else ""


RULE = Rule(
    "retired-spelling",
    "warning",
    "a spelling that PyPTO has removed",
    "Today's compiler refuses it. npuscope still runs it, as the compiler of its day did, so that old programs can "
    "be measured against new ones.",
    check,
    Example("with pl.incore():", "with pl.at(level=pl.Level.CORE_GROUP):"),
    about="quality",
)
