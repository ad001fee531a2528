"""Tasks that wait for one another though they touch different elements: the runtime knows whole tensors only.

Between launches it is false-serialisation; between turns of a loop serialised-parallel or sequential-independent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import field, replace

import numpy as np

from npuscope.base.frozen import dataclass
from npuscope.check.gm_traffic import traffic_of, turns_of
from npuscope.check.phrases import tensor_name, tensors_of
from npuscope.check.races.conflicts import false_edges, inferred
from npuscope.check.rule import Example, Finding, Waste, once, rule
from npuscope.check.source_text import loop_site, with_loop
from npuscope.lower.program import Program
from npuscope.table.formats import many
from npuscope.tile.graph.task_graph import Edge, Graph, task_graph
from npuscope.tile.record.model import Recording, Turn


@dataclass
class _Pair:
    """Edges of the runtime's map between two launches."""

    edges: int = 0
    false: int = 0
    waiting: set[int] = field(default_factory=set)
    tensors: dict[str, None] = field(default_factory=dict)


@rule(
    "false-serialisation",
    "hint",
    "tasks that wait for each other though they touch different elements",
    "The runtime compares whole arguments, so a task that reads one tile of a tensor waits for the writers of all.",
    Example(
        "with pl.at(level=CORE):  # waits for all who wrote to mid\n"
        "    y = pl.assemble(y, pl.slice(mid, [16, 64], [0, 0]), [0, 0])",
        "part = pl.slice(mid, [16, 64], [0, 0])\n"
        "with pl.at(level=CORE):  # waits for who wrote these rows\n"
        "    y = pl.assemble(y, part, [0, 0])",
    ),
)
def false_serialisation(program: Program) -> Iterator[Finding]:
    recording, costly = program.recording, false_edges(program)
    if not costly:
        return
    pairs: dict[tuple[str, int, str, int], _Pair] = defaultdict(_Pair)
    for src, dst in inferred(program):
        one, other = recording.tasks[src], recording.tasks[dst]
        if one.site != other.site or one.kernel != other.kernel:
            pair = pairs[one.kernel, one.site, other.kernel, other.site]
            pair.edges += 1
            if (src, dst) in costly:
                pair.false += 1
                pair.waiting.add(dst)
    for edge in program.graph.edges:
        if (edge.src, edge.dst) in costly and edge.buffer is not None:
            one, other = recording.tasks[edge.src], recording.tasks[edge.dst]
            if (key := (one.kernel, one.site, other.kernel, other.site)) in pairs:
                pairs[key].tensors[tensor_name(program, edge.buffer)] = None
    for (first, first_site, kernel, site), pair in pairs.items():
        if pair.false:
            tensors = ", ".join(pair.tensors)
            waiting = f"{many(len(pair.waiting), 'task')} of {kernel}"
            yield false_serialisation.at(
                program.site(site),
                f"{pair.false} of {pair.edges} edges from {first} to {waiting} join tasks that touch different "
                f"elements: they are given {tensors} whole, and so wait",
                f"Slice {tensors} in the orchestration, before the launch, so that the slice is the argument.",
                kernel=kernel,
                waste=Waste(waits=len(pair.waiting)),
                count=pair.false,
                also=[program.site(first_site)],
            )


@rule(
    "serialised-parallel",
    "warning",
    "parallel loop that is serialised by overlap",
    "A task that is given a whole tensor waits for every earlier writer of it, whatever part each of them touched.",
    Example(
        "for i in pl.parallel(8):\n"
        "    with pl.at(level=CORE):\n"
        "        state = pl.assemble(state, pl.add(pl.slice(state, [16, 64], [i * 16, 0]), 1.0), [i * 16, 0])",
        "for i in pl.parallel(8):\n"
        "    part = pl.slice(state, [16, 64], [i * 16, 0])  # the task's argument is the slice\n"
        "    with pl.at(level=CORE):\n"
        "        part = pl.assemble(part, pl.add(part, 1.0), [0, 0])",
    ),
)
def serialised_parallel(program: Program) -> Iterator[Finding]:
    found = needless_waits(program)
    for waits in (one for one in found if one.kind == "parallel"):
        inner = (one for one in found if one.kind == "range" and one.depth > waits.depth)
        sequence_inside = any(set(tasks) <= set(waits.tasks[0]) for one in inner for tasks in one.tasks)
        by_sequence = not if_parallel(program, waits, every=True)
        if sequence_inside and by_sequence:
            continue  # left to the finding about that one
        names = tensors_of(program, waits.edges)
        why = ", which counts as read, too, because of a pl.range loop around it" if by_sequence else ""
        task = program.recording.tasks[waits.tasks[0][0]]
        yield serialised_parallel.at(
            loop_site(program, task, waits.depth)[0],
            f"the turns of this parallel loop touch different memory, but {waits.waiting:,} of its tasks wait for "
            f"another turn ({many(waits.pairs, 'wait')}): each is given the whole of {names}{why}",
            f"Give each turn its own slice of {names}, or take it out of the inference by no_dep_args= and name the "
            "waits that are needed with deps=.",
            kernel=task.kernel,
            waste=Waste(waits=waits.waiting),
            count=len(waits.tasks),
        )


@rule(
    "sequential-independent",
    "hint",
    "sequential loop over independent turns",
    "Turns of a pl.range loop that write parts of one tensor wait for one another even where the parts are apart; "
    "in a pl.parallel loop they run side by side.",
    Example(
        "for i in pl.range(8):\n    with pl.at(level=CORE):\n        out = pl.assemble(out, tile, [i * 16, 0])",
        "for i in pl.parallel(8):\n    with pl.at(level=CORE):\n        out = pl.assemble(out, tile, [i * 16, 0])",
    ),
)
def sequential_independent(program: Program) -> Iterator[Finding]:
    for waits in needless_waits(program):
        if waits.kind != "range":
            continue
        task = program.recording.tasks[waits.tasks[0][0]]
        site, loop = loop_site(program, task, waits.depth)
        kept = tensors_of(program, if_parallel(program, waits))
        also = f", and give each turn its own slice of {kept}, written before the loop, else turns go on waiting for it"
        yield sequential_independent.at(
            site,
            f"the turns of this sequential loop touch different memory, but {waits.waiting:,} of its tasks wait for an "
            f"earlier turn ({many(waits.pairs, 'wait')}): in a pl.range loop a tensor that is written counts as read "
            f"({tensors_of(program, waits.edges)})",
            f"Make it a pl.parallel loop{also if kept else ''}.",
            kernel=task.kernel,
            change=with_loop(loop, "parallel"),
            waste=Waste(waits=waits.waiting),
            count=len(waits.tasks),
        )


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
    tasks, footprints = [], []
    for number in sorted(task for task in wanted if task <= last):
        task = recording.tasks[number]
        footprints.append(program.graph.footprints[number])
        changed = every and number in inside
        turns = tuple(Turn(t.loop, "parallel", t.turn) if changed or t.loop == loop else t for t in task.turns)
        tasks.append(replace(task, turns=turns))
    what_if = replace(recording, tasks=tuple(tasks))
    return tuple(crossing(what_if, task_graph(what_if, tuple(footprints))).get((waits.depth, loop), ()))
