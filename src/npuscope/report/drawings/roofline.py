"""The roofline: achieved FLOP/s over FLOP per byte, a circle per distinct call, under the chip's roofs."""

from __future__ import annotations

import math
from collections.abc import Iterable

import polars as pl

from npuscope.analysis.forms import duration, percent
from npuscope.forward.roofline import Roofline
from npuscope.report.document import html
from npuscope.report.drawings.legend import COLOURS, legend

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 980, 520, 70, 46, 16, 20
TOLD = ("kernel", "shapes", "mean_ns", "limit_ns", "efficiency")  # beside a circle


def plot(r: Roofline) -> str:
    """Achieved FLOP/s over FLOPs per byte, both logarithmic, under the roofs of the types that occur."""
    points = r.priced.filter((pl.col("flops") > 0) & (pl.col("bytes") > 0) & (pl.col("measured_ns") > 0))
    if points.is_empty():
        return '<p class="soft">No kernel with FLOPs has a price, so there is nothing to plot.</p>'
    points = points.with_columns(
        (pl.col("flops") / pl.col("bytes")).alias("x"), (pl.col("flops") / pl.col("mean_ns") * 1e9).alias("y")
    )
    bandwidth = r.device.bandwidth
    peaks = sorted({peak for peak in points["peak"].to_list() if peak})
    xs, ys = [*points["x"].to_list(), *(peak / bandwidth for peak in peaks)], [*points["y"].to_list(), *peaks]
    axes = _Axes((min(xs) / 2, max(xs) * 4), (min(ys) / 2, max(ys) * 2))
    colours = {f: COLOURS[n % len(COLOURS)] for n, f in enumerate(points["family"].unique(maintain_order=True))}
    total = max(int(points["measured_ns"].sum()), 1)
    marks = [
        f'<circle cx="{axes.x(row["x"]):.1f}" cy="{axes.y(row["y"]):.1f}" '
        f'r="{3 + 22 * math.sqrt(row["measured_ns"] / total):.1f}" fill="{colours[row["family"]]}" fill-opacity=".55">'
        f"<title>{html(_told(*(row[name] for name in TOLD)))}</title></circle>"
        for row in points.sort("measured_ns", descending=True).iter_rows(named=True)
    ]
    drawing = f"{axes.grid()}{''.join(_roofs(r, axes, peaks))}{''.join(marks)}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" role="img" aria-label="roofline">{drawing}</svg>'
        + legend(colours.items(), "a circle is as large as its share of the time")
    )


class _Axes:
    """Two logarithmic scales over the plot's area."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float]) -> None:
        self.left, self.right = math.log10(x[0]), math.log10(x[1])
        self.low, self.high = math.log10(y[0]), math.log10(y[1])

    def x(self, value: float) -> float:
        return LEFT + (math.log10(value) - self.left) / (self.right - self.left) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(value) - self.low) / (self.high - self.low) * (HEIGHT - BOTTOM - TOP)

    def grid(self) -> str:
        lines = []
        for power in range(math.ceil(self.left), math.floor(self.right) + 1):
            x = self.x(10**power)
            lines.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="var(--line)"/>')
            lines.append(
                f'<text class="soft" x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{_si(power)}</text>'
            )
        for power in range(math.ceil(self.low), math.floor(self.high) + 1):
            y = self.y(10**power)
            lines.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>')
            lines.append(f'<text class="soft" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_si(power)}</text>')
        lines.append(f'<text class="soft" x="{LEFT}" y="{HEIGHT - 8}">FLOP per byte</text>')
        lines.append(f'<text class="soft" x="{LEFT}" y="12">FLOP/s</text>')
        return "".join(lines)


def _roofs(r: Roofline, axes: _Axes, peaks: Iterable[float]) -> Iterable[str]:
    """The slope of memory up to each flat peak."""
    bandwidth, start = r.device.bandwidth, 10**axes.left
    names: dict[float | None, list[str]] = {}
    for unit, rates in (("vector", r.device.vector), ("cube", r.device.cube)):
        for dtype in rates:
            names.setdefault(r.device.peak("cube" if unit == "cube" else "vector", dtype), []).append(f"{unit} {dtype}")
    top = 0.0
    for peak in peaks:
        ridge = peak / bandwidth
        y, x = axes.y(peak), axes.x(max(ridge, start))
        top = max(top, ridge)
        yield f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="var(--ink)"/>'
        label = f"{', '.join(names.get(peak, []))} {peak / 1e12:,.0f} TFLOP/s"
        yield f'<text x="{WIDTH - RIGHT}" y="{y - 5:.1f}" text-anchor="end">{html(label)}</text>'
    low = 10**axes.low / bandwidth
    first = max(start, low)
    if top > first:
        yield (
            f'<line x1="{axes.x(first):.1f}" y1="{axes.y(first * bandwidth):.1f}" x2="{axes.x(top):.1f}" '
            f'y2="{axes.y(top * bandwidth):.1f}" stroke="var(--ink)"/>'
        )


def _told(kernel: str, shapes: str | None, mean: float, limit: float, share: float) -> str:
    return f"{kernel} {shapes or ''}: {duration(mean)}, limit {duration(limit)} ({percent(share)})"


def _si(power: int) -> str:
    names = {0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}
    below = max((p for p in names if p <= power), default=0)
    return f"{10 ** (power - below):g}{names[below]}"
