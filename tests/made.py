"""Traces made in memory for tests of analyses, and the dozen tasks that docs/understand/numbers.md draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from npuscope.trace import Meta, Trace

US = 1000


@dataclass(frozen=True)
class Task:
    """One slice of a core; times in microseconds."""

    task: int
    kernel: str
    lane: str
    start: float
    end: float
    dispatch: float | None = None
    finish: float | None = None
    more: tuple[tuple[str, Any], ...] = ()


def made(
    tasks: Iterable[Task],
    edges: Sequence[tuple[int, int]] = (),
    lanes: Sequence[str] = (),
    format: str = "made",
    **notes: Any,
) -> Trace:
    """A trace; a lane's unit is what its name begins with (AIC_0, AIV_3, stream_7, host_1)."""
    tasks = list(tasks)
    names = list(dict.fromkeys([*lanes, *(task.lane for task in tasks)]))
    rows = [
        {
            "lane": names.index(t.lane),
            "start": round(t.start * US),
            "dur": round(t.end * US) - round(t.start * US),
            "kernel": t.kernel,
            "kind": "host" if t.lane.startswith("host") else "task",
            "task": t.task,
            "dispatch": None if t.dispatch is None else round(t.dispatch * US),
            "finish": None if t.finish is None else round(t.finish * US),
            **dict(t.more),
        }
        for t in tasks
    ]
    slices = pl.DataFrame(rows, infer_schema_length=None) if rows else pl.DataFrame(schema={"lane": pl.UInt32})
    table = pl.DataFrame(
        {
            "lane": range(len(names)),
            "name": names,
            "unit": [name.split("_")[0] for name in names],
            "core": [int(name.split("_")[1]) for name in names],
        }
    )
    pairs = pl.DataFrame(
        {"src": [a for a, _ in edges], "dst": [b for _, b in edges], "source": ["tensormap"] * len(edges)},
        schema={"src": pl.Int64, "dst": pl.Int64, "source": pl.String},
    )
    return Trace.of(slices, table, Meta(format, records=len(rows), notes=notes), pairs)


def submitted(tasks: Iterable[Task], edges: Sequence[tuple[int, int]]) -> Trace:
    """A trace whose slices on AICPU are an orchestrator's submissions of the tasks of their numbers."""
    trace = made(tasks, edges)
    on_cpu = pl.col("unit") == "AICPU"
    lanes = trace.lanes.with_columns(pl.when(on_cpu).then(pl.lit("orchestrator")).alias("role"))
    submits = pl.col("lane").is_in(lanes.filter(on_cpu)["lane"].to_list())
    slices = trace.slices.with_columns(pl.when(submits).then(pl.lit("schedule")).otherwise("kind").alias("kind"))
    return Trace.of(slices, lanes, trace.meta, trace.edges)


# docs/understand/numbers.md draws these: kernel, core, dispatch, start, end, finish in microseconds
DOZEN = (
    Task(1, "q_proj", "AIC_0", 0, 10, -1, 11),
    Task(2, "k_proj", "AIC_1", 0, 14, -1, 15),
    Task(3, "rope", "AIV_0", 17, 22, 16, 23),
    Task(4, "qk", "AIC_0", 25, 35, 24, 36),
    Task(5, "softmax", "AIV_0", 38, 44, 37, 45),
    Task(6, "sv", "AIC_0", 47, 57, 46, 58),
    Task(7, "gate", "AIC_1", 20, 50, 18, 51),
    Task(8, "out_proj", "AIC_1", 61, 75, 60, 76),
    Task(9, "up", "AIC_0", 60, 70, 59, 71),
    Task(10, "silu", "AIV_0", 74, 78, 72, 79),
    Task(11, "down", "AIC_0", 81, 95, 80, 96),
    Task(12, "residual", "AIV_1", 98, 100, 97, 101),
)
DEPENDS = (
    (1, 3), (2, 3), (3, 4), (4, 5), (5, 6), (2, 7), (6, 8), (7, 9), (7, 10), (9, 10), (10, 11), (8, 12), (11, 12),
)  # fmt: skip


def dozen() -> Trace:
    """The drawn trace."""
    return made(DOZEN, DEPENDS, lanes=("AIC_0", "AIC_1", "AIV_0", "AIV_1"))
