"""Tasks, blocks, work and edges of a run, per kernel and per area of the model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import polars as pl

from npuscope.analysis.areas import Rules, area_of
from npuscope.analysis.table import Tabular
from npuscope.tile.graph.edges import ORIGINS, Graph
from npuscope.tile.record.model import Recording
from npuscope.tile.record.summary import RunWork, summarise

SUMS = ("tasks", "blocks", "flops", "gm_read", "gm_written", "waits")


@dataclass(frozen=True, repr=False)
class GraphCounts(Tabular):
    """`kernels` in order of their first task; `waits` are edges into a kernel's tasks, without those of allocations."""

    work: RunWork
    kernels: pl.DataFrame  # kernel, area, unit, tasks, blocks, flops, gm_read, gm_written, waits
    areas: pl.DataFrame  # area, kernels, and the same sums; most tasks first
    edges: dict[str, int]  # origin -> pairs of tasks
    allocations: int

    def frame(self) -> pl.DataFrame:
        return self.kernels

    def title(self) -> str:
        told = ", ".join(f"{count:,} {origin}" for origin, count in self.edges.items())
        return f"{self.work.title()}\nedges: {told}; allocations: {self.allocations:,}"

    def as_dict(self) -> dict[str, Any]:
        """The JSON contract of `npuscope graph` without `passed`."""
        areas = {row.pop("area"): row for row in self.areas.to_dicts()}
        return {**self.work.as_dict(), "areas": areas, "edges": self.edges, "allocations": self.allocations}


def count_graphs(recordings: list[Recording], graphs: list[Graph], rules: Rules) -> GraphCounts:
    """The counts of several recordings of one run together."""
    waits: Counter[str] = Counter()
    edges = dict.fromkeys(map(str, ORIGINS), 0)
    for recording, graph in zip(recordings, graphs, strict=True):
        waits.update(recording.tasks[dst].kernel for src, dst in graph.pairs if src >= 0)
        for origin, count in graph.counts().items():
            edges[origin] += count
    work = summarise(recordings)
    kernels = work.frame().select(
        "kernel",
        pl.Series(
            "area", ["no work" if k.unit == "none" else area_of(k.kernel, rules) for k in work.kernels], dtype=pl.String
        ),
        "unit",
        "tasks",
        "blocks",
        "flops",
        "gm_read",
        "gm_written",
        pl.Series("waits", [waits[k.kernel] for k in work.kernels], dtype=pl.Int64),
    )
    areas = kernels.group_by("area", maintain_order=True).agg(pl.len().alias("kernels"), pl.col(SUMS).sum())
    areas = areas.sort("tasks", "area", descending=[True, False])
    return GraphCounts(work, kernels, areas, edges, sum(len(graph.allocations) for graph in graphs))
