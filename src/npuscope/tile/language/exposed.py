"""Which names a piece of code sets, and which of them it may read before it has set them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from npuscope.tile.language.nodes import under


def assigned(body: Sequence[ast.AST]) -> set[str]:
    """Names that the statements bind."""
    return {node.id for node in under(*body) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def used(body: Sequence[ast.AST]) -> set[str]:
    """Names that the statements read."""
    nodes = under(*body)
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def exposed(body: Sequence[ast.stmt], names: set[str]) -> set[str]:
    """Those of the names that some path reads before it binds them."""
    found: set[str] = set()
    _walk(body, names, set(), found)
    return found


def _walk(body: Sequence[ast.stmt], names: set[str], sure: set[str], found: set[str]) -> set[str]:
    for statement in body:
        sure = _statement(statement, names, sure, found)
    return sure


def _reads(node: ast.AST, names: set[str], sure: set[str], found: set[str]) -> None:
    found |= used([node]) & (names - sure)


def _statement(node: ast.stmt, names: set[str], sure: set[str], found: set[str]) -> set[str]:
    if isinstance(node, ast.If):
        _reads(node.test, names, sure, found)
        one = _walk(node.body, names, set(sure), found)
        other = _walk(node.orelse, names, set(sure), found)
        return one & other
    if isinstance(node, ast.For):
        _reads(node.iter, names, sure, found)
        _walk(node.body, names, sure | assigned([node.target]), found)
        _walk(node.orelse, names, set(sure), found)
        return sure
    if isinstance(node, ast.While):
        _reads(node.test, names, sure, found)
        _walk(node.body, names, set(sure), found)
        _walk(node.orelse, names, set(sure), found)
        return sure
    if isinstance(node, ast.With):
        for item in node.items:
            _reads(item.context_expr, names, sure, found)
            sure = sure | assigned([item.optional_vars] if item.optional_vars else [])
        return _walk(node.body, names, sure, found)
    if isinstance(node, ast.AugAssign):
        _reads(node.value, names, sure, found)
        if isinstance(node.target, ast.Name) and node.target.id in names - sure:
            found.add(node.target.id)
        return sure | assigned([node.target])
    _reads(node, names, sure, found)
    return sure | assigned([node]) if isinstance(node, ast.Assign | ast.AnnAssign) else sure
