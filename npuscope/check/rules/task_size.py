"""Tasks that cost more to hand out than to run, and equal tasks submitted one by one.

A scheduler thread spends `runtime.task_cost` on every task. `many-tasks`: equal tasks that wait for the same and do not
touch what another writes could be blocks of one `pl.spmd`, which is one task. `short-task`: several tasks of a kernel
whose run time, by the estimate of `estimate`, is below that cost, and which cannot be blocks of one launch as they are.
Kernels that could be one with their neighbours are left to gm-round-trip, and those that only fill to zero-fill.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import ceil

from npuscope.check.findings import Cost, Finding
from npuscope.check.program import Launch, Program
from npuscope.check.rule import Rule
from npuscope.check.shared.estimate import block_seconds, least_seconds
from npuscope.check.shared.fusable import fusable
from npuscope.check.shared.once import once
from npuscope.check.shared.told import kernel_name, loop_site, many, with_loop
from npuscope.check.shared.waiting import waits_of

MANY = 16  # equal tasks that are worth one launch
DENSE = 4  # tasks submitted from one to the next: else the loop around them does much more than that
WORTH = 0.25  # of a kernel's tasks: fewer are not worth a change
DEAR = 1e-3  # seconds of scheduling to warn of, if they are more than the program's work takes


def many_tasks(program: Program) -> Iterator[Finding]:
    for launch, groups in mergeable(program).items():
        saved = sum(len(group) - 1 for group in groups)
        task = program.recording.tasks[groups[0][0]]
        site, loop = loop_site(program, task, len(task.turns) - 1) if task.turns else (program.site(task.site), None)
        yield Finding(
            id="many-tasks",
            severity="hint",
            file=site.file,
            line=site.line,
            function=site.function,
            kernel=launch.kernel,
            message=f"{sum(map(len, groups)):,} equal tasks of {kernel_name(launch)} are submitted one by one, though "
            f"up to {max(map(len, groups))} of them wait for the same and touch nothing of one another",
            fix=f"Make those blocks of one pl.spmd launch: {many(saved, 'task')} fewer.",
            change=with_loop(loop, "spmd", name_hint=kernel_name(launch)) if _one_loop(program, groups[0]) else "",
            cost=Cost(tasks=saved),
            count=len(groups),
        )


def short_tasks(program: Program) -> Iterator[Finding]:
    runtime = program.device.runtime
    if "task_cost" not in runtime or "useful_task" not in runtime:
        return
    spent = runtime["task_cost"].value
    merged = mergeable(program).keys()
    kernels: dict[tuple[str, int], list[Launch]] = defaultdict(list)
    for launch in _alone(program):
        if launch not in merged and launch.blocks == 1 and _close(launch) and block_seconds(program, launch) < spent:
            kernels[launch.kernel, launch.site].append(launch)
    for launches in kernels.values():
        tasks = sum(len(launch.tasks) for launch in launches)
        run = sum(block_seconds(program, launch) * len(launch.tasks) for launch in launches)
        lost = tasks * spent - run
        cost = Cost(tasks=tasks - max(ceil(run / spent), 1))
        if lost < runtime["useful_task"].value or cost.tasks < WORTH * tasks:
            continue
        site = program.site(launches[0].site)
        yield Finding(
            id="short-task",
            severity="warning" if lost > max(DEAR, least_seconds(program)) else "hint",
            file=site.file,
            line=site.line,
            function=site.function,
            kernel=launches[0].kernel,
            message=f"{many(tasks, 'task')} of {kernel_name(launches[0])} run about {1e6 * run / tasks:.1f} µs each "
            f"(an estimate by bytes and FLOPs at one core's share of the chip), less than the {1e6 * spent:.1f} µs "
            "that a scheduler thread spends on a task",
            fix="Give a task more to do, a larger tile or several turns of the loop, or make the tasks blocks of one "
            f"pl.spmd: about {1e6 * runtime['useful_task'].value:.0f} µs are worth a dispatch.",
            cost=cost,
            count=tasks,
        )


def _alone(program: Program) -> list[Launch]:
    """Launches that read something, are written in this language and could not be one with their neighbours."""
    joined = {launch for found in fusable(program) for launch in found.launches}
    moved = zip(program.launches, program.traffic.moved, strict=True)
    found = [launch for launch, move in moved if launch not in joined and move.read]
    return [launch for launch in found if program.first_task(launch).form != "extern"]


@once
def mergeable(program: Program) -> dict[Launch, list[list[int]]]:
    """Launches of single blocks with the groups of their tasks that could be one launch each."""
    waits = waits_of(program)
    found: dict[Launch, list[list[int]]] = {}
    for launch in _alone(program):
        if launch.blocks != 1 or len(launch.tasks) < MANY:
            continue
        alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for task in launch.tasks:
            alike[tuple(waits.get(task, ()))].append(task)
        free = _runs(alike.pop((), []))
        groups = [tasks for tasks in (*free, *alike.values()) if len(tasks) >= MANY]
        if groups and _apart(program, launch, groups[0]) and _apart(program, launch, groups[-1]):
            found[launch] = groups
    return found


def _runs(tasks: list[int]) -> list[list[int]]:
    """Tasks that wait for nothing, by what follows one another."""
    runs: list[list[int]] = []
    for task in tasks:
        if not runs or task - runs[-1][-1] > DENSE:
            runs.append([])
        runs[-1].append(task)
    return runs


def _one_loop(program: Program, tasks: list[int]) -> bool:
    """Whether the tasks are the turns of one loop, and nothing else is submitted in it."""
    around = {program.recording.tasks[task].turns[:-1] for task in tasks}
    return tasks[-1] - tasks[0] == len(tasks) - 1 and len(around) == 1


def _close(launch: Launch) -> bool:
    """Whether most tasks of a launch follow one another: a loop of its own, not one task per turn of a larger one."""
    near = sum(after - before <= DENSE for before, after in pairwise(launch.tasks))
    return 2 * near > len(launch.tasks)


def _apart(program: Program, launch: Launch, tasks: list[int]) -> bool:
    """Whether the tasks share no element that one of them writes, except by atomic adds."""
    traffic = program.traffic
    adds = traffic.moved[traffic.launch[tasks[0]]].added
    added = {use.buffer for task in tasks for use in traffic.uses(task) if use.argument in adds and not use.read}
    return all(edge.buffer in added for edge in traffic.conflicts(tasks))


RULES = (
    Rule(
        "many-tasks",
        "hint",
        "many equal tasks instead of one launch",
        "Every task is submitted, dispatched and completed by itself; the blocks of one pl.spmd are one task.",
        many_tasks,
    ),
    Rule(
        "short-task",
        "hint",
        "tasks too short to hide their dispatch",
        "Handing out a task and seeing it done costs a scheduler thread several microseconds; a core waits for that "
        "between tasks that are shorter.",
        short_tasks,
    ),
)
