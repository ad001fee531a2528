"""Loops whose turns wait for one another although they touch different memory.

The runtime orders tasks by the whole tensors they are given, and in a `pl.range` loop a tensor that is only written
counts as read too. A loop is found when such waits run between its turns and no element is shared between any two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from npuscope.check.once import once
from npuscope.check.traffic.table import traffic_of, turns_of
from npuscope.lower.program import Program
from npuscope.tile.graph.task_graph import Edge, Graph, task_graph
from npuscope.tile.record.model import Recording, Turn

SAMPLED = 4  # waits per tensor that are looked at before the whole loop is


@dataclass(frozen=True)
class LoopWaits:
    """Waits between turns of loops that stand at one place: `edges` of the first of them, tasks of each."""

    depth: int
    kind: str
    edges: tuple[Edge, ...]
    tasks: tuple[tuple[int, ...], ...]
    waiting: int  # tasks of all of them that wait for another turn
    pairs: int


@once
def needless_waits(program: Program) -> list[LoopWaits]:
    """Of all loops whose turns wait for one another for nothing."""
    return [waits for waits in _waits(program) if _independent(program, waits)]


def _waits(program: Program) -> Iterator[LoopWaits]:
    """Waits by tensors between turns of a loop, loops of the same kernels together."""
    between = crossing(program.recording, program.graph)
    if not between:
        return
    inside: dict[int, list[int]] = {loop: [] for _, loop in between}
    kinds: dict[int, str] = {}
    for task in program.recording.tasks:
        for turn in task.turns:
            if turn.loop in inside:
                inside[turn.loop].append(task.id)
                kinds[turn.loop] = turn.kind
    alike: dict[tuple[int, frozenset[int]], list[int]] = defaultdict(list)
    traffic = traffic_of(program)
    for depth, loop in between:
        alike[depth, frozenset(traffic.launch[task] for task in inside[loop])].append(loop)
    for (depth, _), loops in alike.items():
        edges = [edge for loop in loops for edge in between[depth, loop]]
        yield LoopWaits(
            depth,
            kinds[loops[0]],
            tuple(between[depth, loops[0]]),
            tuple(tuple(inside[loop]) for loop in loops),
            len({edge.dst for edge in edges}),
            len({(edge.src, edge.dst) for edge in edges}),
        )


def crossing(recording: Recording, graph: Graph) -> dict[tuple[int, int], list[Edge]]:
    """Waits inferred from tensors whose ends stand in two turns of one loop: by its depth and number."""
    edges = [edge for edge in graph.edges if edge.origin in ("raw", "waw")]
    loops, turns = turns_of(recording.tasks)
    ends = np.array([(edge.src, edge.dst) for edge in edges], np.int64).reshape(-1, 2)
    index = {task.id: n for n, task in enumerate(recording.tasks)}
    if any(n != number for number, n in index.items()):
        ends = np.vectorize(index.__getitem__, otypes=[np.int64])(ends)
    src, dst = ends.T
    found: dict[tuple[int, int], list[Edge]] = defaultdict(list)
    same = np.ones(len(edges), bool)
    for depth in range(loops.shape[1]):
        loop = loops[src, depth]
        same &= (loop == loops[dst, depth]) & (loop >= 0)
        other = turns[src, depth] != turns[dst, depth]
        for n in np.flatnonzero(same & other).tolist():
            found[depth, int(loop[n])].append(edges[n])
        same &= ~other
    return found


def _independent(program: Program, waits: LoopWaits) -> bool:
    """Whether no two turns share an element that one of them writes.

    First the ends of a few waits, which shows most loops to be dependent; then those of all waits; and of a loop that
    is not yet declared parallel every task.
    """
    by_buffer: dict[int | None, list[Edge]] = defaultdict(list)
    for edge in waits.edges:
        by_buffer[edge.buffer].append(edge)
    few = [{edge.src, edge.dst} for edges in by_buffer.values() for edge in edges[:SAMPLED]]
    all_ends = {end for edge in waits.edges for end in (edge.src, edge.dst)}
    everything = [set(tasks) for tasks in waits.tasks] if waits.kind != "parallel" else []
    tasks = program.recording.tasks
    return all(
        tasks[edge.src].turns[waits.depth].turn == tasks[edge.dst].turns[waits.depth].turn
        for inside in (*few, all_ends, *everything)
        for edge in traffic_of(program).conflicts(sorted(inside))
    )


def if_parallel(program: Program, waits: LoopWaits, every: bool = False) -> tuple[Edge, ...]:
    """The waits between turns that are left if the loop, or every sequential loop around its tasks, is parallel.

    Taken into account are the first of the loops and all tasks that used its tensors before.
    """
    recording = program.recording
    inside = set(waits.tasks[0])
    loop = recording.tasks[waits.tasks[0][0]].turns[waits.depth].loop
    buffers = {edge.buffer for edge in waits.edges}
    wanted = inside.union(*(traffic_of(program).touching[buffer] for buffer in buffers if buffer is not None))
    last = max(inside)
    tasks = []
    for number in sorted(task for task in wanted if task <= last):
        task = recording.tasks[number]
        changed = every and number in inside
        turns = tuple(Turn(t.loop, "parallel", t.turn) if changed or t.loop == loop else t for t in task.turns)
        tasks.append(replace(task, turns=turns))
    what_if = replace(recording, tasks=tuple(tasks))
    return tuple(crossing(what_if, task_graph(what_if)).get((waits.depth, loop), ()))
