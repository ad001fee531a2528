"""A against B: the same metrics side by side, kernel by kernel, and what is not like for like."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base.errors import NpuscopeError
from npuscope.explain.explanation import Explanation, explain
from npuscope.explain.hidden_exposed import Overlap, overlap_of
from npuscope.explain.path import CriticalPath, cover_of
from npuscope.explain.waits import REASONS, WAIT
from npuscope.explain.work import NOT_RECORDED, TYPES, Work, tensor_bytes
from npuscope.table.columns import Column, Columns, Table, Tabular, all_rows
from npuscope.table.formats import (
    COUNT,
    MEAN_TIME,
    NUMBER,
    RATIO,
    SHARE,
    TEXT,
    TIME,
    change_of_time,
    duration,
    short,
    times,
)
from npuscope.trace.core import Trace
from npuscope.trace.intervals import Intervals, Ints, one_group, sum_by, union
from npuscope.trace.names import source_column

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
    sides = [_KernelSide(e, number, asked, len(matches)) for e, number in zip((a, b), numbers, strict=True)]
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


def _overlap(explained: Explanation, side: _KernelSide) -> Overlap | None:
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


class _KernelSide:
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


def _table(a: _KernelSide, b: _KernelSide, matches: list[Match]) -> pl.DataFrame:
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
        side = _KernelSide(e, np.arange(len(e.work.kernels)), asked, len(e.work.kernels))
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


_TEMPLATE = re.compile(r"<.*>|\(.*\)")
_NOISE = re.compile(r"[^a-z]+")


@dataclass(frozen=True)
class Match:
    """Kernels that count as one; `rule` says why: name, given, bare name, new or gone."""

    kernel: str
    in_a: tuple[str, ...]
    in_b: tuple[str, ...]
    rule: str


def bare(name: str) -> str:
    """A name without what differs between builds."""
    without = _TEMPLATE.sub("", name)
    return _NOISE.sub("", without.lower()) or name


def match_kernels(a: Sequence[str], b: Sequence[str], pairs: Mapping[str, str] | None = None) -> list[Match]:
    """Every kernel of A and of B in exactly one match. `pairs` maps names of A to names of B."""
    in_a, in_b = set(a), set(b)
    given = {x: y for x, y in (pairs or {}).items() if x in in_a and y in in_b}
    taken_b = set(given.values())
    matches = [Match(x, (x,), (y,), "given") for x, y in given.items()]
    common = {name for name in a if name in in_b and name not in given and name not in taken_b}
    matches += [Match(name, (name,), (name,), "name") for name in a if name in common]
    left_a = [name for name in a if name not in given and name not in common]
    left_b = [name for name in b if name not in taken_b and name not in common]
    by_bare_a, by_bare_b = _grouped(left_a), _grouped(left_b)
    for key in by_bare_a.keys() & by_bare_b.keys():
        names_a, names_b = by_bare_a.pop(key), by_bare_b.pop(key)
        matches.append(Match(names_a[0], names_a, names_b, "bare name"))
    matches += [Match(name, (name,), (), "gone") for names in by_bare_a.values() for name in names]
    matches += [Match(name, (), (name,), "new") for names in by_bare_b.values() for name in names]
    return matches


def places(names: Sequence[str], matches: Sequence[Match], side: str) -> Ints:
    """For each kernel of one side ("in_a" or "in_b") the number of its match."""
    where = {name: number for number, match in enumerate(matches) for name in getattr(match, side)}
    return np.array([where[name] for name in names], dtype=np.int64)


def _grouped(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(bare(name), []).append(name)
    return {key: tuple(found) for key, found in groups.items()}


MOST = 5  # kernels named per difference


def differences(a: Explanation, b: Explanation, matches: Sequence[Match]) -> Iterator[str]:
    """Sentences, the gravest first."""
    yield from _captures(a, b)
    yield from _cores(a, b)
    for column, what in (("input_shapes", "shapes"), ("input_dtypes", "data types")):
        yield from _tensors(a, b, matches, column, what)
    yield from _counts(a, b, matches)


def _captures(a: Explanation, b: Explanation) -> Iterator[str]:
    metas = a.trace.meta, b.trace.meta
    for what, values in (
        ("format", [m.format for m in metas]),
        ("device", [m.device for m in metas]),
        ("profiler level", [m.notes.get("level") for m in metas]),
        ("schema of the kernel table", ["PMU" if _has_pmu(e) else "no PMU" for e in (a, b)]),
    ):
        if values[0] != values[1]:
            yield f"{what}: {values[0] or 'not recorded'} against {values[1] or 'not recorded'}"
    by_type = [_named_by_type(e) for e in (a, b)]
    if by_type[0] != by_type[1]:
        yield "kernels have their operator types in one capture and only names in the other: few of them will match"
    if a.work.spans_dispatch != b.work.spans_dispatch:
        yield "a slice is dispatch to retired in one (TraCR) and start to end in the other: on-core means two things"
    if a.path.kind != b.path.kind:
        yield "only one capture tells dependencies: the waterfall follows covers of the timelines, not critical paths"
    told = [e.scheduling.stamped > 0 for e in (a, b)]
    if told[0] != told[1]:
        yield "only one capture has dispatch and finish times: waits are split more finely there"
    steps = [e.steps.table.height if e.steps.source == "column" else 1 for e in (a, b)]
    if steps[0] != steps[1]:
        yield f"steps: {steps[0]} against {steps[1]}; totals cover all of them"
    cut = ["window_ns" in m.notes for m in metas]
    if cut[0] != cut[1]:
        yield "only one trace is cut to a window"


def _named_by_type(explained: Explanation) -> bool:
    names = [name for name in TYPES if name in explained.trace.slices.columns]
    told = explained.work.with_columns(*names)
    return any(not told[name].is_in(NOT_RECORDED).all() for name in names)


def _has_pmu(explained: Explanation) -> bool:
    return "aicore_time(us)" in explained.trace.slices.columns


def _cores(a: Explanation, b: Explanation) -> Iterator[str]:
    counts = [dict(e.busy.units.select("unit", "lanes").iter_rows()) for e in (a, b)]
    for unit in dict.fromkeys([*counts[0], *counts[1]]):
        if counts[0].get(unit, 0) != counts[1].get(unit, 0):
            yield f"{unit} lanes: {counts[0].get(unit, 0)} against {counts[1].get(unit, 0)}"


def _tensors(a: Explanation, b: Explanation, matches: Sequence[Match], column: str, what: str) -> Iterator[str]:
    """Matched kernels whose tensors differ; only where both captures tell them."""
    sides = []
    for e in (a, b):
        name = source_column(e.trace.slices, column)
        if name is None:
            return
        rows = e.work.with_columns(name).select("kernel", pl.col(name).alias("what")).unique()
        sides.append({k: set(v) for k, v in rows.group_by("kernel").agg("what").iter_rows()})
    odd = [m for m in matches if m.in_a and m.in_b and _union(sides[0], m.in_a) != _union(sides[1], m.in_b)]
    if odd:
        yield f"{what} differ in {len(odd)} matched kernels: {_listed([short(m.kernel, 40) for m in odd])}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more


def _union(sets: dict[str, set[str]], names: tuple[str, ...]) -> set[str]:
    return set().union(*(sets.get(name, set()) for name in names))


def _counts(a: Explanation, b: Explanation, matches: Sequence[Match]) -> Iterator[str]:
    for rule, what in (("gone", "only in A"), ("new", "only in B")):
        names = [short(m.kernel, 40) for m in matches if m.rule == rule]
        if names:
            yield f"{len(names)} kernel{'s' * (len(names) > 1)} {what}: {_listed(names)}"
    counts = [dict(e.busy.kernels.select("kernel", "count").iter_rows()) for e in (a, b)]
    both = [(m.kernel, sum(counts[0][n] for n in m.in_a), sum(counts[1][n] for n in m.in_b)) for m in matches]
    changed = [f"{short(name, 40)} {x:,} → {y:,}" for name, x, y in both if x and y and x != y]
    if changed:
        several = "kernels run" if len(changed) > 1 else "kernel runs"
        yield f"{len(changed)} {several} more or less often: {_listed(changed)}"


TASKS, SIZE, SPEED, PLACE = (
    "more or fewer tasks",
    "larger or smaller tasks",
    "slower or faster kernels",
    "work moved onto or off the path",
)
UNATTRIBUTED = "not attributed"
_UNTOLD = {"edge", *(reason for reason in REASONS if "dependency+" in reason)}  # reasons that name no single cause

BARS = Columns(
    "compare.waterfall",
    "A part of the gap; they sum to the wall of B minus that of A.",
    (
        Column("part", WAIT, "where the time comes from", title="where the time comes from"),
        Column("ns", TIME, "more (or less) time in B", title="B − A", more_is="worse"),
    ),
)
WATERFALL_KERNELS = Columns(
    "compare.waterfall_kernels",
    "A kernel whose time on the path differs, the most changed first; what its parts sum to is the kernel's gap.",
    (
        Column("kernel", TEXT, "its name in A, or in B where A has none"),
        Column("tasks_ns", TIME, TASKS, scale="gap"),
        Column("size_ns", TIME, SIZE, scale="gap"),
        Column("speed_ns", TIME, SPEED, scale="gap"),
        Column("place_ns", TIME, PLACE, scale="gap", title="onto/off path"),
    ),
)


@dataclass(frozen=True, repr=False)
class Waterfall(Tabular):
    """`bars` sum to B's wall minus A's; `kernels` has four parts of each kernel's share of it."""

    bars: pl.DataFrame
    kernels: pl.DataFrame
    wall: tuple[int, int]
    kind: str  # chain or cover, the same for both sides

    @property
    def gap_ns(self) -> int:
        return self.wall[1] - self.wall[0]

    def tables(self) -> dict[str, Table]:
        return {"waterfall": Table(BARS, self.bars), "waterfall_kernels": Table(WATERFALL_KERNELS, self.kernels)}

    def most(self, slower: bool) -> str:
        """The largest part that goes with the whole: "+392 µs ready, not handed out yet"; "" where none does."""
        parts = self.bars.filter((pl.col("ns") > 0) == slower).sort(pl.col("ns").abs(), descending=True)
        if parts.is_empty():
            return ""
        part, ns = parts.row(0)
        for either in ("more or fewer", "larger or smaller", "slower or faster", "onto or off"):
            part = part.replace(either, either.split(" or ")[ns < 0])
        return f"{change_of_time(ns)} {WAIT.show(part)}"

    def title(self) -> str:
        a, b = (duration(wall) for wall in self.wall)
        along = "critical paths" if self.kind == "chain" else "timelines, since dependencies are missing"
        return f"{a} → {b}: {change_of_time(self.gap_ns)} along the {along}"


def waterfall_of(
    a: tuple[Work, CriticalPath, Ints], b: tuple[Work, CriticalPath, Ints], matches: Sequence[Match]
) -> Waterfall:
    """Each side is its work, its path, and the match of each of its kernels."""
    sides = [_PathSide(work, path, place, len(matches)) for work, path, place in (a, b)]
    parts_of = _split(*sides)
    kernels = pl.DataFrame({"kernel": pl.Series([m.kernel for m in matches], dtype=pl.String), **parts_of})
    moved = pl.sum_horizontal(pl.col(*parts_of).abs())
    kernels = kernels.filter(moved > 0).sort(moved, descending=True)
    names = dict(zip(parts_of, (TASKS, SIZE, SPEED, PLACE), strict=True))
    parts = [(names[part], int(ns.sum())) for part, ns in parts_of.items()]
    waits = [side.path.by_part() for side in sides]
    difference = {reason: waits[1].get(reason, 0) - waits[0].get(reason, 0) for reason in REASONS}
    parts += [(f"wait: {reason}", ns) for reason, ns in difference.items() if reason not in _UNTOLD]
    parts.append((UNATTRIBUTED, sum(ns for reason, ns in difference.items() if reason in _UNTOLD)))
    kept = [(part, ns) for part, ns in parts if ns or part in (TASKS, SPEED, PLACE, UNATTRIBUTED)]
    bars = pl.DataFrame(kept, schema={"part": pl.String, "ns": pl.Int64}, orient="row")
    return Waterfall(bars, kernels, (a[0].wall, b[0].wall), a[1].kind)


class _PathSide:
    """Per match: nanoseconds on the path; and of the whole trace slices, nanoseconds, and bytes where all tell them."""

    def __init__(self, work: Work, path: CriticalPath, place: Ints, matches: int) -> None:
        self.path = path
        run = path.segments.filter(pl.col("part") == "run")
        row, length = run["row"].to_numpy(), (run["end"] - run["start"]).to_numpy()
        self.on_path = sum_by(place[work.kernel[row]], length, matches)
        match = place[work.kernel]
        self.slices = np.bincount(match, minlength=matches)
        self.core = sum_by(match, work.end - work.start, matches)
        told = tensor_bytes(work)
        self.bytes = sum_by(match, told.fill_null(0).to_numpy(), matches)
        untold = sum_by(match, told.is_null().to_numpy().astype(np.int64), matches)
        self.has_bytes = (untold == 0) & (self.bytes > 0)


def _split(a: _PathSide, b: _PathSide) -> dict[str, Ints]:
    """The gap of each match in four parts that sum to it exactly."""
    gap = b.on_path - a.on_path
    both = (a.slices > 0) & (b.slices > 0)
    count = _ratio(b.slices, a.slices, both)
    size = _ratio(b.bytes, a.bytes, both & a.has_bytes & b.has_bytes)
    size /= np.where(both & a.has_bytes & b.has_bytes, count, 1.0)
    core = _ratio(b.core, a.core, both & (a.core > 0) & (b.core > 0))
    speed = core / np.where(both & (a.core > 0) & (b.core > 0), count * size, 1.0)
    on_both = both & (a.on_path > 0) & (b.on_path > 0)
    path = np.log(_ratio(b.on_path, a.on_path, on_both))
    weight = np.divide(gap, path, out=a.on_path.astype(np.float64), where=path != 0)  # the logarithmic mean of the two
    tasks, bigger, slower = (
        np.where(on_both, np.rint(weight * np.log(factor)), 0).astype(np.int64) for factor in (count, size, speed)
    )
    tasks = np.where(both, tasks, gap)  # a kernel that only one side has is work, all of it
    return {"tasks_ns": tasks, "size_ns": bigger, "speed_ns": slower, "place_ns": gap - tasks - bigger - slower}


def _ratio(above: Ints, below: Ints, known: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Quotients where they are known, else one."""
    return np.divide(above, below, out=np.ones(len(above)), where=known)
