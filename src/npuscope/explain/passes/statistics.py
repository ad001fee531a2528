"""Layers and positions over all forward passes of one kind: so that one odd layer or one jittery kernel is seen.

A position is a kernel type and how often it ran before in its layer (or in the pass's head or tail): `MatMulV2 2`.
That holds where streams interleave differently from layer to layer. Only complete, undisturbed passes count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from npuscope.base.errors import NpuscopeError
from npuscope.explain.passes.columns import LAYERS, POSITIONS
from npuscope.explain.passes.found import Passes
from npuscope.explain.repetition import OUTLIER
from npuscope.table.columns import Table, Tabular, all_rows

TAUGHT_BY = 32  # passes that tell the sequence of a layer


@dataclass(frozen=True, repr=False)
class Statistics(Tabular):
    """Times of layers and positions over the passes; LAYERS and POSITIONS tell their columns."""

    phase: str
    passes: tuple[int, ...]
    layers: pl.DataFrame
    positions: pl.DataFrame
    sequences: tuple[LayerKind, ...]

    def tables(self) -> dict[str, Table]:
        return {"positions": Table(POSITIONS, self.positions), "layers": Table(LAYERS, self.layers)}

    def title(self) -> str:
        odd = self.layers.filter("odd")["layer"].to_list()
        told = f"{self.phase}: {self.layers.height} layers over {len(self.passes)} passes"
        return told + (f"; odd layers {', '.join(map(str, odd))}" if odd else "; no odd layer")

    def as_dict(self) -> dict[str, object]:
        return {
            "phase": self.phase,
            "passes": list(self.passes),
            **all_rows(self.tables()),
            "sequences": [{"layers": kind.layers, "kernels": list(kind.kernels)} for kind in self.sequences],
        }


@dataclass(frozen=True)
class LayerKind:
    """Layers in a row that run the same kernels in the same order."""

    layers: str  # "0" or "1-63"
    kernels: tuple[str, ...]


def statistics(found: Passes, numbers: Sequence[int] | None = None) -> Statistics:
    """Statistics of the passes of the phase that most device time went to.

    Of the passes given by number, or else of those that are whole and, if there are any, undisturbed.
    """
    whole = found.table.filter("complete")
    usable = whole.filter(~pl.col("disturbed")) if (~whole["disturbed"]).any() else whole
    if numbers is not None:
        usable = found.table.filter(pl.col("index").is_in(list(numbers)))
    if usable.is_empty():
        raise NpuscopeError("no pass is complete")
    # a capture with one disturbed prefill and many decode passes is about the latter
    phase = usable.group_by("phase").agg(pl.col("union_ns").sum()).sort("union_ns", "phase")["phase"][-1]
    counted = usable.filter(pl.col("phase") == phase)["index"]
    rows = found.order.filter(pl.col("in_pass").is_in(counted.implode()))
    rows = rows.with_columns(nth=pl.int_range(pl.len()).over("in_pass", "part", "layer", "kernel") + 1)
    return Statistics(
        str(phase), tuple(counted), _layers(rows), _positions(rows), _sequences(rows, counted.head(TAUGHT_BY))
    )


def _spread(ns: pl.Expr) -> list[pl.Expr]:
    """From exact sums of integers, so that the answer does not hang on the order threads add in."""
    total, squares = ns.cast(pl.Int128).sum(), (ns.cast(pl.Int128) ** 2).sum()
    deviation = (pl.len() * squares - total * total).cast(pl.Float64).sqrt()
    return [
        (total.cast(pl.Float64) / pl.len()).alias("mean_ns"),
        ns.median().alias("p50_ns"),
        ns.quantile(0.95, "linear").alias("p95_ns"),
        pl.when(total > 0).then(deviation / total.cast(pl.Float64)).alias("cv"),
    ]


def _layers(rows: pl.DataFrame) -> pl.DataFrame:
    sums = rows.filter(pl.col("layer").is_not_null()).group_by("in_pass", "layer").agg(pl.col("dur").sum())
    table = sums.group_by("layer").agg(pl.len().alias("passes"), *_spread(pl.col("dur"))).sort("layer")
    odd = pl.col("p50_ns") > OUTLIER * pl.col("p50_ns").median()
    return table.with_columns(odd.alias("odd")).join(_culprits(rows), on="layer", how="left", maintain_order="left")


def _culprits(rows: pl.DataFrame) -> pl.DataFrame:
    """For each layer the kernel that takes most above what its position usually takes."""
    inside = rows.filter(pl.col("layer").is_not_null())
    usual = pl.col("dur") - pl.col("dur").median().over("kernel", "nth")
    above = inside.with_columns(above=usual).group_by("layer", "kernel", "nth").agg(pl.col("above").median())
    above = above.sort("above", "kernel", "nth", descending=[True, False, False])
    worst = above.unique("layer", keep="first", maintain_order=True)
    name = pl.concat_str("kernel", pl.lit(" "), "nth").alias("farthest")
    return worst.select("layer", name, pl.col("above").alias("farthest_ns"))


def _positions(rows: pl.DataFrame) -> pl.DataFrame:
    place = ["in_pass", "part", "layer"]
    rows = rows.with_columns(position=pl.int_range(pl.len()).over(*place))
    table = rows.group_by("part", "kernel", "nth").agg(
        pl.len().alias("count"),
        *_spread(pl.col("dur")),
        pl.col("dur").sum().alias("total_ns"),
        pl.col("position").median(),
    )
    share = (pl.col("total_ns") / pl.col("total_ns").sum()).alias("share")
    columns = ("part", "kernel", "nth", "count", "mean_ns", "p50_ns", "p95_ns", "cv", "total_ns")
    return table.sort("part", "position", "kernel", "nth").select(*columns, share)


def _sequences(rows: pl.DataFrame, numbers: pl.Series) -> tuple[LayerKind, ...]:
    rows = rows.filter(pl.col("layer").is_not_null() & pl.col("in_pass").is_in(numbers.implode()))
    if rows.is_empty():
        return ()
    each = rows.group_by("in_pass", "layer", maintain_order=True).agg("kernel")
    times = each.group_by("layer", "kernel", maintain_order=True).len()
    usual = times.sort("layer", "len", descending=[False, True], maintain_order=True).unique("layer", keep="first")
    usual = usual.sort("layer").with_columns(kind=pl.col("kernel").rle_id())
    kinds = usual.group_by("kind", maintain_order=True).agg(
        pl.col("layer").min().alias("first"), pl.col("layer").max().alias("last"), pl.col("kernel").first()
    )
    return tuple(
        LayerKind(str(first) if first == last else f"{first}-{last}", tuple(kernels))
        for _, first, last, kernels in kinds.iter_rows()
    )
