"""How a task was written: the name its id is bound to, whether it says deps=, and the form of the launch."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal

from npuscope.lower.source import read
from npuscope.tile.record.model import Site, Task

LaunchForm = Literal["with", "for", "call"]


@dataclass(frozen=True)
class LaunchText:
    """`name`: of the task's id, empty where there is none; `deps`: whether the launch has a deps= already."""

    form: LaunchForm
    name: str = ""
    deps: bool = False


def launch_text(task: Task, site: Site) -> LaunchText:
    """What stands at a task's launch; of a file that is gone, what the record tells."""
    source = read(site.file)
    for node in ast.walk(source.tree) if source is not None else ():
        if isinstance(node, ast.With):
            for item in node.items:
                if isinstance(item.context_expr, ast.Call) and _at(item.context_expr, site.line):
                    name = item.optional_vars.id if isinstance(item.optional_vars, ast.Name) else ""
                    return LaunchText("with", name, _has_deps(item.context_expr))
        elif isinstance(node, ast.For) and task.form == "spmd" and _at(node.iter, site.line):
            return LaunchText("for")
        elif isinstance(node, ast.Assign) and task.form not in ("at", "spmd") and _at(node.value, site.line):
            called = isinstance(node.value, ast.Call) and _has_deps(node.value)
            return LaunchText("call", _last_name(node.targets[0]), called)
    return LaunchText("with" if task.form in ("at", "spmd") else "call")


def _at(node: ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _has_deps(call: ast.Call) -> bool:
    return any(keyword.arg == "deps" for keyword in call.keywords)


def _last_name(target: ast.expr) -> str:
    """`out, tid = pl.submit(…)` binds the id to the last name; a plain result has none."""
    last = target.elts[-1] if isinstance(target, ast.Tuple) and target.elts else None
    return last.id if isinstance(last, ast.Name) else ""
