"""Fan-out: tasks and blocks per kernel and per area, and per step where steps are known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from npuscope.explain.areas import Rules, area_of, area_rules
from npuscope.explain.repetition import Steps, steps_of
from npuscope.explain.work import Work
from npuscope.table.columns import Column, Columns, Table, Tabular, all_rows
from npuscope.table.formats import COUNT, NUMBER, SHARE, TEXT, TIME, many
from npuscope.trace.core import Trace

COUNTS = (
    Column("tasks", COUNT, "launches; a task that runs several kernels counts once for each"),
    Column("blocks", COUNT, "slices"),
    Column("core_ns", TIME, "sum over cores"),
)
AREAS = Columns(
    "report.fan_out.areas",
    "A part of the model, the one with most tasks first.",
    (
        Column("area", TEXT, "by the kernels' names (docs/understand/numbers.md)"),
        Column("kernels", COUNT, "distinct kernels"),
        *COUNTS,
        Column("tasks per step", NUMBER, "tasks over steps"),
        Column("tasks per layer", NUMBER, "tasks over layers, where they are known"),
        Column("share", SHARE, "of all tasks"),
    ),
)
KERNELS = Columns(
    "report.fan_out.kernels",
    "A kernel, the one with most tasks first.",
    (Column("kernel", TEXT, "its name"), Column("area", TEXT, "its part of the model"), *COUNTS),
)


@dataclass(frozen=True, repr=False)
class FanOut(Tabular):
    """Per area and per kernel, most tasks first.

    Blocks of one task are one launch; a task that runs several kernels (a MIX task) counts once per kernel and area.
    """

    areas: pl.DataFrame
    kernels: pl.DataFrame
    tasks: int
    blocks: int
    steps: int  # 1 where the trace has none
    layers: int | None  # found in a step by repetition

    def tables(self) -> dict[str, Table]:
        return {"areas": Table(AREAS, self.areas), "kernels": Table(KERNELS, self.kernels)}

    def title(self) -> str:
        steps = "one step" if self.steps == 1 else f"{self.steps} steps"
        kernels = self.kernels.height
        layers = f" of {self.layers} layers" if self.layers else ""
        counted = f"{many(self.tasks, 'task')} with {many(self.blocks, 'block')} of {many(kernels, 'kernel')}"
        return f"fan-out: {counted} in {steps}{layers}"

    def as_dict(self) -> dict[str, object]:
        plain = {"tasks": self.tasks, "blocks": self.blocks, "steps": self.steps, "layers": self.layers}
        return {**plain, **all_rows(self.tables())}


def fan_out(trace: Trace, rules: str | Path | None = None) -> FanOut:
    """Count tasks by kernel and area; `rules` is a TOML file of areas that comes before the built-in ones."""
    work = Work.of(trace)
    return fan_out_of(work, steps_of(work), area_rules(rules))


def fan_out_of(work: Work, cut: Steps, rules: Rules) -> FanOut:
    """As `fan_out`, for work already prepared and cut into steps."""
    area = pl.Series([area_of(name, rules) for name in work.kernels], dtype=pl.String)
    core_ns = pl.Series("core_ns", work.end - work.start)
    slices = work.slices.select(area.gather(work.kernel).alias("area"), "kernel", work.tasks.alias("task"), core_ns)
    counts = {"tasks": pl.col("task").n_unique(), "blocks": pl.len(), "core_ns": pl.col("core_ns").sum()}
    # repeats that were found, with nothing repeating inside them, are taken for layers of one step
    found = cut.table.height
    are_steps = cut.source == "column" or cut.layers
    steps, layers = (max(found, 1), cut.layers) if are_steps else (1, found or None)
    per = [(pl.col("tasks") / steps).alias("tasks per step")]
    if layers:
        per.append((pl.col("tasks") / (steps * layers)).alias("tasks per layer"))
    areas = slices.group_by("area").agg(pl.col("kernel").n_unique().alias("kernels"), **counts)
    areas = areas.with_columns(*per, (pl.col("tasks") / pl.col("tasks").sum()).alias("share"))
    kernels = slices.group_by("kernel", "area").agg(**counts)
    return FanOut(
        areas.sort("tasks", "area", descending=[True, False]),
        kernels.sort("tasks", "kernel", descending=[True, False]),
        tasks=slices["task"].n_unique(),
        blocks=slices.height,
        steps=steps,
        layers=layers,
    )
