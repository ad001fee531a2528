"""The task graph for people and tools: counts, a graph per kernel, Graphviz, the runtime's deps.json, a Trace.

In deps.json ids count submissions from 0, allocations among them as the runtime numbers them (ring 0: rings are a
matter of scopes); tensors are known by the number of their buffer, no address is made up. The Trace has edges and no
slices: nothing has run on a lane, and slices of no length would tell every analysis that the work took none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import polars as pl

from npuscope.base.errors import CannotWrite, NpuscopeError
from npuscope.explain.work import Rules, area_of
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import COUNT, TEXT
from npuscope.tile.graph.boxes import Box
from npuscope.tile.graph.task_graph import ORIGINS, Edge, Graph, Origin
from npuscope.tile.record.model import Recording, Task
from npuscope.tile.record.summary import COUNTS, NAME, OPS, UNIT, WORK, RunWork, summarise
from npuscope.trace.core import Meta, Trace
from npuscope.trace.formats import check_target
from npuscope.trace.schema import LANES, SLICES


def check_timeless(path: str | None) -> None:
    """Refuse formats that hold slices only: a trace without times would be an empty file there."""
    if path is not None and check_target(path) != "parquet":
        raise CannotWrite("a trace without times fits npuscope's own folder only", path=path, remedy="End it in .npu.")


def the_one(recordings: Sequence[Recording], number: int | None, file: str) -> int:
    """The program to write files of: the only one that submitted tasks, or the one asked for."""
    able = [n for n, recording in enumerate(recordings) if recording.tasks]
    if not able:
        raise NpuscopeError("no program of it submitted a task", path=file)
    if number is None and len(able) == 1:
        return able[0]
    listed = ", ".join(f"{n} {recordings[n].program}" for n in able)
    if number is None:
        raise NpuscopeError(
            f"{len(able)} programs ran ({listed})", path=file, remedy="Choose one with --program, e.g. --program 0."
        )
    if number not in able:
        raise NpuscopeError(f"no program {number} ran", path=file, remedy=f"Those that did: {listed}.")
    return number


_TYPES = {"Input": "INPUT", "InOut": "INOUT", "OutputExisting": "OUTPUT_EXISTING", "NoDep": "NO_DEP"}
_DTYPES = {"FP32": "FLOAT32", "FP16": "FLOAT16", "BF16": "BFLOAT16"}


def submissions(recording: Recording, graph: Graph) -> dict[int, int]:
    """Node of the graph -> its number in order of submission."""
    order: list[int] = []
    allocation = 0
    for task in recording.tasks:
        while allocation < len(graph.allocations) and graph.allocations[allocation].before_task <= task.id:
            order.append(-1 - allocation)
            allocation += 1
        order.append(task.id)
    return {node: number for number, node in enumerate(order)}


def kernel_numbers(recording: Recording) -> dict[str, int]:
    """Kernels that run on a core, numbered in the order of their first task."""
    names = dict.fromkeys(task.kernel for task in recording.tasks if task.core != "none")
    return {name: number for number, name in enumerate(names)}


def deps_document(recording: Recording, graph: Graph) -> dict[str, Any]:
    """`tasks`, `tensors` and `edges` of deps.json; 64-bit numbers are text there."""
    ids, kernels = submissions(recording, graph), kernel_numbers(recording)
    dtypes = [_DTYPES.get(buffer.dtype, buffer.dtype) for buffer in recording.buffers]
    used = sorted({box.buffer for boxes in graph.footprints for box in boxes})
    tasks = []
    for node, number in ids.items():
        described = {"task_id": str(number), "scope": "auto", "early_dispatch": False}
        if node < 0:
            tasks.append({**described, "kernel_ids": [-1, -1, -1], "block_num": 1, "args": []})
            continue
        task = recording.tasks[node]
        scope = "manual" if task.manual_scope else "auto"
        told = {"scope": scope, "early_dispatch": task.early, "kernel_ids": _slots(task, kernels)}
        arguments = zip(graph.directions[node], graph.footprints[node], strict=True)
        args = [
            {"idx": n, "type": _TYPES[way], "tensor_id": str(box.buffer), "dtype": dtypes[box.buffer], **_place(box)}
            for n, (way, box) in enumerate(arguments)
        ]
        tasks.append({**described, **told, "block_num": task.blocks, "args": args})
    tensors = [
        {"tensor_id": str(n), "version": 0, "dtype": dtypes[n], "buffer_numel": str(prod(recording.buffers[n].shape))}
        for n in used
    ]
    return {"tasks": tasks, "tensors": tensors, "edges": [_edge(edge, ids, dtypes) for edge in graph.edges]}


def name_map(recording: Recording) -> dict[str, Any]:
    """The names of deps.json's kernel ids, as a name_map_*.json beside it has them."""
    names = {str(number): name for name, number in kernel_numbers(recording).items()}
    return {"level": 2, "orchestrator_name": recording.program, "callable_id_to_name": names}


def _slots(task: Task, kernels: dict[str, int]) -> list[int]:
    """Function of the cube, of vector 0, of vector 1."""
    number = kernels.get(task.kernel, -1)
    return {"AIC": [number, -1, -1], "AIV": [-1, number, -1], "MIX": [number] * 3, "none": [-1] * 3}[task.core]


def _edge(edge: Edge, ids: dict[int, int], dtypes: list[str]) -> dict[str, Any]:
    ends = {"pred": str(ids[edge.src]), "succ": str(ids[edge.dst]), "arg": edge.argument}
    if edge.dst_box is None:
        return {**ends, "source": "explicit", "flags": ["wait", "retain"]}
    consumer = {
        "tensor_id": str(edge.dst_box.buffer),
        "consumer_dtype": dtypes[edge.dst_box.buffer],
        **_place(edge.dst_box, "consumer_"),
    }
    if edge.src_box is None:
        return {**ends, "source": "creator", "flags": ["wait", "retain"], **consumer}
    overlap = "covered" if edge.covered else "other"
    told = {"source": "tensormap", "flags": ["wait"], "overlap": overlap}
    return {**ends, **told, **consumer, **_place(edge.src_box, "producer_")}


def _place(box: Box, side: str = "") -> dict[str, Any]:
    return {
        f"{side}shape": list(box.shape),
        f"{side}start_offset": str(box.offset),
        f"{side}strides": list(box.strides),
    }


By = Literal["task", "kernel"]
_SHAPES = {"AIC": "box", "AIV": "ellipse", "MIX": "diamond", "none": "point"}
_STYLES = {"creator": "dotted", "raw": "solid", "waw": "dashed", "explicit": "bold"}  # of the strongest origin
_STRENGTH: tuple[Origin, ...] = ("raw", "explicit", "waw", "creator")


def dot(recording: Recording, graph: Graph, by: By = "task") -> str:
    """Text for `dot`. Solid: raw, bold: explicit, dashed: waw only; allocations, done at once, are left out."""
    lines = [f"digraph {_quoted(recording.program)} {{", "  rankdir=LR;"]
    pairs = {pair: origins for pair, origins in graph.pairs.items() if pair[0] >= 0}
    if by == "kernel":
        lines += _by_kernel(recording, pairs)
    else:
        for task in recording.tasks:
            blocks = f" ×{task.blocks}" if task.blocks > 1 else ""
            label = f"{task.id} {task.kernel}{blocks}"
            lines.append(f"  {task.id} [label={_quoted(label)}, shape={_SHAPES[task.core]}];")
        for (src, dst), origins in pairs.items():
            strongest = next(origin for origin in _STRENGTH if origin in origins)
            lines.append(f"  {src} -> {dst} [style={_STYLES[strongest]}];")
    return "\n".join([*lines, "}", ""])


def _by_kernel(recording: Recording, pairs: dict[tuple[int, int], tuple[Origin, ...]]) -> list[str]:
    kernels = [task.kernel for task in recording.tasks]
    cores = {task.kernel: task.core for task in recording.tasks}
    numbers = {name: n for n, name in enumerate(cores)}
    lines = [
        f"  {numbers[name]} [label={_quoted(f'{name} ({count:,})')}, shape={_SHAPES[cores[name]]}];"
        for name, count in Counter(kernels).items()
    ]
    between = Counter((kernels[src], kernels[dst]) for src, dst in pairs)
    lines += [f"  {numbers[a]} -> {numbers[b]} [label={_quoted(f'{n:,}')}];" for (a, b), n in between.items()]
    return lines


def _quoted(text: str) -> str:
    """A DOT string; backslashes would start an escape, and a line break would end the line."""
    plain = "".join(c if c.isprintable() else " " for c in text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


FORMAT = "task graph"
_SOURCES: dict[Origin, str] = {"creator": "creator", "raw": "tensormap", "waw": "tensormap", "explicit": "explicit"}


def timeless_trace(recording: Recording, graph: Graph) -> Trace:
    """Edges between tasks, one row per pair and origin; allocations, which run nowhere, have negative ids."""
    rows = [(src, dst, origin) for (src, dst), origins in graph.pairs.items() for origin in origins]
    kernels = [task.kernel for task in recording.tasks]
    edges = pl.DataFrame(
        {
            "src": [src for src, _, _ in rows],
            "dst": [dst for _, dst, _ in rows],
            "source": [_SOURCES[origin] for _, _, origin in rows],
            "origin": [origin for _, _, origin in rows],
            "src_kernel": [kernels[src] if src >= 0 else None for src, _, _ in rows],
            "dst_kernel": [kernels[dst] for _, dst, _ in rows],
        },
        schema={
            "src": pl.Int64,
            "dst": pl.Int64,
            **dict.fromkeys(("source", "origin", "src_kernel", "dst_kernel"), pl.String),
        },
    )
    tasks = [
        {"task": task.id, "kernel": task.kernel, "unit": task.core, "blocks": task.blocks} for task in recording.tasks
    ]
    notes = {"program": recording.program, "mode": recording.mode, "tasks": tasks}
    return Trace.of(pl.DataFrame(schema=SLICES), pl.DataFrame(schema=LANES), Meta(FORMAT, notes=notes), edges)


SUMS = ("tasks", "blocks", "flops", "gm_read", "gm_written", "waits")
AREA = Column("area", TEXT, "its part of the model, by name; no work where it has none")
WAITS = Column("waits", COUNT, "tasks that its tasks wait for, each counted once per waiting task", explained=True)
ORIGIN_WORDS = {
    "creator": "on the task that made a tensor",
    "raw": "on a task that wrote what is read",
    "waw": "on a task that wrote what is written again",
    "explicit": "declared in the program",
}
KERNELS = Columns(
    "graph.kernels",
    "A kernel, in order of its first task; an object by name.",
    (NAME, AREA, UNIT, *COUNTS, OPS, *WORK, WAITS),
)
AREAS = Columns(
    "graph.areas",
    "A part of the model, the one with most tasks first; an object by name.",
    (AREA, Column("kernels", COUNT, "distinct kernels"), *COUNTS, *WORK, WAITS),
)


@dataclass(frozen=True, repr=False)
class GraphCounts(Tabular):
    """`kernels` in order of their first task; `waits` are edges into a kernel's tasks, without those of allocations."""

    work: RunWork
    kernels: pl.DataFrame
    areas: pl.DataFrame  # most tasks first
    edges: dict[str, int]  # origin -> pairs of tasks
    allocations: int

    def tables(self) -> dict[str, Table]:
        return {"kernels": Table(KERNELS, self.kernels), "areas": Table(AREAS, self.areas)}

    def title(self) -> str:
        told = [f"{count:,} {ORIGIN_WORDS[origin]}" for origin, count in self.edges.items() if count]
        return f"{self.work.title()}\ndependencies between tasks: {', '.join(told) or 'none'}"

    def as_dict(self) -> dict[str, object]:
        """The JSON contract of `npuscope graph` without `passed`."""
        tables = {name: table.keyed() for name, table in self.tables().items()}
        return {**self.work.as_dict(), **tables, "edges": self.edges, "allocations": self.allocations}


def count_graphs(recordings: list[Recording], graphs: list[Graph], rules: Rules) -> GraphCounts:
    """The counts of several recordings of one run together."""
    waits: Counter[str] = Counter()
    edges = dict.fromkeys(map(str, ORIGINS), 0)
    for recording, graph in zip(recordings, graphs, strict=True):
        waits.update(recording.tasks[dst].kernel for src, dst in graph.pairs if src >= 0)
        for origin, count in graph.counts().items():
            edges[origin] += count
    work = summarise(recordings)
    areas_told = ["no work" if k.unit == "none" else area_of(k.kernel, rules) for k in work.kernels]
    kernels = work.frame().with_columns(
        pl.Series("area", areas_told, dtype=pl.String),
        pl.Series("waits", [waits[k.kernel] for k in work.kernels], dtype=pl.Int64),
    )
    kernels = kernels.select(KERNELS.keys)
    areas = kernels.group_by("area", maintain_order=True).agg(pl.len().alias("kernels"), pl.col(SUMS).sum())
    areas = areas.sort("tasks", "area", descending=[True, False])
    return GraphCounts(work, kernels, areas, edges, sum(len(graph.allocations) for graph in graphs))


@dataclass(frozen=True)
class KernelEdge:
    """Edges between the tasks of two kernels: how many, by origin. `implied`: a longer way leads there too."""

    src: str
    dst: str
    count: int
    origins: tuple[tuple[str, int], ...]
    implied: bool


@dataclass(frozen=True)
class KernelGraph:
    """`columns`: kernels by the longest way to them, what waits for nothing as late as it may; `back`: edges to
    earlier kernels."""

    columns: tuple[tuple[str, ...], ...]
    edges: tuple[KernelEdge, ...]
    back: tuple[KernelEdge, ...]


def kernel_graph(recording: Recording, graph: Graph) -> KernelGraph:
    """Folds tasks into their kernels; edges against the order of first tasks (the next layer's) are kept apart."""
    kernels = [task.kernel for task in recording.tasks]
    order = {name: n for n, name in enumerate(dict.fromkeys(kernels))}
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    totals: Counter[tuple[str, str]] = Counter()
    for (before_task, task), origins in graph.pairs.items():
        if before_task >= 0:
            pair = kernels[before_task], kernels[task]
            totals[pair] += 1
            counts[pair].update(origins)
    forward = sorted(
        (pair for pair in totals if order[pair[0]] < order[pair[1]]), key=lambda p: (order[p[1]], order[p[0]])
    )
    before: dict[str, list[str]] = defaultdict(list)
    for src, dst in forward:
        before[dst].append(src)
    depth: dict[str, int] = {}
    reach: dict[str, set[str]] = {}  # every kernel that a way leads from
    for name in order:
        depth[name] = 1 + max((depth[src] for src in before[name]), default=-1)
        reach[name] = set(before[name]).union(*(reach[src] for src in before[name]))
    for name in reversed(order):  # what waits for nothing stands beside the first that waits for it
        after = [depth[dst] for src, dst in forward if src == name]
        if after and not before[name]:
            depth[name] = min(after) - 1
    columns: list[list[str]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for name in order:
        columns[depth[name]].append(name)

    def edge(pair: tuple[str, str], implied: bool) -> KernelEdge:
        src, dst = pair
        return KernelEdge(src, dst, totals[pair], tuple(sorted(counts[pair].items())), implied)

    edges = tuple(edge((s, d), any(s in reach[other] for other in before[d] if other != s)) for s, d in forward)
    back = tuple(edge(pair, False) for pair in totals if order[pair[0]] >= order[pair[1]])
    return KernelGraph(tuple(map(tuple, columns)), edges, back)
