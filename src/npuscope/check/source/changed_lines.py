"""The user's line as it should be: heads of loops and statements, found in the source by file and line."""

from __future__ import annotations

import ast

from npuscope.lower.program import Program
from npuscope.lower.source import read, statement_at
from npuscope.ops.cube import MATMUL, MATMUL_ACC
from npuscope.ops.elementwise import ADD
from npuscope.tile.language.grammar import called
from npuscope.tile.record.model import Site, Task


def loop_site(program: Program, task: Task, depth: int) -> tuple[Site, ast.For | None]:
    """The `for` of the orchestration loop that is number `depth` from the outside around a task.

    Loops are found in the source from the innermost outwards; where they are not those that ran (a caller's loop, a
    file that has changed), the task's own line stands for it.
    """
    site = program.site(task.site)
    source = read(site.file)
    around = [] if source is None else source.around(site.line)
    loops = [loop for loop in around if isinstance(loop, ast.For | ast.While) and not _is_cut(loop)]
    for turn, loop in zip(reversed(task.turns), reversed(loops), strict=False):
        if turn.kind == "while" or not isinstance(loop, ast.For) or called(loop.iter) != turn.kind:
            break
        if turn is task.turns[depth]:
            return Site(site.file, loop.lineno, site.function), loop
    return site, None


def _is_cut(loop: ast.For | ast.While) -> bool:
    """One with `chunk=` is cut into tasks and no loop of the orchestration."""
    return (
        isinstance(loop, ast.For)
        and isinstance(loop.iter, ast.Call)
        and any(keyword.arg == "chunk" for keyword in loop.iter.keywords)
    )


def with_loop(loop: ast.stmt | None, kind: str, **more: str | int) -> str:
    """The head of a loop as another kind of loop; "" where there is none to show or blocks would not count from 0."""
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
        return ""
    if not isinstance(loop.iter.func, ast.Attribute) or (kind == "spmd" and len(loop.iter.args) != 1):
        return ""
    kept = [keyword for keyword in loop.iter.keywords if keyword.arg != "chunk"]
    added = [ast.keyword(name, ast.Constant(value)) for name, value in more.items()]
    call = ast.Call(_renamed(loop.iter.func, kind), loop.iter.args, [*kept, *added])
    return f"for {ast.unparse(loop.target)} in {ast.unparse(call)}:"


def pipelined(site: Site) -> str:
    """The head of a `for … in pl.range(…)` loop as a pipeline of two stages; "" where the line is no such loop."""
    loop = statement_at(site)
    is_range = isinstance(loop, ast.For) and called(loop.iter) in ("range", "parallel")
    return with_loop(loop, "pipeline", stage=2) if is_range else ""


def accumulated(add: Site) -> str:
    """The statement with `pl.add(acc, pl.matmul(a, b))` as `pl.matmul_acc(acc, a, b)`; "" where it has none."""
    found = statement_at(add)
    if found is None or isinstance(found, ast.For | ast.With | ast.If | ast.While | ast.FunctionDef):
        return ""
    rewriter = _Accumulated()
    new = rewriter.visit(ast.parse(ast.unparse(found)).body[0])
    return ast.unparse(new) if rewriter.changed else ""


class _Accumulated(ast.NodeTransformer):
    changed = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if called(node) in ADD.names and len(node.args) == 2:
            for acc, product in (node.args, node.args[::-1]):
                if isinstance(product, ast.Call) and called(product) in MATMUL.names:
                    kept = [keyword for keyword in product.keywords if keyword.arg in ("a_trans", "b_trans")]
                    node = ast.Call(_renamed(product.func, MATMUL_ACC.names[0]), [acc, *product.args[:2]], kept)
                    self.changed = True
                    break
        return self.generic_visit(node)


def _renamed(func: ast.expr, name: str) -> ast.expr:
    return ast.Attribute(func.value, name, ast.Load()) if isinstance(func, ast.Attribute) else ast.Name(name)
