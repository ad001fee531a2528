"""The user's line as it should be: small rewrites of one statement, found in the source by file and line."""

from __future__ import annotations

import ast
from collections.abc import Callable

from npuscope.lower.names import statement_at
from npuscope.tile.record.model import Site


def pipelined(loop: Site) -> str:
    """The head of a `for … in pl.range(…)` loop as a pipeline of two stages; "" where the line is no such loop."""
    found = statement_at(loop.file, loop.line)
    if not isinstance(found, ast.For) or _op(found.iter) not in ("range", "parallel"):
        return ""
    call = found.iter
    assert isinstance(call, ast.Call)
    kept = [keyword for keyword in call.keywords if keyword.arg != "chunk"]
    stage = ast.keyword("stage", ast.Constant(2))
    piped = ast.Call(_renamed(call.func, "pipeline"), call.args, [*kept, stage])
    return f"for {ast.unparse(found.target)} in {ast.unparse(piped)}:"


def accumulated(add: Site) -> str:
    """The statement with `pl.add(acc, pl.matmul(a, b))` as `pl.matmul_acc(acc, a, b)`; "" where it has none."""
    return _rewritten(add, _as_matmul_acc)


def _as_matmul_acc(node: ast.Call) -> ast.Call | None:
    if _op(node) != "add" or len(node.args) != 2:
        return None
    for acc, product in (node.args, node.args[::-1]):
        if _op(product) == "matmul":
            assert isinstance(product, ast.Call)
            kept = [keyword for keyword in product.keywords if keyword.arg in ("a_trans", "b_trans")]
            return ast.Call(_renamed(product.func, "matmul_acc"), [acc, *product.args[:2]], kept)
    return None


def _rewritten(site: Site, change: Callable[[ast.Call], ast.Call | None]) -> str:
    """The simple statement at a line with its calls changed where `change` knows how; "" where nothing did."""
    found = statement_at(site.file, site.line)
    if found is None or isinstance(found, ast.For | ast.With | ast.If | ast.While | ast.FunctionDef):
        return ""
    rewriter = _Rewriter(change)
    new = rewriter.visit(ast.parse(ast.unparse(found)).body[0])
    return ast.unparse(new) if rewriter.changed else ""


class _Rewriter(ast.NodeTransformer):
    def __init__(self, change: Callable[[ast.Call], ast.Call | None]) -> None:
        self.change = change
        self.changed = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        new = self.change(node)
        self.changed = self.changed or new is not None
        return self.generic_visit(new or node)


def _op(node: ast.AST) -> str:
    """The last name of a call: `pl.tile.add(…)` is add."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _renamed(func: ast.expr, name: str) -> ast.expr:
    return ast.Attribute(func.value, name, ast.Load()) if isinstance(func, ast.Attribute) else ast.Name(name)
