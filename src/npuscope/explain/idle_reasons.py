"""Bubbles: every idle nanosecond of every core lane with exactly one reason.

A gap before a slice is cut at the stamps of that slice's task, in this order (docs/understand/numbers.md draws it):

* before a lane's first slice and after its last: edge;
* until the last producer ended: dependency while a producer ran, else dispatch if other work of this unit was
  ready and not handed out, else starved; the last two also hold for a core that never ran;
* until the scheduler had seen the producers' ends: FIN;
* until the orchestrator had submitted the task: starved;
* until the slice was handed out: dispatch; from then on: pickup.

Where a capture lacks edges or dispatch times, the reasons that cannot be told apart become one, named after them.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base.frozen import dataclass
from npuscope.explain.waits import (
    IN_WORDS,
    REASON,
    Pieces,
    Readiness,
    add_after_data,
    add_launches,
    add_nothing_runs,
    add_without_edges,
    coarse_reasons,
    kernel_names,
    no_dependencies,
)
from npuscope.explain.work import NEVER, NONE, Work
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import COUNT, SHARE, TEXT, TIME, duration, percent, sentence_start, short
from npuscope.trace.intervals import Intervals, Ints, gaps, inside, one_group, outside, union

IDLE = Columns(
    "report.idle",
    "A reason for idle time, the largest first.",
    Column("reason", REASON, "why the core lanes were idle"),
    Column("idle_ns", TIME, "over all core lanes"),
    Column("pieces", COUNT, "gaps of idle time", title="gaps"),
    Column("share", SHARE, "of all core time", title="of core time"),
)
BLOCKERS = Columns(
    "report.blockers",
    "Who waited for whom: the three longest of each reason.",
    Column("reason", REASON, "why"),
    Column("kernel", TEXT, "what ran next on the lane that was idle", title="kernel that waited"),
    Column("blocker", TEXT, "what it waited for; null where it was no kernel", title="for"),
    Column("idle_ns", TIME, "of all such gaps"),
    Column("pieces", COUNT, "such gaps", title="gaps"),
)


@dataclass(frozen=True, repr=False)
class Bubbles(Tabular):
    """`segments`: lane, start, end, reason, kernel that came next, kernel that blocked it. Nanoseconds.

    `waits` are those in which somebody waited. On cores all of them; a stream that is idle while another runs waits for
    nothing, so on streams the moments in which nothing at all runs, once.
    """

    coded: pl.DataFrame  # the segments with kernels as categories
    waits: pl.DataFrame  # the same
    lanes: int
    window_ns: int
    on_cores: bool  # else lanes are streams, or threads
    notes: tuple[str, ...]

    @cached_property
    def segments(self) -> pl.DataFrame:
        return self.coded.with_columns(pl.col("kernel", "blocker").cast(pl.String))

    @property
    def total_ns(self) -> int:
        return int((self.coded["end"] - self.coded["start"]).sum())

    @property
    def by_reason(self) -> dict[str, int]:
        """Reason -> nanoseconds over all core lanes, largest first."""
        return {str(reason): int(ns) for reason, ns in self._reasons.select("reason", "idle_ns").iter_rows()}

    def tables(self) -> dict[str, Table]:
        return {"idle": Table(IDLE, self._reasons), "blockers": Table(BLOCKERS, self.blockers())}

    @cached_property
    def _reasons(self) -> pl.DataFrame:
        length = pl.col("end") - pl.col("start")
        table = self.coded.group_by("reason").agg(idle_ns=length.sum(), pieces=pl.len())
        whole = self.lanes * self.window_ns
        share = (pl.col("idle_ns") / whole) if whole else pl.lit(0.0)
        return table.with_columns(share=share).sort("idle_ns", "reason", descending=[True, False])

    def by_lane(self) -> pl.DataFrame:
        """Nanoseconds per lane and reason."""
        length = pl.col("end") - pl.col("start")
        return self.coded.group_by("lane", "reason").agg(idle_ns=length.sum()).sort("lane", "reason")

    def blockers(self, each: int = 3) -> pl.DataFrame:
        """Who waited for whom: the longest of each reason."""
        return self._who_for_whom.filter(pl.int_range(pl.len()).over("reason") < each)

    @cached_property
    def _who_for_whom(self) -> pl.DataFrame:
        """The waits by reason, kernel and blocker, the longest first."""
        known = self.waits.lazy().filter(pl.col("kernel").is_not_null() & (pl.col("reason") != "edge"))
        length = pl.col("end") - pl.col("start")
        table = known.group_by("reason", "kernel", "blocker").agg(idle_ns=length.sum(), pieces=pl.len())
        named = table.with_columns(pl.col("kernel", "blocker").cast(pl.String))
        return named.sort("idle_ns", "kernel", "blocker", descending=[True, False, False]).collect()

    def sentences(self, top: int = 5) -> list[str]:
        """The longest waits in words."""
        return [_sentence(self.on_cores, *row) for row in self.blockers(top).head(top).iter_rows()]

    def title(self) -> str:
        whole = self.lanes * self.window_ns
        share = percent(self.total_ns / whole if whole else 0.0)
        first = f"bubbles: {duration(self.total_ns)} idle on {self.lanes} lanes, {share} of their time"
        return "\n".join([first, *self.notes])


def bubbles_of(work: Work, ready: Readiness) -> Bubbles:
    """Why cores were idle; needs edges and dispatch and finish times to tell all reasons apart."""
    idle = work.idle.where(np.isin(work.idle.group, work.core_lanes))
    pieces = Pieces()
    row, first = _following(work, idle)
    add_launches(pieces, ready, *idle, row)
    for pauses in (ready.between, ready.apart):
        rest = outside(one_group(idle.start, idle.end), pauses)
        idle, row, first = Intervals(idle.group[rest.of], rest.start, rest.end), row[rest.of], first[rest.of]
    never_ran = np.isin(idle.group, np.setdiff1d(work.core_lanes, work.lane))
    at_edge = ~never_ran & (first | (row == NONE))
    inner = ~never_ran & ~at_edge
    pieces.add("edge", *idle.where(at_edge), row[at_edge])
    unused, gap, next_row = idle.where(never_ran), idle.where(inner), row[inner]
    nothing = np.full(len(unused.group), NONE)
    if work.on_cores and ready.has_dependencies:
        _starved_or_dispatch(work, ready, unused, nothing, nothing, pieces)
        data = np.clip(ready.data[next_row], gap.start, gap.end)
        _before_data(work, ready, Intervals(gap.group, gap.start, data), next_row, pieces)
        add_after_data(pieces, ready, gap.group, data, gap.end, next_row)
    else:
        pieces.add(coarse_reasons(work)[2], *unused, nothing)
        add_without_edges(pieces, work, ready, *gap, next_row)
    segments = waits = _segments(work, pieces, work.lanes["lane"])
    if not work.on_cores:
        of_device = Pieces()
        add_nothing_runs(of_device, work, ready, gaps(union(one_group(work.start, work.end)), 1, work.window))
        waits = _segments(work, of_device, pl.Series([None], dtype=pl.UInt32))
    notes = tuple(_notes(work, ready))
    return Bubbles(segments, waits, len(work.core_lanes), work.wall, work.on_cores, notes)


def _segments(work: Work, pieces: Pieces, lanes: pl.Series) -> pl.DataFrame:
    """The pieces with the names of the kernel that came next and of the one it waited for."""
    found = pieces.in_order()
    return pl.DataFrame(
        {
            "lane": lanes.gather(found.group),
            "start": found.start,
            "end": found.end,
            "reason": found.parts(),
            "kernel": kernel_names(work, found.row),
            "blocker": kernel_names(work, found.blocker),
        }
    )


def _following(work: Work, idle: Intervals) -> tuple[Ints, NDArray[np.bool_]]:
    """The row that ends each gap, NONE after a lane's last slice; and whether the gap comes before the first one."""
    rows, asked = len(work.lane), len(idle.group)
    by_start = np.lexsort((work.start, work.lane))  # by clipped starts
    begins = np.searchsorted(work.lane[by_start], np.arange(work.lanes.height + 1))
    # gaps and slices alternate on a lane: rank both together by (lane, time)
    lane, time = np.append(idle.group, work.lane[by_start]), np.append(idle.end, work.start[by_start])
    is_slice = np.append(np.zeros(asked, dtype=np.int64), np.ones(rows, dtype=np.int64))
    order = np.lexsort((is_slice, time, lane))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.cumsum(is_slice[order]) - is_slice[order]
    place = rank[:asked]
    has_next = place < begins[idle.group + 1]
    following = np.where(has_next, by_start[np.minimum(place, max(rows - 1, 0))] if rows else NONE, NONE)
    return following, place == begins[idle.group]


def _before_data(work: Work, ready: Readiness, waits: Intervals, row: Ints, pieces: Pieces) -> None:
    """Until the last producer ended."""
    kept = waits.end > waits.start
    waits, row = waits.where(kept), row[kept]
    by_task = Intervals(ready.task[row], waits.start, waits.end)
    ran, rest = inside(by_task, ready.runs), outside(by_task, ready.runs)
    pieces.add("dependency", waits.group[ran.of], ran.start, ran.end, row[ran.of], ready.runs_row[ran.by])
    nobody_ran = Intervals(waits.group[rest.of], rest.start, rest.end)
    _starved_or_dispatch(work, ready, nobody_ran, row[rest.of], ready.data_row[row[rest.of]], pieces)


def _starved_or_dispatch(
    work: Work, ready: Readiness, idle: Intervals, row: Ints, blocker: Ints, pieces: Pieces
) -> None:
    """Lanes with nothing of their own to wait for: was other work of their unit ready and not handed out?

    A task with nothing to wait for, of which no record says when it was submitted, is left out: nobody knows since when
    it was ready.
    """
    place = work.lanes.select(pl.struct("unit", "device", "rank").rank("dense").alias("place"))
    unit = place["place"].cast(pl.Int64).to_numpy()  # equal for lanes of one unit of one device
    by_unit = Intervals(unit[idle.group], idle.start, idle.end)
    known = (ready.dispatch != NEVER) & (ready.ready != NEVER)
    begin = np.maximum(ready.ready[known], work.window[0])
    end = np.minimum(ready.dispatch[known], work.window[1])
    other = union(Intervals(unit[work.lane[known]], begin, end))
    for reason, part in (("dispatch", inside(by_unit, other)), ("starved", outside(by_unit, other))):
        pieces.add(reason, idle.group[part.of], part.start, part.end, row[part.of], blocker[part.of])


def _notes(work: Work, ready: Readiness) -> list[str]:
    """What the capture lacks, in sentences."""
    if work.spans_dispatch:
        return [
            "A slice of this capture reaches from dispatch to retired: waiting inside it counts as busy, and "
            "the idle time between slices is not split."
        ]
    if "stream" in work.units[work.core_lanes]:
        count = int((ready.dispatch != NEVER).sum())
        launched = f"{count:,} of {len(work.lane):,} slices have a launch" if count else "no slice has a launch"
        return [f"Lanes are streams, not cores ({launched}): why streams wait for one another is not recorded."]
    if not work.on_cores:
        return ["Lanes are neither cores nor streams: idle time has no reasons."]
    notes = []
    if ready.contradicted:
        notes.append(
            f"{ready.contradicted:,} slices began before a producer of theirs had ended: edges or times are wrong."
        )
    missing = int((ready.dispatch == NEVER).sum())
    if not ready.has_dependencies:
        lacking = sentence_start(no_dependencies(work.trace))
        notes.append(f"{lacking}: waiting for a producer cannot be told from waiting for the scheduler.")
    if missing:
        notes.append(f"{missing:,} of {len(work.lane):,} slices have no dispatch time: their waits are one reason.")
    elif ready.edges and not (ready.seen != NEVER).any():
        notes.append(
            "No finish times: the wait until the scheduler notices an end counts as `ready, not handed out yet`."
        )
    return notes


def _sentence(on_cores: bool, reason: str, kernel: str, blocker: str | None, ns: int, pieces: int) -> str:
    name, lasted = f"`{short(kernel, 48)}`", f"{duration(ns)}"
    times = f"in {pieces:,} {'gap' if pieces == 1 else 'gaps'}"
    if reason in ("dependency", "FIN") and blocker is not None:
        waited = f"{name} waited {lasted}"
        if reason == "dependency":
            return f"{waited} for `{short(blocker, 48)}` {times}"
        return f"{waited} {times} until the scheduler noticed that `{short(blocker, 48)}` had ended"
    if not on_cores:
        why = "the host had not launched it" if reason == "launch" else IN_WORDS.get(reason, reason)
        return f"nothing ran for {lasted} before {name}, {times}: {why}"
    if reason == "dispatch":
        return f"{name} waited {lasted} {times}: ready, not handed out yet"
    if reason == "starved":
        return f"cores idled {lasted} {times} before {name}, with nothing ready to run"
    return f"{name} waited {lasted} {times}: {IN_WORDS.get(reason, reason)}"
