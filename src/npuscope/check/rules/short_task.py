"""Tasks that cost more to hand out than to run.

Several tasks of a kernel whose run time, by the estimate of `estimate`, is below what a scheduler thread spends on
every task (`runtime.task_cost`), and which cannot be blocks of one launch as they are. Kernels that could be one with
their neighbours are left to gm-round-trip, and those that only fill to zero-fill.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import ceil

from npuscope.check.findings import Finding, Waste
from npuscope.check.rule import Example, Rule
from npuscope.check.traffic.estimate import block_seconds, least_seconds
from npuscope.check.traffic.mergeable import DENSE, alone, mergeable
from npuscope.lower.program import Launch, Program
from npuscope.table.formats import many
from npuscope.tile.record.model import short_name

WORTH = 0.25  # of a kernel's tasks: fewer are not worth a change
DEAR = 1e-3  # seconds of scheduling to warn of, if they are more than the program's work takes


def check(program: Program) -> Iterator[Finding]:
    runtime = program.device.runtime
    if "task_cost" not in runtime or "useful_task" not in runtime:
        return
    spent = runtime["task_cost"].value
    merged = mergeable(program).keys()
    kernels: dict[tuple[str, int], list[Launch]] = defaultdict(list)
    for launch in alone(program):
        if launch not in merged and launch.blocks == 1 and _close(launch) and block_seconds(program, launch) < spent:
            kernels[launch.kernel, launch.site].append(launch)
    for launches in kernels.values():
        tasks = sum(len(launch.tasks) for launch in launches)
        run = sum(block_seconds(program, launch) * len(launch.tasks) for launch in launches)
        lost = tasks * spent - run
        waste = Waste(tasks=tasks - max(ceil(run / spent), 1))
        if lost < runtime["useful_task"].value or waste.tasks < WORTH * tasks:
            continue
        yield RULE.at(
            program.site(launches[0].site),
            f"{many(tasks, 'task')} of {short_name(launches[0].kernel)} run about {1e6 * run / tasks:.1f} µs each "
            f"(an estimate by bytes and FLOPs at one core's share of the chip), less than the {1e6 * spent:.1f} µs "
            "that a scheduler thread spends on a task",
            "Give a task more to do, a larger tile or several turns of the loop, or make the tasks blocks of one "
            f"pl.spmd: about {1e6 * runtime['useful_task'].value:.0f} µs are worth a dispatch.",
            kernel=launches[0].kernel,
            severity="warning" if lost > max(DEAR, least_seconds(program)) else "hint",
            waste=waste,
            count=tasks,
        )


def _close(launch: Launch) -> bool:
    """Whether most tasks of a launch follow one another: a loop of its own, not one task per turn of a larger one."""
    near = sum(after - before <= DENSE for before, after in pairwise(launch.tasks))
    return 2 * near > len(launch.tasks)


RULE = Rule(
    "short-task",
    "hint",
    "tasks too short to hide their dispatch",
    "Handing out a task and seeing it done costs a scheduler thread several microseconds; a core waits for that "
    "between tasks that are shorter.",
    check,
    Example(
        "for r in pl.range(0, ROWS, 1):  # a row is done before the next task is handed out\n"
        "    with pl.at(level=CORE):\n"
        "        state = pl.assemble(state, pl.add(state[r : r + 1, :], 1.0), [r, 0])",
        "with pl.at(level=CORE):\n"
        "    for r in pl.range(0, ROWS, 16):\n"
        "        state = pl.assemble(state, pl.add(state[r : r + 16, :], 1.0), [r, 0])",
        "tasks saved",
    ),
)
