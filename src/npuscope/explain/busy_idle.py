"""Busy and idle: per lane, per unit and per kernel.

Core time is a sum over lanes; on-core time is a union, when at least one lane ran. Busy + idle = window on
every lane, to the nanosecond. Scheduler and orchestrator threads count as busy while they do anything but wait.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base.frozen import dataclass
from npuscope.explain.repetition import Steps
from npuscope.explain.work import Rules, Work, area_of, places
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import COUNT, MEAN_TIME, NUMBER, SHARE, TEXT, TIME, duration, many, percent
from npuscope.trace.core import arrays_of, overlaps
from npuscope.trace.intervals import Intervals, Ints, one_group, union


def _quantile(share: float) -> pl.Expr:
    """A duration that occurred."""
    return pl.col("ns").quantile(share, "lower").cast(pl.Int64)


# over the slices of a kernel, `ns` being what of a slice lies in the window
KERNELS = Columns(
    "",  # a part of `report.kernels` and of `simulate.per_kernel`
    "A kernel, the one with most core time first.",
    Column("kernel", TEXT, "the operator type where the capture has one, else the kernel's name", json="name"),
    Column("count", COUNT, "slices", of=pl.len()),
    Column("core_ns", TIME, "added up over all cores", title="core time", explained=True, of=pl.col("ns").sum()),
    Column("on_core_ns", TIME, "while at least one core ran it", title="on-core time", explained=True),
    Column("mean_ns", MEAN_TIME, "of a slice", scale="mean", of=pl.col("ns").mean()),
    Column("p50_ns", TIME, "half of the slices take at most this", scale="mean", wide=True, of=_quantile(0.5)),
    Column("p95_ns", TIME, "95% of the slices take at most this", scale="mean", wide=True, of=_quantile(0.95)),
    Column("share", SHARE, "of all core time"),
)
UNITS = Columns(
    "report.units",
    "A unit, lanes added up; an object by unit.",
    Column("unit", TEXT, "AIC, AIV, AICPU, stream, link or host"),
    Column("lanes", COUNT, "of the unit"),
    Column("busy_ns", TIME, "something ran", scale="time"),
    Column("idle_ns", TIME, "nothing ran", scale="time"),
    Column("share", SHARE, "busy, of both", title="busy"),
)
LANES = Columns(
    "report.lanes",
    "A lane: core, stream or thread.",
    Column("lane", COUNT, "its number", only="a number of this trace, which the name tells better"),
    Column("name", TEXT, "as the capture calls it", title="lane"),
    Column("unit", TEXT, "as in `units`"),
    Column("slices", COUNT, "on it"),
    *(column for column in UNITS if column.key in ("busy_ns", "idle_ns", "share")),
)


@dataclass(frozen=True, repr=False)
class Busy(Tabular):
    """Per lane and per kernel; LANES and KERNELS tell their columns."""

    lanes: pl.DataFrame
    kernels: pl.DataFrame
    window_ns: int
    core_ns: int
    on_core_ns: int

    in_json = ("window_ns", "core_ns", "on_core_ns")

    @property
    def running(self) -> float:
        """The share of the window in which any work ran."""
        return self.on_core_ns / self.window_ns if self.window_ns else 0.0

    @property
    def units(self) -> pl.DataFrame:
        """Sums over the lanes of each unit."""
        sums = self.lanes.group_by("unit", maintain_order=True).agg(
            lanes=pl.len(), busy_ns=pl.col("busy_ns").sum(), idle_ns=pl.col("idle_ns").sum()
        )
        return sums.with_columns(_share("busy_ns", pl.col("busy_ns") + pl.col("idle_ns"))).sort("unit")

    def tables(self) -> dict[str, Table]:
        kernels = Table(KERNELS, self.kernels)
        return {"kernels": kernels, "units": Table(UNITS, self.units), "lanes": Table(LANES, self.lanes)}

    def title(self) -> str:
        units = ", ".join(f"{unit} {percent(share)}" for unit, share in self.units.select("unit", "share").iter_rows())
        window = f"busy {percent(self.running)} of {duration(self.window_ns)} with any work running"
        return f"{window}; by unit: {units or 'no lanes'}"

    def as_dict(self) -> dict[str, object]:
        return {**super().as_dict(), "units": self.tables()["units"].keyed()}


def busy_of(work: Work) -> Busy:
    """Who was busy and for how long."""
    anywhere = union(one_group(work.start, work.end))
    lanes = pl.concat([_lane_table(work), _scheduler_table(work)])
    return Busy(lanes, kernel_table(work), work.wall, int((work.end - work.start).sum()), anywhere.length)


def kernel_table(work: Work) -> pl.DataFrame:
    """One row per kernel, largest core time first."""
    length = work.end - work.start
    on_core = union(Intervals(work.kernel, work.start, work.end)).lengths(len(work.kernels))
    wanted = {name for expression in KERNELS.computed() for name in expression.meta.root_names()} - {"ns"}
    table = work.with_columns(*wanted).select(*wanted, pl.Series("number", work.kernel), pl.Series("ns", length))
    rows = table.group_by("number").agg(KERNELS.computed())
    names = pl.DataFrame({"number": range(len(work.kernels)), "kernel": work.kernels, "on_core_ns": on_core},
                         schema={"number": pl.Int64, "kernel": pl.String, "on_core_ns": pl.Int64})  # fmt: skip
    rows = names.join(rows, on="number").with_columns(_share("core_ns", pl.col("core_ns").sum()))
    return rows.select(KERNELS.keys).sort("core_ns", "kernel", descending=[True, False])


def _lane_table(work: Work) -> pl.DataFrame:
    lanes = work.lanes.height
    count = np.bincount(work.lane, minlength=lanes)
    return _lane_rows(work.lanes, count, work.busy.lengths(lanes), work.wall)


def _scheduler_table(work: Work) -> pl.DataFrame:
    """The AICPU's threads that schedule, which are no lanes of the work."""
    trace, lanes = work.trace, scheduler_lanes(work)
    slices = trace.slices.filter(pl.col("lane").is_in(lanes["lane"].implode()) & overlaps(*work.window))
    if "phase" in slices.columns:
        slices = slices.filter(pl.col("phase").is_null() | (pl.col("phase") != "idle"))
    lane, start, dur = arrays_of(slices)
    place = places(lane, lanes["lane"].to_numpy())
    covered = union(Intervals(place, np.maximum(start, work.window[0]), np.minimum(start + dur, work.window[1])))
    return _lane_rows(lanes, np.bincount(place, minlength=lanes.height), covered.lengths(lanes.height), work.wall)


def scheduler_lanes(work: Work) -> pl.DataFrame:
    """Threads of the AICPU. Lanes that show a core as its scheduler saw it tell the core's tasks again."""
    threads = (pl.col("unit") == "AICPU") & ~pl.col("lane").is_in(work.lanes["lane"].implode())
    if "role" in work.trace.lanes.columns:
        threads &= pl.col("role").is_null() | (pl.col("role") != "view of a core")
    return work.trace.lanes.filter(threads)


def _lane_rows(lanes: pl.DataFrame, count: NDArray[np.int64], busy_ns: Ints, wall: int) -> pl.DataFrame:
    table = lanes.select("lane", "name", "unit").with_columns(
        pl.Series("slices", count, dtype=pl.Int64),
        pl.Series("busy_ns", busy_ns, dtype=pl.Int64),
        pl.Series("idle_ns", wall - busy_ns, dtype=pl.Int64),
    )
    return table.with_columns(_share("busy_ns", pl.lit(wall)))


def _share(part: str, whole: pl.Expr) -> pl.Expr:
    return pl.when(whole != 0).then(pl.col(part) / whole).otherwise(0.0).alias("share")


COUNTS = (
    Column("tasks", COUNT, "launches; a task that runs several kernels counts once for each"),
    Column("blocks", COUNT, "slices"),
    Column("core_ns", TIME, "sum over cores"),
)
AREAS = Columns(
    "report.fan_out.areas",
    "A part of the model, the one with most tasks first.",
    Column("area", TEXT, "by the kernels' names (docs/understand/numbers.md)"),
    Column("kernels", COUNT, "distinct kernels"),
    *COUNTS,
    Column("tasks per step", NUMBER, "tasks over steps"),
    Column("tasks per layer", NUMBER, "tasks over layers, where they are known"),
    Column("share", SHARE, "of all tasks"),
)
FAN_OUT_KERNELS = Columns(
    "report.fan_out.kernels",
    "A kernel, the one with most tasks first.",
    Column("kernel", TEXT, "its name"),
    Column("area", TEXT, "its part of the model"),
    *COUNTS,
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

    in_json = ("tasks", "blocks", "steps", "layers")

    def tables(self) -> dict[str, Table]:
        return {"areas": Table(AREAS, self.areas), "kernels": Table(FAN_OUT_KERNELS, self.kernels)}

    def title(self) -> str:
        steps = "one step" if self.steps == 1 else f"{self.steps} steps"
        kernels = self.kernels.height
        layers = f" of {self.layers} layers" if self.layers else ""
        counted = f"{many(self.tasks, 'task')} with {many(self.blocks, 'block')} of {many(kernels, 'kernel')}"
        return f"fan-out: {counted} in {steps}{layers}"


def fan_out_of(work: Work, cut: Steps, rules: Rules) -> FanOut:
    """Tasks by kernel and area, for work cut into steps."""
    names = pl.DataFrame({"kernel": work.kernels, "area": [area_of(name, rules) for name in work.kernels]},
                         schema={"kernel": pl.String, "area": pl.String}).with_row_index("number")  # fmt: skip
    number = pl.Series("number", work.kernel, dtype=pl.UInt32)
    slices = pl.DataFrame([number, work.tasks.alias("task"), pl.Series("core_ns", work.end - work.start)])
    tasks = slices["task"].n_unique()
    distinct = pl.len() if tasks == slices.height else pl.col("task").n_unique()
    counts = {"tasks": distinct, "blocks": pl.len(), "core_ns": pl.col("core_ns").sum()}
    # repeats that were found, with nothing repeating inside them, are taken for layers of one step
    found = cut.table.height
    are_steps = cut.source == "column" or cut.layers
    steps, layers = (max(found, 1), cut.layers) if are_steps else (1, found or None)
    per = [(pl.col("tasks") / steps).alias("tasks per step")]
    if layers:
        per.append((pl.col("tasks") / (steps * layers)).alias("tasks per layer"))
    placed = slices.with_columns(area=names["area"].cast(pl.Categorical).gather(work.kernel))
    areas = placed.group_by("area").agg(pl.col("number").n_unique().alias("kernels"), **counts)
    areas = areas.with_columns(pl.col("area").cast(pl.String))
    areas = areas.with_columns(*per, (pl.col("tasks") / pl.col("tasks").sum()).alias("share"))
    kernels = names.join(slices.group_by("number").agg(**counts), on="number").drop("number")
    return FanOut(
        areas.sort("tasks", "area", descending=[True, False]),
        kernels.sort("tasks", "kernel", descending=[True, False]),
        tasks=tasks,
        blocks=slices.height,
        steps=steps,
        layers=layers,
    )
