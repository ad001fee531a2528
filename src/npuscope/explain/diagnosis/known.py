"""What causes are found from, and what their families share: the stretch that counts, idle time, gains, spans."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.explain.diagnosis.shape import Gain, Span
from npuscope.explain.hidden_exposed import Communication, Copies
from npuscope.explain.ledger import Scheduling
from npuscope.explain.path import CriticalPath
from npuscope.explain.repetition import Steps
from npuscope.explain.waits import Readiness
from npuscope.explain.work import NONE, Work
from npuscope.table.formats import duration, percent, short
from npuscope.trace.intervals import Intervals, Ints, one_group, union

MOST_SPANS = 200  # of a cause, the longest
SHORT = 10_000  # ns; a shorter gap lies between two kernels that were both launched, a longer one has another reason
STALL = 1_000_000  # ns; a host that launches slowly leaves shorter gaps than this, one that does something else longer
WORTH_A_WORD = 0.01  # of the wall: smaller causes are left out


@dataclass(frozen=True)
class Known:
    """What is known of one run when its causes are looked for."""

    work: Work
    ready: Readiness
    scheduling: Scheduling
    path: CriticalPath
    steps: Steps
    communication: Communication | None
    copies: Copies | None
    scope: tuple[int, int]  # the window without what lies outside the pass

    @property
    def wall(self) -> int:
        return self.work.wall

    @property
    def scope_ns(self) -> int:
        return self.scope[1] - self.scope[0]

    def share(self, ns: float) -> float:
        """Of the wall."""
        return ns / self.wall if self.wall else 0.0

    def told(self, ns: float) -> str:
        """A time and its share of the stretch that counts, in words."""
        return f"{duration(ns)} ({percent(ns / max(self.scope_ns, 1))} of the time)"

    @cached_property
    def segments(self) -> pl.DataFrame:
        """The path within the scope, with the kind of the slice that each segment runs or comes before."""
        kinds = pl.concat([self.work.slices["kind"].cast(pl.String), pl.Series([None], dtype=pl.String)])
        row = self.path.segments["row"].to_numpy()
        there = self.path.segments.with_columns(kinds.gather(np.where(row == NONE, len(kinds) - 1, row)).alias("kind"))
        there = there.filter((pl.col("end") > self.scope[0]) & (pl.col("start") < self.scope[1]))
        return there.with_columns(ns=pl.col("end") - pl.col("start"))

    def running(self, kind: str) -> pl.DataFrame:
        """Where a kind of work runs on the path."""
        return self.segments.filter((pl.col("part") == "run") & (pl.col("kind") == kind))

    @cached_property
    def ran(self) -> Intervals:
        """When anything ran."""
        return union(one_group(self.work.start, self.work.end))


def between(low: float, high: float) -> Gain:
    """A gain of which only bounds are known: the middle stands for it."""
    return Gain(round((low + high) / 2), round(low), round(high))


def gain_of_gaps(gaps: Ints, lanes: int = 1) -> Gain:
    """What shorter gaps are worth: at least if long ones were as short as the usual one, at most if there were none.
    Gaps of several lanes count as their mean."""
    if len(gaps) == 0:
        return Gain(0, 0, 0)
    low, high = (float(np.maximum(gaps - floor, 0).sum()) / lanes for floor in (np.median(gaps), 0))
    return between(low, high)


def spans(table: pl.DataFrame) -> tuple[Span, ...]:
    """The longest rows of a table of start, end and lane, in the order of time."""
    longest = table.sort(pl.col("end") - pl.col("start"), descending=True, maintain_order=True).head(MOST_SPANS)
    lane = pl.col("lane") if "lane" in table.columns else pl.lit(None)
    rows = longest.sort("start").select("start", "end", lane)
    return tuple(Span(int(start), int(end), lane) for start, end, lane in rows.iter_rows())


def spans_of(pieces: Intervals, lanes: pl.Series | None = None) -> tuple[Span, ...]:
    """The longest intervals; `lanes` has the lane of each group."""
    table = pl.DataFrame({"start": pieces.start, "end": pieces.end})
    return spans(table if lanes is None else table.with_columns(lane=lanes.gather(pieces.group)))


def top_kernel(run: pl.DataFrame) -> tuple[str, int]:
    """The kernel that runs longest in segments of the path, and for how long."""
    if run.is_empty():
        return "", 0
    name, ns = run.group_by("kernel").agg(pl.col("ns").sum()).sort("ns", "kernel", descending=[True, False]).row(0)
    return f"`{short(str(name), 48)}`", int(ns)


def quantile(values: NDArray[np.int64], share: float) -> float:
    return float(np.quantile(values, share)) if len(values) else 0.0
