"""Which names code after a region may still read: only those need to be known when the region ends.

Backward through the statements of a function, to a fixed point in loops. What is not understood reads every name.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import NamedTuple

from npuscope.tile.language.exposed import assigned, used
from npuscope.tile.language.nodes import under

Names = frozenset[str]
_NONE: Names = frozenset()


class _Exits(NamedTuple):
    """What is read after `break` and after `continue` of the innermost loop."""

    broken: Names = _NONE
    continued: Names = _NONE


def live_after(definition: ast.FunctionDef) -> dict[int, Names]:
    """id of each `with` and `for` statement of a function → the names that may be read after it."""
    walk = _Walk(frozenset(used(definition.body)))
    walk.body(definition.body, _NONE, _Exits())
    always = _in_functions(definition)
    return {statement: names | always for statement, names in walk.found.items()}


def _in_functions(definition: ast.FunctionDef) -> Names:
    """Names that functions made inside read: they may be called at any time."""
    made = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
    inner = [n for n in under(definition) if isinstance(n, made) and n is not definition]
    return frozenset(n.id for one in inner for n in under(one) if isinstance(n, ast.Name))


class _Walk:
    def __init__(self, everything: Names) -> None:
        self.found: dict[int, Names] = {}
        self._everything = everything
        self._plain: dict[int, tuple[Names, Names]] = {}

    def body(self, body: Sequence[ast.stmt], after: Names, exits: _Exits) -> Names:
        """The names read from the start of some statements on."""
        for statement in reversed(body):
            after = self._statement(statement, after, exits)
        return after

    def _statement(self, node: ast.stmt, after: Names, exits: _Exits) -> Names:
        if isinstance(node, ast.If):
            arms = self.body(node.body, after, exits), self.body(node.orelse, after, exits)
            return _read_by(node.test).union(*arms)
        if isinstance(node, ast.For | ast.While):
            self.found[id(node)] = self.found.get(id(node), _NONE) | after
            return self._loop(node, after, exits)
        if isinstance(node, ast.With):
            self.found[id(node)] = self.found.get(id(node), _NONE) | after
            named = assigned([item.optional_vars for item in node.items if item.optional_vars is not None])
            reads = [_read_by(item.context_expr) for item in node.items]
            return (self.body(node.body, after, exits) - named).union(*reads)
        if isinstance(node, ast.Break):
            return exits.broken
        if isinstance(node, ast.Continue):
            return exits.continued
        if isinstance(node, ast.Return):
            return _read_by(node) if node.value is not None else _NONE
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr | ast.AugAssign | ast.Pass | ast.Assert):
            read, bound = self._of_plain(node)
            return read | (after - bound)
        for inner in under(node):
            if isinstance(inner, ast.With | ast.For):
                self.found[id(inner)] = self._everything
        return self._everything

    def _loop(self, node: ast.For | ast.While, after: Names, exits: _Exits) -> Names:
        bound, head = _NONE, _NONE
        if isinstance(node, ast.For):
            bound = frozenset(assigned([node.target]))
        else:
            head = _read_by(node.test)
        left = self.body(node.orelse, after, exits) | after | head
        again = left
        while True:  # names only ever join
            turn = left | (self.body(node.body, again, _Exits(after, again)) - bound)
            if turn == again:
                break
            again = turn
        return again | (_read_by(node.iter) if isinstance(node, ast.For) else _NONE)

    def _of_plain(self, node: ast.stmt) -> tuple[Names, Names]:
        known = self._plain.get(id(node))
        if known is None:
            reads = used([node]) | (assigned([node]) if isinstance(node, ast.AugAssign) else set())
            # A name inside a comprehension or behind `and` may not be bound.
            targets: list[ast.expr] = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AnnAssign | ast.AugAssign) and node.value is not None:
                targets = [node.target]
            known = self._plain[id(node)] = (frozenset(reads), frozenset(assigned(targets)))
        return known


def _read_by(node: ast.AST) -> Names:
    return frozenset(used([node]))
