"""A against B: the same metrics side by side, kernel by kernel (`matching`), what is not like for like
(`like_for_like`), and where the difference comes from (`waterfall`)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.explain.explanation import Explanation, explain
from npuscope.explain.hidden_exposed import Overlap
from npuscope.explain.like_for_like import differences
from npuscope.explain.matching import Match, check_pairs, match_kernels
from npuscope.explain.waterfall import ComparedSide, Waterfall, busiest_unit, totals_of, waterfall_of
from npuscope.explain.work import Work
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import (
    COUNT,
    MEAN_TIME,
    NUMBER,
    RATIO,
    SHARE,
    TEXT,
    TIME,
    duration,
    times,
)
from npuscope.trace.core import Trace
from npuscope.trace.intervals import Ints

FIXED, MORE_TASKS = 0.02, 1.2  # windows of one length that hold more work: the window was fixed, not the work
SAME = 0.001  # of a time is no difference worth a line
GAP = (
    Column("gap_ns", TIME, "B minus A", scale="core", title="B − A", more_is="worse"),
    Column("ratio", RATIO, "B over A; null where A has none", title="B / A"),
)
KERNELS = Columns(
    "compare.kernels",
    "A kernel of A, of B or of both, the largest gap first.",
    
        Column("kernel", TEXT, "its name in A, or in B where A has none", json="name"),
        Column("in_b", TEXT, "its names in B, where they are others", title="in B", wide=True, optional=True),
        Column("rule", TEXT, "how the two were matched: name, given, bare name; gone or new", title="matched by",
               optional=True, absent="name"),
        Column("count_a", COUNT, "slices in A", title="count A"),
        Column("count_b", COUNT, "slices in B", title="count B"),
        Column("core_a_ns", TIME, "core time in A", scale="core", title="core time A"),
        Column("core_b_ns", TIME, "core time in B", scale="core", title="core time B"),
        Column("on_core_a_ns", TIME, "on-core time in A", scale="on_core", title="on-core time A", wide=True),
        Column("on_core_b_ns", TIME, "on-core time in B", scale="on_core", title="on-core time B", wide=True),
        Column("mean_a_ns", MEAN_TIME, "of a slice of A", scale="mean", title="mean A", wide=True),
        Column("mean_b_ns", MEAN_TIME, "of a slice of B", scale="mean", title="mean B", wide=True),
        *GAP,
)  # fmt: skip
GAPS = Columns(
    "compare.gaps",
    "A total of both sides: core and on-core time of the kernels asked for, wall.",
    Column("metric", TEXT, "core_ns, on_core_ns or wall_ns", only="`total` says it in words"),
    Column("total", TEXT, "the metric, and of what"),
    Column("a_ns", TIME, "in A", scale="core", title="A"),
    Column("b_ns", TIME, "in B", scale="core", title="B"),
    *GAP,
)
TREND = Columns(
    "compare.trend",
    "A trace, in the order given (three and more captures).",
    Column("trace", TEXT, "its name"),
    Column("wall_ns", TIME, "the window"),
    Column("core_ns", TIME, "core time of the kernels asked for", title="core time"),
    Column("on_core_ns", TIME, "on-core time of the kernels asked for", title="on-core time"),
    Column("running", SHARE, "of the window, with any work running"),
    Column("tasks", COUNT, "task records"),
    Column("overhead", SHARE, "1 − run / (dispatch → finish)"),
    Column("in_flight", NUMBER, "tasks in flight"),
    Column("bound", TEXT, "the kind of its first cause (docs/reference/json.md)", title="limited by"),
    Column("wall to first", NUMBER, "its wall over the first one's"),
)


@dataclass(frozen=True, repr=False)
class Comparison(Tabular):
    """Both sides explained, their totals, kernels and waterfall beside one another."""

    a: Explanation
    b: Explanation
    kernels_asked: str | None
    totals: Mapping[str, tuple[int, int]]  # core_ns, on_core_ns of the kernels asked for, wall_ns
    kernels: pl.DataFrame
    waterfall: Waterfall
    not_like_for_like: tuple[str, ...]
    overlaps: tuple[Overlap | None, Overlap | None]  # of the kernels asked for, alone and in context side by side

    def tables(self) -> dict[str, Table]:
        of = "" if self.kernels_asked is None else f" of {self.kernels_asked}"
        words = {
            "core_ns": f"core time{of}, all cores added up",
            "on_core_ns": f"on-core time{of}, while any core ran",
            "wall_ns": "wall time, of the whole window",
        }
        gaps = GAPS.table(
            (name, words[name], a, b, b - a, b / a if a else None) for name, (a, b) in self.totals.items()
        )
        return {"kernels": Table(KERNELS, self.kernels), "gaps": gaps, **self.waterfall.tables()}

    def title(self) -> str:
        return self.headline(("A", "B"))

    def headline(self, names: tuple[str, str]) -> str:
        """Which is faster, by how much, and what most of the difference is."""
        a, b = self.totals["wall_ns"]
        if by_step := self._by_step(names):
            return by_step
        tasks = [len(side.work.lane) for side in (self.a, self.b)]
        if a and b and abs(b / a - 1) < FIXED and max(tasks) > MORE_TASKS * min(tasks) > 0:
            each = [wall / count for wall, count in zip((a, b), tasks, strict=True)]
            held = f"as long ({duration(a)}, {duration(b)}) and hold {tasks[0]:,} and {tasks[1]:,} tasks"
            per = f"one per {duration(each[0])} and one per {duration(each[1])}"
            return f"The windows of {names[0]} and {names[1]} are {held}, {per}: what a fixed window takes says nothing"
        if not a or not b or abs(b / a - 1) < SAME:
            return f"{names[0]} and {names[1]} take the same time: {duration(a)} and {duration(b)}"
        most = self.waterfall.most(b > a)
        return f"{_is_so(names, a, b)} ({duration(a)} → {duration(b)}){f': {most}' if most else ''}{self._devices()}"

    def _devices(self) -> str:
        """What to keep in mind where the two ran on different devices."""
        devices = [side.trace.meta.device for side in (self.a, self.b)]
        if None in devices or devices[0] == devices[1]:
            return ""
        return f". They ran on different devices ({devices[0]}, {devices[1]}): compare calls, not causes"

    def _by_step(self, names: tuple[str, str]) -> str:
        """The sentence where the two windows hold different numbers of steps, which can be compared; else ""."""
        first, second = self.a.steps.count, self.b.steps.count
        if first is None or second is None or first.passes == second.passes:
            return ""
        if first.phase != second.phase:
            held = " and ".join(f"{one.passes} steps of {one.phase}" for one in (first, second))
            return f"{names[0]} and {names[1]} cannot be compared as a whole: they hold {held}"
        a, b = first.pass_ns, second.pass_ns
        if not a or not b:
            return ""
        said = _is_so(names, a, b) if abs(b / a - 1) >= SAME else f"{names[0]} and {names[1]} take the same time"
        what = "step" if first.phase == "unknown" else first.phase
        held = f"medians; the windows hold {first.passes} and {second.passes} of them"
        return f"{said} per {what} ({duration(a)} → {duration(b)}, {held}){self._devices()}"

    def changed(self) -> Table:
        """The kernels whose core time or count differs."""
        gap = pl.col("gap_ns").abs() > SAME * pl.max_horizontal("core_a_ns", "core_b_ns")
        return Table(KERNELS, self.kernels.filter(gap | (pl.col("count_a") != pl.col("count_b"))))

    def as_dict(self) -> dict[str, object]:
        """The contract of `npuscope compare --json` (docs/reference/json.md)."""
        sides = [None if found is None else found.as_dict() for found in self.overlaps]
        return {
            "diagnoses": [side.diagnosis.as_dict() for side in (self.a, self.b)],
            "kernels_asked": self.kernels_asked,
            "totals": {name: list(pair) for name, pair in self.totals.items()},
            **super().as_dict(),
            "waterfall_along": self.waterfall.kind,
            "not_like_for_like": list(self.not_like_for_like),
            "overlap": None if self.kernels_asked is None else sides,
        }


def _is_so(names: tuple[str, str], a: float, b: float) -> str:
    slower = b > a
    return f"{names[1]} is {times(b / a if slower else a / b)} {'slower' if slower else 'faster'} than {names[0]}"


def compare(a: Trace, b: Trace, kernels: str | None = None, pairs: Mapping[str, str] | None = None) -> Comparison:
    """A against B. `kernels` limits totals and table to names the regular expression finds in either trace;
    `pairs` says which kernel of B stands for one of A."""
    return compare_explained(explain(a), explain(b), kernels, pairs)


def compare_explained(
    a: Explanation, b: Explanation, kernels: str | None = None, pairs: Mapping[str, str] | None = None
) -> Comparison:
    """As `compare`, for traces already explained."""
    check_pairs(pairs, a.work.kernels, b.work.kernels)
    matches = match_kernels(a.work.kernels, b.work.kernels, pairs)
    numbers = [{name: n for n, match in enumerate(matches) for name in getattr(match, s)} for s in ("in_a", "in_b")]
    places = [
        np.array([n[name] for name in e.work.kernels], dtype=np.int64) for e, n in zip((a, b), numbers, strict=True)
    ]
    asked = _asked(kernels, (a.work, b.work), places, len(matches))
    kinds = {a.path.kind, b.path.kind}
    on_cores = all(e.work.on_cores and len(e.work.lane) for e in (a, b))
    kind = "chain" if kinds == {"chain"} else "unit" if on_cores and busiest_unit(a, b) else "cover"
    unit = busiest_unit(a, b) if kind == "unit" else ""
    one, two = (ComparedSide(e, kind, unit, place, asked) for e, place in zip((a, b), places, strict=True))
    return Comparison(
        a=a,
        b=b,
        kernels_asked=kernels,
        totals={
            "core_ns": (one.totals[0], two.totals[0]),
            "on_core_ns": (one.totals[1], two.totals[1]),
            "wall_ns": (a.work.wall, b.work.wall),
        },
        kernels=_table(one, two, matches, asked),
        waterfall=waterfall_of(one, two, matches, kind),
        not_like_for_like=tuple(differences(a, b, matches)),
        overlaps=(None, None) if kernels is None else (one.overlap(), two.overlap()),
    )


def _asked(pattern: str | None, works: tuple[Work, Work], places: list[Ints], matches: int) -> NDArray[np.bool_]:
    """The matches a pattern finds on either side; one that finds nothing on both is refused."""
    asked = np.full(matches, pattern is None)
    refused = []
    for work, place in zip(works, places, strict=True):
        try:
            asked[place[work.kernels_named(pattern)] if pattern is not None else place] = True
        except NpuscopeError as error:
            refused.append(error)
    if len(refused) == 2:
        raise refused[0]
    return asked


def _table(a: ComparedSide, b: ComparedSide, matches: list[Match], asked: NDArray[np.bool_]) -> pl.DataFrame:
    table = pl.DataFrame(
        {
            "kernel": [match.kernel for match in matches],
            "in_b": [match.other_names for match in matches],
            "rule": [match.rule for match in matches],
            "count_a": a.count, "count_b": b.count,
            "core_a_ns": a.core, "core_b_ns": b.core,
            "on_core_a_ns": a.on_core, "on_core_b_ns": b.on_core,
        },
        schema_overrides={"kernel": pl.String, "in_b": pl.String, "rule": pl.String},
    )  # fmt: skip
    gap = pl.col("core_b_ns") - pl.col("core_a_ns")
    ratio = pl.when(pl.col("core_a_ns") > 0).then(pl.col("core_b_ns") / pl.col("core_a_ns"))
    means = [
        pl.when(pl.col(f"count_{s}") > 0).then(pl.col(f"core_{s}_ns") / pl.col(f"count_{s}")).alias(f"mean_{s}_ns")
        for s in ("a", "b")
    ]
    table = table.with_columns(*means, gap.alias("gap_ns"), ratio.alias("ratio"))
    present = pl.Series(asked & ((a.count > 0) | (b.count > 0)))
    return table.filter(present).sort(pl.col("gap_ns").abs(), pl.col("kernel"), descending=[True, False])


def trend(traces: Mapping[str, Trace], kernels: str | None = None) -> pl.DataFrame:
    """One row per trace: wall, core and on-core time of the kernels asked for, busy share, tasks, overhead, bound."""
    return trend_of({name: explain(trace) for name, trace in traces.items()}, kernels)


def trend_of(explained: Mapping[str, Explanation], kernels: str | None = None) -> pl.DataFrame:
    """As `trend`, for traces already explained."""
    rows: list[tuple[object, ...]] = []
    first = next(iter(explained.values())).work.wall
    for name, e in explained.items():
        work, s = e.work, e.scheduling
        asked = np.ones(len(work.kernels), dtype=bool) if kernels is None else work.kernels_named(kernels)
        measured = (*totals_of(work, asked), e.busy.running, s.tasks, s.overhead, s.in_flight, e.diagnosis.bound)
        rows.append((name, work.wall, *measured, work.wall / first if first else np.nan))
    return TREND.table(rows).frame
