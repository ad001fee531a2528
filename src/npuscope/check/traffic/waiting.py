"""Who waits for whom, as rules ask it: what a task waits for, and what runs neither before nor after it."""

from __future__ import annotations

from collections import defaultdict

from npuscope.check.once import once
from npuscope.lower.program import Program

Waits = dict[int, list[int]]

NEAR = 2000  # tasks submitted before or after: farther ones are not on the chip at the same time


@once
def waits_of(program: Program) -> Waits:
    """Task -> the tasks it waits for, by tensors and as declared; allocations left out."""
    found: Waits = defaultdict(list)
    for edge in program.graph.edges:
        if edge.src >= 0:
            found[edge.dst].append(edge.src)
    return found


def beside(program: Program, tasks: list[int]) -> list[int]:
    """Tasks submitted near these that neither wait for any of them nor are waited for."""
    waits = waits_of(program)
    first, last = max(min(tasks) - NEAR, 0), min(max(tasks) + NEAR, len(program.recording.tasks) - 1)
    before, after = set(tasks), set(tasks)
    for task in range(max(tasks), first - 1, -1):
        if task in before:
            before.update(waits.get(task, ()))
    for task in range(min(tasks), last + 1):
        if not after.isdisjoint(waits.get(task, ())):
            after.add(task)
    return [task for task in range(first, last + 1) if task not in before and task not in after]
