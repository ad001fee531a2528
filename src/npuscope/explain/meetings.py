"""Where ranks meet: what each waits there for ranks that come later, and what made the late one late.

Whoever finds the meetings (`collectives.py` in captures, `signals.py` in simulations), a wait is followed back to the
moment at which both ranks left their last meeting, or began: since then the late one began later, computed longer or
stood idle longer, and the three add up to the wait.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from npuscope.base.frozen import dataclass
from npuscope.explain.work import Work
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import COUNT, TEXT, TIME, duration
from npuscope.trace.intervals import inside, one_group, sum_by, union

WAITS = Columns(
    "report.waits.table",
    "A rank that waits in collectives for another, which came last; the longest wait first. What made the other late "
    "adds up to the wait.",
    Column("rank", TEXT, "that waits"),
    Column("waits_for", TEXT, "that came last", title="waits for"),
    Column("wait_ns", TIME, "in all these collectives", title="wait"),
    Column("collectives", COUNT, "in which it waits for that rank"),
    Column("began_ns", TIME, "so much later the other began: it was launched later", title="began later"),
    Column("compute_ns", TIME, "so much longer the other computed since both met last", title="computes longer"),
    Column("idle_ns", TIME, "so much longer the other stood idle in between", title="idle longer"),
)
REASONS = ("began_ns", "compute_ns", "idle_ns")
ALIKE = ("step", "name", "group", "among")  # what collectives of ranks must share to be the same
MEETING = (*ALIKE, "nth")


@dataclass(frozen=True, repr=False)
class CollectiveWaits(Tabular):
    """Waits between ranks; `wait_ns`, `cost_ns` and `last` by rank, over the collectives that several ranks have."""

    table: pl.DataFrame
    wait_ns: dict[str, int]
    cost_ns: dict[str, int]  # what the same collectives took without waiting
    last: dict[str, int]  # in how many collectives a rank came last
    matched: int
    left_out: int  # those that only one rank has, or ranks have unequally often, or do not leave together
    grouped: bool  # whether the captures say which ranks take part
    ranks_named: int = 0  # ranks that the groups list
    meetings: pl.DataFrame | None = None  # each rank in each, with its task and lane

    in_json = ("matched", "left_out", "grouped", "wait_ns", "cost_ns", "last")

    def tables(self) -> dict[str, Table]:
        return {"table": Table(WAITS, self.table)}

    def title(self) -> str:
        if not self.matched:
            return "no collective that several ranks have: who waits for whom is not recorded"
        if self.table.is_empty() or not int(self.table["wait_ns"].sum()):
            return f"no rank waits for another in {self.matched:,} collectives"
        slow = max(self.last, key=lambda rank: sum(self.table.filter(pl.col("waits_for") == rank)["wait_ns"]))
        caused = int(self.table.filter(pl.col("waits_for") == slow)["wait_ns"].sum())
        waits = f"{slow} makes the others wait {duration(caused)} in all"
        left_out = f"; {self.left_out:,} that not all ranks leave together are left out" if self.left_out else ""
        unsure = "" if self.grouped else "; who takes part in which is not recorded, so they are matched by their order"
        return f"{waits}: it comes last in {self.last[slow]:,} of {self.matched:,} collectives{left_out}{unsure}"


def followed_back(met: pl.DataFrame, works: dict[str, Work]) -> pl.DataFrame:
    """Each wait with its REASONS: by how much the late rank began later, computed longer, was idle longer.

    A rank's stretch before a meeting begins where it left the one before (`left`, where that is known), or with the
    first work of that step, or of the run where a run is several dispatches.
    """
    if met.is_empty():
        return met.with_columns(pl.lit(0, dtype=pl.Int64).alias(name) for name in REASONS)
    parts = []
    for key, rows in met.partition_by("rank", as_dict=True).items():
        work = works[str(key[0])]
        rows = rows.sort("start", maintain_order=True)
        if "left" not in rows.columns:
            left = (pl.col("start") + pl.col("dur")).shift(1).over(pl.col("in_step").fill_null(-1))
            rows = rows.with_columns(left=left)
        within = "run" if "run" in work.trace.slices.columns else "step"
        slices = work.with_columns("run") if within == "run" else work.slices
        firsts = slices.group_by(pl.col(within).alias("in_step")).agg(pl.col("start").min().alias("first"))
        rows = rows.join(firsts, on="in_step", how="left", nulls_equal=True, maintain_order="left")
        rows = rows.with_columns(since=pl.min_horizontal(pl.coalesce("left", "first"), "start"))
        arrival, since = rows["start"].to_numpy(), rows["since"].to_numpy()
        other = ~np.isin(work.rows, rows["row"].to_numpy())  # than its meetings
        busy = inside(one_group(since, arrival), union(one_group(work.start[other], work.end[other])))
        ran = sum_by(busy.of, busy.end - busy.start, rows.height)
        parts.append(
            rows.with_columns(pl.Series("ran", ran), idled=arrival - since - ran).drop("first", "since", "left")
        )
    both = pl.concat(parts)
    late = both.filter(pl.col("rank") == pl.col("waits_for")).select(*MEETING, late_ran="ran", late_idled="idled")
    both = both.join(late, on=MEETING, how="left", nulls_equal=True, maintain_order="left")
    compute, idle = pl.col("late_ran") - pl.col("ran"), pl.col("late_idled") - pl.col("idled")
    return both.with_columns(compute_ns=compute, idle_ns=idle, began_ns=pl.col("wait_ns") - compute - idle)


def by_pair(waits: pl.DataFrame) -> pl.DataFrame:
    table = waits.group_by("rank", "waits_for").agg(
        pl.col("wait_ns").sum(), pl.len().alias("collectives"), pl.col(REASONS).sum()
    )
    return table.sort("wait_ns", "rank", "waits_for", descending=[True, False, False]).select(WAITS.keys)


def listed(met: pl.DataFrame) -> pl.DataFrame:
    meeting = met.select(pl.struct(MEETING).rank("dense").alias("meeting"), "rank", "name", "start", "dur",
                         "wait_ns", "waits_for", "task", "lane", "in_step")  # fmt: skip
    return meeting.sort("meeting", "start", maintain_order=True)
