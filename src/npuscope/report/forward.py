"""Forward passes of ranks, and how far kernels are from what the chip can do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from npuscope.explain.passes.found import pass_count
from npuscope.table.formats import arithmetic, duration, many, percent, sentence_start, short, traffic
from npuscope.table.parts import Chart, Heading, In, Notes, Part, Rows, Say, Spec, axis

if TYPE_CHECKING:  # who shows one of them need not be able to make the other
    from npuscope.explain.passes.ranks import ForwardRanks
    from npuscope.explain.passes.statistics import RankPasses, Statistics
    from npuscope.forward.roofline import Roofline

MOST_PASSES, POSTED_PASSES = 60, 100
MOST_FLAGS = 12
STEADY = 0.05  # a spread below this is not worth a line
WIDEST, POSTED_POSITIONS = 8, 20  # positions with the largest spread, and with the largest share
MOST_COLUMNS, MOST_POINTS = 400, 3000  # of charts
KERNELS = 12  # of a roofline
NEEDS = {
    "context not given": "--context N (tokens in the cache per sequence)",
    "number of ranks not given": "--ranks N",
    "tokens per expert not given": "--tokens-per-expert N",
}


def forward(result: ForwardRanks, wide: bool = False) -> Iterator[Part]:
    """Everything, rank by rank."""
    yield Heading("Forward passes", 1, In.POSTED)
    for rank in result.ranks:
        yield from _rank(rank, len(result.ranks) > 1, wide)
    if result.skew is not None:
        yield Heading(result.skew.title())
        yield Rows(result.skew.main_table())
    yield Notes([f"not read: {name}: {why}" for name, why in result.not_read.items()])


def _rank(rank: RankPasses, several: bool, wide: bool) -> Iterator[Part]:
    places = [f"{what} {number}, " for what, number in (("rank", rank.rank), ("device", rank.device))
              if several and number is not None]  # fmt: skip
    name = f"{''.join(places)}{rank.path}"
    passes, about = rank.passes, rank.about
    yield Say(f"{name}: {pass_count(passes.frame, str(about['anchor']))}", strong=True)
    yield Say(f"passes by {about['rule']}, layers by {short(str(about['anchor']), 80)}")
    if rank.statistics is not None and not rank.statistics.positions.is_empty():
        found = rank.statistics
        what = "a typical pass" if found.phase == "unknown" else f"a typical {found.phase} pass"
        yield Heading(f"What {what} is made of (pass {found.middle}):", 3)
        yield Rows(found.tables()["typical"])
        yield Heading("All passes:", 3)
    yield Chart(passes_chart(passes.frame))
    yield Rows(passes, MOST_PASSES, POSTED_PASSES, wide=wide)
    flags = _flags(rank)
    more = [f"… and {len(flags) - MOST_FLAGS} more"] if len(flags) > MOST_FLAGS else []
    yield Notes([*flags[:MOST_FLAGS], *more])
    if rank.statistics is not None:
        yield from _statistics(rank.statistics, wide)


def _flags(rank: RankPasses) -> list[str]:
    """What is wrong with passes, and what belongs to none."""
    disturbed = rank.passes.frame.select("index", "reasons").iter_rows()
    lines = [f"pass {index}: {reason}" for index, reasons in disturbed for reason in reasons]
    rows, ns = rank.about["outside"], rank.about["outside_ns"]
    if isinstance(rows, int) and isinstance(ns, int) and rows:
        lines.append(f"in no pass: {many(rows, 'row')}, {duration(ns)} of device time")
    return lines


def _statistics(found: Statistics, wide: bool) -> Iterator[Part]:
    if found.positions.is_empty():
        yield Say(f"{found.phase}: nothing ran on the device")
        return
    tables = found.tables()
    what = "phase unknown" if found.phase == "unknown" else found.phase
    yield Heading(f"{what} over {many(len(found.passes), 'pass', 'passes')}:", 3)
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


def passes_chart(passes: pl.DataFrame) -> Spec:
    """A column per pass: what the device computed, what only communication ran, and what of the span nothing did."""
    shown = passes.head(MOST_COLUMNS).rows(named=True)
    columns = []
    for p in shown:
        span, union, comm = p["span_ns"], p["union_ns"], p["comm_ns"]
        wrong = [word for word, there in (("incomplete", not p["complete"]), ("disturbed", p["disturbed"])) if there]
        columns.append(
            {
                "name": f"pass {p['index']}, {p['phase']}",
                "values": [max(union - comm, 0), max(comm, 0), max(span - union, 0)],
                "text": [duration(span), *wrong],
                "marked": bool(wrong),
            }
        )
    more = f"the first {MOST_COLUMNS} of {passes.height}" if passes.height > MOST_COLUMNS else ""
    return {
        "chart": "columns",
        "title": "Passes",
        "y": axis("time of a pass", "ns"),
        "groups": ["compute", "communication", "nothing ran"],
        "columns": columns,
        "note": more,
    }


def layers_chart(layers: pl.DataFrame) -> Spec | None:
    """The median of each layer, and up to where 95% of the passes are."""
    if layers.is_empty():
        return None
    points = []
    for number, (layer, p50, p95, cv) in enumerate(layers.select("layer", "p50_ns", "p95_ns", "cv").iter_rows()):
        lines = [f"median {duration(p50)}, 95% of passes below {duration(p95)}", f"spread {cv or 0:.2f} of the mean"]
        points.append({"x": number, "y": p50, "low": p50, "high": p95, "name": f"layer {layer}", "text": lines})
    return {
        "chart": "lines",
        "title": "Layers",
        "x": {"title": "layer", "labels": [str(layer) for layer in layers["layer"].to_list()]},
        "y": axis("time of a layer", "ns"),
        "series": [{"name": "median, and up to p95", "points": points, "joined": False}],
        "note": "",
    }


def roofline(path: str, name: str, r: Roofline, wide: bool = False) -> Iterator[Part]:
    """The capture at `path`, called `name` where it is posted."""
    per = "times are per step" if r.steps else "the capture marks no steps: times are of the whole of it"
    if r.simulated:
        per = "times are of all blocks of a kernel, simulated"
    chosen = "--device" if r.chosen_by == "given" else r.chosen_by
    counted = f"{many(int(r.calls['count'].sum()), 'call')} of {many(r.calls.height, 'kind')}"
    steps = f" in {many(r.steps, 'step')}" if r.steps else ""
    tables = r.tables()
    yield Heading(f"Roofline: {name}", 1, In.POSTED)
    yield Say(sentence_start(r.sentence()), strong=True)
    for shown, where in ((path, In.TEXT), (name, In.POSTED)):
        what = many(r.calls.height, "kernel") if r.simulated else f"{counted}{steps}; device by {chosen}"
        yield Say(f"{shown}: {what}", where=where)
    drawing = roofline_chart(r)
    yield Chart(drawing)
    if drawing is None:
        yield Say("No kernel with FLOPs has a price, so there is nothing to plot.", where=In.PAGE)
    each = "" if r.simulated else "; mean and limit are of one call"
    yield Heading(f"Farthest from the chip's limits ({per}{each})")
    yield Rows(r.of_priced(), KERNELS, KERNELS, wide=wide)
    if "families" in tables:
        yield Heading("By family")
        yield Rows(tables["families"], wide=wide, legend=False)
    if "unknown" in tables and tables["unknown"].frame.height:
        yield Heading(f"No known limit: {percent(1 - r.priced_share)} of the time")
        yield Rows(tables["unknown"], wide=wide)
    yield Notes(_remarks(r), "note: ")


def _remarks(r: Roofline) -> list[str]:
    """What a reader should know of the numbers."""
    if r.simulated:
        return [*_of_a_program(r)]
    reasons = r.unknown()["why"].to_list()
    found = [
        f"{need} gives more kernels a limit" for why, need in NEEDS.items() if any(w.startswith(why) for w in reasons)
    ]
    if not r.above.is_empty():
        names = ", ".join(r.above["kernel"].unique(maintain_order=True).head(4))
        found.append(
            f"{many(r.above.height, 'kind')} of calls ran faster than the limit ({names}): their bytes came from "
            "L2, the work is less than the shapes say, or the device is another one"
        )
    if r.left_out:
        found.append(f"{r.left_out:,} rows that list another row's work a second time are left out")
    return found


def _of_a_program(r: Roofline) -> Iterator[str]:
    yield "kernels that run at the same time share the chip, which is lost time of both"
    reached = r.device.reached_bandwidth
    yield (
        f"memory counts at its documented {traffic(r.device.bandwidth)}/s; in the simulation all cores together get "
        f"{traffic(reached)}/s, so a memory-bound kernel reaches {percent(reached / r.device.bandwidth)} at most"
    )


def roofline_chart(r: Roofline) -> Spec | None:
    """Both axes logarithmic, roofs of the types that occur; None where no kernel with FLOPs has a price."""
    points = r.priced.filter((pl.col("flops") > 0) & (pl.col("bytes") > 0) & (pl.col("measured_ns") > 0))
    if points.is_empty():
        return None
    points = points.sort("measured_ns", descending=True)
    families = points["family"].unique(maintain_order=True).to_list()
    total = max(int(points["measured_ns"].sum()), 1)
    peaks = sorted({peak for peak in points["peak"].to_list() if peak})
    left = min(float(row["flops"] / row["bytes"]) for row in points.iter_rows(named=True)) / 2
    left = min([left, *(peak / r.device.bandwidth / 10 for peak in peaks[:1])])
    more = f"the {MOST_POINTS:,} with most time of {points.height:,} are drawn" if points.height > MOST_POINTS else ""
    return {
        "chart": "scatter",
        "title": "Roofline",
        "x": axis("FLOP per byte", "si", log=True),
        "y": axis("FLOP/s", "si", log=True),
        "groups": families,
        "points": [
            {
                "x": row["flops"] / row["bytes"],
                "y": row["flops"] / row["mean_ns"] * 1e9,
                "size": row["measured_ns"] / total,
                "group": families.index(row["family"]),
                "name": row["kernel"],
                "text": _point_text(row, total),
            }
            for row in points.head(MOST_POINTS).iter_rows(named=True)
        ],
        "lines": [*_roofs(r, peaks, left)],
        "note": "; ".join(filter(None, ["a circle is as large as its share of the time", more])),
    }


def _point_text(row: dict[str, Any], total: int) -> list[str]:
    limit = f"{duration(row['limit_ns'])} ({percent(row['efficiency'])})"
    each = "a call" if row["shapes"] else "in all"
    return [
        row["shapes"] or "",
        f"{duration(row['mean_ns'])} {each}, the chip's limit is {limit}",
        f"{row['bound']}-bound, {percent(row['measured_ns'] / total)} of the time of all points",
    ]


def _roofs(r: Roofline, peaks: list[float], left: float) -> Iterator[Spec]:
    """The slope of memory up to each flat peak."""
    bandwidth = r.device.bandwidth
    names: dict[float | None, list[str]] = {}
    units: tuple[tuple[Literal["vector", "cube"], Iterable[str]], ...]
    units = (("vector", r.device.vector), ("cube", r.device.cube))
    for unit, dtypes in units:
        for dtype in dtypes:
            names.setdefault(r.device.peak(unit, dtype), []).append(f"{unit} {dtype}")
    for peak in peaks:
        name = f"{', '.join(names.get(peak, []))} {arithmetic(peak)}/s"
        yield {"from": [peak / bandwidth, peak], "to": [None, peak], "name": name}  # to the edge
    if peaks:
        top = peaks[-1] / bandwidth
        yield {"from": [left, left * bandwidth], "to": [top, peaks[-1]], "name": f"memory {traffic(bandwidth)}/s"}
