"""M1 to M6 as the modelling tool defines them; howto/align.md has the definitions. The honest M6 is in `alignment`.

A hit is a call whose source is MEASURED or INTERPOLATED. M6 is computed as its tool does, faults included, so that
published figures can be compared: integer microseconds above; below, every row of the kernel table, duplicates and
AI_CPU rows too, without types that end in AicpuKernel, and `hcom_` rows once per (whole microsecond of start, type).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from npuscope.chip.kernels import kernel_table
from npuscope.forward.align.sides import Side

HITS = ["MEASURED", "INTERPOLATED"]
NO_SOURCES = "the prediction does not tell the source of each time"


@dataclass(frozen=True)
class ModelMetrics:
    """Shares (m1 to m5) and a ratio (m6); None with the reason in `reasons`, which also holds remarks."""

    m1: float | None
    m2: float | None
    m3: float | None
    m4: float | None
    m5: float | None
    m6: float | None
    m6_numerator_ns: int
    m6_denominator_ns: int
    reasons: Mapping[str, str] = field(default_factory=dict)


def model_metrics(predicted: Side, measured: Side) -> ModelMetrics:
    """The six of them."""
    events = predicted.events.with_columns(pl.col("source").is_in(HITS).fill_null(False).alias("hit"))
    reasons: dict[str, str] = {}
    told = predicted.tells("source")
    if not told:
        reasons |= dict.fromkeys(("m1", "m2", "m3", "m4", "m5"), NO_SOURCES)
        reasons["m6"] = f"{NO_SOURCES}: every call counts"
    counted = events.filter(pl.col("hit")) if told else events
    if told and events["type"].null_count() < events.height:
        counted = counted.filter(pl.col("type").is_not_null())  # as the tool does with events that name no kernel
    above = int((counted["dur"].cast(pl.Float64) / 1000).round(0, mode="half_to_even").sum()) * 1000
    below = m6_denominator(measured.rows)
    shares: dict[str, float | None] = dict.fromkeys(("m1", "m2", "m3", "m4", "m5"))
    if told:
        shares = _shares(events, reasons)
    if not below:
        reasons["m6"] = "the measured pass has no rows that M6 counts"
    return ModelMetrics(**shares, m6=above / below if below else None, m6_numerator_ns=above,
                        m6_denominator_ns=below, reasons=reasons)  # fmt: skip


def m6_denominator(rows: pl.DataFrame) -> int:
    """Nanoseconds of a pass's rows as M6 (version 3) adds them up."""
    kind = pl.coalesce("type", "kernel")
    rows = rows.select("start", "dur", kind.alias("type")).filter(~pl.col("type").str.ends_with("AicpuKernel"))
    is_hcom = pl.col("type").str.starts_with("hcom_")
    once = rows.filter(is_hcom).group_by(pl.col("start") // 1000, "type").agg(pl.col("dur").max())
    return int(rows.filter(~is_hcom)["dur"].sum()) + int(once["dur"].sum())


def _shares(events: pl.DataFrame, reasons: dict[str, str]) -> dict[str, float | None]:
    hit = events["hit"]
    functions = _functions(events)
    costs = events.filter(~_zero_cost(events))
    marks_zero_cost = events["zero_cost"].null_count() < events.height or (events["type"] == "accepted_miss").any()
    shares: dict[str, float | None] = {
        "m1": float(hit.sum()) / events.height,
        "m2": functions,
        "m3": _functions(costs),
        "m4": None,
        "m5": None,
    }
    if not marks_zero_cost and int((events["dur"] == 0).sum()):
        shares["m3"] = None
        reasons["m3"] = "the prediction has calls of no length and does not mark which of them cost nothing"
    if costs["shapes"].null_count() == costs.height:
        reasons["m4"] = "the prediction does not tell shapes"
    else:
        variants = costs.group_by("function", "shapes").agg(pl.col("hit").any())
        shares["m4"] = float(variants["hit"].mean() or 0.0)  # type: ignore[arg-type]
    limits = events.filter(pl.col("limit_ns").is_not_null())
    total = int(limits["limit_ns"].sum())
    if not total:
        reasons["m5"] = "the prediction does not tell an analytic time (limit_ns) beside each"
    else:
        shares["m5"] = int(limits.filter(pl.col("hit"))["limit_ns"].sum()) / total
        if limits.height < events.height:
            reasons["m5"] = f"{events.height - limits.height:,} calls without limit_ns are not in it"
    return shares


def _zero_cost(events: pl.DataFrame) -> pl.Series:
    free = (pl.col("zero_cost").str.to_lowercase() == "true") | (pl.col("type") == "accepted_miss")
    return events.select(free.fill_null(False).alias("free"))["free"]


def _functions(events: pl.DataFrame) -> float | None:
    """The share of functions all of whose calls hit; those of a group count as one."""
    if events.is_empty():
        return None
    begins = [(prefix, group.name) for group in kernel_table().group for prefix in group.begins]
    names = events["function"].unique().to_list()
    grouped = {name: next((g for p, g in begins if name.removeprefix("torch.ops.").startswith(p)), name)
               for name in names}  # fmt: skip
    functions = events.with_columns(pl.col("function").replace(grouped)).group_by("function").agg(pl.col("hit").all())
    return float(functions["hit"].mean() or 0.0)  # type: ignore[arg-type]
