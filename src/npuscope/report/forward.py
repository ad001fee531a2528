"""Forward passes of ranks as a report: the passes, what is wrong with them, layers and positions that stand out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from npuscope.explain.passes.ranks import Ranks
from npuscope.explain.passes.statistics import RankPasses, Statistics
from npuscope.report.charts.passes import layers_chart, passes_chart
from npuscope.table.formats import duration, many, short
from npuscope.table.parts import Chart, Heading, In, Notes, Part, Rows, Say

MOST_PASSES, POSTED_PASSES = 60, 100
MOST_FLAGS = 12
STEADY = 0.05  # a spread below this is not worth a line
WIDEST, POSTED_POSITIONS = 8, 20  # positions with the largest spread, and with the largest share


def forward(result: Ranks, wide: bool = False) -> Iterator[Part]:
    """Everything, rank by rank."""
    yield Heading("Forward passes", 1, In.POSTED)
    for rank in result.ranks:
        yield from _rank(rank, len(result.ranks) > 1, wide)
    if result.skew is not None:
        yield Heading(result.skew.title())
        yield Rows(result.skew.main_table())
    yield Notes([f"not read: {name}: {why}" for name, why in result.not_read.items()])


def _rank(rank: RankPasses, several: bool, wide: bool) -> Iterator[Part]:
    name = f"rank {rank.rank}, {rank.path}" if several else rank.path
    passes, about = rank.passes, rank.about
    count = many(passes.frame.height, "forward pass", "forward passes")
    yield Say(f"{name}: {count}{_typical(passes.frame)}", strong=True)
    yield Say(f"passes by {about['rule']}, layers by {short(str(about['anchor']), 80)}")
    yield Chart(passes_chart(passes.frame))
    yield Rows(passes, MOST_PASSES, POSTED_PASSES, wide=wide)
    flags = _flags(rank)
    more = [f"… and {len(flags) - MOST_FLAGS} more"] if len(flags) > MOST_FLAGS else []
    yield Notes([*flags[:MOST_FLAGS], *more])
    if rank.statistics is not None:
        yield from _statistics(rank.statistics, wide)


def _typical(passes: pl.DataFrame) -> str:
    """How many are clean, and what those take."""
    clean = passes.filter(pl.col("complete") & ~pl.col("disturbed"))
    if clean.is_empty():
        return ", none of them whole and undisturbed" if passes.height else ""
    phase = clean.group_by("phase").len().sort("len", "phase", descending=[True, False])["phase"][0]
    spans = clean.filter(pl.col("phase") == phase)["span_ns"]
    how_many = "" if clean.height == passes.height else f", {clean.height:,} of them whole and undisturbed"
    return f"{how_many}; {phase} takes {duration(float(np.median(spans.to_numpy())))} (median)"


def _flags(rank: RankPasses) -> list[str]:
    """What is wrong with passes, and what belongs to none."""
    told = rank.passes.frame.select("index", "reasons").iter_rows()
    lines = [f"pass {index}: {reason}" for index, reasons in told for reason in reasons]
    rows, ns = rank.about["outside"], rank.about["outside_ns"]
    if isinstance(rows, int) and isinstance(ns, int) and rows:
        lines.append(f"in no pass: {many(rows, 'row')}, {duration(ns)} of device time")
    return lines


def _statistics(found: Statistics, wide: bool) -> Iterator[Part]:
    if found.positions.is_empty():
        yield Say(f"{found.phase}: nothing ran on the device")
        return
    tables = found.tables()
    yield Heading(f"{found.phase} over {many(len(found.passes), 'pass', 'passes')}:", 3)
    yield Notes([*_layers(found.layers)])
    yield Chart(layers_chart(found.layers))
    yield Notes([f"layer {kind.layers}: {' → '.join(short(k, 40) for k in kind.kernels)}" for kind in found.sequences])
    if found.layers.height:
        yield Heading("Layers", 3, In.POSTED)
        yield Rows(tables["layers"], where=In.POSTED)
    yield Heading("where the time goes, by position:", 3)
    yield Rows(tables["positions"].sorted_by("total_ns"), WIDEST, POSTED_POSITIONS, wide=wide)
    spread = found.positions.filter((pl.col("share") > 0.001) & (pl.col("cv") > STEADY))
    if spread.height:
        yield Heading("what varies most, of positions above 0.1% of the time:", 3)
        yield Rows(replace(tables["positions"], frame=spread).sorted_by("cv"), WIDEST, WIDEST, WIDEST, wide)


def _layers(layers: pl.DataFrame) -> Iterator[str]:
    """What a layer takes, and the odd ones with the kernel that makes them so."""
    if layers.is_empty():
        return
    yield f"a layer takes {duration(float(np.median(layers['p50_ns'].to_numpy())))} of device time (median)"
    odd = layers.filter("odd")
    for layer, p50, name, above in odd.select("layer", "p50_ns", "farthest", "farthest_ns").iter_rows():
        why = f"{short(name)} takes {duration(above)} more than in other layers"
        yield f"layer {layer} stands out: {duration(p50)}; {why}"
    if odd.is_empty():
        yield "no layer stands out"
