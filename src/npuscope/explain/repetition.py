"""Steps: the parts of a trace that repeat, as the capture marks them, as its forward passes (`passes.steps`), or else
found in the sequence of kernels.

Found means: some kernel occurs at even distances in the order of work, and the stretches between its occurrences
hold nearly the same kernels. Where the stretch begins within its period is chosen so that the longest pause lies
between stretches. Inside a step of cores the same search finds layers.
"""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import polars as pl

from npuscope.base.frozen import dataclass
from npuscope.explain.extent import marked_steps
from npuscope.explain.waits import launches_of
from npuscope.explain.work import Work, kernel_group, places
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import COUNT, FLAG, TEXT, TIME, duration, many
from npuscope.trace.intervals import Intervals, Ints, largest, union

EVEN = 0.02  # distances may differ by this share of the period
MOST_EVEN = 0.8  # of an anchor's distances must be even
ALIKE = 0.8  # kernels that two neighbouring stretches share, at least
SAME = 0.97  # enough to look no further
COVERED = 0.5  # of the sequence lies in stretches
SHORTEST = 4  # slices of a stretch
OUTLIER = 1.5  # times the median span
NOTABLE = 0.1  # by which the first step differs from the others
MOST_SHARED = 0.5  # of a stretch's span with the next one
SEARCHED = 200_000  # slices of a sequence looked at

STEPS = Columns(
    "report.steps.table",
    "A step, in order. Sums and unions are of all rows, spans and core times of those that count once.",
    Column("step", COUNT, "its number"),
    Column("start", COUNT, "the first start, ns of the capture's clock", only="a moment of a clock says little"),
    Column("phase", TEXT, "prefill, decode, mixed or training, where mark or kernels tell", optional=True),
    Column("tokens", COUNT, "computed, over all requests, where mark or kernels tell", optional=True),
    Column("marked_ns", TIME, "from begin to end of the host's mark", title="marked", optional=True),
    Column("span_ns", TIME, "first start to last end on the device"),
    Column("slices", COUNT, "rows"),
    Column("sum_ns", TIME, "of all rows", wide=True),
    Column("union_ns", TIME, "of all rows", wide=True),
    Column("core_ns", TIME, "sum of what counts once"),
    Column("on_core_ns", TIME, "union of what counts once", title="on-core"),
    Column("outlier", FLAG, "longer than 1.5 times the median of its kind"),
)


@dataclass(frozen=True)
class PassCount:
    """The forward passes of a run in few numbers; `report` and `forward` both take them, and their words, from here."""

    passes: int
    clean: int  # of them whole and undisturbed
    phases: dict[str, int]  # how many are of each, the most first
    phase: str  # of the passes that the next two are of
    layers: int  # 0 where nothing tells them
    pass_ns: float | None  # first start to last end, median
    layers_vary: bool  # whole passes of other models have other layers

    def __str__(self) -> str:
        known = ", ".join(f"{count} {phase}" for phase, count in self.phases.items())
        if self.phases.keys() == {"training"}:
            what = many(self.passes, "training step")
        else:
            what = many(self.passes, "forward pass", "forward passes")
            what += "" if self.phases.keys() <= {"unknown"} else f" ({known})"
        if self.clean < self.passes:
            what += f", {f'{self.clean:,} of them' if self.clean else 'none'} whole and undisturbed"
        titles = {"unknown": "a pass", "training": "a training step"}
        one = "one" if len(self.phases) == 1 else titles.get(self.phase, f"a {self.phase}")
        one += f" of {many(self.layers, 'layer')}" if self.layers_vary else ""
        each = " in most" if self.layers_vary else " each" if self.passes > 1 else ""
        layers = f"{self.layers} layers{each}" if self.layers > 1 else ""
        takes = "" if self.pass_ns is None else f"{one} takes {duration(self.pass_ns)} (median)"
        return "; ".join(part for part in (what, layers, takes) if part)


@dataclass(frozen=True, repr=False)
class Steps(Tabular):
    table: pl.DataFrame
    source: str  # "column", "passes", "repetition" or "none"
    layers: int | None  # of a pass; found inside a typical step where nothing tells passes
    unassigned: int  # slices of the work that belong to no step
    first_penalty: float | None = None  # the first step's span over the median of the others of its kind
    count: PassCount | None = None  # the forward passes in all steps and outside, where they are told apart

    in_json = ("source", "first_penalty", "outliers", "layers", "unassigned", "count")

    @property
    def outliers(self) -> list[int]:
        """Steps longer than 1.5 times the median of their kind."""
        return [int(step) for step in self.table.filter("outlier")["step"]]

    def tables(self) -> dict[str, Table]:
        return {"table": Table(STEPS, self.table)}

    def title(self) -> str:
        if self.source == "none":
            return "steps: none marked, and no repetition found"
        steps = self.table.height
        counted = {"column": f"steps: {steps} marked", "passes": "steps found"}
        spans = self.table["span_ns"].to_numpy()
        inside = f"{self.layers} layers each; " if self.layers else ""
        plain = f"{inside}one takes {duration(float(np.median(spans)))} (median)" if steps else ""
        parts = [
            counted.get(self.source, f"{steps} repeats found, steps or layers"),
            plain if self.count is None else str(self.count),
            f"the first takes {self.first_penalty:.2f} times the median of the others"
            if self.first_penalty is not None and abs(self.first_penalty - 1) > NOTABLE
            else "",
            f"outliers: {', '.join(map(str, self.outliers))}" if self.outliers else "",
            f"{many(self.unassigned, 'slice')} in none" if self.unassigned else "",
        ]
        return "; ".join(part for part in parts if part)


def steps_from(
    rows: pl.DataFrame, source: str, marks: pl.DataFrame, kinds: dict[int, str], layers: int | None,
    count: PassCount | None = None,
) -> Steps:  # fmt: skip
    """Steps of rows that have one; `marks` has phase, tokens and marked_ns by step. Those of a kind are compared."""
    known = rows.filter(pl.col("step").is_not_null())
    table = _table(known).join(marks, on="step", how="left", maintain_order="left")
    kind = pl.col("step").replace_strict(kinds, default="", return_dtype=pl.String)
    usual = pl.col("span_ns").median().over(kind)
    odd = (pl.col("span_ns") > OUTLIER * usual) & (pl.len().over(kind) > 2)  # of two nobody knows which is usual
    table = table.with_columns(odd.fill_null(False).alias("outlier"))
    like = table.with_columns(kind.alias("kind")).filter(pl.col("kind") == pl.col("kind").first())["span_ns"].to_numpy()
    others = float(np.median(like[1:])) if len(like) > 2 else 0.0
    first = float(like[0]) / others if others else None
    return Steps(table.select(STEPS.keys), source, layers, rows.height - known.height, first, count)


def layers_inside(rows: pl.DataFrame) -> int | None:
    """Repeats inside the step of median span."""
    known = rows.filter(pl.col("step").is_not_null())
    if known.is_empty():
        return None
    spans = (
        known.group_by("step")
        .agg((pl.col("start") + pl.col("dur")).max() - pl.col("start").min())
        .sort("start", "step")
    )
    inside = known.filter((pl.col("step") == spans["step"][spans.height // 2]) & ~pl.col("duplicate")).sort("start")
    cuts = repeats(_symbols(inside), inside["start"].to_numpy(), _ends(inside))
    return None if cuts is None else len(cuts) - 1


def in_steps(work: Work) -> tuple[pl.DataFrame, str]:
    """The device's rows of the window with the step each is in, null for none; and who says so, as `Steps.source`."""
    rows = _all_rows(work)
    if rows["step"].null_count() < rows.height:
        return rows.with_columns(marked_steps(rows, launches_of(work.trace, rows["task"]))), "column"
    key = rows["start"]  # on cores, where a scheduler mixes what runs, by task where one counter numbers them
    if work.on_cores and rows["task"].null_count() == 0 and not (rows["task"] >= 2**32).any():
        key = rows["task"]
    order = np.argsort(key.to_numpy(), kind="stable")
    numbers = numbers_of_repeats(_symbols(rows)[order], rows["start"].to_numpy()[order], _ends(rows)[order])
    if numbers is None:
        return rows, "none"
    step = np.empty(len(order), dtype=np.int64)
    step[order] = numbers
    return rows.with_columns(pl.when(pl.Series(step >= 0)).then(pl.Series(step)).alias("step")), "repetition"


def numbers_of_repeats(symbols: Ints, start: Ints, end: Ints) -> Ints | None:
    """Which repeat each row is in, from 0; -1 before the first and after the last; None where nothing repeats."""
    cuts = repeats(symbols, start, end)
    if cuts is None or _overlap(cuts, start, end):
        return None
    numbers = np.searchsorted(cuts, np.arange(len(symbols)), side="right") - 1
    return np.where(numbers == len(cuts) - 1, -1, numbers)


def _all_rows(work: Work) -> pl.DataFrame:
    """The device's rows of the window, those that list work again too, since a step's span and plain sum cover them."""
    everything = work.trace.slices
    run = [name for name in ("run",) if name in everything.columns]
    if work.slices.height and everything["duplicate_of"].null_count() < everything.height:
        kinds = work.slices["kind"].unique().implode()
        inside = (pl.col("start") < work.window[1]) & (pl.col("start") + pl.col("dur") >= work.window[0])
        rows = everything.lazy().with_row_index("row").filter(pl.col("kind").is_in(kinds) & inside)
        kernel = kernel_group(everything)
    else:
        rows, kernel = work.with_columns(*run).lazy().with_columns(pl.Series("row", work.rows)), pl.col("kernel")
    duplicate = pl.col("duplicate_of").is_not_null().alias("duplicate")
    return rows.select("start", "dur", kernel, "step", "task", duplicate, "row", *run).collect()


def _ends(rows: pl.DataFrame) -> Ints:
    return (rows["start"] + rows["dur"]).to_numpy()


def _symbols(rows: pl.DataFrame) -> Ints:
    """A number per kernel name, names that differ only in digits being one."""
    names = rows["kernel"].unique(maintain_order=True).to_list()
    bare = [re.sub(r"\d+", "#", name) for name in names]
    places = {name: place for place, name in enumerate(dict.fromkeys(bare))}
    codes = rows["kernel"].cast(pl.Enum(names)).to_physical().to_numpy()
    numbers: Ints = np.array([places[name] for name in bare], dtype=np.int64)[codes]
    return numbers


def repeats(symbols: Ints, start: Ints, end: Ints) -> Ints | None:
    """Places where stretches begin and, last, where the last one ends; None where nothing repeats."""
    symbols = symbols[:SEARCHED]
    count = np.bincount(symbols) if len(symbols) else np.zeros(0, dtype=np.int64)
    best: tuple[float, Ints, int] | None = None
    for times in np.unique(count[count >= 2]).tolist():
        for anchor in np.flatnonzero(count == times).tolist():
            places = np.flatnonzero(symbols == anchor)
            period = _even_period(places, len(symbols))
            likeness = 0.0 if period is None else _likeness(symbols, places)
            if period is not None and likeness >= ALIKE and (best is None or likeness > best[0]):
                best = likeness, places, period
        if best is not None and best[0] >= SAME:
            break  # fewer and longer stretches are steps, more and shorter ones their layers
    return None if best is None else _cuts(best[1], best[2], start, end, len(symbols))


def _overlap(cuts: Ints, start: Ints, end: Ints) -> bool:
    """True when stretches mostly run at the same time as the next one: then they are no steps of anything."""
    spans = [(int(np.min(start[a:b])), int(np.max(end[a:b]))) for a, b in pairwise(cuts)]
    shared = [max(first[1] - second[0], 0) / max(first[1] - first[0], 1) for first, second in pairwise(spans)]
    return bool(shared) and float(np.median(shared)) > MOST_SHARED


def _even_period(places: Ints, length: int) -> int | None:
    distance = np.diff(places)
    period = int(np.median(distance))
    even = np.abs(distance - period) <= int(EVEN * period)
    if period < SHORTEST or even.mean() < MOST_EVEN or period * len(places) < COVERED * length:
        return None
    return period


def _likeness(symbols: Ints, anchors: Ints) -> float:
    """The share of kernels that two neighbouring stretches have in common, median over all neighbours."""
    if len(anchors) < 3:  # two occurrences make one whole stretch: look at as much after the second
        anchors = np.append(anchors, min(2 * anchors[-1] - anchors[-2], len(symbols)))
    size = largest(symbols) + 1
    counts = (np.bincount(symbols[a:b], minlength=size) for a, b in pairwise(anchors))
    shared = [int(np.minimum(a, b).sum()) / max(int(np.maximum(a, b).sum()), 1) for a, b in pairwise(counts)]
    return float(np.median(shared))


def _cuts(places: Ints, period: int, start: Ints, end: Ints, length: int) -> Ints:
    """Move the cuts from the anchor to the longest pause within the period, median over the stretches."""
    pause = np.zeros(length, dtype=np.int64)
    pause[1:] = start[1:length] - np.maximum.accumulate(end[:length])[:-1]
    before = [shift for shift in range(period) if places[0] - shift >= 0]
    median = [float(np.median(pause[places - shift])) for shift in before]
    begins = places - before[int(np.argmax(median))]
    return np.append(begins, min(begins[-1] + period, length))


def _table(rows: pl.DataFrame) -> pl.DataFrame:
    once = ~pl.col("duplicate")
    counted = once | (pl.col("duplicate").all())  # a second listing, as on the AI CPU, may begin earlier
    first = pl.col("start").filter(counted).min()
    table = rows.group_by("step").agg(
        start=first,
        span_ns=(pl.col("start") + pl.col("dur")).filter(counted).max() - first,
        slices=pl.len(),
        sum_ns=pl.col("dur").sum(),
        core_ns=pl.col("dur").filter(once).sum(),
    )
    table = table.sort("start")
    table = table.with_columns(
        pl.Series("union_ns", _unions(rows, table), dtype=pl.Int64),
        pl.Series("on_core_ns", _unions(rows.filter(once), table), dtype=pl.Int64),
    )
    return table.select("step", "start", "span_ns", "slices", "sum_ns", "union_ns", "core_ns", "on_core_ns")


def _unions(rows: pl.DataFrame, table: pl.DataFrame) -> Ints:
    known = table["step"].to_numpy()
    place = places(rows["step"].to_numpy(), known)
    return union(Intervals(place, rows["start"].to_numpy(), _ends(rows))).lengths(len(known))
