"""Who waits for whom: in a collective the rank that arrives last makes the others wait.

The nth collective of a name in a step is the same on every rank that has as many of it. The rank that comes last spends
least time in it; what another spends above that is its wait. Only durations are compared, since clocks of ranks differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from npuscope.explain.work import Work
from npuscope.table.columns import Column, Columns, Table, Tabular, all_rows
from npuscope.table.formats import COUNT, TEXT, TIME, duration
from npuscope.trace.json_args import field

WAITS = Columns(
    "report.waits.table",
    "A rank that waits in collectives for another, which came last; the longest wait first.",
    (
        Column("rank", TEXT, "that waits"),
        Column("waits_for", TEXT, "that came last", title="waits for"),
        Column("wait_ns", TIME, "in all these collectives", title="wait"),
        Column("collectives", COUNT, "in which it waits for that rank"),
    ),
)
_ONE = ("step", "name", "group")  # what collectives of ranks must share to be the same


@dataclass(frozen=True, repr=False)
class CollectiveWaits(Tabular):
    """Waits between ranks; `wait_ns` and `last` by rank, over the collectives that several ranks have."""

    table: pl.DataFrame
    wait_ns: dict[str, int]
    last: dict[str, int]  # in how many collectives a rank came last
    matched: int
    left_out: int  # collectives that only one rank has, or ranks have unequally often

    def tables(self) -> dict[str, Table]:
        return {"table": Table(WAITS, self.table)}

    def title(self) -> str:
        if not self.matched:
            return "no collective that several ranks have: who waits for whom is not recorded"
        if self.table.is_empty() or not int(self.table["wait_ns"].sum()):
            return f"no rank waits for another in {self.matched:,} collectives"
        slow = max(self.last, key=lambda rank: sum(self.table.filter(pl.col("waits_for") == rank)["wait_ns"]))
        caused = int(self.table.filter(pl.col("waits_for") == slow)["wait_ns"].sum())
        told = f"{slow} makes the others wait {duration(caused)} in all: it comes last in {self.last[slow]:,} of "
        told += f"{self.matched:,} collectives"
        return told + (f"; {self.left_out:,} that ranks have unequally often are left out" if self.left_out else "")

    def as_dict(self) -> dict[str, object]:
        counts = {"matched": self.matched, "left_out": self.left_out}
        return {**counts, "wait_ns": self.wait_ns, "last": self.last, **all_rows(self.tables())}


def collective_waits(ranks: Sequence[tuple[str, Work]]) -> CollectiveWaits:
    """The waits between ranks, each with its name and its work."""
    rows = pl.concat([_collectives(name, work) for name, work in ranks])
    counts = rows.group_by(*_ONE, "rank").len()
    alike = counts.group_by(_ONE).agg(alike=(pl.col("len").n_unique() == 1) & (pl.len() > 1)).filter("alike")
    met = rows.join(alike.drop("alike"), on=_ONE, how="semi", nulls_equal=True)
    meeting = (*_ONE, "nth")
    met = met.sort("dur", "order").with_columns(
        least=pl.col("dur").first().over(meeting), waits_for=pl.col("rank").first().over(meeting)
    )
    met = met.with_columns(wait_ns=pl.col("dur") - pl.col("least"))
    others = met.filter(pl.col("rank") != pl.col("waits_for"))
    table = others.group_by("rank", "waits_for").agg(pl.col("wait_ns").sum(), collectives=pl.len())
    own = dict(met.group_by("rank").agg(pl.col("wait_ns").sum()).iter_rows())
    last = dict(met.filter(pl.col("rank") == pl.col("waits_for"))["rank"].value_counts().iter_rows())
    names = [name for name, _ in ranks]
    return CollectiveWaits(
        table.sort("wait_ns", "rank", "waits_for", descending=[True, False, False]),
        {name: int(own.get(name, 0)) for name in names},
        {name: int(last.get(name, 0)) for name in names},
        met.select(meeting).n_unique() if met.height else 0,
        rows.height - met.height,
    )


def _collectives(rank: str, work: Work) -> pl.DataFrame:
    """The collectives of a rank: step, name, the group of ranks where it is told, which of its kind, how long."""
    has_args = "args" in work.trace.slices.columns
    slices = work.told("args") if has_args else work.slices
    comm = slices.filter(pl.col("kind") == "comm").sort("start", maintain_order=True)
    told = field(comm["args"], "Process Group Ranks") if has_args else pl.Series([None] * comm.height)
    return comm.select(
        pl.lit(rank).alias("rank"),
        "step",
        pl.col("kernel").alias("name"),
        told.cast(pl.String).alias("group"),
        "dur",
        pl.int_range(pl.len()).alias("order"),
    ).with_columns(nth=pl.int_range(pl.len()).over(_ONE))
