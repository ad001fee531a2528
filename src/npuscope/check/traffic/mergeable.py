"""Equal tasks submitted one by one that could be blocks of one launch: they wait for the same and share nothing."""

from __future__ import annotations

from collections import defaultdict

from npuscope.check.once import once
from npuscope.check.traffic.fusable import fusable
from npuscope.check.traffic.table import traffic_of
from npuscope.check.traffic.waiting import waits_of
from npuscope.lower.program import Launch, Program

MANY = 16  # equal tasks that are worth one launch
DENSE = 4  # tasks submitted from one to the next: else the loop around them does much more than that


@once
def mergeable(program: Program) -> dict[Launch, list[list[int]]]:
    """Launches of single blocks with the groups of their tasks that could be one launch each."""
    waits = waits_of(program)
    found: dict[Launch, list[list[int]]] = {}
    for launch in alone(program):
        if launch.blocks != 1 or len(launch.tasks) < MANY:
            continue
        alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for task in launch.tasks:
            alike[tuple(waits.get(task, ()))].append(task)
        free = _runs(alike.pop((), []))
        groups = [tasks for tasks in (*free, *alike.values()) if len(tasks) >= MANY]
        if groups and _apart(program, groups[0]) and _apart(program, groups[-1]):
            found[launch] = groups
    return found


def alone(program: Program) -> list[Launch]:
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


def _apart(program: Program, tasks: list[int]) -> bool:
    """Whether the tasks share no element that one of them writes, except by atomic adds."""
    traffic = traffic_of(program)
    adds = traffic.moved[traffic.launch[tasks[0]]].added
    added = {use.buffer for task in tasks for use in traffic.uses(task) if use.argument in adds and not use.read}
    return all(edge.buffer in added for edge in traffic.conflicts(tasks))
