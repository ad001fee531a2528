"""The gap waterfall: the difference of two wall times, split on the paths that decide the two ends.

Both windows are tiled by their path (see `path`), so the differences of its parts add up to the difference of the
walls, to the nanosecond. A kernel's time on B's path is its time on A's path times four ratios: of the counts in the
two traces, of the bytes per task (where both captures tell them), of the mean durations for the same bytes, and what
is left, work that moved onto the path or off it. The kernel's gap is shared out by the logarithms of the ratios, so
that no order of the four matters and A against B is B against A with the signs turned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.explain.matching import Match
from npuscope.explain.path import CriticalPath
from npuscope.explain.traffic import tensor_bytes
from npuscope.explain.waits import REASONS, WAIT
from npuscope.explain.work import Work
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import TEXT, TIME, change_of_time, duration
from npuscope.trace.interval_sets import sum_by
from npuscope.trace.intervals import Ints

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
KERNELS = Columns(
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
        return {"waterfall": Table(BARS, self.bars), "waterfall_kernels": Table(KERNELS, self.kernels)}

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
    sides = [_Side(work, path, place, len(matches)) for work, path, place in (a, b)]
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


class _Side:
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


def _split(a: _Side, b: _Side) -> dict[str, Ints]:
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
