"""How findings over tasks and the graph speak of tensors, tasks and loops: in the user's words and lines."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal

from npuscope.check.program import Launch, Program
from npuscope.check.traffic import Use
from npuscope.lower.names import name_of, tree_of
from npuscope.tile.record.model import Loop, Op, Ref, Site, Task
from npuscope.tile.record.walk import ops_of


def tensor_name(program: Program, buffer: int) -> str:
    """What the user calls a tensor; a value that left its region has the name it was assigned to there."""
    found = program.recording.buffers[buffer]
    if found.origin != "promoted":
        return found.name
    made = _maker(program, buffer)
    site = program.site(found.site if made is None else made.site)
    return name_of(site, f"the value of line {site.line}")


def access_site(program: Program, use: Use, mode: Literal["read", "write"]) -> Site:
    """The line where a task first reads or writes an argument."""
    task = program.recording.tasks[use.task]
    ops = (op for group in task.groups for op, _ in ops_of(program.recording.bodies[group.body]))
    for op in ops:
        if any(a.argument == use.argument and (a.mode == "read") == (mode == "read") for a in op.accesses):
            return program.site(op.site)
    return program.site(task.site)


def kernel_name(launch: Launch) -> str:
    """A kernel's name without the factory it was made in."""
    return launch.kernel.rpartition("<locals>.")[2]


def loop_site(program: Program, task: Task, depth: int) -> tuple[Site, ast.For | None]:
    """The `for` of the orchestration loop that is number `depth` from the outside around a task.

    Loops are found in the source from the innermost outwards; where they are not those that ran (a caller's loop, a
    file that has changed), the task's own line stands for it.
    """
    site = program.site(task.site)
    around = _loops(site.file, site.line)
    for turn, loop in zip(reversed(task.turns), reversed(around), strict=False):
        if turn.kind == "while" or not isinstance(loop, ast.For) or _called(loop.iter) != turn.kind:
            break
        if turn is task.turns[depth]:
            return Site(site.file, loop.lineno, site.function), loop
    return site, None


def with_loop(loop: ast.For | None, kind: str, **more: str) -> str:
    """The head of a loop as another kind of loop; "" where there is none to show or blocks would not count from 0."""
    if loop is None or not isinstance(loop.iter, ast.Call) or not isinstance(loop.iter.func, ast.Attribute):
        return ""
    if kind == "spmd" and len(loop.iter.args) != 1:
        return ""
    added = [ast.keyword(name, ast.Constant(value)) for name, value in more.items()]
    function = ast.Attribute(loop.iter.func.value, kind, ast.Load())
    call = ast.Call(function, loop.iter.args, [*loop.iter.keywords, *added])
    return f"for {ast.unparse(loop.target)} in {ast.unparse(call)}:"


def many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def listed(names: Iterable[object]) -> str:
    """a, b and c, each once."""
    found = list(dict.fromkeys(map(str, names)))
    return " and ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found)


def lines_of(program: Program, launches: Sequence[Launch]) -> str:
    return listed(f"{kernel_name(launch)} (line {program.site(launch.site).line})" for launch in launches)


def size(count: float) -> str:
    """Bytes for reading."""
    for unit, step in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= step:
            return f"{count / step:.3g} {unit}"
    return f"{count:.0f} bytes"


def _maker(program: Program, buffer: int) -> Op | None:
    """The op whose result was stored to a buffer when its region ended."""
    for task in program.traffic.touching[buffer][:1]:
        for group in program.recording.tasks[task].groups:
            body = program.recording.bodies[group.body]
            arguments = {use.argument for use in program.traffic.uses(task) if use.buffer == buffer and use.written}
            stores = (op for op, _ in ops_of(body) if any(a.argument in arguments for a in op.accesses))
            made = next((op.operands[0] for op in stores if op.operands), None)
            if isinstance(made, Ref) and made.up == 0:
                item: Op | Loop = body.items[made.path[0]]
                for k in made.path[1:]:
                    assert isinstance(item, Loop)
                    item = item.segments[-1].items[k]
                return item if isinstance(item, Op) else None
    return None


def _called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _loops(file: str, line: int) -> list[ast.For | ast.While]:
    """Loops around a line, outermost first; one with `chunk=` is cut into tasks and no loop of the orchestration."""
    found = [node for node in _around(file, line) if isinstance(node, ast.For | ast.While)]
    return [loop for loop in found if not (isinstance(loop, ast.For) and _has(loop.iter, "chunk"))]


def _has(node: ast.AST, keyword: str) -> bool:
    return isinstance(node, ast.Call) and any(k.arg == keyword for k in node.keywords)


@lru_cache(maxsize=1024)
def _around(file: str, line: int) -> list[ast.stmt]:
    """The statements that cover a line, outermost first."""
    tree = tree_of(file)
    found = [
        node
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return sorted(found, key=lambda node: (node.lineno, -(node.end_lineno or 0)))
