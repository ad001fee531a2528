"""Layers and positions over all forward passes of one kind: so that one odd layer or one jittery kernel is seen.

A position is a kernel type and how often it ran before in its layer (or in the pass's head or tail): `MatMulV2 2`.
That holds where streams interleave differently from layer to layer. Only complete, undisturbed passes count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.explain.passes.found import LAYERS, PASSES, POSITIONS, SKEW, TYPICAL, Passes, main_kind
from npuscope.explain.repetition import OUTLIER
from npuscope.table.columns import Table, Tabular

GAPS = "gaps between kernels"
TAUGHT_BY = 32  # passes that tell the sequence of a layer


@dataclass(frozen=True, repr=False)
class Statistics(Tabular):
    """Times of layers and positions over the passes; LAYERS and POSITIONS tell their columns."""

    phase: str
    passes: tuple[int, ...]
    layers: pl.DataFrame
    positions: pl.DataFrame
    sequences: tuple[LayerKind, ...]
    middle: int  # the number of the pass whose span is in the middle
    typical: pl.DataFrame  # what it is made of

    in_json = ("phase", "passes", "sequences", "middle")

    def tables(self) -> dict[str, Table]:
        tables = {"positions": Table(POSITIONS, self.positions), "layers": Table(LAYERS, self.layers)}
        return {**tables, "typical": Table(TYPICAL, self.typical)}

    def title(self) -> str:
        odd = self.layers.filter("odd")["layer"].to_list()
        layers = f"{self.phase}: {self.layers.height} layers over {len(self.passes)} passes"
        return layers + (f"; odd layers {', '.join(map(str, odd))}" if odd else "; no odd layer")


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
    phase, layers = main_kind(usable)
    counted = usable.filter((pl.col("phase") == phase) & (pl.col("layers") == layers))["index"]
    rows = found.order.filter(pl.col("in_pass").is_in(counted.implode()))
    rows = rows.with_columns(nth=pl.int_range(pl.len()).over("in_pass", "part", "layer", "kernel") + 1)
    sequences = _sequences(rows, counted.head(TAUGHT_BY))
    spans = found.table.filter(pl.col("index").is_in(counted.implode())).sort(pl.col("end_ns") - pl.col("start_ns"))
    middle = spans.row((spans.height - 1) // 2, named=True)
    typical = _made_of(rows.filter(pl.col("in_pass") == middle["index"]), middle["end_ns"] - middle["start_ns"])
    return Statistics(phase, tuple(counted), _layers(rows), _positions(rows), sequences, int(middle["index"]), typical)


def _made_of(rows: pl.DataFrame, span: int) -> pl.DataFrame:
    """The parts of one pass, whose rows are in the order of start: what each adds to the time covered before it."""
    end = (pl.col("start") + pl.col("dur")).cum_max()
    began = pl.max_horizontal("start", end.shift(1).fill_null(pl.col("start")))
    added = rows.with_columns(ns=(end - began).clip(lower_bound=0))
    layers = added["layer"].drop_nulls().n_unique()
    names = {"head": "before the layers", "layer": f"{layers} layers", "tail": "after the layers"}
    found = [(name, *_sums(added.filter(pl.col("part") == part))) for part, name in names.items()]
    left: tuple[str, int | None, int] = (GAPS, None, max(span - sum(ns for _, _, ns in found), 0))
    return TYPICAL.table(
        (name, count, ns, ns / span if span else 0.0) for name, count, ns in (*found, left) if ns
    ).frame


def _sums(rows: pl.DataFrame) -> tuple[int, int]:
    return rows.height, int(rows["ns"].sum())


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


MOST_SHIFTS = 2000  # passes that captures of ranks may begin apart


@dataclass(frozen=True)
class RankPasses:
    """One rank's passes without its trace; `collectives` holds the durations of each pass's collectives in order."""

    rank: int | None
    device: int | None  # where one capture holds several
    path: str
    about: Mapping[str, object]  # rule, anchor and what else is said of all passes together
    every: pl.DataFrame  # all passes, as PASSES tells
    collectives: tuple[NDArray[np.int64], ...]
    shown: tuple[int, ...]  # numbers of the passes to show
    statistics: Statistics | None = None
    written: tuple[str, ...] = ()

    @property
    def passes(self) -> Table:
        """The passes to show."""
        return Table(PASSES, self.every[list(self.shown)])


@dataclass(frozen=True, repr=False)
class Skew(Tabular):
    """A row per rank: device, compute and collective time per pass, its wait for others, how often it was last."""

    table: pl.DataFrame
    passes: int  # that every rank has
    left_out: int  # of them, passes whose collectives differ in number

    in_json = ("passes", "left_out")

    def tables(self) -> dict[str, Table]:
        return {"table": Table(SKEW, self.table)}

    def title(self) -> str:
        if not self.passes or self.table.is_empty():
            return "ranks: no pass that all of them have"
        if self.left_out == self.passes:
            return f"ranks over {self.passes} common passes: their collectives differ in number, so waits are unknown"
        slow = self.table.sort("wait_ns", "rank")["rank"][0]
        widest = max(self.table["wait_ns"].fill_null(0).to_list()) / 1000
        if widest < 1:
            return f"ranks over {self.passes} common passes: no rank waits for another"
        waits = (
            f"ranks over {self.passes} common passes: the others wait for rank {slow}, up to {widest:,.1f} µs a pass"
        )
        return waits + (
            f"; {self.left_out} passes whose collectives differ in number left out" if self.left_out else ""
        )


def skew(ranks: Iterable[RankPasses]) -> Skew:
    """How much each rank waits for the others, over the passes all of them have."""
    ranks = list(ranks)
    common = _common([rank.every for rank in ranks])
    rows: list[dict[str, float | None]] = []
    waits, last, counted = np.zeros(len(ranks)), np.zeros(len(ranks), dtype=np.int64), 0
    for numbers in common:
        each = [rank.collectives[number] for rank, number in zip(ranks, numbers, strict=True)]
        if len({len(durations) for durations in each}) > 1:
            continue
        counted += 1
        above = np.stack(each) - np.min(np.stack(each), axis=0)
        waited = above.sum(axis=1)
        waits += waited
        last[int(np.argmin(waited))] += 1
    for place, rank in enumerate(ranks):
        mine = rank.every[[numbers[place] for numbers in common]]
        mean = {name: float(mine[name].to_numpy().mean()) if len(mine) else None for name in ("union_ns", "comm_ns")}
        compute = None if mean["union_ns"] is None else mean["union_ns"] - (mean["comm_ns"] or 0.0)
        wait = float(waits[place]) / counted if counted else None
        rows.append({"rank": rank.rank, **mean, "compute_ns": compute, "wait_ns": wait, "last": int(last[place])})
    return Skew(pl.DataFrame(rows, infer_schema_length=None), len(common), len(common) - counted)


def _common(of_ranks: list[pl.DataFrame]) -> list[list[int]]:
    """Numbers of passes that belong together: of one step where steps are marked, else in order and overlapping."""
    if all(passes["step"].null_count() == 0 for passes in of_ranks):
        keyed = [passes.select("step", "phase", "index").reverse() for passes in of_ranks]
        by_step = [{(step, phase): index for step, phase, index in passes.iter_rows()} for passes in keyed]
        return [[numbers[key] for numbers in by_step] for key in by_step[0] if all(key in n for n in by_step)][::-1]
    spans = [passes.select("start_ns", "end_ns").to_numpy() for passes in of_ranks]
    sizes = [passes["attentions"].to_list() for passes in of_ranks]
    # ranks that ran the same passes met in order, whatever their clocks say
    shifts = [0 if own == sizes[0] else _shift(spans[0], span) for own, span in zip(sizes, spans, strict=True)]
    groups = []
    for number, first in enumerate(sizes[0]):
        group = [number + shift for shift in shifts]
        there = all(0 <= n < len(own) for n, own in zip(group, sizes, strict=True))
        if there and all(own[n] == first for n, own in zip(group, sizes, strict=True)):
            groups.append(group)
    return groups


def _shift(first: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """How many passes earlier or later another rank's capture began: the shift at which passes overlap longest."""
    best, most = 0, -1
    for shift in sorted(range(-len(first) + 1, len(other)), key=abs)[:MOST_SHIFTS]:
        low, high = max(0, -shift), min(len(first), len(other) - shift)
        a, b = first[low:high], other[low + shift : high + shift]
        shared = int(np.maximum(np.minimum(a[:, 1], b[:, 1]) - np.maximum(a[:, 0], b[:, 0]), 0).sum())
        if shared > most:
            best, most = shift, shared
    return best
