"""Why nothing orders two tasks, and the shortest `deps=` that would, as the launches are written."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import Literal

from npuscope.base.frozen import dataclass
from npuscope.check.phrases import named
from npuscope.check.races.conflicts import ones, order_of
from npuscope.lower.program import Program
from npuscope.lower.source import read
from npuscope.tile.graph.exact import Hazard
from npuscope.tile.record.model import Argument, Site, Task, short_name


def remedy(program: Program, earlier: int, later: int, kind: Hazard, buffer: int) -> tuple[str, str]:
    """Why the `later` task does not wait for the `earlier` ones (a bitset), and what to write so that it does."""
    tasks, name = program.recording.tasks, named(program, buffer).name
    task, first = tasks[later], tasks[earlier.bit_length() - 1]
    kernel, before = short_name(task.kernel), short_name(first.kernel)
    deps = _deps(program, earlier, task)

    def arguments(of: Task) -> list[Argument]:
        boxes = program.graph.footprints[of.id]
        return [argument for argument, box in zip(of.arguments, boxes, strict=True) if box.buffer == buffer]

    if program.recording.buffers[buffer].manual_dep:
        return f"{name} is manual_dep=True: only deps= order its tasks", deps
    if task.manual_scope:
        return f"{kernel} is in a manual scope: only its deps= make it wait", deps
    if kind == "war":
        return "the runtime makes no task wait for readers", deps
    if first.manual_scope:
        return f"{before} is in a manual scope: the runtime does not remember what it writes", deps
    for one in (first, task):
        if any(argument.no_dep for argument in arguments(one)):
            fix = f"let the runtime track {name} there again, or {deps}"
            return f"{short_name(one.kernel)} takes {name} as no_dep", fix
    if any(argument.declared == "Out" and argument.reads for argument in arguments(task)):
        why = f"{kernel} declares {name} pl.Out, so the runtime looks for no writer before it, yet it reads"
        return why, f"declare it pl.InOut in the signature of {kernel}"
    return f"the runtime takes {kernel} for the first to write such a tensor, and looks for no writer before it", deps


def _deps(program: Program, earlier: int, task: Task) -> str:
    tasks = program.recording.tasks
    wanted = _fewest(order_of(program).before, earlier, task.id)
    first = tasks[wanted[0]]
    text = launch_text(task, program.site(task.site))
    if len(wanted) == 1:
        its = launch_text(first, program.site(first.site))
        name = its.name or f"{short_name(first.kernel)}_tid"
        return f"{_named(program, first, its, name)}{_added(program, task, text, name)}{_kept(first, task)}"
    kernels = Counter(short_name(tasks[number].kernel) for number in wanted)
    counts = ", ".join(f"{count} of {kernel}" for kernel, count in kernels.items())
    gather = f"gather the task ids ({counts}; {_place(program, first)}) in a pl.array.create(…, pl.TASK_ID), then "
    return gather + _added(program, task, text, "tids")


def _fewest(before: tuple[int, ...], earlier: int, later: int) -> list[int]:
    """The fewest tasks that, waited for, bring all of `earlier`: the last ones, or one that waits for all of them."""
    last: list[int] = []
    covered = 0
    for task in reversed(ones(earlier)):
        if not covered >> task & 1:
            last.insert(0, task)
            covered |= before[task]
    if len(last) > 1:
        for task in range(last[-1] + 1, later):
            if earlier & ~before[task] == 0:
                return [task]
    return last


def _named(program: Program, task: Task, text: LaunchText, name: str) -> str:
    """How the earlier task gets a name for its id, where it has none."""
    if text.name:
        return ""
    if text.form == "call":
        return f"call {short_name(task.kernel)} inside `with pl.at(…) as {name}:` ({_place(program, task)}), then "
    return f"name {short_name(task.kernel)}'s task, `with … as {name}:` ({_place(program, task)}), then "


def _added(program: Program, task: Task, text: LaunchText, name: str) -> str:
    """How the later task gets the id into its deps=."""
    kernel, place = short_name(task.kernel), _place(program, task)
    if text.form == "for":
        return f"write {kernel} as `with pl.spmd(…, deps=[{name}]) as tid:` ({place}): a for loop takes no deps="
    if text.form == "call":
        return f"call {kernel} inside `with pl.at(…, deps=[{name}]):` ({place})"
    if text.deps:
        return f"add {name} to the deps= of {kernel} ({place})"
    return f"give {kernel} deps=[{name}] ({place}{'' if text.name else '; it has no `as tid` yet'})"


def _kept(first: Task, later: Task) -> str:
    """An id of another turn of a loop must be kept for the next one."""
    turns = {turn.loop: turn.turn for turn in first.turns}
    if all(turns.get(turn.loop, turn.turn) == turn.turn for turn in later.turns):
        return ""
    return ", kept from the turn before in a pl.array.create(…, pl.TASK_ID) made outside the loop"


def _place(program: Program, task: Task) -> str:
    site = program.site(task.site)
    return f"{Path(site.file).name}:{site.line}"


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
