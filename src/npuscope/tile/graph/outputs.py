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
from npuscope.tile.record.model import Recording
from npuscope.tile.record.summary import COUNTS, NAME, OPS, UNIT, WORK, RunWork, summarise
from npuscope.trace.core import Meta, Trace
from npuscope.trace.formats import check_target
from npuscope.trace.schema import LANES, SLICES

TYPES = {"Input": "INPUT", "InOut": "INOUT", "OutputExisting": "OUTPUT_EXISTING", "NoDep": "NO_DEP"}
DTYPES = {"FP32": "FLOAT32", "FP16": "FLOAT16", "BF16": "BFLOAT16"}
SHAPES = {"AIC": "box", "AIV": "ellipse", "MIX": "diamond", "none": "point"}
STYLES: dict[Origin, str] = {
    "raw": "solid",
    "explicit": "bold",
    "waw": "dashed",
    "creator": "dotted",
}  # strongest first
SOURCES: dict[Origin, str] = {"creator": "creator", "raw": "tensormap", "waw": "tensormap", "explicit": "explicit"}
FORMAT = "task graph"
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
    NAME,
    AREA,
    UNIT,
    *COUNTS,
    OPS,
    *WORK,
    WAITS,
)
AREAS = Columns(
    "graph.areas",
    "A part of the model, the one with most tasks first; an object by name.",
    AREA,
    Column("kernels", COUNT, "distinct kernels"),
    *COUNTS,
    *WORK,
    WAITS,
)


def choose_program(recordings: Sequence[Recording], number: int | None, file: str) -> int:
    """The program to write files of: the only one that submitted tasks, or the one asked for."""
    able = [n for n, recording in enumerate(recordings) if recording.tasks]
    listed = ", ".join(f"{n} {recordings[n].program}" for n in able)
    if not able:
        raise NpuscopeError("no program of it submitted a task", path=file)
    if number is None and len(able) > 1:
        remedy = "Choose one with --program, e.g. --program 0."
        raise NpuscopeError(f"{len(able)} programs ran ({listed})", path=file, remedy=remedy)
    if number is not None and number not in able:
        raise NpuscopeError(f"no program {number} ran", path=file, remedy=f"Those that did: {listed}.")
    return able[0] if number is None else number


# --- deps.json


def deps_document(recording: Recording, graph: Graph) -> dict[str, Any]:
    """`tasks`, `tensors` and `edges` of deps.json; 64-bit numbers are text there."""
    ids, kernels = submissions(recording, graph), kernel_numbers(recording)
    dtypes = [DTYPES.get(buffer.dtype, buffer.dtype) for buffer in recording.buffers]
    tasks = []
    for node, number in ids.items():
        row = {"task_id": str(number), "scope": "auto", "early_dispatch": False}
        row |= {"kernel_ids": [-1, -1, -1], "block_num": 1, "args": []}
        if node >= 0:
            task = recording.tasks[node]
            k = kernels.get(task.kernel, -1)
            slots = {"AIC": [k, -1, -1], "AIV": [-1, k, -1], "MIX": [k] * 3, "none": [-1] * 3}  # cube, two vectors
            row |= {"scope": "manual" if task.manual_scope else "auto", "early_dispatch": task.early}
            row |= {"kernel_ids": slots[task.core], "block_num": task.blocks}
            arguments = zip(graph.directions[node], graph.footprints[node], strict=True)
            row["args"] = [
                {"idx": n, "type": TYPES[way], "tensor_id": str(box.buffer), "dtype": dtypes[box.buffer], **_place(box)}
                for n, (way, box) in enumerate(arguments)
            ]
        tasks.append(row)
    tensors = [
        {"tensor_id": str(n), "version": 0, "dtype": dtypes[n], "buffer_numel": str(prod(recording.buffers[n].shape))}
        for n in sorted({box.buffer for boxes in graph.footprints for box in boxes})
    ]
    return {"tasks": tasks, "tensors": tensors, "edges": [_edge(edge, ids, dtypes) for edge in graph.edges]}


def submissions(recording: Recording, graph: Graph) -> dict[int, int]:
    """Node of the graph -> its number in order of submission."""
    order = [(task.id, 1, task.id) for task in recording.tasks]
    order += [(one.before_task, 0, -1 - n) for n, one in enumerate(graph.allocations) if one.before_task < len(order)]
    order.sort(key=lambda entry: entry[:2])
    return {node: number for number, (_, _, node) in enumerate(order)}


def kernel_numbers(recording: Recording) -> dict[str, int]:
    """Kernels that run on a core, numbered in the order of their first task."""
    names = dict.fromkeys(task.kernel for task in recording.tasks if task.core != "none")
    return {name: number for number, name in enumerate(names)}


def name_map(recording: Recording) -> dict[str, Any]:
    """The names of deps.json's kernel ids, as a name_map_*.json beside it has them."""
    names = {str(number): name for name, number in kernel_numbers(recording).items()}
    return {"level": 2, "orchestrator_name": recording.program, "callable_id_to_name": names}


def _edge(edge: Edge, ids: dict[int, int], dtypes: list[str]) -> dict[str, Any]:
    row: dict[str, Any] = {"pred": str(ids[edge.src]), "succ": str(ids[edge.dst]), "arg": edge.argument}
    row |= {"source": SOURCES[edge.origin], "flags": ["wait"] if edge.src_box else ["wait", "retain"]}
    if edge.src_box is not None:
        row["overlap"] = "covered" if edge.covered else "other"
    if edge.dst_box is not None:
        buffer = edge.dst_box.buffer
        row |= {"tensor_id": str(buffer), "consumer_dtype": dtypes[buffer], **_place(edge.dst_box, "consumer_")}
    return row if edge.src_box is None else {**row, **_place(edge.src_box, "producer_")}


def _place(box: Box, side: str = "") -> dict[str, Any]:
    offset = {f"{side}start_offset": str(box.offset)}
    return {f"{side}shape": list(box.shape), **offset, f"{side}strides": list(box.strides)}


# --- Graphviz


def dot(recording: Recording, graph: Graph, by: Literal["task", "kernel"] = "task") -> str:
    """Text for `dot`. Solid: raw, bold: explicit, dashed: waw only; allocations, done at once, are left out."""
    lines = [f"digraph {_quoted(recording.program)} {{", "  rankdir=LR;"]
    if by == "kernel":
        cores = {task.kernel: task.core for task in recording.tasks}
        numbers = {name: n for n, name in enumerate(cores)}
        for name, count in Counter(task.kernel for task in recording.tasks).items():
            lines.append(f"  {numbers[name]} [label={_quoted(f'{name} ({count:,})')}, shape={SHAPES[cores[name]]}];")
        for (a, b), (count, _) in _between_kernels(recording, graph).items():
            lines.append(f"  {numbers[a]} -> {numbers[b]} [label={_quoted(f'{count:,}')}];")
    else:
        for task in recording.tasks:
            label = f"{task.id} {task.kernel}" + (f" ×{task.blocks}" if task.blocks > 1 else "")
            lines.append(f"  {task.id} [label={_quoted(label)}, shape={SHAPES[task.core]}];")
        for (src, dst), origins in graph.pairs.items():
            if src >= 0:
                style = next(style for origin, style in STYLES.items() if origin in origins)
                lines.append(f"  {src} -> {dst} [style={style}];")
    return "\n".join([*lines, "}", ""])


def _between_kernels(recording: Recording, graph: Graph) -> dict[tuple[str, str], tuple[int, Counter[str]]]:
    """Edges between the tasks of two kernels: how many pairs of tasks, and how many by origin."""
    kernels = [task.kernel for task in recording.tasks]
    found: dict[tuple[str, str], tuple[int, Counter[str]]] = {}
    for (src, dst), origins in graph.pairs.items():
        if src >= 0:
            count, by_origin = found.get((kernels[src], kernels[dst]), (0, Counter()))
            by_origin.update(origins)
            found[kernels[src], kernels[dst]] = count + 1, by_origin
    return found


def _quoted(text: str) -> str:
    """A DOT string; backslashes would start an escape, and a line break would end the line."""
    plain = "".join(c if c.isprintable() else " " for c in text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


# --- a Trace


def check_timeless(path: str | None) -> None:
    """Refuse formats that hold slices only: a trace without times would be an empty file there."""
    if path is not None and check_target(path) != "parquet":
        raise CannotWrite("a trace without times fits npuscope's own folder only", path=path, remedy="End it in .npu.")


def timeless_trace(recording: Recording, graph: Graph) -> Trace:
    """Edges between tasks, one row per pair and origin; allocations, which run nowhere, have negative ids.

    `slices` and `lanes` are empty and the tasks stand in `meta.notes`: analyses of time say that there is nothing to
    analyse, a simulation fills in the slices.
    """
    kernels = [task.kernel for task in recording.tasks]
    rows = [
        (src, dst, SOURCES[origin], origin, kernels[src] if src >= 0 else None, kernels[dst])
        for (src, dst), origins in graph.pairs.items()
        for origin in origins
    ]
    texts = dict.fromkeys(("source", "origin", "src_kernel", "dst_kernel"), pl.String)
    edges = pl.DataFrame(rows, schema={"src": pl.Int64, "dst": pl.Int64, **texts}, orient="row")
    tasks = [
        {"task": task.id, "kernel": task.kernel, "unit": task.core, "blocks": task.blocks} for task in recording.tasks
    ]
    notes = {"program": recording.program, "mode": recording.mode, "tasks": tasks}
    return Trace.of(pl.DataFrame(schema=SLICES), pl.DataFrame(schema=LANES), Meta(FORMAT, notes=notes), edges)


# --- counts


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
        reasons = [f"{count:,} {ORIGIN_WORDS[origin]}" for origin, count in self.edges.items() if count]
        return f"{self.work.title()}\ndependencies between tasks: {', '.join(reasons) or 'none'}"

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
    areas = ["no work" if k.unit == "none" else area_of(k.kernel, rules) for k in work.kernels]
    kernels = work.frame().with_columns(
        pl.Series("area", areas, dtype=pl.String),
        pl.Series("waits", [waits[k.kernel] for k in work.kernels], dtype=pl.Int64),
    )
    kernels = kernels.select(KERNELS.keys)
    by_area = kernels.group_by("area", maintain_order=True).agg(pl.len().alias("kernels"), pl.col(SUMS).sum())
    by_area = by_area.sort("tasks", "area", descending=[True, False])
    return GraphCounts(work, kernels, by_area, edges, sum(len(graph.allocations) for graph in graphs))


# --- a node per kernel


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
    """Folds tasks into their kernels; edges against the order of first tasks (the next layer's) are kept separate."""
    order = {name: n for n, name in enumerate(dict.fromkeys(task.kernel for task in recording.tasks))}
    between = _between_kernels(recording, graph)
    forward = sorted((p for p in between if order[p[0]] < order[p[1]]), key=lambda p: (order[p[1]], order[p[0]]))
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
    columns = [tuple(name for name in order if depth[name] == n) for n in range(1 + max(depth.values(), default=-1))]

    def edge(src: str, dst: str, implied: bool) -> KernelEdge:
        count, origins = between[src, dst]
        return KernelEdge(src, dst, count, tuple(sorted(origins.items())), implied)

    edges = tuple(edge(s, d, any(s in reach[other] for other in before[d] if other != s)) for s, d in forward)
    back = tuple(edge(s, d, False) for s, d in between if order[s] >= order[d])
    return KernelGraph(tuple(columns), edges, back)
