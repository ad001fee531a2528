"""The task graph for the panel of that name: kernels in columns, each with its tasks; edges by kind; what is wrong.

Positions are columns and rows, the page draws them. Tasks are ids of the recording, as the timeline has them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict

import numpy as np

from npuscope.check.races import Race, races
from npuscope.check.races.conflicts import false_edges
from npuscope.check.rules.safety import race_finding
from npuscope.lab.payload.files import program_files
from npuscope.lab.payload.overview import parts
from npuscope.lab.payload.packed import packed, whole_numbers
from npuscope.lower.program import Program
from npuscope.table.parts import Part
from npuscope.tile.graph.outputs import KernelEdge, kernel_graph
from npuscope.tile.graph.task_graph import ORIGINS, Graph
from npuscope.tile.record.model import Recording
from npuscope.tile.record.summary import summarise

MOST_EDGES = 300_000  # between tasks
KINDS = {
    "creator": "waits for the task that made its tensor",
    "raw": "reads what the other wrote",
    "waw": "writes what the other wrote",
    "explicit": "the program says so (deps=)",
}
Pair = tuple[int, int]


def graph(program: Program) -> dict[str, object]:
    """One program with its races and the edges that order tasks for nothing."""
    return {"programs": [graph_of(program.recording, program.graph, false_edges(program), races(program))]}


def graph_of(
    recording: Recording,
    found: Graph,
    false: Collection[Pair] = (),
    races: Sequence[Race] = (),
    more: Iterable[Part] = (),
) -> dict[str, object]:
    """`false`: edges that order tasks for nothing (`check/races/false_edges.py`); `more` stands below the drawing."""
    by_kernel = kernel_graph(recording, found)
    work = {kernel.kernel: kernel for kernel in summarise([recording]).kernels}
    names = program_files(recording)
    tasks: dict[str, list[int]] = defaultdict(list)
    first: dict[str, int] = {}
    for task in recording.tasks:
        tasks[task.kernel].append(task.id)
        first.setdefault(task.kernel, task.site)
    wrong = Counter((recording.tasks[src].kernel, recording.tasks[dst].kernel) for src, dst in false)
    nodes = []
    for x, column in enumerate(by_kernel.columns):
        for y, name in enumerate(column):
            one, site = work[name], recording.sites[first[name]]
            nodes.append(
                {
                    "kernel": name, "unit": one.unit, "column": x, "row": y, "of": len(column), "blocks": one.blocks,
                    "flops": one.flops, "gm_read": one.gm_read, "gm_written": one.gm_written, "tasks": tasks[name],
                    "file": names[site.file], "line": site.line,
                }
            )  # fmt: skip
    return {
        "name": recording.program,
        "kinds": KINDS,
        "nodes": nodes,
        "edges": [
            *(_edge(edge, wrong, back=False) for edge in by_kernel.edges),
            *(_edge(edge, wrong, back=True) for edge in by_kernel.back),
        ],
        "tasks": _task_edges(found, false),
        "races": [_race(race) for race in races],
        "false": len(false),
        **parts(more),
    }


def _edge(edge: KernelEdge, wrong: Counter[tuple[str, str]], back: bool) -> dict[str, object]:
    return {**asdict(edge), "origins": dict(edge.origins), "back": back, "false": wrong[edge.src, edge.dst]}


def _task_edges(found: Graph, false: Collection[Pair]) -> dict[str, object]:
    """Every pair once: `kind` has a bit for each of KINDS, `false` is 1 where they wait for nothing."""
    pairs = [(src, dst, why) for (src, dst), why in found.pairs.items() if src >= 0]
    shown = pairs[:MOST_EDGES]
    bits = {origin: 1 << n for n, origin in enumerate(ORIGINS)}
    return {
        "src": whole_numbers(np.array([src for src, _, _ in shown], np.int64)),
        "dst": whole_numbers(np.array([dst for _, dst, _ in shown], np.int64)),
        "kind": packed(np.array([sum(bits[one] for one in why) for _, _, why in shown], np.int64), "u8"),
        "false": packed(np.array([(src, dst) in false for src, dst, _ in shown], np.int64), "u8"),
        "left_out": len(pairs) - len(shown),
    }


def _race(race: Race) -> dict[str, object]:
    first, later = race.sides
    return {
        "src": first.kernel,
        "dst": later.kernel,
        "tasks": [first.task, later.task],
        "text": race_finding(race).message,
        "remedy": race.remedy,
        "count": race.count,
    }


assert tuple(KINDS) == ORIGINS
