"""The meetings of ranks in captures: which collective of one rank is which of another, and who came last.

Built-in collectives, kernels that wait for a peer's notification, composites inside other kernels, HCCL's and NCCL's
are one notion: the rank that comes last stays shortest, so only durations are compared and clocks need not agree.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

from npuscope.chip.kernels import exchange_of
from npuscope.explain.meetings import ALIKE, MEETING, CollectiveWaits, by_pair, followed_back, listed
from npuscope.explain.work import Work
from npuscope.trace.clocks import who_meet
from npuscope.trace.source import json_field

# Ascend numbers a collective within its group: hcom_allReduce__868_0_1
_HCOM = r"(?i)^(hcom_?[a-z_]*?[a-z])_+(\d+)_\d+_\d+$"
_POINT_TO_POINT = "(?i)^(i?send|i?recv|coalesced)"


def collective_waits(ranks: Sequence[tuple[str, Work]]) -> CollectiveWaits:
    """The waits between ranks, each with its name and its work."""
    each = [_collectives(name, work) for name, work in ranks]
    everything = pl.concat(each)
    rows = _left_together(everything.filter(~pl.col("paired")))
    counts = rows.group_by(*ALIKE, "rank").agg(pl.len(), counted=pl.col("counted").all())
    often = (pl.col("len").n_unique() == 1) | pl.col("counted").all()
    alike = counts.group_by(ALIKE).agg(alike=often & (pl.len() > 1)).filter("alike")
    met = rows.join(alike.drop("alike"), on=ALIKE, how="semi", nulls_equal=True)
    met = met.filter(pl.len().over(MEETING) > 1)
    met = met.sort("dur", "order").with_columns(
        least=pl.col("dur").first().over(MEETING), waits_for=pl.col("rank").first().over(MEETING)
    )
    met = met.with_columns(wait_ns=pl.col("dur") - pl.col("least"))
    met = followed_back(met, dict(ranks))
    others = met.filter(pl.col("rank") != pl.col("waits_for"))
    sums = {
        name: dict(met.group_by("rank").agg(pl.col(column).sum()).iter_rows())
        for name, column in (("wait", "wait_ns"), ("cost", "least"))
    }
    last = dict(met.filter(pl.col("rank") == pl.col("waits_for"))["rank"].value_counts().iter_rows())
    names = [name for name, _ in ranks]
    return CollectiveWaits(
        by_pair(others),
        {name: int(sums["wait"].get(name, 0)) for name in names},
        {name: int(sums["cost"].get(name, 0)) for name in names},
        {name: int(last.get(name, 0)) for name in names},
        met.select(MEETING).n_unique() if met.height else 0,
        everything.height - met.height,
        bool(met["group"].is_not_null().all()),
        max(
            (len(set(re.findall(r"\d+", group))) for group in rows["group"].drop_nulls().unique() if "[" in group),
            default=0,
        ),
        listed(met),
    )


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
