"""A against B: the same metrics side by side, kernel by kernel, what is not like for like, and the gap waterfall.

Kernels are the same by name, then by a pair the user gave, then by the bare name, without template arguments, numbers,
hashes or case: `MatMulV2_12` and `matmul_v2_7` meet. What has no partner shows up as new or gone. (A program and its
own capture are nearer: there a number at the end may be part of the name, `time/anchor/names.py`.)

The waterfall splits the difference of the walls on the paths that decide the two ends. Both windows are tiled by their
path (see `path`), so the differences of its parts add up to the difference of the walls, to the nanosecond. Cores of
which nobody says who waits for whom have no path: there it is the mean core of the busiest unit, which runs, waits
between tasks, and has no work before its first and after its last.
A kernel's time on B's path is its time on A's path times four ratios: of its counts (on a critical path of the blocks
that run there one after another, else of all), of the bytes per task (where both captures tell them), of the mean
durations for the same bytes, and what is left, work that moved onto the path or off it. The kernel's gap is shared out
by the logarithms of the ratios, so that no order of the four matters and A against B is B against A with the signs
turned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base.errors import NpuscopeError
from npuscope.explain.diagnosis.on_cores import CALLED
from npuscope.explain.diagnosis.on_streams import LAUNCHES, MOSTLY, STALLS, host_was_in, idle_families
from npuscope.explain.explanation import Explanation, explain
from npuscope.explain.hidden_exposed import Overlap, overlap_of
from npuscope.explain.path import cover_of
from npuscope.explain.waits import REASONS, WAIT
from npuscope.explain.work import CORES as UNITS
from npuscope.explain.work import NEVER, NOT_RECORDED, TYPES, Work, tensor_bytes
from npuscope.table.columns import Column, Columns, Table, Tabular
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
TASKS, CHAINED, OTHER, SIZE, SPEED, PLACE = (
    "more or fewer tasks",
    "more or fewer blocks one after another",
    "kernels that only one side has",
    "larger or smaller tasks",
    "slower or faster kernels",
    "work moved onto or off the path",
)
GAPS_BETWEEN = "gaps between one task and the next"
LAST_RESORT = 0.2  # of the difference: with that much of another part, work that moved is not what to name
ALONG = {
    "chain": "the critical paths",
    "unit": "the mean core of the {}, since dependencies are missing",
    "cover": "the timelines, since dependencies are missing",
}
MOST = 5  # kernels named per difference
_TEMPLATE = re.compile(r"<.*>|\(.*\)")
_NOISE = re.compile(r"[^a-z]+")

BARS = Columns(
    "compare.waterfall",
    "A part of the gap; they sum to the wall of B minus that of A.",
    Column("part", WAIT, "where the time comes from", title="where the time comes from"),
    Column("ns", TIME, "more (or less) time in B", title="B − A", more_is="worse"),
)
WATERFALL_KERNELS = Columns(
    "compare.waterfall_kernels",
    "A kernel whose time on the path differs, the most changed first; what its parts sum to is the kernel's gap.",
    Column("kernel", TEXT, "its name in A, or in B where A has none"),
    Column("tasks_ns", TIME, f"{TASKS}; along critical paths: {CHAINED}", scale="gap"),
    Column("other_ns", TIME, OTHER, scale="gap", title="only on one side"),
    Column("size_ns", TIME, SIZE, scale="gap"),
    Column("speed_ns", TIME, SPEED, scale="gap"),
    Column("place_ns", TIME, PLACE, scale="gap", title="onto/off path"),
)


_COLUMNS = {TASKS: "tasks_ns", CHAINED: "tasks_ns", OTHER: "other_ns", SIZE: "size_ns", SPEED: "speed_ns",
            PLACE: "place_ns"}  # fmt: skip


@dataclass(frozen=True, repr=False)
class Waterfall(Tabular):
    """`bars` sum to B's wall minus A's; `kernels` has four parts of each kernel's share of it."""

    bars: pl.DataFrame
    kernels: pl.DataFrame
    wall: tuple[int, int]
    kind: str  # chain, unit or cover, the same for both sides
    unit: str = ""  # cube cores or vector cores
    on_path: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # slices of a kernel on the two paths

    @property
    def gap_ns(self) -> int:
        return self.wall[1] - self.wall[0]

    def tables(self) -> dict[str, Table]:
        return {"waterfall": Table(BARS, self.bars), "waterfall_kernels": Table(WATERFALL_KERNELS, self.kernels)}

    def most(self, slower: bool) -> str:
        """The largest part that goes with the whole: "+392 µs ready, not handed out yet"; "" where none does. That work
        moved is said where no other part is worth a word."""
        parts = self.bars.filter(pl.col("ns") != 0, (pl.col("ns") > 0) == slower)
        parts = parts.sort(pl.col("ns").abs(), descending=True)
        named = parts.filter(pl.col("part") != PLACE, pl.col("ns").abs() >= LAST_RESORT * abs(self.gap_ns))
        if parts.is_empty():
            return ""
        part, ns = (parts if named.is_empty() else named).row(0)
        words = WAIT.show(part)
        for either in ("more or fewer", "larger or smaller", "slower or faster", "onto or off"):
            words = words.replace(either, either.split(" or ")[ns < 0])
        return f"{change_of_time(ns)} {words}{self._mostly(part, ns)}"

    def _mostly(self, part: str, ns: int) -> str:
        """The kernel that most of a part is about."""
        column = _COLUMNS.get(part)
        if column is None or self.kernels.is_empty():
            return ""
        kernel, most = self.kernels.sort(pl.col(column) * (1 if ns < 0 else -1)).select("kernel", column).row(0)
        if abs(most) < abs(ns) / 2:
            return ""
        a, b = self.on_path.get(kernel, (0, 0))
        counts = f", {a:,} → {b:,}" if part == CHAINED else ""
        return f" (`{short(kernel, 40)}`{counts})"

    def title(self) -> str:
        a, b = (duration(wall) for wall in self.wall)
        return f"{a} → {b}: {change_of_time(self.gap_ns)} along {ALONG[self.kind].format(self.unit)}"


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
    kind = "chain" if kinds == {"chain"} else "unit" if on_cores and _busiest(a, b) else "cover"
    unit = _busiest(a, b) if kind == "unit" else ""
    one, two = (_Side(e, kind, unit, place, asked) for e, place in zip((a, b), places, strict=True))
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
        waterfall=_waterfall(one, two, matches, kind),
        not_like_for_like=tuple(differences(a, b, matches)),
        overlaps=(None, None) if kernels is None else (one.overlap(), two.overlap()),
    )


@dataclass(frozen=True)
class Match:
    """Kernels that count as one; `rule` says why: name, given, bare name, new or gone."""

    kernel: str
    in_a: tuple[str, ...]
    in_b: tuple[str, ...]
    rule: str

    @property
    def other_names(self) -> str | None:
        """The names in B, where they are others."""
        return ", ".join(self.in_b) if self.rule in ("given", "bare name") else None


def check_pairs(pairs: Mapping[str, str] | None, a: Sequence[str], b: Sequence[str]) -> None:
    """Refuse pairs of kernels that are not there."""
    for x, y in (pairs or {}).items():
        if x not in a or y not in b:
            raise NpuscopeError(f"'{x}' is no kernel of A, or '{y}' none of B, so they cannot be matched")


def bare(name: str) -> str:
    """A name without what differs between builds."""
    return _NOISE.sub("", _TEMPLATE.sub("", name).lower()) or name


def match_kernels(a: Sequence[str], b: Sequence[str], pairs: Mapping[str, str] | None = None) -> list[Match]:
    """Every kernel of A and of B in exactly one match. `pairs` maps names of A to names of B."""
    in_a, in_b = set(a), set(b)
    given = {x: y for x, y in (pairs or {}).items() if x in in_a and y in in_b}
    taken_b = set(given.values())
    matches = [Match(x, (x,), (y,), "given") for x, y in given.items()]
    common = {name for name in a if name in in_b and name not in given and name not in taken_b}
    matches += [Match(name, (name,), (name,), "name") for name in a if name in common]
    left_a, left_b = dict[str, list[str]](), dict[str, list[str]]()
    for names, taken, left in ((a, given.keys(), left_a), (b, taken_b, left_b)):
        for name in (name for name in names if name not in taken and name not in common):
            left.setdefault(bare(name), []).append(name)
    for key in left_a.keys() & left_b.keys():
        names_a, names_b = tuple(left_a.pop(key)), tuple(left_b.pop(key))
        matches.append(Match(names_a[0], names_a, names_b, "bare name"))
    matches += [Match(name, (name,), (), "gone") for names in left_a.values() for name in names]
    matches += [Match(name, (), (name,), "new") for names in left_b.values() for name in names]
    return matches


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


def _totals(work: Work, kernels: NDArray[np.bool_]) -> tuple[int, int]:
    """Core and on-core time of some kernels."""
    rows = kernels[work.kernel]
    start, end = work.start[rows], work.end[rows]
    return int((end - start).sum()), union(one_group(start, end)).length


class _Side:
    """One trace by match: counts and times, what of them is on its path, and bytes where all of a match have them."""

    def __init__(self, explained: Explanation, kind: str, unit: str, place: Ints, asked: NDArray[np.bool_]) -> None:
        self.explained, self.unit, self.chosen = explained, unit, asked[place]
        work, n = explained.work, len(asked)
        match, length = place[work.kernel], work.end - work.start
        self.count = np.bincount(match, minlength=n)
        self.core = sum_by(match, length, n)
        self.on_core = union(Intervals(match, work.start, work.end)).lengths(n)
        self.totals = _totals(work, self.chosen)
        # what the path is a part of: all work, or that of a unit
        here = np.isin(work.lane, self.lanes) if unit else np.ones(len(match), bool)
        self.slices, self.spent = np.bincount(match[here], minlength=n), sum_by(match[here], length[here], n)
        if unit:
            self.in_a_row = self.slices
            self.on_path = np.rint(self.spent / len(self.lanes)).astype(np.int64)
        else:
            self.path = explained.path if explained.path.kind == kind else cover_of(work, explained.ready)
            run = self.path.coded.filter(pl.col("part") == "run")
            rows = run["row"].to_numpy()
            self.on_path = sum_by(match[rows], (run["end"] - run["start"]).to_numpy(), n)
            self.in_a_row = np.bincount(match[np.unique(rows)], minlength=n) if kind == "chain" else self.slices
        size = tensor_bytes(work).filter(pl.Series(here))
        self.bytes = sum_by(match[here], size.fill_null(0).to_numpy(), n)
        missing = sum_by(match[here], size.is_null().to_numpy().astype(np.int64), n)
        self.has_bytes = (missing == 0) & (self.bytes > 0)

    @property
    def lanes(self) -> Ints:
        """The cores of the unit."""
        return np.flatnonzero(self.explained.work.units == self.unit)

    def idle_of_a_core(self) -> dict[str, float]:
        """Why the mean core of the unit did not run, in nanoseconds by reason."""
        work = self.explained.work
        of_unit = work.lanes["lane"].gather(self.lanes).implode()
        found = self.explained.bubbles.coded.filter(pl.col("lane").is_in(of_unit))
        spent = found.group_by(pl.col("reason").cast(pl.String)).agg((pl.col("end") - pl.col("start")).sum())
        return {reason: ns / len(self.lanes) for reason, ns in spent.iter_rows()}

    def overlap(self) -> Overlap | None:
        """Hidden and exposed of the kernels asked for, where the side has any."""
        return overlap_of(self.explained.work, self.explained.ready, self.chosen) if self.chosen.any() else None


def _table(a: _Side, b: _Side, matches: list[Match], asked: NDArray[np.bool_]) -> pl.DataFrame:
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


def _waterfall(a: _Side, b: _Side, matches: Sequence[Match], kind: str) -> Waterfall:
    gap = b.on_path - a.on_path
    both = (a.slices > 0) & (b.slices > 0)
    sized, timed = both & a.has_bytes & b.has_bytes, both & (a.spent > 0) & (b.spent > 0)

    def ratio(above: Ints, below: Ints, known: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Quotients where they are known, else one."""
        return np.divide(above, below, out=np.ones(len(above)), where=known)

    on_both = both & (a.on_path > 0) & (b.on_path > 0)
    repeats, count = ratio(b.in_a_row, a.in_a_row, on_both), ratio(b.slices, a.slices, both)
    size = ratio(b.bytes, a.bytes, sized) / np.where(sized, count, 1.0)
    speed = ratio(b.spent, a.spent, timed) / np.where(timed, count * size, 1.0)
    path = np.log(ratio(b.on_path, a.on_path, on_both))
    weight = np.divide(gap, path, out=a.on_path.astype(np.float64), where=path != 0)  # the logarithmic mean of the two
    tasks, bigger, slower = (
        np.where(on_both, np.rint(weight * np.log(factor)), 0).astype(np.int64) for factor in (repeats, size, speed)
    )
    only = np.where(both, 0, gap)  # a kernel that only one side has is work, all of it
    parts_of = {"tasks_ns": tasks, "other_ns": only, "size_ns": bigger, "speed_ns": slower}
    parts_of["place_ns"] = gap - sum(parts_of.values())
    kernels = pl.DataFrame({"kernel": pl.Series([m.kernel for m in matches], dtype=pl.String), **parts_of})
    moved = pl.sum_horizontal(pl.col(*parts_of).abs())
    names = (CHAINED if kind == "chain" else TASKS, OTHER, SIZE, SPEED, PLACE)
    parts = [(name, int(ns.sum())) for name, ns in zip(names, parts_of.values(), strict=True)]
    walls = (a.explained.work.wall, b.explained.work.wall)
    on_streams = not (a.explained.work.on_cores or b.explained.work.on_cores)
    if kind == "unit":
        parts += _gaps_of_cores(a, b, walls[1] - walls[0] - sum(ns for _, ns in parts))
    else:
        parts += _idle_on_streams(a, b) if on_streams else _waits(a, b)
    bars = BARS.table(one for one in parts if one[1] or one[0] in (TASKS, CHAINED, SPEED, PLACE)).frame
    counts = {m.kernel: (int(a.in_a_row[n]), int(b.in_a_row[n])) for n, m in enumerate(matches)}
    ordered = kernels.filter(moved > 0).sort(moved, descending=True)
    return Waterfall(bars, ordered, walls, kind, CALLED.get(a.unit, a.unit), counts)


def _busiest(a: Explanation, b: Explanation) -> str:
    """The unit of cores that both have and that is busy the largest share of its time; "" where they share none."""
    shares: list[dict[str, float]] = []
    for work in (a.work, b.work):
        busy = work.busy.lengths(work.lanes.height) / max(work.wall, 1)
        shares.append({unit: float(busy[work.units == unit].mean()) for unit in UNITS if (work.units == unit).any()})
    common = [unit for unit in shares[0] if unit in shares[1]]
    return max(common, key=lambda unit: shares[0][unit] + shares[1][unit], default="")


def _gaps_of_cores(a: _Side, b: _Side, whole: int) -> Iterator[tuple[str, int]]:
    """What the mean core's idle time grew by, `whole` in all. By reason where both captures tell the same ones."""
    idle = [side.idle_of_a_core() for side in (a, b)]
    reasons = [{reason for reason in side if reason != "edge"} for side in idle]
    edge = round(idle[1].get("edge", 0) - idle[0].get("edge", 0))
    yield "wait: edge", edge
    left = whole - edge
    if reasons[0] == reasons[1] and len(reasons[0]) > 1:
        first, *others = sorted(reasons[0])
        for reason in others:
            grew = round(idle[1][reason] - idle[0][reason])
            left -= grew
            yield f"wait: {reason}", grew
        yield f"wait: {first}", left
    else:
        yield GAPS_BETWEEN, left


def _waits(a: _Side, b: _Side) -> Iterator[tuple[str, int]]:
    """What waits of each reason grew by."""
    waits = [side.path.by_part() for side in (a, b)]
    difference = {reason: waits[1].get(reason, 0) - waits[0].get(reason, 0) for reason in REASONS}
    yield from ((f"wait: {reason}", ns) for reason, ns in difference.items())


def _idle_on_streams(a: _Side, b: _Side) -> Iterator[tuple[str, int]]:
    """What idle time of each family grew by. Where only one side knows its launches, lengths alone tell families."""
    known = all(_has_launches(side.explained) for side in (a, b))
    of_sides = [
        idle_families(side.path.coded.with_columns(ns=pl.col("end") - pl.col("start")), known) for side in (a, b)
    ]
    for family in of_sides[0]:
        grew = [int(side[family]["ns"].sum()) for side in of_sides]
        side, pauses = (a, of_sides[0][family]) if grew[0] > grew[1] else (b, of_sides[1][family])
        inside = 0.0
        if pauses.height and family in (LAUNCHES, STALLS):
            call, inside, _ = host_was_in(side.explained.work, side.explained.ready, pauses)
        name = f"{family}, the host in `{short(call, 40)}`" if inside >= MOSTLY else family
        yield name, grew[1] - grew[0]


def _has_launches(explained: Explanation) -> bool:
    return bool((explained.ready.dispatch != NEVER).any())


def _tiles(a: Mapping[str, Mapping[str, str]], b: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Tile shapes that both programs set, and set differently."""
    for name in (name for name in a if name in b):
        for kind in (kind for kind in a[name] if b[name].get(kind, a[name][kind]) != a[name][kind]):
            yield f"{kind} tile of `{name}`: {a[name][kind]} against {b[name][kind]}"


def differences(a: Explanation, b: Explanation, matches: Sequence[Match]) -> Iterator[str]:
    """What makes two traces not like for like, in sentences, the gravest first: said before anybody quotes a ratio."""
    both = (a, b)
    metas = [e.trace.meta for e in both]
    for what, values in (
        ("format", [m.format for m in metas]),
        ("device", [m.device for m in metas]),
        ("profiler level", [m.notes.get("level") for m in metas]),
        (
            "schema of the kernel table",
            ["PMU" if "aicore_time(us)" in e.trace.slices.columns else "no PMU" for e in both],
        ),
    ):
        if values[0] != values[1]:
            yield f"{what}: {values[0] or 'not recorded'} against {values[1] or 'not recorded'}"
    yield from _tiles(*(meta.notes.get("tiles", {}) for meta in metas))
    for odd, sentence in (
        (_named_by_type, "kernels have their operator types in one capture and only names in the other: few of them "
         "will match"),
        (lambda e: e.work.spans_dispatch, "a slice is dispatch to retired in one (TraCR) and start to end in the "
         "other: on-core means two things"),
        (lambda e: e.path.kind, "only one capture tells dependencies: the waterfall follows the mean core, or covers "
         "of the timelines, not critical paths"),
        (_launched_on_streams, "only one capture says when work was launched: pauses are told apart by their lengths"),
        (lambda e: e.scheduling.stamped > 0, "only one capture has dispatch and finish times: waits are split more "
         "finely there"),
    ):  # fmt: skip
        if odd(a) != odd(b):
            yield sentence
    steps = [e.steps.table.height if e.steps.source in ("column", "passes") else 1 for e in both]
    if steps[0] != steps[1]:
        yield f"steps: {steps[0]} against {steps[1]}; totals cover all of them"
    if ("window_ns" in metas[0].notes) != ("window_ns" in metas[1].notes):
        yield "only one trace is cut to a window"
    lanes = [dict(e.busy.units.select("unit", "lanes").iter_rows()) for e in both]
    for unit in dict.fromkeys([*lanes[0], *lanes[1]]):
        if lanes[0].get(unit, 0) != lanes[1].get(unit, 0):
            yield f"{unit} lanes: {lanes[0].get(unit, 0)} against {lanes[1].get(unit, 0)}"
    for column, what in (("input_shapes", "shapes"), ("input_dtypes", "data types")):
        names = [short(m.kernel, 40) for m in _other_tensors(a, b, matches, column)]
        if names:
            yield f"{what} differ in {len(names)} matched kernels: {_listed(names)}"
    for rule, what in (("gone", "only in A"), ("new", "only in B")):
        names = [short(m.kernel, 40) for m in matches if m.rule == rule]
        if names:
            yield f"{len(names)} kernel{'s' * (len(names) > 1)} {what}: {_listed(names)}"
    counts = [dict(e.busy.kernels.select("kernel", "count").iter_rows()) for e in both]
    pairs = [(m.kernel, sum(counts[0][n] for n in m.in_a), sum(counts[1][n] for n in m.in_b)) for m in matches]
    changed = [f"{short(name, 40)} {x:,} → {y:,}" for name, x, y in pairs if x and y and x != y]
    if changed:
        several = "kernels run" if len(changed) > 1 else "kernel runs"
        yield f"{len(changed)} {several} more or less often: {_listed(changed)}"


def _launched_on_streams(explained: Explanation) -> bool:
    return not explained.work.on_cores and _has_launches(explained)


def _named_by_type(explained: Explanation) -> bool:
    names = [name for name in TYPES if name in explained.trace.slices.columns]
    table = explained.work.with_columns(*names)
    return any(not table[name].is_in(NOT_RECORDED).all() for name in names)


def _other_tensors(a: Explanation, b: Explanation, matches: Sequence[Match], column: str) -> list[Match]:
    """Matched kernels whose tensors differ; only where both captures tell them."""
    sides = []
    for e in (a, b):
        name = source_column(e.trace.slices, column)
        if name is None:
            return []
        rows = e.work.with_columns(name).select("kernel", pl.col(name).alias("what")).unique()
        sides.append({kernel: set(what) for kernel, what in rows.group_by("kernel").agg("what").iter_rows()})

    def of(side: dict[str, set[str]], names: tuple[str, ...]) -> set[str]:
        return set().union(*(side.get(name, set()) for name in names))

    return [m for m in matches if m.in_a and m.in_b and of(sides[0], m.in_a) != of(sides[1], m.in_b)]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more


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
        measured = (*_totals(work, asked), e.busy.running, s.tasks, s.overhead, s.in_flight, e.diagnosis.bound)
        rows.append((name, work.wall, *measured, work.wall / first if first else np.nan))
    return TREND.table(rows).frame
