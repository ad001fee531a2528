"""Tasks that cost more to hand out than to run, or leave cores idle: short-task, many-tasks, partial-wave."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import ceil

from npuscope.check.fusable import fusable
from npuscope.check.gm_traffic import beside, block_seconds, cores_of, least_seconds, traffic_of, waits_of
from npuscope.check.rule import Example, Finding, Waste, once, rule
from npuscope.check.source_text import loop_site, with_loop
from npuscope.lower.program import KernelLaunch, Program
from npuscope.table.formats import many
from npuscope.tile.record.model import short_name

WORTH = 0.25  # of a kernel's tasks: fewer are not worth a change
DEAR = 1e-3  # seconds of scheduling to warn of, if they are more than the program's work takes


@rule(
    "short-task",
    "hint",
    "tasks too short to hide their dispatch",
    "Handing out a task and seeing it done costs a scheduler thread several microseconds; a core waits for that "
    "between tasks that are shorter.",
    Example(
        "for r in pl.range(0, ROWS, 1):  # a row is done before the next task is handed out\n"
        "    with pl.at(level=CORE):\n"
        "        state = pl.assemble(state, pl.add(state[r : r + 1, :], 1.0), [r, 0])",
        "with pl.at(level=CORE):\n"
        "    for r in pl.range(0, ROWS, 16):\n"
        "        state = pl.assemble(state, pl.add(state[r : r + 16, :], 1.0), [r, 0])",
        "tasks saved",
    ),
    without="blocks",
)
def short_task(program: Program) -> Iterator[Finding]:
    runtime = program.device.runtime
    if "task_cost" not in runtime or "useful_task" not in runtime:
        return
    spent = runtime["task_cost"].value
    merged = mergeable(program).keys()
    kernels: dict[tuple[str, int], list[KernelLaunch]] = defaultdict(list)
    for launch in _unfusable(program):
        if launch not in merged and launch.blocks == 1 and _close(launch) and block_seconds(program, launch) < spent:
            kernels[launch.kernel, launch.site].append(launch)
    for launches in kernels.values():
        tasks = sum(len(launch.tasks) for launch in launches)
        run = sum(block_seconds(program, launch) * len(launch.tasks) for launch in launches)
        lost = tasks * spent - run
        waste = Waste(tasks=tasks - max(ceil(run / spent), 1))
        if lost < runtime["useful_task"].value or waste.tasks < WORTH * tasks:
            continue
        yield short_task.at(
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


def _close(launch: KernelLaunch) -> bool:
    """Whether most tasks of a launch follow one another: a loop of its own, not one task per turn of a larger one."""
    near = sum(after - before <= DENSE for before, after in pairwise(launch.tasks))
    return 2 * near > len(launch.tasks)


@rule(
    "many-tasks",
    "hint",
    "many equal tasks instead of one launch",
    "Every task is submitted, dispatched and completed by itself; the blocks of one pl.spmd are one task.",
    Example(
        "for n0 in pl.parallel(0, N, 64):\n"
        "    with pl.at(level=CORE):\n"
        "        out = pl.assemble(out, pl.matmul(x, w[:, n0 : n0 + 64]), [0, n0])",
        "for b in pl.spmd(N // 64):\n    out = pl.assemble(out, pl.matmul(x, w[:, b * 64 : b * 64 + 64]), [0, b * 64])",
        "tasks saved",
    ),
    without="blocks",
)
def many_tasks(program: Program) -> Iterator[Finding]:
    for launch, groups in mergeable(program).items():
        name = short_name(launch.kernel)
        saved = sum(len(group) - 1 for group in groups)
        task = program.recording.tasks[groups[0][0]]
        site, loop = loop_site(program, task, len(task.turns) - 1) if task.turns else (program.site(task.site), None)
        yield many_tasks.at(
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


IDLE = 0.2  # of the core time of all waves


@rule(
    "partial-wave",
    "hint",
    "a last wave that leaves most cores idle",
    "Blocks run in waves of as many as there are cores; one block more than fits costs a whole wave.",
    Example(
        "for b in pl.spmd(25):  # 24 cores: a second wave for one block",
        "for b in pl.spmd(24):",
    ),
)
def partial_wave(program: Program) -> Iterator[Finding]:
    if "task_cost" not in program.device.runtime:
        return
    for launch in program.launches:
        if launch.core != "none" and launch.blocks > 1:
            yield from _tail(program, launch, [[task] for task in launch.tasks], launch.blocks, "block")
    for launch, groups in mergeable(program).items():
        yield from _tail(program, launch, groups, min(map(len, groups)), "task")


def _tail(program: Program, launch: KernelLaunch, groups: list[list[int]], parts: int, what: str) -> Iterator[Finding]:
    """The finding, if there is one, of sets of tasks that run as so many equal parts."""
    cores = cores_of(program.device, launch.core)
    waves = ceil(parts / cores)
    took = waves * block_seconds(program, launch)
    idle = 1 - parts / (waves * cores)
    if parts <= cores or idle <= IDLE or not took:
        return
    others = (program.launches[traffic_of(program).launch[task]] for task in beside(program, groups[0]))
    fills = [other for other in others if other.core == launch.core or "MIX" in (other.core, launch.core)]
    idle -= sum(block_seconds(program, other) * other.blocks for other in fills) / (took * cores)
    if idle <= IDLE or idle * took < program.device.runtime["task_cost"].value:
        return
    full = parts // cores * cores
    kind = {"AIV": "vector cores", "AIC": "cube cores"}.get(launch.core, "cube cores with their vector cores")
    often = f", {len(groups)} times" if len(groups) > 1 else ""
    yield partial_wave.at(
        program.site(launch.site),
        f"{parts} {what}s of {short_name(launch.kernel)} on {cores} {kind} take {waves} waves, the last with "
        f"{parts - full}: {idle:.0%} of the core time is idle and no other work can fill it{often}",
        f"Cut the work into {full} or {full + cores} equal {what}s, or a number just below a multiple of {cores}.",
        kernel=launch.kernel,
        count=len(groups),
    )


MANY = 16  # equal tasks that are worth one launch
DENSE = 4  # tasks submitted from one to the next: else the loop around them does much more than that


@once
def mergeable(program: Program) -> dict[KernelLaunch, list[list[int]]]:
    """Launches of single blocks with the groups of their tasks that could be one launch each."""
    waits = waits_of(program)
    found: dict[KernelLaunch, list[list[int]]] = {}
    for launch in _unfusable(program):
        if launch.blocks != 1 or len(launch.tasks) < MANY:
            continue
        alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for task in launch.tasks:
            alike[tuple(waits.get(task, ()))].append(task)
        free = _runs(alike.pop((), []))
        groups = [tasks for tasks in (*free, *alike.values()) if len(tasks) >= MANY]
        if groups and all(_share_nothing(program, tasks) for tasks in (groups[0], groups[-1])):
            found[launch] = groups
    return found


def _unfusable(program: Program) -> list[KernelLaunch]:
    """Launches that read something, are written in this language and could not be one with their neighbours."""
    joined = {launch for found in fusable(program) for launch in found.launches}
    moved = zip(program.launches, traffic_of(program).moved, strict=True)
    found = [launch for launch, move in moved if launch not in joined and move.read]
    return [launch for launch in found if program.first_task(launch).form != "extern"]


def _runs(tasks: list[int]) -> list[list[int]]:
    """Tasks that wait for nothing, by what follows one another."""
    runs: list[list[int]] = []
    for task in tasks:
        if not runs or task - runs[-1][-1] > DENSE:
            runs.append([])
        runs[-1].append(task)
    return runs


def _share_nothing(program: Program, tasks: list[int]) -> bool:
    """Whether the tasks share no element that one of them writes, except by atomic adds."""
    traffic = traffic_of(program)
    adds = traffic.moved[traffic.launch[tasks[0]]].added
    added = {use.buffer for task in tasks for use in traffic.uses(task) if use.argument in adds and not use.read}
    return all(edge.buffer in added for edge in traffic.conflicts(tasks))
