"""fragile-assert: a check of constants that holds for a tile size and not for half or twice of it.

Whoever sweeps the tile stops there. Told from the text: the constants of the file are evaluated again with one tile
halved or doubled, derived constants with it. Only checks that something divides by the tile count: limits of the chip
and constants that must be equal are meant to fail, and a tile as large as its tensor cannot grow.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from npuscope.check.findings import Finding
from npuscope.check.rule import Example, Rule
from npuscope.check.source.constants import NotTold, bindings, evaluated, imported, number_of, value_of
from npuscope.lower.program import Program
from npuscope.lower.source import Function, SourceFile, sources
from npuscope.tile.record.model import Site

TILE = re.compile(r"TILE|CHUNK|BLOCK|SLICE|STEP|(^|_)T[MNK]$|(^|_)[MNK]$")


def check(program: Program) -> Iterator[Finding]:
    for source in sources(program.recording.sites):
        yield from findings_in(source)


def findings_in(source: SourceFile) -> Iterator[Finding]:
    """One finding per tile constant: at the first check that breaks, with the others beside it."""
    broken: dict[str, list[tuple[int, int, str]]] = defaultdict(
        list
    )  # tile -> (its other value, line, what is checked)
    everything = bindings(source)
    outside = imported(source)
    for node in source.nodes:
        if not isinstance(node, ast.Assert | ast.If) or (guard := _guard(node)) is None:
            continue
        around = source.function_at(node.lineno)
        visible = [b for b in everything if b.line < node.lineno and _sees(around, b.function)]
        now = evaluated(visible, outside)
        if not _holds(guard, now):
            continue
        for tile in visible:
            value = _literal(tile.expression)
            if value is None or not TILE.search(tile.name):
                continue
            for other in (value // 2, value * 2):
                then = evaluated(visible, outside, {tile.name: other})
                if _holds(guard, then) is False and _divides(guard, now, then):
                    broken[tile.name].append((other, node.lineno, ast.unparse(guard)))
    for name, places in broken.items():
        first = min(line for _, line, _ in places)
        said = "; ".join(f"{name} = {other} fails `{what}`" for other, _, what in sorted(places)[:3])
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        yield RULE.at(
            Site(source.file, first, ""),
            f"a neighbouring tile size breaks a check: {said}{more}",
            f"Take a {name} that divides with room to spare, or let the last tile be shorter (valid_shape).",
            also=[Site(source.file, line, "") for line in sorted({line for _, line, _ in places} - {first})],
        )


def _guard(node: ast.Assert | ast.If) -> ast.expr | None:
    """What must hold: of an assert its test, of `if wrong: raise …` the contrary."""
    if isinstance(node, ast.Assert):
        return node.test
    if not node.orelse and len(node.body) == 1 and isinstance(node.body[0], ast.Raise):
        return ast.UnaryOp(ast.Not(), node.test)
    return None


def _divides(guard: ast.expr, now: dict[str, object], then: dict[str, object]) -> bool:
    """Whether something is divided by a tile that changed and is still smaller than it."""
    for node in ast.walk(guard):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            try:
                size, before, after = (
                    number_of(node.left, then),
                    number_of(node.right, now),
                    number_of(node.right, then),
                )
            except NotTold:
                continue
            if before != after and size >= after > 0 and size % after:
                return True
    return False


def _sees(around: Function | None, owner: Function | None) -> bool:
    return owner is None or (
        around is not None and owner.lineno <= around.lineno and (around.end_lineno or 0) <= (owner.end_lineno or 0)
    )


def _holds(guard: ast.expr, known: dict[str, object]) -> bool | None:
    """None where constants alone do not tell."""
    try:
        return bool(value_of(guard, known))
    except NotTold:
        return None


def _literal(node: ast.expr) -> int | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 2 else None


RULE = Rule(
    "fragile-assert",
    "hint",
    "a check of constants fails for a neighbouring tile size",
    "A sweep over tile sizes ends at the first one that does not divide, often before the best one.",
    check,
    Example(
        "HIDDEN, K_TILE = 5120, 1024\nassert HIDDEN % K_TILE == 0  # 2048 fails",
        "HIDDEN, K_TILE = 5120, 512\nassert HIDDEN % K_TILE == 0",
    ),
    about="quality",
)
