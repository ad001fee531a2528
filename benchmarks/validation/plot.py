"""docs/validation.svg: predicted against measured, every row a point whose miss shows when the pointer rests on it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

SIZE, LEFT, TOP, GAP = 400, 62, 64, 92
BLUE, RED, GREEN, GREY, INK, PALE = "#0072b2", "#d55e00", "#009e73", "#aaaaaa", "#222222", "#d9d9d9"
CLOSE = math.log(1.15)
STEPS = (1, 2, 5)


@dataclass(frozen=True)
class Point:
    """`other`: another prediction of the same row, joined to the first by a line. `label` stands beside the point."""

    measured: float
    predicted: float
    title: str
    colour: str
    hollow: bool = False
    other: float | None = None
    label: str = ""


@dataclass(frozen=True)
class Plot:
    """Predicted against measured, or `over` measured: values of many sizes then show their misses.

    Axes are logarithmic. `legend`: colour, whether hollow, words.
    """

    title: str
    axis: str
    points: Sequence[Point]
    legend: Sequence[tuple[str, bool, str]]
    over: bool = False

    def height(self, point: Point, predicted: float) -> float:
        return predicted / point.measured if self.over else predicted


@dataclass(frozen=True)
class Scale:
    """From values to distances along an axis of length SIZE."""

    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Scale:
        return Scale(0.9 * min(values), 1.1 * max(values))

    @property
    def step(self) -> float:
        """Of one unit of the natural logarithm."""
        return SIZE / math.log(self.high / self.low)

    def at(self, value: float) -> float:
        return math.log(value / self.low) * self.step

    def ticks(self) -> list[float]:
        """1, 2 and 5 of every decade; only the decades where there are many."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        steps = STEPS if len(decades) <= 4 else STEPS[:1]
        return [v for decade in decades for n in steps if self.low <= (v := n * 10.0**decade) <= self.high]


def svg(plots: Sequence[Plot]) -> str:
    width = LEFT + len(plots) * SIZE + (len(plots) - 1) * GAP + 24
    height = TOP + SIZE + 56 + 18 * max(len(plot.legend) for plot in plots)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12" fill="{INK}">',
        "<title>Predicted against measured</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, plot in enumerate(plots):
        lines += _drawn(plot, LEFT + number * (SIZE + GAP))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _drawn(plot: Plot, left: float) -> Iterator[str]:
    across, up = _scales(plot)
    bottom = TOP + SIZE
    upright = "/ measured" if plot.over else plot.axis
    yield f'<text x="{left}" y="{TOP - 34}" font-size="15" font-weight="bold">{escape(plot.title)}</text>'
    yield f'<text x="{left}" y="{TOP - 14}">predicted {escape(upright)}</text>'
    yield f'<text x="{left + SIZE}" y="{bottom + 36}" text-anchor="end">measured {escape(plot.axis)}</text>'
    yield from _right_place(plot, across, up, left, bottom)
    for value in across.ticks():
        x = left + across.at(value)
        yield f'<path d="M{x:.1f} {bottom}V{TOP}" {_grid(value == 1 and not plot.over)}/>'
        yield f'<text x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{value:,g}</text>'
    for value in up.ticks():
        y = bottom - up.at(value)
        yield f'<path d="M{left} {y:.1f}H{left + SIZE}" {_grid(value == 1)}/>'
        yield f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{value:,g}</text>'
    yield f'<rect x="{left}" y="{TOP}" width="{SIZE}" height="{SIZE}" fill="none" stroke="{INK}"/>'
    labels: list[float] = []
    for point in sorted(plot.points, key=lambda point: -plot.height(point, point.predicted)):
        x, y = left + across.at(point.measured), bottom - up.at(plot.height(point, point.predicted))
        other = None if point.other is None else bottom - up.at(plot.height(point, point.other))
        yield from _point(point, x, y, other)
        if point.label:
            labels.append(max([y + 4, *(below + 11 for below in labels[-1:] if below + 11 > y + 4)]))
            near_edge = x > left + 0.7 * SIZE
            place = f'x="{x - 7:.1f}" text-anchor="end"' if near_edge else f'x="{x + 7:.1f}"'
            yield f'<text {place} y="{labels[-1]:.1f}" font-size="10">{escape(point.label)}</text>'
    for number, (colour, hollow, words) in enumerate(plot.legend):
        y = bottom + 56 + 18 * number
        yield _circle(left + 6, y - 4, colour, hollow) + "/>"
        yield f'<text x="{left + 18}" y="{y}">{escape(words)}</text>'


def _scales(plot: Plot) -> tuple[Scale, Scale]:
    """Across and up; the same where predicted stands against measured."""
    measured = [point.measured for point in plot.points]
    heights = [
        plot.height(point, value)
        for point in plot.points
        for value in (point.predicted, point.other)
        if value is not None
    ]
    both = Scale.of(measured + heights)
    return (Scale.of(measured), Scale.of(heights)) if plot.over else (both, both)


def _right_place(plot: Plot, across: Scale, up: Scale, left: float, bottom: float) -> Iterator[str]:
    """Where predicted is measured, and within 15 % of it."""
    first, last = across.low, across.high
    line = [(first, 1.0), (last, 1.0)] if plot.over else [(first, first), (last, last)]
    (x1, y1), (x2, y2) = [(left + across.at(x), bottom - up.at(y)) for x, y in line]
    band = CLOSE * up.step
    shape = f"{x1:.1f},{y1 - band:.1f} {x2:.1f},{y2 - band:.1f} {x2:.1f},{y2 + band:.1f} {x1:.1f},{y1 + band:.1f}"
    clip = f"clip{left:g}"
    yield f'<clipPath id="{clip}"><rect x="{left}" y="{TOP}" width="{SIZE}" height="{SIZE}"/></clipPath>'
    yield f'<polygon points="{shape}" fill="#e3eefa" clip-path="url(#{clip})"/>'
    yield f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{INK}" stroke-width="0.8"/>'


def _grid(strong: bool) -> str:
    return f'stroke="{INK if strong else PALE}" stroke-width="{0.8 if strong else 0.5}"'


def _point(point: Point, x: float, y: float, other: float | None) -> Iterator[str]:
    yield "<g>"
    if other is not None:
        yield f'<path d="M{x:.1f} {y:.1f}V{other:.1f}" stroke="{point.colour}" stroke-width="0.7"/>'
        yield f'<circle cx="{x:.1f}" cy="{other:.1f}" r="2.2" fill="white" stroke="{point.colour}"/>'
    yield f"{_circle(x, y, point.colour, point.hollow)}><title>{escape(point.title)}</title></circle>"
    yield "</g>"


def _circle(x: float, y: float, colour: str, hollow: bool) -> str:
    fill = "white" if hollow else colour
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" fill-opacity="0.75" stroke="{colour}"'
