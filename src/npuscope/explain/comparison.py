"""A against B: the same metrics side by side, kernel by kernel, and what is not like for like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base.errors import NpuscopeError
from npuscope.explain.explanation import Explanation, explain
from npuscope.explain.hidden_exposed import Overlap, overlap_of
from npuscope.explain.likeness import differences
from npuscope.explain.matching import Match, match_kernels, places
from npuscope.explain.path import cover_of
from npuscope.explain.waterfall import Waterfall, waterfall_of
from npuscope.explain.work import Work
from npuscope.table.columns import Column, Columns, Table, Tabular, all_rows
from npuscope.table.formats import COUNT, MEAN_TIME, NUMBER, RATIO, SHARE, TEXT, TIME, duration, times
from npuscope.trace.core import Trace
from npuscope.trace.interval_sets import Intervals, one_group, sum_by, union
from npuscope.trace.intervals import Ints

SAME = 0.001  # of a time is no difference worth a line
GAP = (
    Column("gap_ns", TIME, "B minus A", scale="core", title="B − A", more_is="worse"),
    Column("ratio", RATIO, "B over A; null where A has none", title="B / A"),
)
KERNELS = Columns(
    "compare.kernels",
    "A kernel of A, of B or of both, the largest gap first.",
    (
        Column("kernel", TEXT, "its name in A, or in B where A has none", json="name"),
        Column("in_b", TEXT, "its names in B, where they are others", title="in B", wide=True, optional=True),
        Column(
            "rule",
            TEXT,
            "how the two were matched: name, given, bare name; gone or new",
            title="matched by",
            optional=True,
            absent="name",
        ),
        Column("count_a", COUNT, "slices in A", title="count A"),
        Column("count_b", COUNT, "slices in B", title="count B"),
        Column("core_a_ns", TIME, "core time in A", scale="core", title="core time A"),
        Column("core_b_ns", TIME, "core time in B", scale="core", title="core time B"),
        Column("on_core_a_ns", TIME, "on-core time in A", scale="on_core", title="on-core time A", wide=True),
        Column("on_core_b_ns", TIME, "on-core time in B", scale="on_core", title="on-core time B", wide=True),
        Column("mean_a_ns", MEAN_TIME, "of a slice of A", scale="mean", title="mean A", wide=True),
        Column("mean_b_ns", MEAN_TIME, "of a slice of B", scale="mean", title="mean B", wide=True),
        *GAP,
    ),
)
GAPS = Columns(
    "compare.gaps",
    "A total of both sides: core and on-core time of the kernels asked for, wall.",
    (
        Column("metric", TEXT, "core_ns, on_core_ns or wall_ns", only="`total` says it in words"),
        Column("total", TEXT, "the metric, and of what"),
        Column("a_ns", TIME, "in A", scale="core", title="A"),
        Column("b_ns", TIME, "in B", scale="core", title="B"),
        *GAP,
    ),
)
TREND = Columns(
    "compare.trend",
    "A trace, in the order given (three and more captures).",
    (
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
    ),
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
        own = {"kernels": Table(KERNELS, self.kernels), "gaps": Table(GAPS, self.gaps())}
        return {**own, **self.waterfall.tables()}

    def gaps(self) -> pl.DataFrame:
        """The totals of both sides."""
        of = "" if self.kernels_asked is None else f" of {self.kernels_asked}"
        told = {
            "core_ns": f"core time{of}, all cores added up",
            "on_core_ns": f"on-core time{of}, while any core ran",
            "wall_ns": "wall time, of the whole window",
        }
        rows = [(name, told[name], a, b, b - a, b / a if a else None) for name, (a, b) in self.totals.items()]
        words, times = ("metric", "total"), ("a_ns", "b_ns", "gap_ns")
        schema = {**dict.fromkeys(words, pl.String), **dict.fromkeys(times, pl.Int64), "ratio": pl.Float64}
        return pl.DataFrame(rows, schema=schema, orient="row")

    def title(self) -> str:
        return self.headline(("A", "B"))

    def headline(self, names: tuple[str, str]) -> str:
        """Which is faster, by how much, and what most of the difference is."""
        a, b = self.totals["wall_ns"]
        if not a or not b or abs(b / a - 1) < SAME:
            return f"{names[0]} and {names[1]} take the same time: {duration(a)} and {duration(b)}"
        slower = b > a
        ratio = times(b / a if slower else a / b)
        is_so = f"is {ratio} {'slower' if slower else 'faster'} than"
        most = self.waterfall.most(slower)
        return f"{names[1]} {is_so} {names[0]} ({duration(a)} → {duration(b)}){f': {most}' if most else ''}"

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
            **all_rows(self.tables()),
            "waterfall_along": self.waterfall.kind,
            "not_like_for_like": list(self.not_like_for_like),
            "overlap": None if self.kernels_asked is None else sides,
        }


def compare(a: Trace, b: Trace, kernels: str | None = None, pairs: Mapping[str, str] | None = None) -> Comparison:
    """A against B. `kernels` limits totals and table to names the regular expression finds in either trace;
    `pairs` says which kernel of B stands for one of A."""
    return compare_explained(explain(a), explain(b), kernels, pairs)


def compare_explained(
    a: Explanation, b: Explanation, kernels: str | None = None, pairs: Mapping[str, str] | None = None
) -> Comparison:
    """As `compare`, for traces already explained."""
    for x, y in (pairs or {}).items():
        if x not in a.work.kernels or y not in b.work.kernels:
            raise NpuscopeError(f"'{x}' is no kernel of A, or '{y}' none of B, so they cannot be matched")
    matches = match_kernels(a.work.kernels, b.work.kernels, pairs)
    numbers = [places(e.work.kernels, matches, side) for e, side in ((a, "in_a"), (b, "in_b"))]
    asked = _asked(kernels, (a.work, b.work), numbers, len(matches))
    sides = [_Side(e, number, asked, len(matches)) for e, number in zip((a, b), numbers, strict=True)]
    alike = a.path.kind == b.path.kind
    paths = [e.path if alike else cover_of(e.work, e.ready) for e in (a, b)]
    return Comparison(
        a=a,
        b=b,
        kernels_asked=kernels,
        totals={
            "core_ns": (sides[0].total_core, sides[1].total_core),
            "on_core_ns": (sides[0].total_on_core, sides[1].total_on_core),
            "wall_ns": (a.work.wall, b.work.wall),
        },
        kernels=_table(sides[0], sides[1], matches),
        waterfall=waterfall_of((a.work, paths[0], sides[0].place), (b.work, paths[1], sides[1].place), matches),
        not_like_for_like=tuple(differences(a, b, matches)),
        overlaps=(None, None) if kernels is None else (_overlap(a, sides[0]), _overlap(b, sides[1])),
    )


def _overlap(explained: Explanation, side: _Side) -> Overlap | None:
    """Hidden and exposed of the kernels asked for, where the side has any."""
    return overlap_of(explained.work, explained.ready, side.chosen) if side.chosen.any() else None


def _asked(pattern: str | None, works: tuple[Work, Work], numbers: list[Ints], matches: int) -> NDArray[np.bool_]:
    """The matches a pattern finds on either side; one that finds nothing on both is refused."""
    if pattern is None:
        return np.ones(matches, dtype=bool)
    asked = np.zeros(matches, dtype=bool)
    refused = []
    for work, number in zip(works, numbers, strict=True):
        try:
            asked[number[work.kernels_named(pattern)]] = True
        except NpuscopeError as error:
            refused.append(error)
    if len(refused) == 2:
        raise refused[0]
    return asked


class _Side:
    """Counts and times per match, and the totals of the kernels asked for."""

    def __init__(self, explained: Explanation, place: Ints, asked: NDArray[np.bool_], matches: int) -> None:
        work = explained.work
        self.place = place
        self.chosen = asked[place]
        kept = self.chosen[work.kernel]
        match = place[work.kernel[kept]]
        start, end = work.start[kept], work.end[kept]
        self.count = np.bincount(match, minlength=matches)
        self.core = sum_by(match, end - start, matches)
        self.on_core = union(Intervals(match, start, end)).lengths(matches)
        self.total_core = int((end - start).sum())
        self.total_on_core = union(one_group(start, end)).length


def _table(a: _Side, b: _Side, matches: list[Match]) -> pl.DataFrame:
    table = pl.DataFrame(
        {
            "kernel": [match.kernel for match in matches],
            "in_b": [", ".join(match.in_b) if match.rule in ("given", "bare name") else None for match in matches],
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
    present = (pl.col("count_a") > 0) | (pl.col("count_b") > 0)
    return table.filter(present).sort(pl.col("gap_ns").abs(), pl.col("kernel"), descending=[True, False])


def trend(traces: Mapping[str, Trace], kernels: str | None = None) -> pl.DataFrame:
    """One row per trace: wall, core and on-core time of the kernels asked for, busy share, tasks, overhead, bound."""
    return trend_of({name: explain(trace) for name, trace in traces.items()}, kernels)


def trend_of(explained: Mapping[str, Explanation], kernels: str | None = None) -> pl.DataFrame:
    """As `trend`, for traces already explained."""
    rows = []
    for name, e in explained.items():
        asked = np.ones(len(e.work.kernels), dtype=bool) if kernels is None else e.work.kernels_named(kernels)
        side = _Side(e, np.arange(len(e.work.kernels)), asked, len(e.work.kernels))
        rows.append(
            {
                "trace": name,
                "wall_ns": e.work.wall,
                "core_ns": side.total_core,
                "on_core_ns": side.total_on_core,
                "running": e.busy.running,
                "tasks": e.scheduling.tasks,
                "overhead": e.scheduling.overhead,
                "in_flight": e.scheduling.in_flight,
                "bound": e.diagnosis.bound,
            }
        )
    table = pl.DataFrame(rows, schema_overrides={"overhead": pl.Float64, "in_flight": pl.Float64})
    return table.with_columns((pl.col("wall_ns") / pl.col("wall_ns").first()).alias("wall to first"))
