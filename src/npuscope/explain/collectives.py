"""Where ranks meet: what each waits there for ranks that come later, what the collective itself takes, and what made
the late one late.

Built-in collectives, kernels that wait for a peer's notification, composites inside other kernels, HCCL's and NCCL's
are one notion: the rank that comes last stays shortest, so only durations are compared and clocks need not agree. A
wait is followed back to the moment at which both ranks left their last meeting, or began: since then the late one began
later, computed longer or stood idle longer, and the three add up to the wait.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from npuscope.chip.kernels import exchange_of
from npuscope.explain.work import Work
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import COUNT, TEXT, TIME, duration
from npuscope.trace.clocks import who_meet
from npuscope.trace.intervals import inside, one_group, sum_by, union
from npuscope.trace.source import json_field

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
_ONE = ("step", "name", "group", "among")  # what collectives of ranks must share to be the same
_MEETING = (*_ONE, "nth")
# Ascend numbers a collective within its group: hcom_allReduce__868_0_1
_HCOM = r"(?i)^(hcom_?[a-z_]*?[a-z])_+(\d+)_\d+_\d+$"
_POINT_TO_POINT = "(?i)^(i?send|i?recv|coalesced)"


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


def collective_waits(ranks: Sequence[tuple[str, Work]], signals: pl.DataFrame | None = None) -> CollectiveWaits:
    """The waits between ranks, each with its name and its work; `signals` are edges that say who waited for whom."""
    if signals is not None:
        return _told_by_signals(ranks, signals)
    each = [_collectives(name, work) for name, work in ranks]
    everything = pl.concat(each)
    rows = _left_together(everything.filter(~pl.col("paired")))
    counts = rows.group_by(*_ONE, "rank").agg(pl.len(), counted=pl.col("counted").all())
    often = (pl.col("len").n_unique() == 1) | pl.col("counted").all()
    alike = counts.group_by(_ONE).agg(alike=often & (pl.len() > 1)).filter("alike")
    met = rows.join(alike.drop("alike"), on=_ONE, how="semi", nulls_equal=True)
    met = met.filter(pl.len().over(_MEETING) > 1)
    met = met.sort("dur", "order").with_columns(
        least=pl.col("dur").first().over(_MEETING), waits_for=pl.col("rank").first().over(_MEETING)
    )
    met = met.with_columns(wait_ns=pl.col("dur") - pl.col("least"))
    met = _followed_back(met, dict(ranks))
    others = met.filter(pl.col("rank") != pl.col("waits_for"))
    sums = {
        name: dict(met.group_by("rank").agg(pl.col(column).sum()).iter_rows())
        for name, column in (("wait", "wait_ns"), ("cost", "least"))
    }
    last = dict(met.filter(pl.col("rank") == pl.col("waits_for"))["rank"].value_counts().iter_rows())
    names = [name for name, _ in ranks]
    return CollectiveWaits(
        _by_pair(others),
        {name: int(sums["wait"].get(name, 0)) for name in names},
        {name: int(sums["cost"].get(name, 0)) for name in names},
        {name: int(last.get(name, 0)) for name in names},
        met.select(_MEETING).n_unique() if met.height else 0,
        everything.height - met.height,
        bool(met["group"].is_not_null().all()),
        max(
            (len(set(re.findall(r"\d+", group))) for group in rows["group"].drop_nulls().unique() if "[" in group),
            default=0,
        ),
        _meetings(met),
    )


def _by_pair(waits: pl.DataFrame) -> pl.DataFrame:
    table = waits.group_by("rank", "waits_for").agg(
        pl.col("wait_ns").sum(), pl.len().alias("collectives"), pl.col(REASONS).sum()
    )
    return table.sort("wait_ns", "rank", "waits_for", descending=[True, False, False]).select(WAITS.keys)


def _meetings(met: pl.DataFrame) -> pl.DataFrame:
    meeting = met.select(pl.struct(_MEETING).rank("dense").alias("meeting"), "rank", "name", "start", "dur",
                         "wait_ns", "waits_for", "task", "lane", "in_step")  # fmt: skip
    return meeting.sort("meeting", "start", maintain_order=True)


def _told_by_signals(ranks: Sequence[tuple[str, Work]], signals: pl.DataFrame) -> CollectiveWaits:
    """The waits of a simulation, which knows of each task how long it waited for whose signal: a meeting of the two. A
    collective is then any task that waits for others, and what it takes beside waits for late ones is its cost."""
    frames = []
    for name, work in ranks:
        columns = [column for column in ("meeting", "run") if column in work.trace.slices.columns]
        tasks = work.with_columns(*columns).with_columns(pl.lit(name).alias("rank"))
        tasks = tasks.with_columns(pl.lit(None).alias(c) for c in ("meeting", "run") if c not in columns)
        end = (pl.col("start") + pl.col("dur")).max() - pl.col("start").min()
        in_step = pl.col("run" if "run" in columns else "step").first().cast(pl.Int64)
        frames.append(
            tasks.group_by("rank", "task").agg(
                pl.col("kernel", "lane", "meeting").first(), took=end, in_step=in_step.alias("in_step"),
                end=(pl.col("start") + pl.col("dur")).max(),
            )
        )  # fmt: skip
    tasks = pl.concat(frames, how="vertical_relaxed")
    meets = tasks.filter(pl.col("meeting").is_not_null())
    late = signals.with_row_index("nth").select("nth", "src", "dst", "since", "late_ns")
    late = late.join(tasks, left_on="dst", right_on="task").join(tasks, left_on="src", right_on="task", suffix="_late")
    key = {
        "step": pl.lit(None, dtype=pl.Int64), "group": pl.lit(None, dtype=pl.String), "row": pl.lit(-1),
        "among": pl.lit(None, dtype=pl.String), "nth": pl.col("nth").cast(pl.Int64), "waits_for": pl.col("rank_late"),
        "name": pl.col("kernel"),
    }  # fmt: skip
    late = late.join(_left_before(late, meets), on="nth", how="left", maintain_order="left")
    waits = late.select(
        "rank", "lane", "in_step", "left", start="since", dur="late_ns", wait_ns="late_ns", task="dst", **key
    )
    others = late.select(
        pl.col("rank_late").alias("rank"), pl.col("lane_late").alias("lane"), pl.col("in_step_late").alias("in_step"),
        left="left_late", start=pl.col("since") + pl.col("late_ns"), dur=pl.lit(0, dtype=pl.Int64),
        wait_ns=pl.lit(0, dtype=pl.Int64), task="src", **key,
    )  # fmt: skip
    met = _followed_back(pl.concat([waits, others.select(waits.columns)]), dict(ranks))
    waited = dict(late.group_by("rank").agg(pl.col("late_ns").sum()).iter_rows())
    took = dict(meets.group_by("rank").agg(pl.col("took").sum()).iter_rows())
    last = late.group_by("meeting").agg(pl.col("rank_late").sort_by("late_ns").last())["rank_late"].value_counts()
    came_last = dict(last.iter_rows())
    names = [name for name, _ in ranks]
    return CollectiveWaits(
        _by_pair(met.filter(pl.col("rank") != pl.col("waits_for"))),
        {name: int(waited.get(name, 0)) for name in names},
        {name: max(int(took.get(name, 0)) - int(waited.get(name, 0)), 0) for name in names},
        {name: int(came_last.get(name, 0)) for name in names},
        meets["meeting"].n_unique(),
        left_out=0,
        grouped=True,
        meetings=_meetings(met),
    )


def _left_before(late: pl.DataFrame, meets: pl.DataFrame) -> pl.DataFrame:
    """Of each wait by its number when both had left the last collective before it that both took part in."""
    ends = meets.select("rank", "end", met="meeting")
    both = late.select("nth", "rank", "rank_late", "since", sent=pl.col("since") + pl.col("late_ns"))
    both = both.join(ends, on="rank").join(ends, left_on=["rank_late", "met"], right_on=["rank", "met"], suffix="_late")
    both = both.filter((pl.col("end") <= pl.col("since")) & (pl.col("end_late") <= pl.col("sent")))
    return both.sort("end").group_by("nth").agg(left=pl.col("end").last(), left_late=pl.col("end_late").last())


def _left_together(rows: pl.DataFrame) -> pl.DataFrame:
    """Collectives without those whose ends say that ranks do not meet in them, where the capture does not say which
    ranks take part; `among` has those that were seen to."""
    known, open_ = rows.filter(pl.col("group").is_not_null()), rows.filter(pl.col("group").is_null())
    if open_.is_empty():
        return known.with_columns(among=pl.lit(None, dtype=pl.String))
    key, end = pl.struct("step", "nth"), pl.col("start") + pl.col("dur")
    among = who_meet(open_.select("rank", "start", "sure", kernel="name", key=key, end=end))
    return pl.concat([known.with_columns(among=pl.lit(None, dtype=pl.String)), open_.with_columns(among)]).filter(
        pl.col("group").is_not_null() | pl.col("among").is_not_null()
    )


def _collectives(rank: str, work: Work) -> pl.DataFrame:
    """The collectives of a rank: step, name, the group of ranks where it is recorded, which of its kind, when and how
    long; `counted` where the capture numbers them itself, `paired` for those of two ranks and one-sided ones, which let
    some go earlier, `sure` where the name says that all meet in it."""
    columns = [name for name in ("args", "groupName", "meeting", "run") if name in work.trace.slices.columns]
    slices = work.with_columns(*columns).with_columns(
        pl.Series("row", work.rows), raw=work.trace.slices["kernel"].gather(work.rows)
    )
    comm = slices.filter(pl.col("kind") == "comm").sort("start", maintain_order=True)
    if "meeting" in columns:
        comm = _blocks_together(comm)

    def field(name: str) -> pl.Expr:
        known = "args" in columns
        return pl.lit(json_field(comm["args"], name) if known else pl.Series([None] * comm.height, dtype=pl.String))

    named = [pl.col(name).cast(pl.String) for name in ("meeting", "groupName") if name in columns]
    group = pl.coalesce(
        field("Process Group Ranks"), field("Process Group Name"), *named, pl.col("raw").str.extract(_HCOM, 2)
    )
    sequence = field("Seq").cast(pl.Int64, strict=False)
    if "meeting" in columns:  # one of its own, whatever dispatch of a rank it lies in
        sequence = pl.coalesce(sequence, pl.when(pl.col("meeting").is_not_null()).then(pl.lit(0, dtype=pl.Int64)))
    meets = {name: exchange_of(name) for name in comm["raw"].unique().to_list()}
    said = field("Collective name")
    alone = pl.col("meeting").is_null() if "meeting" in columns else pl.lit(False)  # their reader has looked at ends
    of_kind = [[name for name, one in meets.items() if one == kind] for kind in ("one-sided", "pairs")]
    one_sided, pairs = (said.is_null() & pl.col("raw").is_in(names) for names in of_kind)
    found = comm.select(
        pl.lit(rank).alias("rank"),
        pl.when(sequence.is_null()).then("step").alias("step"),
        pl.coalesce(pl.col("raw").str.extract(_HCOM, 1), "raw").alias("name"),
        group.alias("group"),
        "start",
        "dur",
        pl.col("run" if "run" in columns else "step").alias("in_step"),
        "row",
        "task",
        "lane",
        pl.int_range(pl.len()).alias("order"),
        sequence.is_not_null().alias("counted"),
        (said.str.contains(_POINT_TO_POINT).fill_null(False) | one_sided | alone).alias("paired"),
        (~pairs).alias("sure"),
        sequence.alias("sequence"),
    )
    nth = pl.coalesce("sequence", pl.int_range(pl.len()).over("step", "name", "group"))
    return found.with_columns(nth=nth).drop("sequence")


def _blocks_together(comm: pl.DataFrame) -> pl.DataFrame:
    """A collective of several blocks is one: from its first start to its last end."""
    end = (pl.col("start") + pl.col("dur")).max()
    return (
        comm.with_columns(alone=pl.when(pl.col("meeting").is_null()).then(pl.int_range(pl.len())))
        .group_by("meeting", "alone", maintain_order=True)
        .agg(pl.all().exclude("start", "dur").first(), pl.col("start").min(), end.alias("end"))
        .with_columns(dur=pl.col("end") - pl.col("start"))
        .drop("end", "alone")
    )


def _followed_back(met: pl.DataFrame, works: dict[str, Work]) -> pl.DataFrame:
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
    late = both.filter(pl.col("rank") == pl.col("waits_for")).select(*_MEETING, late_ran="ran", late_idled="idled")
    both = both.join(late, on=_MEETING, how="left", nulls_equal=True, maintain_order="left")
    compute, idle = pl.col("late_ran") - pl.col("ran"), pl.col("late_idled") - pl.col("idled")
    return both.with_columns(compute_ns=compute, idle_ns=idle, began_ns=pl.col("wait_ns") - compute - idle)
