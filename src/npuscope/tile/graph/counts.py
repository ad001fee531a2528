"""Tasks, blocks, work and edges of a run, per kernel and per area of the model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import polars as pl

from npuscope.explain.work import Rules, area_of
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import COUNT, TEXT
from npuscope.tile.graph.edges import ORIGINS, Graph
from npuscope.tile.record.model import Recording
from npuscope.tile.record.summary import COUNTS, NAME, OPS, UNIT, WORK, RunWork, summarise

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
