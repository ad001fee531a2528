"""The difference of two walls, split on the paths that decide the two ends.

Both windows are tiled by their path (see `path`), so the differences of its parts add up to the difference of the
walls, to the nanosecond. Cores of which nobody says who waits for whom have no path: there it is the mean core of the
busiest unit, which runs, waits between tasks, and has no work before its first and after its last.
A kernel's time on B's path is its time on A's path times four ratios: of its counts (on a critical path of the blocks
that run there one after another, else of all), of the bytes per task (where both captures tell them), of the mean
durations for the same bytes, and what is left, work that moved onto the path or off it. The kernel's gap is shared out
by the logarithms of the ratios, so that no order of the four matters and A against B is B against A with the signs
turned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base.frozen import dataclass
from npuscope.explain.diagnosis.on_cores import CALLED
from npuscope.explain.diagnosis.on_streams import LAUNCHES, MOSTLY, STALLS, host_was_in, idle_families
from npuscope.explain.explanation import Explanation
from npuscope.explain.hidden_exposed import Overlap, overlap_of
from npuscope.explain.matching import Match
from npuscope.explain.path import cover_of
from npuscope.explain.waits import REASONS, WAIT
from npuscope.explain.work import CORES as UNITS
from npuscope.explain.work import NEVER, Work, tensor_bytes
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import (
    TEXT,
    TIME,
    change_of_time,
    duration,
    short,
)
from npuscope.trace.intervals import Intervals, Ints, one_group, sum_by, union

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


def totals_of(work: Work, kernels: NDArray[np.bool_]) -> tuple[int, int]:
    """Core and on-core time of some kernels."""
    rows = kernels[work.kernel]
    start, end = work.start[rows], work.end[rows]
    return int((end - start).sum()), union(one_group(start, end)).length


class ComparedSide:
    """One trace by match: counts and times, what of them is on its path, and bytes where all of a match have them."""

    def __init__(self, explained: Explanation, kind: str, unit: str, place: Ints, asked: NDArray[np.bool_]) -> None:
        self.explained, self.unit, self.chosen = explained, unit, asked[place]
        work, n = explained.work, len(asked)
        match, length = place[work.kernel], work.end - work.start
        self.count = np.bincount(match, minlength=n)
        self.core = sum_by(match, length, n)
        self.on_core = union(Intervals(match, work.start, work.end)).lengths(n)
        self.totals = totals_of(work, self.chosen)
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


def waterfall_of(a: ComparedSide, b: ComparedSide, matches: Sequence[Match], kind: str) -> Waterfall:
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


def busiest_unit(a: Explanation, b: Explanation) -> str:
    """The unit of cores that both have and that is busy the largest share of its time; "" where they share none."""
    shares: list[dict[str, float]] = []
    for work in (a.work, b.work):
        busy = work.busy.lengths(work.lanes.height) / max(work.wall, 1)
        shares.append({unit: float(busy[work.units == unit].mean()) for unit in UNITS if (work.units == unit).any()})
    common = [unit for unit in shares[0] if unit in shares[1]]
    return max(common, key=lambda unit: shares[0][unit] + shares[1][unit], default="")


def _gaps_of_cores(a: ComparedSide, b: ComparedSide, whole: int) -> Iterator[tuple[str, int]]:
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


def _waits(a: ComparedSide, b: ComparedSide) -> Iterator[tuple[str, int]]:
    """What waits of each reason grew by."""
    waits = [side.path.by_part() for side in (a, b)]
    difference = {reason: waits[1].get(reason, 0) - waits[0].get(reason, 0) for reason in REASONS}
    yield from ((f"wait: {reason}", ns) for reason, ns in difference.items())


def _idle_on_streams(a: ComparedSide, b: ComparedSide) -> Iterator[tuple[str, int]]:
    """What idle time of each family grew by. Where only one side knows its launches, lengths alone tell families."""
    known = all(has_launches(side.explained) for side in (a, b))
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


def has_launches(explained: Explanation) -> bool:
    return bool((explained.ready.dispatch != NEVER).any())
