"""What a capture is: its lanes, slices, window, kernels, steps and edges, and what its reader did to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import polars as pl

from npuscope.chip.kernels import readable
from npuscope.explain.counter_levels import COUNTERS, counters
from npuscope.table.columns import Column, Columns, Table, all_rows
from npuscope.table.formats import COUNT, TEXT, TIME
from npuscope.trace.core import Trace
from npuscope.trace.duplicates import AI_CPUS
from npuscope.trace.schema import is_work

TOP = 10
TYPES = ("Type", "OP Type", "opType")  # columns with the operator type
CORES = ("Accelerator Core", "Task Type", "taskType", "kernel_type")  # columns with the kind of core, likewise
NOT_TOLD = ["N/A", ""]
TOP_KERNELS = Columns(
    "info.top_kernels",
    "A kernel of device lanes, the largest sum first, at most ten; what is listed twice counts once.",
    (
        Column("kernel", TEXT, "the operator type where the capture has one, else the name"),
        Column("count", COUNT, "slices"),
        Column("total_ns", TIME, "a sum: lanes that overlap count each", title="sum"),
    ),
)


@dataclass(frozen=True)
class KernelTotal:
    """All slices of one kernel on device lanes; `total_ns` is a sum, so lanes that overlap count each."""

    kernel: str
    count: int
    total_ns: int


@dataclass(frozen=True)
class Summary:
    """See docs/reference/json.md, which documents these fields as the contract of `npuscope info --json`."""

    format: str
    files: tuple[str, ...]
    device: str | None
    clock: str | None
    records: int
    slices: int
    tasks: int
    lanes: Mapping[str, int]
    ranks: tuple[int, ...]
    start_ns: int
    end_ns: int
    window_ns: int
    kernels: int
    top_kernels: tuple[KernelTotal, ...]
    steps: int
    step_ids: tuple[int, ...]
    edges: int
    samples: int
    counters: pl.DataFrame
    merged: Mapping[str, int]
    marked: Mapping[str, int]
    repaired: Mapping[str, int]
    dropped: Mapping[str, int]
    unknown: Mapping[str, int]

    def tables(self) -> dict[str, Table]:
        kernels = pl.DataFrame(self.top_kernels, schema=TOP_KERNELS.keys, orient="row")
        return {"top_kernels": Table(TOP_KERNELS, kernels), "counters": Table(COUNTERS, self.counters)}

    def as_dict(self) -> dict[str, object]:
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        return {**plain, **all_rows(self.tables())}


def kernel_group(slices: pl.DataFrame) -> pl.Expr:
    """The name kernels are counted under: the operator type where the capture has one, since Ascend's names
    carry a number per place in the model; else the kernel's name, as people write it."""
    types = [pl.col(name) for name in TYPES if name in slices.columns]
    told = [pl.when(~t.is_in(NOT_TOLD)).then(t) for t in types]
    group = pl.coalesce(*told, "kernel").alias("kernel")
    if slices["kernel"].str.starts_with("_Z").any():
        names = slices["kernel"].unique()
        return group.replace(readable(names.drop_nulls()))
    return group


def on_ai_cpu(slices: pl.DataFrame) -> pl.Expr:
    """True for work that the capture says ran on the AI CPU, beside the device: no device time."""
    cores = [pl.col(name).str.strip_chars().is_in(AI_CPUS).fill_null(False) for name in CORES if name in slices.columns]
    return (pl.any_horizontal(cores) if cores else pl.lit(False)).alias("on_ai_cpu")


def summarise(trace: Trace) -> Summary:
    """The summary; kernels are those of device slices, or of all slices where there are none."""
    tasks = int(trace.slices.select(is_work().sum()).item())
    once = trace.slices.lazy().filter(pl.col("duplicate_of").is_null(), is_work() | (tasks == 0))
    totals = (
        once.group_by(kernel_group(trace.slices))
        .agg(count=pl.len(), total_ns=pl.col("dur").cast(pl.Int128).sum())
        .collect()
    )
    top = totals.sort(["total_ns", "kernel"], descending=[True, False]).head(TOP)
    start, end = trace.window_ns
    steps = tuple(trace.slices["step"].drop_nulls().unique().sort().to_list())
    lanes = trace.lanes.group_by("unit").len().sort("unit")
    meta = trace.meta
    return Summary(
        format=meta.format,
        files=meta.files,
        device=meta.device,
        clock=meta.clock,
        records=meta.records,
        slices=trace.slices.height,
        tasks=tasks,
        lanes={str(unit): n for unit, n in lanes.iter_rows()},
        ranks=tuple(trace.lanes["rank"].drop_nulls().unique().sort().to_list()),
        start_ns=start,
        end_ns=end,
        window_ns=end - start,
        kernels=totals.height,
        top_kernels=tuple(KernelTotal(*row) for row in top.iter_rows()),
        steps=len(steps),
        step_ids=steps,
        edges=trace.edges.height,
        samples=trace.counters.height,
        counters=counters(trace).table,
        merged=meta.merged,
        marked=meta.marked,
        repaired=meta.repaired,
        dropped=meta.dropped,
        unknown=meta.unknown,
    )
