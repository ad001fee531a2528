"""The meetings of ranks in a simulation, which knows of each task how long it waited for whose signal.

A collective is any task that waits for others; what it takes beside waits for late ones is its cost.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from npuscope.explain.meetings import CollectiveWaits, by_pair, followed_back, listed
from npuscope.explain.work import Work


def signal_waits(ranks: Sequence[tuple[str, Work]], signals: pl.DataFrame) -> CollectiveWaits:
    """The waits between ranks, each with its name and its work; an edge of `signals` for each wait for a late one."""
    tasks = pl.concat([_tasks(name, work) for name, work in ranks], how="vertical_relaxed")
    meets = tasks.filter(pl.col("meeting").is_not_null())
    late = signals.with_row_index("nth").select("nth", "src", "dst", "since", "late_ns")
    late = late.join(tasks, left_on="dst", right_on="task").join(tasks, left_on="src", right_on="task", suffix="_late")
    late = late.join(_left_before(late, meets), on="nth", how="left", maintain_order="left")
    met = followed_back(_both_sides(late), dict(ranks))
    waited = dict(late.group_by("rank").agg(pl.col("late_ns").sum()).iter_rows())
    took = dict(meets.group_by("rank").agg(pl.col("took").sum()).iter_rows())
    came_last = dict(late.group_by("rank_late").agg(pl.col("meeting").n_unique()).iter_rows())  # for who waits
    names = [name for name, _ in ranks]
    return CollectiveWaits(
        by_pair(met.filter(pl.col("rank") != pl.col("waits_for"))),
        {name: int(waited.get(name, 0)) for name in names},
        {name: max(int(took.get(name, 0)) - int(waited.get(name, 0)), 0) for name in names},
        {name: int(came_last.get(name, 0)) for name in names},
        meets["meeting"].n_unique(),
        left_out=0,
        grouped=True,
        meetings=listed(met),
    )


def _tasks(rank: str, work: Work) -> pl.DataFrame:
    """A rank's tasks: which meeting each is, the run or step it lies in, from its first start to its last end."""
    wanted = ("meeting", "run")
    there = [column for column in wanted if column in work.trace.slices.columns]
    slices = work.with_columns(*there).with_columns(pl.lit(None).alias(one) for one in wanted if one not in there)
    end = (pl.col("start") + pl.col("dur")).max()
    in_step = pl.col("run" if "run" in there else "step").first().cast(pl.Int64)
    first = pl.col("kernel", "lane", "meeting").first()
    took = end - pl.col("start").min()
    return slices.group_by(pl.lit(rank).alias("rank"), "task").agg(first, took=took, in_step=in_step, end=end)


def _both_sides(late: pl.DataFrame) -> pl.DataFrame:
    """A meeting of the two for each wait: who waits from when it came, the late one without a wait when it sent."""
    key = {
        "step": pl.lit(None, dtype=pl.Int64), "group": pl.lit(None, dtype=pl.String), "row": pl.lit(-1),
        "among": pl.lit(None, dtype=pl.String), "nth": pl.col("nth").cast(pl.Int64), "waits_for": pl.col("rank_late"),
        "name": pl.col("kernel"),
    }  # fmt: skip
    waits = late.select(
        "rank", "lane", "in_step", "left", start="since", dur="late_ns", wait_ns="late_ns", task="dst", **key
    )
    none = pl.lit(0, dtype=pl.Int64)
    sent = late.select(
        rank="rank_late", lane="lane_late", in_step="in_step_late", left="left_late", task="src",
        start=pl.col("since") + pl.col("late_ns"), dur=none, wait_ns=none, **key,
    )  # fmt: skip
    return pl.concat([waits, sent.select(waits.columns)])


def _left_before(late: pl.DataFrame, meets: pl.DataFrame) -> pl.DataFrame:
    """Of each wait by its number when both had left the last collective before it that both took part in."""
    ends = meets.select("rank", "end", met="meeting")
    both = late.select("nth", "rank", "rank_late", "since", sent=pl.col("since") + pl.col("late_ns"))
    both = both.join(ends, on="rank").join(ends, left_on=["rank_late", "met"], right_on=["rank", "met"], suffix="_late")
    both = both.filter((pl.col("end") <= pl.col("since")) & (pl.col("end_late") <= pl.col("sent")))
    return both.sort("end").group_by("nth").agg(left=pl.col("end").last(), left_late=pl.col("end_late").last())
