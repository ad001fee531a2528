"""Names that a loop carries, or that two branches give a value, with tiles of different shape or type.

What a turn leaves in a name takes the place of what was there before: where the compiler cannot make both one tile it
moves one onto the other, and a move wants tiles of equal shape and type. Shapes are those that were recorded; which
value reaches which is read from the source.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from npuscope.check.findings import Finding
from npuscope.check.flow.dataflow import flows_of
from npuscope.check.rule import Example, Rule
from npuscope.lower.program import Program
from npuscope.lower.source import SourceFile, read
from npuscope.tile.language.grammar import called
from npuscope.tile.record.model import Site

CARRYING = ("range", "pipeline", "parallel", "while_")
Tile = tuple[tuple[int, ...], str]
Shapes = dict[tuple[str, int], set[Tile]]  # of the last op of the statement that begins on this line


class Met(NamedTuple):
    """A name where it is read or given a value."""

    name: str
    writes: bool
    line: int


def check(program: Program) -> Iterator[Finding]:
    shapes = _shapes(program)
    for file in dict.fromkeys(file for file, _ in shapes):
        source = read(file)
        lines = {line for other, line in shapes if other == file}
        for function in source.functions if source is not None else ():
            if lines.isdisjoint(range(function.lineno, (function.end_lineno or 0) + 1)):
                continue
            for name, first, second, how in _joined(function):  # functions inside others have their turn
                one, other = shapes.get((file, first)), shapes.get((file, second))
                if one and other and one.isdisjoint(other):
                    before, after = min(one), min(other)
                    yield RULE.at(
                        Site(file, second, function.name),
                        f"{name} is {_shown(after)} here and {_shown(before)} on line {first}, and {how}: the compiler "
                        "would have to move one tile onto the other, and a move wants equal shapes and types",
                        _fix(name, before, after),
                        also=[Site(file, first, function.name)],
                    )


def _shapes(program: Program) -> Shapes:
    found: Shapes = defaultdict(set)
    sources: dict[str, SourceFile | None] = {}
    for flow in flows_of(program):
        last: tuple[tuple[str, int], Tile] | None = None
        for step in flow.steps:
            site = program.site(step.op.site)
            source = sources[site.file] if site.file in sources else sources.setdefault(site.file, read(site.file))
            if source is None or site.line not in source.statements:
                continue
            place = (site.file, source.statements[site.line].start)
            if last is not None and last[0] != place:
                found[last[0]].add(last[1])
            result = step.op.result
            last = None if result is None else (place, (_matrix(result.shape), result.dtype))
        if last is not None:
            found[last[0]].add(last[1])
    return found


def _matrix(shape: Sequence[int]) -> tuple[int, ...]:
    """Without the ones in front, as a tile lies on chip: [1, 16, 256] is [16, 256]."""
    ones = next((n for n, size in enumerate(shape[:-2]) if size != 1), max(len(shape) - 2, 0))
    return tuple(shape[ones:])


def _joined(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, int, int, str]]:
    """Name, the lines of two values of which one takes the other's place, and why."""
    loops: list[ast.For] = []
    choices: list[ast.If] = []
    for node in _own(function):
        if isinstance(node, ast.For) and called(node.iter) in CARRYING:
            loops.append(node)
        elif isinstance(node, ast.If) and node.orelse:
            choices.append(node)
    met = list(_met(function.body)) if loops or choices else []
    for loop in loops:
        yield from _carried(loop, met)
    for choice in choices:
        yield from _branched(choice, met)


def _own(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a function without those of functions in it."""
    for field in ("body", "orelse", "handlers", "finalbody"):
        for part in getattr(node, field, ()):
            if not isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield part
                yield from _own(part)


def _carried(loop: ast.For, met: Sequence[Met]) -> Iterator[tuple[str, int, int, str]]:
    inside = [one for one in met if loop.lineno < one.line <= (loop.end_lineno or loop.lineno)]
    for name in dict.fromkeys(one.name for one in inside if one.writes):
        own = [one for one in inside if one.name == name]
        before = [one for one in met if one.name == name and one.writes and one.line < loop.lineno]
        after = next((one for one in met if one.name == name and one.line > (loop.end_lineno or loop.lineno)), None)
        if before and (not own[0].writes or (after is not None and not after.writes)):
            last = [one for one in own if one.writes][-1]
            yield name, before[-1].line, last.line, f"the loop on line {loop.lineno} carries it"


def _branched(choice: ast.If, met: Sequence[Met]) -> Iterator[tuple[str, int, int, str]]:
    end, middle = choice.end_lineno or choice.lineno, choice.orelse[0].lineno
    arms = [
        {one.name: one.line for one in met if one.writes and low <= one.line <= high}
        for low, high in ((choice.lineno, middle - 1), (middle, end))
    ]
    for name in arms[0].keys() & arms[1].keys():
        after = next((one for one in met if one.name == name and one.line > end), None)
        if after is not None and not after.writes:
            yield name, arms[0][name], arms[1][name], f"it is either after the branch on line {choice.lineno}"


def _met(body: Sequence[ast.stmt]) -> Iterator[Met]:
    """Names in the order in which they are met; of an assignment what it reads first."""

    def names(node: ast.AST) -> Iterator[ast.Name]:
        parts = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            parts.sort(key=lambda part: part is not node.value)
        for part in parts:
            if isinstance(part, ast.Name):
                yield part
            else:
                yield from names(part)

    for statement in body:
        for name in names(statement):
            yield Met(name.id, isinstance(name.ctx, ast.Store), name.lineno)


def _shown(tile: Tile) -> str:
    return f"[{', '.join(map(str, tile[0]))}] {tile[1]}"


def _fix(name: str, before: Tile, after: Tile) -> str:
    if before[0] == after[0]:
        return f"Give the {after[1]} value a name of its own, or pl.cast it to {before[1]}."
    return f"Give the value of {list(after[0])} a name of its own, or write it into a part of {name} (pl.assemble)."


RULE = Rule(
    "unequal-move",
    "error",
    "a move between tiles of different shape",
    "A name that a loop carries is one place on chip. Where a turn leaves a tile of another shape or type in it the "
    "compiler would have to move one onto the other, and refuses: a move wants equal shapes.",
    check,
    Example(
        "part = x[0:64, :]\nfor i in pl.range(4):\n    part = pl.add(part[0:32, :], 1.0)  # half as many rows",
        "part = x[0:32, :]\nfor i in pl.range(4):\n    part = pl.add(part, 1.0)",
    ),
    about="chip",
)
