"""Where on the timeline an edge is drawn: from the last slice of its source to the first of its target."""

from __future__ import annotations

import polars as pl

from npuscope.trace.core import Trace
from npuscope.trace.schema import is_work


def edge_ends(trace: Trace) -> pl.DataFrame:
    """Per edge whose tasks both have a slice: the rows of the two slices in `trace.slices`."""
    edges = trace.edges.select("src", "dst").drop_nulls()
    if edges.is_empty():
        return pl.DataFrame(schema={"src_row": pl.UInt32, "dst_row": pl.UInt32})
    # a task is where it ran; the scheduler's and the host's slices about it come second
    about = is_work().not_()
    rows = trace.slices.select(
        "task", "start", about.alias("about"), end=pl.col("start") + pl.col("dur")
    ).with_row_index("row")
    rows = rows.filter(pl.col("task").is_not_null())
    last = rows.sort("about", "end", descending=[False, True]).unique("task", keep="first", maintain_order=True)
    first = rows.sort("about", "start").unique("task", keep="first", maintain_order=True)
    met = edges.join(
        last.select(pl.col("task").alias("src"), pl.col("row").alias("src_row")),
        on="src",
        maintain_order="left",
    )
    met = met.join(
        first.select(pl.col("task").alias("dst"), pl.col("row").alias("dst_row")),
        on="dst",
        maintain_order="left",
    )
    return met.filter(pl.col("src_row") != pl.col("dst_row")).select("src_row", "dst_row")


def edges_not_drawn(trace: Trace, drawn: int) -> dict[str, int]:
    """What a timeline cannot show: edges with an end that has no slice, or from a slice to itself."""
    return {"edge without a slice at both ends": trace.edges.height - drawn} if trace.edges.height > drawn else {}
