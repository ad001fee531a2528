"""Flow ends stamped on lanes -> edges between the slices they fall into."""

from __future__ import annotations

import numpy as np
import polars as pl

from npuscope.trace.intervals import Enclosing, Ints

KEY = ["category", "name", "flow"]


def edges_of(flows: pl.DataFrame, enclosing: Enclosing, task: Ints) -> pl.DataFrame:
    """One edge per flow end that has a beginning, and one with a null side per end that has none.

    `flows` has lane, time, begins, ends and the columns of KEY, which together name one flow; `enclosing`
    finds the slice a moment falls into and `task` has each slice's task. An end belongs to the last
    beginning of its flow not after it; an end stamped before every beginning (clocks of two processes
    differ) belongs to the first one.
    """
    where = enclosing.find(flows["lane"].cast(pl.Int64).to_numpy(), flows["time"].to_numpy())
    tasks = pl.Series(np.where(where >= 0, task[where] if len(task) else 0, 0)).set(pl.Series(where < 0), None)
    flows = flows.select(*KEY, "time", "lane", "begins", "ends", tasks.alias("task")).with_row_index("at")
    begin = {"src": pl.col("task"), "src_lane": pl.col("lane"), "begin": pl.col("at")}
    begins = flows.filter("begins").select(*KEY, "time", **begin)
    ends = flows.filter("ends").select(*KEY, "time", "at", dst=pl.col("task"), dst_lane=pl.col("lane"))
    begins, ends = begins.sort("time", maintain_order=True), ends.sort("time", maintain_order=True)
    met = ends.join_asof(
        begins.with_columns(pl.col("time").alias("src_time")),
        on="time",
        by=KEY,
        strategy="backward",
        check_sortedness=False,
    )
    early = met.filter(pl.col("begin").is_null()).drop("src", "src_time", "src_lane", "begin")
    first = begins.unique(KEY, keep="first", maintain_order=True).rename({"time": "src_time"})
    met = pl.concat([met.filter(pl.col("begin").is_not_null()), early.join(first, on=KEY, how="left")], how="diagonal")
    met = met.filter(pl.col("begin").is_null() | (pl.col("begin") != pl.col("at")))  # a step does not follow itself
    lonely = begins.join(met.select("begin"), on="begin", how="anti").rename({"time": "src_time"})
    met = met.rename({"time": "dst_time"}).sort("at")
    edges = pl.concat([met, lonely], how="diagonal")
    places = ["src_lane", "src_time", "dst_lane", "dst_time"]
    return edges.select("src", "dst", pl.lit("flow").alias("source"), "name", "flow", *places)
