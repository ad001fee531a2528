"""A trace with its forward passes and layers as tracks of their own, for a timeline."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from npuscope.explain.passes.found import Passes
from npuscope.trace import schema
from npuscope.trace.core import Trace


def with_tracks(found: Passes) -> Trace:
    """The trace with two more lanes: a slice per pass, and below it one per head, layer and tail."""
    trace = found.trace
    passes = found.table.select(
        pl.concat_str(pl.lit("pass "), "index", pl.lit(" "), "phase", _flag("complete", "", " incomplete"),
                      _flag("disturbed", " disturbed", "")).alias("kernel"),
        pl.col("start_ns").alias("start"),
        (pl.col("end_ns") - pl.col("start_ns")).alias("dur"),
    )  # fmt: skip
    spans = found.order.group_by("in_pass", "part", "layer").agg(
        pl.col("start").min(), (pl.col("start") + pl.col("dur")).max().alias("end")
    )
    spans = spans.sort("start")
    # streams overlap: a layer's slice ends where the next one begins, so that they do not cross
    end = pl.min_horizontal("end", pl.col("start").shift(-1).fill_null(pl.col("end")))
    layers = spans.select(
        pl.when(pl.col("part") == "layer")
        .then(pl.concat_str(pl.lit("layer "), pl.col("layer").fill_null(0)))
        .otherwise(pl.col("part").cast(pl.String))
        .alias("kernel"),
        "start",
        (end - pl.col("start")).alias("dur"),
    )
    first = int(trace.lanes["lane"].cast(pl.Int64).max() or 0) + 1  # type: ignore[arg-type]
    names = ["forward passes", "layers"]
    lanes = schema.conform(pl.DataFrame({"lane": [first, first + 1], "name": names, "unit": "host"}), schema.LANES)
    added = [
        part.with_columns(pl.lit(first + number).alias("lane"), pl.lit("derived").alias("kind"))
        for number, part in enumerate((passes, layers))
    ]
    slices = schema.conform(pl.concat(added), schema.SLICES)
    return replace(
        trace,
        slices=pl.concat([trace.slices, slices], how="diagonal"),
        lanes=pl.concat([trace.lanes, lanes], how="diagonal"),
    )


def _flag(column: str, yes: str, no: str) -> pl.Expr:
    return pl.when(pl.col(column)).then(pl.lit(yes)).otherwise(pl.lit(no))
