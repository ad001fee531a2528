"""What the user calls a tile: the name that it is assigned to on its line."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache

from npuscope.tile.record.model import Site


def name_of(site: Site, op: str) -> str:
    """The name that the statement assigns to, or the op's where it has none."""
    statement = statement_at(site.file, site.line)
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    return op


@lru_cache(maxsize=4096)
def statement_at(file: str, line: int) -> ast.stmt | None:
    """The innermost simple statement on a line of a source file."""
    best: ast.stmt | None = None
    tree = tree_of(file)
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.stmt) or not node.lineno <= line <= (node.end_lineno or node.lineno):
            continue
        if best is None or (node.lineno, -(node.end_lineno or 0)) >= (best.lineno, -(best.end_lineno or 0)):
            best = node
    return best


@lru_cache(maxsize=64)
def tree_of(file: str) -> ast.Module | None:
    """A source file as a syntax tree; None where it is no longer Python."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None
