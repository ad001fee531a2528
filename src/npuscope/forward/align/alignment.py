"""A predicted forward pass beside a measured one, kernel by kernel, and the metrics M1 to M6 of the modelling tool.

`missing` is in the measured pass and not in the prediction; `extra` is in the prediction only. Errors are predicted
minus measured. `m6_honest` is the union of predicted time over the union of measured device time, each from the first
to the last call that both sides have: what one side has before and after is left out on that side, and listed in
`scope`; what it lacks in between counts against it.

M1 to M6 are as their tool defines them (howto/align.md). A hit is a call whose source is MEASURED or INTERPOLATED. M6
is computed as its tool does, faults included, so that published figures can be compared: integer microseconds above;
below, every row of the kernel table, duplicates and AI_CPU rows too, without types that end in AicpuKernel, and `hcom_`
rows once per (whole microsecond of start, type).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from npuscope.base.frozen import dataclass
from npuscope.chip.kernels import kernel_table
from npuscope.forward.align import errors
from npuscope.forward.align import errors as columns
from npuscope.forward.align.errors import Cancelling
from npuscope.forward.align.pairing import pair_calls, perhaps_renamed
from npuscope.forward.align.sides import PassSide, side_of, without_free
from npuscope.table.columns import Table, Tabular, all_rows
from npuscope.table.formats import duration
from npuscope.trace.core import Trace
from npuscope.trace.intervals import Ints, one_group, union

WORTH_A_WORD = 0.01  # of the measured time: what cancels below that is not in the verdict


@dataclass(frozen=True)
class SideScope:
    """What one side covers. `window` holds the calls both sides have; unions are of device time, in nanoseconds."""

    calls: int
    sum_ns: int
    union_ns: int
    span_ns: int
    window_ns: int  # union inside the window
    before: tuple[int, int]  # calls and union before the window
    after: tuple[int, int]
    left_out: Mapping[str, tuple[int, int]]  # reason -> rows, nanoseconds: not looked at on any count but M6's

    def as_dict(self) -> dict[str, object]:
        edges = {side: dict(zip(("calls", "ns"), getattr(self, side), strict=True)) for side in ("before", "after")}
        left_out = {reason: {"rows": n, "ns": ns} for reason, (n, ns) in self.left_out.items()}
        sums = {name: getattr(self, name) for name in ("calls", "sum_ns", "union_ns", "span_ns", "window_ns")}
        return {**sums, **edges, "left_out": left_out}


@dataclass(frozen=True, repr=False)
class Alignment(Tabular):
    """`pairs`: a row per matched call; `families`, `layers`: sums and errors; see howto/align.md for every word."""

    pairs: pl.DataFrame
    missing: pl.DataFrame
    extra: pl.DataFrame
    families: pl.DataFrame
    layers: pl.DataFrame
    layer_source: str
    communication: pl.DataFrame
    cancelling: Cancelling
    metrics: ModelMetrics
    m6_honest: float | None
    predicted: SideScope
    measured: SideScope
    of_best: float
    ordered: bool
    renamed: tuple[tuple[str, str, int], ...]
    times: tuple[pl.DataFrame, pl.DataFrame]  # start and dur of the calls of both sides, for drawings

    def tables(self) -> dict[str, Table]:
        grouped = {
            "missing_by_shape": Table(columns.MISSING_GROUPS, errors.grouped(self.missing, "measured_ns")),
            "extra_by_shape": Table(columns.EXTRA_GROUPS, errors.grouped(self.extra, "predicted_ns")),
        }
        return {
            "kernels": Table(columns.PAIRS, self.pairs),
            "family_table": Table(columns.FAMILIES, self.families),
            "layers": Table(columns.LAYERS, self.layers),
            "by_shape": Table(columns.BY_SHAPE, errors.by_shape(self.pairs)),
            "communication": Table(columns.COMMUNICATION, self.communication),
            "missing": Table(columns.MISSING, self.missing),
            "extra": Table(columns.EXTRA, self.extra),
            **grouped,
        }

    def title(self) -> str:
        return self.verdict()

    def verdict(self) -> str:
        """One paragraph: totals, what has no partner, what cancels."""
        a, b, c = self.predicted, self.measured, self.cancelling
        share = f" ({c.net_ns / b.sum_ns:+.1%})" if b.sum_ns else ""
        text = (
            f"predicted {duration(a.sum_ns)} against {duration(b.sum_ns)} measured{share}; "
            f"{self.pairs.height:,} of {b.calls:,} measured calls matched, {self.missing.height:,} missing from the "
            f"prediction, {self.extra.height:,} extra in it"
        )
        if c.cancels_ns > WORTH_A_WORD * b.sum_ns:
            pair = c.pairs[0]
            longer, shorter = duration(pair.over_ns), duration(pair.under_ns)
            text += (
                f". Errors cancel: families are {duration(c.over_ns)} too long and "
                f"{duration(c.under_ns)} too short, first of all "
                f"{pair.over} (+{longer}) against {pair.under} ({shorter})"
            )
        return text + "."

    def as_dict(self) -> dict[str, object]:
        """The contract of `npuscope align --json` (docs/reference/json.md)."""
        scopes = {"predicted": self.predicted.as_dict(), "measured": self.measured.as_dict()}
        return {
            "verdict": self.verdict(),
            "matched": self.pairs.height,
            "moved": int(self.pairs["moved"].sum()),
            **all_rows(self.tables()),
            "families": dict(self.families.filter(pl.col("error").is_not_null()).select("family", "error").rows()),
            "layers_from": self.layer_source,
            "cancelling": self.cancelling.as_dict(),
            **self.metrics.values,
            "m6_numerator_ns": self.metrics.m6_numerator_ns,
            "m6_denominator_ns": self.metrics.m6_denominator_ns,
            "m6_honest": self.m6_honest,
            "metric_reasons": dict(self.metrics.reasons),
            "perhaps_renamed": [dict(zip(("predicted", "measured", "calls"), r, strict=True)) for r in self.renamed],
            "ordered": self.ordered,
            "of_best": self.of_best,
            "scope": scopes,
        }


def align(
    predicted: Trace, measured: Trace, pairs: Mapping[str, str] | None = None, *, process: str | None = None
) -> Alignment:
    """Lay a prediction beside one measured forward pass.

    `pairs` says which measured kernel (or family) a predicted one stands for, where the names do not tell; `process`
    chooses among several models in one Chrome trace.
    """
    theirs = side_of(measured, "measured pass")
    return align_sides(without_free(side_of(predicted, "prediction", process), theirs), theirs, pairs)


def align_sides(ours: PassSide, theirs: PassSide, pairs: Mapping[str, str] | None = None) -> Alignment:
    """As `align`, for sides already prepared."""
    found = pair_calls(ours, theirs, pairs)
    layers = errors.layers_of(ours, theirs, found)
    table = errors.pair_table(ours, theirs, found, layers)
    missing = errors.left_over(theirs, found.missing, found.measured_families, layers.measured, "measured_ns")
    extra = errors.left_over(ours, found.extra, found.predicted_families, layers.predicted, "predicted_ns")
    comm = errors.communication(theirs, found.measured_families)
    families = _with_stable(errors.by("family", table, missing, extra), comm)
    by_layer = errors.by("layer", table, missing, extra).drop("comm").sort("layer", nulls_last=True)
    # without an order there is no window: all of both sides counts
    shared = [place[~found.moved] if found.ordered else None for place in (found.predicted, found.measured)]
    scopes = _scope(ours, shared[0]), _scope(theirs, shared[1])
    whole = scopes[1].window_ns
    return Alignment(
        pairs=table,
        missing=missing,
        extra=extra,
        families=families,
        layers=by_layer if layers.source != "none" else by_layer.clear(),
        layer_source=layers.source,
        communication=comm,
        cancelling=errors.cancelling(families),
        metrics=model_metrics(ours, theirs),
        m6_honest=scopes[0].window_ns / whole if whole and table.height else None,
        predicted=scopes[0],
        measured=scopes[1],
        of_best=found.of_best,
        ordered=found.ordered,
        renamed=tuple(perhaps_renamed(found)) if found.ordered else (),
        times=(ours.calls.select("start", "dur"), theirs.calls.select("start", "dur")),
    )


def _with_stable(families: pl.DataFrame, comm: pl.DataFrame) -> pl.DataFrame:
    """Families with the stable and the waiting part of their collectives, where every one of them is told."""
    all_known = pl.col("stable_ns").null_count() == 0
    parts = comm.group_by("family").agg(
        stable_ns=pl.when(all_known).then(pl.col("stable_ns").sum()),
        wait_ns=pl.when(all_known).then(pl.col("wait_ns").sum()),
    )
    table = families.join(parts, on="family", how="left", maintain_order="left")
    against = (pl.col("predicted_ns") - pl.col("stable_ns")) / pl.col("stable_ns")
    table = table.with_columns(error_stable=pl.when(pl.col("stable_ns") > 0).then(against))
    return table.sort(pl.col("error_ns").abs(), "family", descending=[True, False])


def _scope(side: PassSide, matched: Ints | None) -> SideScope:
    start, dur = side.calls["start"].to_numpy(), side.calls["dur"].to_numpy()
    end = start + dur
    everything = int(np.min(start)), int(np.max(end))
    low, high = everything
    if matched is not None:
        low, high = (int(np.min(start[matched])), int(np.max(end[matched]))) if len(matched) else (everything[1],) * 2
    before, inside, after = (
        union(one_group(np.clip(start, *part), np.clip(end, *part))).length
        for part in ((everything[0], low), (low, high), (high, everything[1]))
    )
    return SideScope(
        calls=len(start),
        sum_ns=int(np.sum(dur)),
        union_ns=union(one_group(start, end)).length,
        span_ns=everything[1] - everything[0],
        window_ns=inside,
        before=(int(np.sum(start < low)), before),
        after=(int(np.sum(start >= high)) if high > low else 0, after),
        left_out=side.left_out,
    )


HITS = ["MEASURED", "INTERPOLATED"]
NO_SOURCES = "the prediction does not tell the source of each time"
SHARES = ("m1", "m2", "m3", "m4", "m5")


@dataclass(frozen=True)
class ModelMetrics:
    """Shares (m1 to m5) and a ratio (m6); None with the reason in `reasons`, which also holds remarks."""

    values: Mapping[str, float | None]
    m6_numerator_ns: int
    m6_denominator_ns: int
    reasons: Mapping[str, str]


def model_metrics(predicted: PassSide, measured: PassSide) -> ModelMetrics:
    """The six of them."""
    events = predicted.events.with_columns(pl.col("source").is_in(HITS).fill_null(False).alias("hit"))
    reasons: dict[str, str] = {}
    values: dict[str, float | None] = dict.fromkeys(SHARES)
    counted = events
    if predicted.tells("source"):
        values = _shares(events, reasons)
        counted = events.filter("hit")
        if events["type"].null_count() < events.height:
            counted = counted.filter(pl.col("type").is_not_null())  # as the tool does with events that name no kernel
    else:
        reasons = dict.fromkeys(SHARES, NO_SOURCES) | {"m6": f"{NO_SOURCES}: every call counts"}
    above = int((counted["dur"].cast(pl.Float64) / 1000).round(0, mode="half_to_even").sum()) * 1000
    below = m6_denominator(measured.rows)
    if not below:
        reasons["m6"] = "the measured pass has no rows that M6 counts"
    return ModelMetrics(values | {"m6": above / below if below else None}, above, below, reasons)


def m6_denominator(rows: pl.DataFrame) -> int:
    """Nanoseconds of a pass's rows as M6 (version 3) adds them up."""
    kind = pl.coalesce("type", "kernel")
    rows = rows.select("start", "dur", kind.alias("type")).filter(~pl.col("type").str.ends_with("AicpuKernel"))
    is_hcom = pl.col("type").str.starts_with("hcom_")
    once = rows.filter(is_hcom).group_by(pl.col("start") // 1000, "type").agg(pl.col("dur").max())
    return int(rows.filter(~is_hcom)["dur"].sum()) + int(once["dur"].sum())


def _shares(events: pl.DataFrame, reasons: dict[str, str]) -> dict[str, float | None]:
    accepted = pl.col("type") == "accepted_miss"
    costs = events.filter(~((pl.col("zero_cost").str.to_lowercase() == "true") | accepted).fill_null(False))
    marks_zero_cost = events["zero_cost"].null_count() < events.height or events.select(accepted.any()).item()
    variants = costs.filter(costs["shapes"].is_not_null().any()).group_by("function", "shapes").agg(pl.col("hit").any())
    limits = events.filter(pl.col("limit_ns").is_not_null())
    total = int(limits["limit_ns"].sum())
    shares = {
        "m1": _mean(events["hit"]),
        "m2": _functions(events),
        "m3": _functions(costs),
        "m4": _mean(variants["hit"]),
        "m5": int(limits.filter("hit")["limit_ns"].sum()) / total if total else None,
    }
    if not marks_zero_cost and (events["dur"] == 0).any():
        shares["m3"] = None
        reasons["m3"] = "the prediction has calls of no length and does not mark which of them cost nothing"
    if variants.is_empty():
        reasons["m4"] = "the prediction does not tell shapes"
    if not total:
        reasons["m5"] = "the prediction does not tell an analytic time (limit_ns) beside each"
    elif limits.height < events.height:
        reasons["m5"] = f"{events.height - limits.height:,} calls without limit_ns are not in it"
    return shares


def _functions(events: pl.DataFrame) -> float | None:
    """The share of functions all of whose calls hit; those of a group count as one."""
    begins = [(prefix, group.name) for group in kernel_table().group for prefix in group.begins]
    names = events["function"].unique().to_list()
    group = {
        name: next((g for p, g in begins if name.removeprefix("torch.ops.").startswith(p)), name) for name in names
    }
    return _mean(events.group_by(pl.col("function").replace(group)).agg(pl.col("hit").all())["hit"])


def _mean(hits: pl.Series) -> float | None:
    return float(hits.sum()) / len(hits) if len(hits) else None
