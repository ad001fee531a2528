"""Equal tasks submitted one by one that could be blocks of one `pl.spmd`, which is one task."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.check.findings import Finding, Waste
from npuscope.check.rule import Example, Rule
from npuscope.check.source.changed_lines import loop_site, with_loop
from npuscope.check.traffic.mergeable import mergeable
from npuscope.lower.program import Program
from npuscope.table.formats import many
from npuscope.tile.record.model import short_name


def check(program: Program) -> Iterator[Finding]:
    for launch, groups in mergeable(program).items():
        name = short_name(launch.kernel)
        saved = sum(len(group) - 1 for group in groups)
        task = program.recording.tasks[groups[0][0]]
        site, loop = loop_site(program, task, len(task.turns) - 1) if task.turns else (program.site(task.site), None)
        yield RULE.at(
            site,
            f"{sum(map(len, groups)):,} equal tasks of {name} are submitted one by one, though up to "
            f"{max(map(len, groups))} of them wait for the same and touch nothing of one another",
            f"Make those blocks of one pl.spmd launch: {many(saved, 'task')} fewer.",
            kernel=launch.kernel,
            change=with_loop(loop, "spmd", name_hint=name) if _one_loop(program, groups[0]) else "",
            waste=Waste(tasks=saved),
            count=len(groups),
        )


def _one_loop(program: Program, tasks: list[int]) -> bool:
    """Whether the tasks are the turns of one loop, and nothing else is submitted in it."""
    around = {program.recording.tasks[task].turns[:-1] for task in tasks}
    return tasks[-1] - tasks[0] == len(tasks) - 1 and len(around) == 1


RULE = Rule(
    "many-tasks",
    "hint",
    "many equal tasks instead of one launch",
    "Every task is submitted, dispatched and completed by itself; the blocks of one pl.spmd are one task.",
    check,
    Example(
        "for n0 in pl.parallel(0, N, 64):\n"
        "    with pl.at(level=CORE):\n"
        "        out = pl.assemble(out, pl.matmul(x, w[:, n0 : n0 + 64]), [0, n0])",
        "for b in pl.spmd(N // 64):\n    out = pl.assemble(out, pl.matmul(x, w[:, b * 64 : b * 64 + 64]), [0, b * 64])",
        "tasks saved",
    ),
)
