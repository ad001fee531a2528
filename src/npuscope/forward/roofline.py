"""Which kernels are far from what the chip can do, and what that is worth per step.

Every distinct call (type, shapes, data types, formats) is priced once: FLOPs, bytes, and the least time the chip
needs for them. `lost_ns` is what was measured beyond that, per step. Calls that cannot be priced are listed with
the reason and their share of the time, and take no part in any efficiency.
"""

from __future__ import annotations

import re
from dataclasses import replace

import polars as pl

from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.chip import devices
from npuscope.chip.devices import Device
from npuscope.forward.estimate import limit_ns
from npuscope.forward.roofline_calls import CallRows, rows_of
from npuscope.forward.work import CallWork, work_of
from npuscope.table.columns import Column, Columns, Table, Tabular, all_rows
from npuscope.table.formats import (
    BYTES,
    COUNT,
    FLAG,
    FLOPS,
    LIST,
    MEAN_TIME,
    NUMBER,
    SHARE,
    TEXT,
    TIME,
    duration,
    percent,
    short,
)
from npuscope.trace.core import Trace

_TENSOR_FLOAT = re.compile(r"tf32|s1688|s16816gemm_f32|_TF32")
CALLS: dict[str, type[pl.DataType]] = {
    "kernel": pl.String, "name": pl.String, "shapes": pl.String, "family": pl.String, "flops": pl.Float64,
    "bytes": pl.Int64, "limit_ns": pl.Float64, "bound": pl.String, "peak": pl.Float64, "floor": pl.Boolean,
    "why": pl.String,
}  # fmt: skip
PER_STEP = Column("calls", NUMBER, "per step; of the capture where it marks no steps")
OF_LIMIT = Column("efficiency", SHARE, "limit over measured time", title="of limit", explained=True)
KERNELS = Columns(
    "roofline.kernels",
    "A distinct call, the largest loss first, those without a price last; people see those that have one.",
    Column("kernel", TEXT, "type, or the operator on GPUs"),
    Column("name", TEXT, "the longest GPU kernel of the operator, else null", wide=True, optional=True),
    Column("shapes", TEXT, "of its inputs, as the capture writes them", title="inputs"),
    Column("family", TEXT, "what kind of work it is", wide=True),
    Column("count", COUNT, "calls in the capture", wide=True),
    PER_STEP,
    Column("measured_ns", TIME, "of all calls", wide=True),
    Column("mean_ns", MEAN_TIME, "of one call", scale="call"),
    Column("flops", FLOPS, "of one call", title="work", wide=True),
    Column("bytes", BYTES, "of one call; of a collective the message", title="moves", wide=True),
    Column("limit_ns", MEAN_TIME, "the least time the chip needs", scale="call", explained=True),
    Column("bound", TEXT, "cube, vector, memory or link"),
    OF_LIMIT,
    Column("lost_ns", MEAN_TIME, "measured beyond the limit, per step", title="lost", explained=True),
    Column("floor", FLAG, "`limit_ns` is of its tensors' bytes and its work is not known", only="it has no price"),
    Column("why", TEXT, "why it has no price, or what the price rests on", only="the table of reasons tells it"),
)
PROGRAM = Columns(
    "roofline.program",
    "A kernel of a simulated program, all its blocks together, the largest loss first.",
    Column("kernel", TEXT, "its name"),
    Column("family", TEXT, "the cores that it runs on", title="cores"),
    Column("measured_ns", TIME, "while at least one core ran it", title="time", json="time_ns", explained=True),
    Column("flops", FLOPS, "of its products and vector ops", title="work"),
    Column("bytes", BYTES, "from HBM, after L2", title="moves", scale="traffic"),
    Column("limit_ns", TIME, "the least time the chip needs", explained=True),
    Column("bound", TEXT, "cube, vector or memory: what that least time is of"),
    Column("efficiency", SHARE, "limit over time", title="of limit"),
    Column("lost_ns", TIME, "time beyond the limit", title="lost", explained=True),
)
FAMILIES = Columns(
    "roofline.families",
    "A kind of work, the one with most time first.",
    Column("family", TEXT, "its name"),
    Column("count", COUNT, "calls in the capture", wide=True),
    PER_STEP,
    Column("step_ns", MEAN_TIME, "measured, per step", title="time"),
    Column("priced", SHARE, "of that time", title="limit known"),
    Column("limit_ns", MEAN_TIME, "of what is priced, per step"),
    Column("lost_ns", MEAN_TIME, "measured beyond the limits, per step"),
    OF_LIMIT,
)
UNKNOWN = Columns(
    "roofline.unknown",
    "A reason for having no price, the one with most time first.",
    Column("why", TEXT, "the reason"),
    Column("count", COUNT, "calls in the capture", wide=True),
    PER_STEP,
    Column("measured_ns", TIME, "of all calls", wide=True),
    Column("step_ns", MEAN_TIME, "measured, per step", title="time"),
    Column("share", SHARE, "of all measured time"),
    Column("kernels", LIST, "up to four of them"),
)
ABOVE = Columns(
    "roofline.above_limit",
    "A call that ran faster than its limit.",
    *tuple(column for column in KERNELS if column.key in ("kernel", "shapes", "count", "efficiency")),
)
_PRICED = pl.col("limit_ns").is_not_null() & ~pl.col("floor")


def _at_most_measured() -> pl.Expr:
    """The limits of all calls of a row, and no more than they took."""
    return pl.min_horizontal(pl.col("limit_ns") * pl.col("count"), "measured_ns")


IMPOSSIBLE = 1.1  # times as fast as the limit: what clocks and rounding do not explain
LARGEST_CACHE = 2**28  # bytes, where the device's is not known
WORTH_SAYING = 0.01  # of the time
TOO_LITTLE = 0.05  # of the time, to say how well kernels run


@dataclass(frozen=True, repr=False)
class Roofline(Tabular):
    """`calls` has a row per distinct call: KERNELS, and the `peak` rate of its unit."""

    calls: pl.DataFrame
    device: Device
    chosen_by: str
    steps: int | None  # None: the capture marks none, and times are of the whole of it
    left_out: int
    given: dict[str, float]
    captured_ranks: int = 1  # in the trace, whose times are added
    simulated: bool = False  # a program: a row is a kernel, its time while at least one core ran it

    def tables(self) -> dict[str, Table]:
        if self.simulated:
            return {"kernels": Table(PROGRAM, self.calls)}
        return {
            "kernels": Table(KERNELS, self._with_calls(self.calls)),
            "families": Table(FAMILIES, self._with_calls(self.families())),
            "unknown": Table(UNKNOWN, self._with_calls(self.unknown())),
            "above_limit": Table(ABOVE, self.above),
        }

    def of_priced(self) -> Table:
        """The calls whose work is known, for people."""
        if self.simulated:
            return self.main_table()
        return Table(KERNELS, self._with_calls(self.priced))

    def _with_calls(self, table: pl.DataFrame) -> pl.DataFrame:
        """With calls per step: whole numbers where every step has as many."""
        each = (table["count"] / self._steps).alias("calls")
        return table.with_columns(each.cast(pl.Int64) if (table["count"] % self._steps == 0).all() else each)

    @property
    def measured_ns(self) -> int:
        return int(self.calls["measured_ns"].sum())

    @property
    def priced(self) -> pl.DataFrame:
        """The calls whose work is known."""
        return self.calls.filter(_PRICED)

    @property
    def priced_share(self) -> float:
        """Of all measured time, that of the calls whose work is known."""
        return int(self.priced["measured_ns"].sum()) / max(self.measured_ns, 1)

    @property
    def impossible(self) -> pl.DataFrame:
        """Calls that took so much less than their limit that the limit, or the device, is wrong: bytes that a cache
        may hold are another matter."""
        held = self.device.memory.l2.value if self.device.memory.l2 else LARGEST_CACHE
        in_cache = (pl.col("bound") == "memory") & (pl.col("bytes") <= held)
        return self.above.filter((pl.col("efficiency") > IMPOSSIBLE) & ~in_cache)

    @property
    def above(self) -> pl.DataFrame:
        """Calls that ran faster than the limit: their bytes came from L2, or the work was less than the shapes say."""
        return self.priced.filter(pl.col("efficiency") > 1)

    def families(self) -> pl.DataFrame:
        """By family; limit_ns, lost_ns and efficiency are of what is priced."""
        table = self.calls.group_by("family").agg(
            pl.col("count").sum(),
            (pl.col("measured_ns").sum() / self._steps).alias("step_ns"),
            (pl.col("measured_ns").filter(_PRICED).sum() / pl.col("measured_ns").sum()).alias("priced"),
            (_at_most_measured().filter(_PRICED).sum() / self._steps).alias("limit_ns"),
            (pl.col("measured_ns").filter(_PRICED).sum() / self._steps).alias("_priced_ns"),
            pl.col("lost_ns").clip(lower_bound=0).sum(),
        )
        some = pl.col("_priced_ns") > 0
        table = table.with_columns(
            pl.when(some).then(pl.col("limit_ns", "lost_ns")),
            pl.when(some).then(pl.col("limit_ns") / pl.col("_priced_ns")).alias("efficiency"),
        ).drop("_priced_ns")
        return table.sort("step_ns", "family", descending=[True, False])

    def unknown(self) -> pl.DataFrame:
        """What has no price, by reason."""
        table = (
            self.calls.filter(~_PRICED)
            .group_by("why")
            .agg(pl.col("count", "measured_ns").sum(), pl.col("kernel").unique().sort().head(4).alias("kernels"))
        )
        share = pl.col("measured_ns") / max(self.measured_ns, 1)
        step = pl.col("measured_ns") / self._steps
        table = table.with_columns(share.alias("share"), step.alias("step_ns"))
        return table.sort("measured_ns", "why", descending=[True, False])

    @property
    def efficiency(self) -> float | None:
        """Of everything that is priced: its limits over its measured time. What beat its limit counts as at it."""
        measured = int(self.priced["measured_ns"].sum())
        return float(self.priced.select(_at_most_measured().sum()).item()) / measured if measured else None

    @property
    def lost_ns(self) -> float:
        """Measured beyond the limits, per step; what beat its limit makes up for nothing."""
        return float(self.priced["lost_ns"].clip(lower_bound=0).sum())

    @property
    def _steps(self) -> int:
        return self.steps or 1

    def sentence(self) -> str:
        """The answer in one line."""
        if self.efficiency is None:
            what = "program" if self.simulated else "capture"
            return f"no kernel of this {what} has a known limit on {self.device.title}"
        if self.priced_share < TOO_LITTLE:
            part = percent(self.priced_share)
            return (
                f"{part} of the kernels' time has a known limit on {self.device.title}: too little to judge the rest by"
            )
        if wrong := self._wrong():
            return wrong
        per = "per step" if self.steps else "in the run" if self.simulated else "in the capture"
        together = f", {self.captured_ranks} ranks together" if self.captured_ranks > 1 else ""
        lost = duration(self.lost_ns)
        return (
            f"kernels run at {percent(self.efficiency)} of the chip's limits and lose {lost} {per}{together} "
            f"({percent(self.priced_share)} of their time has a known limit on {self.device.title})"
        )

    def _wrong(self) -> str:
        """The sentence where limits are beaten that cannot be; else ""."""
        beaten = self.impossible
        share = int(beaten["measured_ns"].sum()) / max(self.measured_ns, 1)
        if share < WORTH_SAYING:
            return ""
        kernel, most = beaten.sort("efficiency", descending=True).select("kernel", "efficiency").row(0)
        return (
            f"{percent(share)} of the kernels' time beats what {self.device.title} can do (`{short(kernel, 40)}` runs "
            f"at {percent(most)} of its limit): the capture is of another device, or these limits are wrong"
        )

    def title(self) -> str:
        return self.sentence()

    def as_dict(self) -> dict[str, object]:
        """The contract of `npuscope roofline --json` (docs/reference/json.md)."""
        return {
            "device": {"name": self.device.name, "title": self.device.title, "chosen_by": self.chosen_by},
            "steps": self.steps,
            "given": self.given,
            "time_ns" if self.simulated else "measured_ns": self.measured_ns,
            "efficiency": self.efficiency,
            "lost_ns": self.lost_ns,
            **all_rows(self.tables()),
            "left_out": self.left_out,
        }


def roofline(
    trace: Trace,
    device: str | Device | None = None,
    *,
    context: float | None = None,
    ranks: int | None = None,
    tokens_per_expert: float | None = None,
) -> Roofline:
    """Price every kernel of a trace on a device; a trace that names its device needs none given.

    `context`: cached tokens per sequence, for attention. `ranks`: of collectives whose size the capture tells.
    `tokens_per_expert`: rows each expert got on average, for grouped matmuls.
    """
    chip, chosen_by = _device(trace, device)
    options = {"context": context, "ranks": ranks, "tokens_per_expert": tokens_per_expert}
    given = {name: float(value) for name, value in options.items() if value is not None}
    for name, value in given.items():
        if not 0 <= value < 2**40 or (name == "ranks" and value < 1):
            raise NpuscopeError(f"{name} is {value:g}, which is no count")
    rows = rows_of(trace, given)
    steps = rows.table["step"].drop_nulls().n_unique() or None
    captured = max(trace.lanes["rank"].drop_nulls().n_unique(), 1)
    return Roofline(_table(rows, chip, steps or 1), chip, chosen_by, steps, rows.left_out, given, captured)


def _device(trace: Trace, device: str | Device | None) -> tuple[Device, str]:
    if isinstance(device, Device):
        return device, "given"
    if device is not None:
        return devices.load(device), "given"
    device = trace.meta.device
    if device is None or not devices.is_known(device):
        what, name = "the capture does not tell its device", "it"
        if device is not None:
            what, name = f"the capture says its device is '{device}', of which npuscope has no data", "the nearest"
        known = ", ".join(devices.names())
        raise NpuscopeError(what, remedy=f"Name {name} with --device: {known}, or a TOML file of your own.")
    return devices.load(device), f"the capture, which says '{device}'"


def _table(rows: CallRows, chip: Device, steps: int) -> pl.DataFrame:
    priced = [_priced(rows, number, chip) for number in range(len(rows.calls))]
    calls = pl.DataFrame(priced, schema=CALLS, orient="row").with_row_index("call")
    measured = rows.table.group_by("call").agg(
        pl.len().cast(pl.Int64).alias("count"), pl.col("dur").sum().alias("measured_ns")
    )
    table = measured.join(calls, on="call")
    mean = pl.col("measured_ns") / pl.col("count")
    whole = pl.col("limit_ns") * pl.col("count")
    table = table.with_columns(
        mean.alias("mean_ns"),
        pl.when(pl.col("measured_ns") > 0).then(whole / pl.col("measured_ns")).alias("efficiency"),
        pl.when(~pl.col("floor")).then((pl.col("measured_ns") - whole) / steps).alias("lost_ns"),
    ).sort("lost_ns", "measured_ns", "call", descending=[True, True, False], nulls_last=True)
    return table.select(
        "kernel", "name", "shapes", "family", "count", "measured_ns", "mean_ns", "flops", "bytes", "limit_ns", "bound",
        "efficiency", "lost_ns", "peak", "floor", "why",
    )  # fmt: skip


def _priced(rows: CallRows, number: int, chip: Device) -> tuple[object, ...]:
    """One distinct call as a row of `CALLS`."""
    call, name = rows.calls[number], rows.kernels[number]
    work = rows.works[number] or work_of(call)
    if (reason := rows.reasons[number]) is not None:
        work = CallWork(work.family, why_unknown=reason)
    if work.dtype == "fp32" and _TENSOR_FLOAT.search(name) and "tf32" in chip.cube:
        work = replace(work, dtype="tf32")
    limit = limit_ns(work, chip, call.type)
    peak = chip.peak(work.unit, work.dtype) if work.unit and work.dtype else None
    why = limit.why if limit.ns is None else work.note
    flops = None if work.flops is None else float(work.flops)
    moved = work.bytes if work.message_bytes is None else work.message_bytes
    return (
        call.type, name or None, rows.shapes[number], work.family, flops, moved, limit.ns, limit.bound, peak,
        work.byte_bound, why,
    )  # fmt: skip
