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


def statement_at(file: str, line: int) -> ast.stmt | None:
    """The innermost simple statement on a line of a source file."""
    return _statements(file).get(line)


@lru_cache(maxsize=64)
def _statements(file: str) -> dict[int, ast.stmt]:
    """Line -> the statement on it: of several around it the last to begin, of those the shortest."""
    tree = tree_of(file)
    found = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)] if tree is not None else []
    found.sort(key=lambda node: (node.lineno, -(node.end_lineno or 0)))
    return {line: node for node in found for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


@lru_cache(maxsize=64)
def tree_of(file: str) -> ast.Module | None:
    """A source file as a syntax tree; None where it is no longer Python."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None
