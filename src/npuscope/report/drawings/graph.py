"""A tile program's kernels drawn in their order: a box each, a line for the edges between two."""

from __future__ import annotations

import math
from collections.abc import Iterator

from npuscope.analysis.forms import short
from npuscope.report.document import html
from npuscope.report.drawings.legend import legend
from npuscope.tile.graph.by_kernel import KernelEdge, KernelGraph
from npuscope.tile.record.summary import KernelWork

BOX_W, BOX_H, GAP_X, GAP_Y, EDGE = 168, 44, 64, 18, 12
COLOURS = {"AIC": "#1f5fbf", "AIV": "#1a7f4b", "MIX": "#8a3ab9", "none": "#5b6573"}
UNITS = {"AIC": "cube (AIC)", "AIV": "vector (AIV)", "MIX": "both (MIX)", "none": "no work"}
Place = tuple[float, float]


def drawing(graph: KernelGraph, work: dict[str, KernelWork]) -> str:
    """Kernels in columns by the longest way to them; edges that a longer way implies are left out."""
    if not graph.columns:
        return '<p class="soft">No tasks.</p>'
    places = dict(_places(graph))
    used = dict.fromkeys(kernel.unit for kernel in work.values())
    width = EDGE * 2 + len(graph.columns) * (BOX_W + GAP_X) - GAP_X
    height = EDGE * 2 + max(map(len, graph.columns)) * (BOX_H + GAP_Y) - GAP_Y
    lines = "".join(_line(edge, places) for edge in graph.edges if not edge.implied)
    boxes = "".join(_box(work[name], place) for name, place in places.items())
    return (
        f'<div class="scroll"><svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="kernels in order">{lines}{boxes}</svg></div>'
        + legend(((UNITS[unit], COLOURS[unit]) for unit in used), "a line is as wide as its edges are many")
    )


def _places(graph: KernelGraph) -> Iterator[tuple[str, Place]]:
    tallest = max(map(len, graph.columns))
    for x, column in enumerate(graph.columns):
        top = EDGE + (tallest - len(column)) * (BOX_H + GAP_Y) / 2
        for y, name in enumerate(column):
            yield name, (EDGE + x * (BOX_W + GAP_X), top + y * (BOX_H + GAP_Y))


def _box(kernel: KernelWork, place: Place) -> str:
    x, y = place
    name = short(kernel.kernel, 22)
    times = f"{kernel.tasks:,} tasks" if kernel.tasks != 1 else "1 task"
    if kernel.blocks != kernel.tasks:
        times += f", {kernel.blocks:,} blocks"
    told = (
        f"{kernel.kernel}: {times} on {kernel.unit}, {kernel.flops:,} FLOPs, "
        f"{kernel.gm_read:,} bytes read, {kernel.gm_written:,} written"
    )
    return (
        f'<g><title>{html(told)}</title><rect x="{x:.0f}" y="{y:.0f}" width="{BOX_W}" height="{BOX_H}" rx="6" '
        f'fill="{COLOURS[kernel.unit]}"/>'
        f'<text x="{x + 9:.0f}" y="{y + 18:.0f}" style="fill:#fff;font-weight:600" font-size="12">{html(name)}</text>'
        f'<text x="{x + 9:.0f}" y="{y + 34:.0f}" style="fill:#fff" font-size="11">{html(times)}</text></g>'
    )


def _line(edge: KernelEdge, places: dict[str, Place]) -> str:
    (x0, y0), (x1, y1) = places[edge.src], places[edge.dst]
    x0, y0, y1 = x0 + BOX_W, y0 + BOX_H / 2, y1 + BOX_H / 2
    bend = max(GAP_X / 2, (x1 - x0) / 2)
    why = ", ".join(f"{count:,} {origin}" for origin, count in edge.origins)
    return (
        f'<path d="M{x0:.0f} {y0:.0f}C{x0 + bend:.0f} {y0:.0f} {x1 - bend:.0f} {y1:.0f} {x1:.0f} {y1:.0f}" fill="none" '
        f'stroke="#8a94a3" stroke-opacity=".7" stroke-width="{1 + math.log10(edge.count):.1f}">'
        f"<title>{html(f'{edge.dst} waits for {edge.src}: {edge.count:,} edges ({why})')}</title></path>"
    )


def remarks(graph: KernelGraph) -> list[str]:
    lines = []
    implied = [edge for edge in graph.edges if edge.implied]
    if implied:
        count = sum(edge.count for edge in implied)
        lines.append(
            f"Not drawn, for a longer way leads there too: {count:,} edges between {len(implied):,} pairs of kernels."
        )
    if graph.back:
        count = sum(edge.count for edge in graph.back)
        lines.append(
            f"Not drawn: {count:,} edges to a kernel itself or an earlier one (the next layer, the next step)."
        )
    return lines
