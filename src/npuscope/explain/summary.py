"""What a capture is: its lanes, slices, window, kernels, steps and edges, and what its reader did to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from npuscope.base.frozen import dataclass
from npuscope.explain.work import kernel_group
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import COUNT, NUMBER, SHARE, TEXT, TIME, many
from npuscope.trace.core import SERIES, WHOLE_DEVICE, Meta, Trace, by_time
from npuscope.trace.schema import is_work

TOP = 10
TOP_KERNELS = Columns(
    "info.top_kernels",
    "A kernel of device lanes, the largest sum first, at most ten; what is listed twice counts once.",
    Column("kernel", TEXT, "the operator type where the capture has one, else the name"),
    Column("count", COUNT, "slices"),
    Column("total_ns", TIME, "a sum: lanes that overlap count each", title="sum"),
)


LEVEL = replace(NUMBER, show=lambda value: f"{value:,.4g}" if isinstance(value, int | float) else str(value))
COUNTERS = Columns(
    "info.counters",
    "A counter of a lane. A value holds until the next sample.",
    Column("name", TEXT, "as the capture calls it", title="counter"),
    Column("lane", TEXT, "its lane, or whole device"),
    Column("samples", COUNT, "in the window"),
    Column("least", LEVEL, "the lowest value"),
    Column("mean", LEVEL, "over time"),
    Column("most", LEVEL, "the highest value"),
    Column("share", SHARE, "of the window that it covers", title="of window", wide=True),
)


@dataclass(frozen=True, repr=False)
class Summary(Tabular):
    """What `npuscope info` says of a capture; docs/reference/json.md has the fields."""

    meta: Meta
    slices: int
    tasks: int
    lanes: Mapping[str, int]
    ranks: tuple[int, ...]
    start_ns: int
    end_ns: int
    window_ns: int
    kernels: int
    top_kernels: pl.DataFrame
    steps: int
    step_ids: tuple[int, ...]
    edges: int
    samples: int
    counters: pl.DataFrame

    of_meta = ("format", "files", "device", "clock", "records", "merged", "marked", "repaired", "dropped", "unknown")
    in_json = (
        "slices", "tasks", "lanes", "ranks", "start_ns", "end_ns", "window_ns", "kernels", "steps", "step_ids",
        "edges", "samples",
    )  # fmt: skip

    def tables(self) -> dict[str, Table]:
        return {"top_kernels": Table(TOP_KERNELS, self.top_kernels), "counters": Table(COUNTERS, self.counters)}

    def as_dict(self) -> dict[str, object]:
        return {**{name: getattr(self.meta, name) for name in self.of_meta}, **super().as_dict()}


def summarise(trace: Trace) -> Summary:
    """The summary; kernels are those of device slices, or of all slices where there are none."""
    tasks = int(trace.slices.select(is_work().sum()).item())
    once = trace.slices.lazy().filter(pl.col("duplicate_of").is_null(), is_work() | (tasks == 0))
    totals = (
        once.group_by(kernel_group(trace.slices))
        .agg(count=pl.len(), total_ns=pl.col("dur").cast(pl.Int128).sum())
        .collect()
    )
    start, end = trace.window_ns
    steps = tuple(trace.slices["step"].drop_nulls().unique().sort().to_list())
    lanes = trace.lanes.group_by("unit").len().sort("unit")
    return Summary(
        meta=trace.meta,
        slices=trace.slices.height,
        tasks=tasks,
        lanes={str(unit): n for unit, n in lanes.iter_rows()},
        ranks=tuple(trace.lanes["rank"].drop_nulls().unique().sort().to_list()),
        start_ns=start,
        end_ns=end,
        window_ns=end - start,
        kernels=totals.height,
        top_kernels=totals.sort(["total_ns", "kernel"], descending=[True, False]).head(TOP),
        steps=len(steps),
        step_ids=steps,
        edges=trace.edges.height,
        samples=trace.counters.height,
        counters=counters(trace).table,
    )


@dataclass(frozen=True, repr=False)
class Counters(Tabular):
    """A row per counter and lane."""

    table: pl.DataFrame

    def tables(self) -> dict[str, Table]:
        return {"counters": Table(COUNTERS, self.table)}

    def title(self) -> str:
        return f"counters: {many(int(self.table['samples'].sum()), 'sample')} of {self.table.height:,}"


def counters(trace: Trace) -> Counters:
    """Least, mean and most of every counter. The mean is over the time since its first sample in the window, or the
    one before, up to the window's end; without such time (all samples at one moment) it is the last value."""
    start, end = trace.window_ns
    samples = by_time(trace.counters)
    until = pl.col("time").shift(-1).over(SERIES).fill_null(pl.max_horizontal(pl.lit(end), "time"))
    held = (until.clip(start, end) - pl.col("time").clip(start, end)).alias("held")
    samples = samples.with_columns(held)
    time = pl.col("held").sum()
    table = samples.group_by(SERIES, maintain_order=True).agg(
        samples=pl.len(),
        least=pl.col("value").min(),
        mean=pl.when(time > 0).then((pl.col("value") * pl.col("held")).sum() / time).otherwise(pl.col("value").last()),
        most=pl.col("value").max(),
        share=time / max(end - start, 1),
    )
    names = trace.lanes.select("lane", place="name")
    table = table.join(names, on="lane", how="left", maintain_order="left")
    place = pl.col("place").fill_null(WHOLE_DEVICE).alias("lane")
    return Counters(table.select(place, "name", "samples", "least", "mean", "most", "share"))


_BEGIN, _END = "StreamBeginCapture", "StreamEndCapture"


@dataclass(frozen=True)
class GraphCapture:
    """Launches that were recorded into a graph, and the device tasks that the capture has."""

    recorded: int
    tasks: int

    @property
    def is_all(self) -> bool:
        """True where more was recorded than ran: what ran is the little that comes before a recording."""
        return self.recorded > self.tasks

    def __str__(self) -> str:
        return f"{self.recorded:,} launches were recorded into a graph and not run, {self.tasks:,} device tasks ran"


def graph_capture(trace: Trace) -> GraphCapture | None:
    """What of the capture was recorded into a graph; None where it records none."""
    host = trace.slices.lazy().filter(pl.col("kind") == "host")
    name = pl.col("kernel")
    begins = host.filter(name.str.contains(_BEGIN, literal=True)).select("start").collect()["start"].sort()
    if begins.is_empty():
        return None
    ends = host.filter(name.str.contains(_END, literal=True)).select("start").collect()["start"].sort()
    work = trace.slices.select(pl.col("task").filter(is_work())).to_series()
    ran = trace.edges.filter(pl.col("dst").is_in(work.implode()))["src"].drop_nulls()
    calls = host.filter(name.str.contains("Launch", literal=True) & ~name.str.contains("GraphLaunch", literal=True))
    alone = calls.filter(~pl.col("task").is_in(ran.implode())).select("start").collect()["start"]
    recording = (begins.search_sorted(alone, side="right") > ends.search_sorted(alone, side="right")).sum()
    return GraphCapture(int(recording), len(work)) if recording else None
