"""Marks what stays in orchestration inside a scope in which the compiler drew the tasks (auto_scope.py).

`pl.assemble(out, pl.exp(x), …)` becomes `helper.outside(pl.assemble, out, pl.exp(x), …)`: its arguments are computed,
the task that computed them ends, then it runs. A name that is given a whole number ends the task, too.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TypeVar

from npuscope.tile.fault import TileError
from npuscope.tile.language.grammar import keyword
from npuscope.tile.language.nodes import called

HOST_SIDE = frozenset({"create_tensor", "create", "read", "write", "slice", "assemble", "dim", "reshape", "transpose"})
Made = TypeVar("Made", bound=ast.AST)


def is_auto(scope: ast.expr) -> bool:
    """Whether a `with` opens such a scope."""
    if called(scope) == "auto_incore" or keyword(scope, "optimization") is not None:
        return True
    listed = keyword(scope, "optimizations")
    return listed is not None and any(isinstance(n, ast.Attribute) and n.attr == "auto_chunk" for n in ast.walk(listed))


def marked(body: list[ast.stmt], holds_tasks: Callable[[ast.For], bool], helper: str) -> list[ast.stmt]:
    """The statements of such a scope, with those that stay in orchestration marked by calls of the helper."""
    found: list[ast.stmt] = []
    for statement in body:
        if _interchanged(statement):
            raise TileError(
                'chunked loops nested under chunk_policy="leading_full" changed places; npuscope does not do that',
                line=statement.lineno,
                remedy="Leave chunk_policy= out, or write the tasks with pl.spmd.",
            )
        if isinstance(statement, ast.For) and called(statement.iter) != "spmd" and holds_tasks(statement):
            statement.body = marked(statement.body, holds_tasks, helper)
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr):
            statement = _Outside(helper).visit(statement)
        found.append(statement)
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            bound = ast.Name(statement.targets[0].id, ast.Load())
            found.append(_placed(ast.Expr(_call(helper, "bound", [bound])), statement))
    return found


def _interchanged(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.For):
        return False
    policy = keyword(statement.iter, "chunk_policy")
    if not isinstance(policy, ast.Constant) or policy.value != "leading_full":
        return False
    return any(keyword(inner.iter, "chunk") is not None for inner in statement.body if isinstance(inner, ast.For))


class _Outside(ast.NodeTransformer):
    """Calls of ops that do not compute, and subscripts, as calls that end the task under way first."""

    def __init__(self, helper: str) -> None:
        self._helper = helper

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if called(node) not in HOST_SIDE or not isinstance(node.func, ast.Attribute):
            return node
        new = _call(self._helper, "outside", [node.func, *node.args])
        new.keywords = node.keywords
        return _placed(new, node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Del):  # of `x[…] = v` Python computes v before it looks x up
            node.value = _placed(_call(self._helper, "outside_tensor", [node.value]), node)
        return node


def _call(helper: str, name: str, arguments: list[ast.expr]) -> ast.Call:
    return ast.Call(ast.Attribute(ast.Name(helper, ast.Load()), name, ast.Load()), arguments, [])


def _placed(made: Made, node: ast.AST) -> Made:
    for child in ast.walk(made):
        if not hasattr(child, "lineno"):
            ast.copy_location(child, node)
    return made
