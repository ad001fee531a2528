"""Loops whose turns wait for one another although they touch different memory.

The runtime orders tasks by the whole tensors they are given, and in a `pl.range` loop a tensor that is only written
counts as read too. A loop is found when such waits run between its turns and no element is shared between any two:
`sequential-independent` for a loop written as sequential, `serialised-parallel` for one written as parallel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from npuscope.check.findings import Cost, Finding
from npuscope.check.program import Program
from npuscope.check.rule import Rule
from npuscope.check.shared.once import once
from npuscope.check.shared.told import listed, loop_site, many, tensor_name, with_loop
from npuscope.check.traffic import turns_of
from npuscope.tile.graph.edges import Edge, Graph
from npuscope.tile.graph.task_graph import task_graph
from npuscope.tile.record.model import Recording, Turn

SAMPLED = 4  # waits per tensor that are looked at before the whole loop is


@dataclass(frozen=True)
class Waits:
    """Waits between turns of loops that stand at one place: `edges` of the first of them, tasks of each."""

    depth: int
    kind: str
    edges: tuple[Edge, ...]
    tasks: tuple[tuple[int, ...], ...]
    waiting: int  # tasks of all of them that wait for another turn
    pairs: int


def sequential_independent(program: Program) -> Iterator[Finding]:
    for waits in _found(program):
        if waits.kind == "range":
            yield _sequential(program, waits)


def serialised_parallel(program: Program) -> Iterator[Finding]:
    """Loops that wait because of a sequential loop inside them are left to the finding about that one."""
    found = _found(program)
    for waits in found:
        if waits.kind == "parallel":
            inner = (one for one in found if one.kind == "range" and one.depth > waits.depth)
            told = any(set(tasks) <= set(waits.tasks[0]) for one in inner for tasks in one.tasks)
            by_sequence = not _if_parallel(program, waits, every=True)
            if not (told and by_sequence):
                yield _parallel(program, waits, by_sequence)


@once
def _found(program: Program) -> list[Waits]:
    return [waits for waits in _waits(program) if _independent(program, waits)]


def _waits(program: Program) -> Iterator[Waits]:
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
    for depth, loop in between:
        alike[depth, frozenset(program.traffic.launch[task] for task in inside[loop])].append(loop)
    for (depth, _), loops in alike.items():
        edges = [edge for loop in loops for edge in between[depth, loop]]
        yield Waits(
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


def _independent(program: Program, waits: Waits) -> bool:
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
        for edge in program.traffic.conflicts(sorted(inside))
    )


def _sequential(program: Program, waits: Waits) -> Finding:
    names = _names(program, waits.edges)
    kept = _names(program, _if_parallel(program, waits))
    also = (
        f", and give each turn its own slice of {kept}, written before the loop, else turns go on waiting for it"
        if kept
        else ""
    )
    return _finding(
        program,
        waits,
        "sequential-independent",
        f"the turns of this sequential loop touch different memory, but {waits.waiting:,} of its tasks wait for an "
        f"earlier turn ({many(waits.pairs, 'wait')}): in a pl.range loop a tensor that is written counts as read "
        f"({names})",
        f"Make it a pl.parallel loop{also}.",
        "parallel",
    )


def _parallel(program: Program, waits: Waits, by_sequence: bool) -> Finding:
    names = _names(program, waits.edges)
    why = ", which counts as read, too, because of a pl.range loop around it" if by_sequence else ""
    return _finding(
        program,
        waits,
        "serialised-parallel",
        f"the turns of this parallel loop touch different memory, but {waits.waiting:,} of its tasks wait for another "
        f"turn ({many(waits.pairs, 'wait')}): each is given the whole of {names}{why}",
        f"Give each turn its own slice of {names}, or take it out of the inference by no_dep_args= and name the waits "
        "that are needed with deps=.",
        "",
    )


def _if_parallel(program: Program, waits: Waits, every: bool = False) -> tuple[Edge, ...]:
    """The waits between turns that are left if the loop, or every sequential loop around its tasks, is parallel.

    Taken into account are the first of the loops and all tasks that used its tensors before.
    """
    recording = program.recording
    inside = set(waits.tasks[0])
    loop = recording.tasks[waits.tasks[0][0]].turns[waits.depth].loop
    buffers = {edge.buffer for edge in waits.edges}
    wanted = inside.union(*(program.traffic.touching[buffer] for buffer in buffers if buffer is not None))
    last = max(inside)
    tasks = []
    for number in sorted(task for task in wanted if task <= last):
        task = recording.tasks[number]
        changed = every and number in inside
        turns = tuple(Turn(t.loop, "parallel", t.turn) if changed or t.loop == loop else t for t in task.turns)
        tasks.append(replace(task, turns=turns))
    what_if = replace(recording, tasks=tuple(tasks))
    return tuple(crossing(what_if, task_graph(what_if)).get((waits.depth, loop), ()))


def _names(program: Program, edges: tuple[Edge, ...]) -> str:
    buffers = dict.fromkeys(edge.buffer for edge in edges if edge.buffer is not None)
    return listed(tensor_name(program, buffer) for buffer in buffers) if buffers else ""


def _finding(program: Program, waits: Waits, rule: str, message: str, fix: str, kind: str) -> Finding:
    task = program.recording.tasks[waits.tasks[0][0]]
    site, loop = loop_site(program, task, waits.depth)
    return Finding(
        id=rule,
        severity="warning" if rule == "serialised-parallel" else "hint",
        file=site.file,
        line=site.line,
        function=site.function,
        kernel=task.kernel,
        message=message,
        fix=fix,
        change=with_loop(loop, kind) if kind else "",
        cost=Cost(waits=waits.waiting),
        count=len(waits.tasks),
    )


RULES = (
    Rule(
        "sequential-independent",
        "hint",
        "sequential loop over independent turns",
        "Turns of a pl.range loop that write parts of one tensor wait for one another even where the parts are apart; "
        "in a pl.parallel loop they run side by side.",
        sequential_independent,
    ),
    Rule(
        "serialised-parallel",
        "warning",
        "parallel loop that is serialised by overlap",
        "A task that is given a whole tensor waits for every earlier writer of it, whatever part each of them touched.",
        serialised_parallel,
    ),
)
