"""Numbers over commits: a line per series, with intervals of points, bands of stable stretches and marks of changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npuscope.report.document import html
from npuscope.report.drawings.legend import COLOURS, legend

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 980, 360, 70, 46, 24, 20
MOST_LABELS = 9
LINES = 4  # of the grid above the lowest


@dataclass(frozen=True)
class Point:
    """`place` is that of its commit; `interval` has its ends where they are known."""

    place: int
    value: float
    told: str
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Band:
    """Where single runs lie between two changes."""

    first: int
    last: int
    low: float
    high: float


@dataclass(frozen=True)
class Line:
    """A series; `changes` are the places where a new level begins."""

    name: str
    points: Sequence[Point]
    bands: Sequence[Band] = ()
    changes: Sequence[int] = ()


def plot(lines: Sequence[Line], commits: Sequence[str], unit: str, from_zero: bool = True) -> str:
    """The drawing and its legend; `commits` are the labels of places."""
    colours = {line.name: COLOURS[n % len(COLOURS)] for n, line in enumerate(lines)}
    ends = [end for line in lines for point in line.points for end in (point.value, *(point.interval or ()))]
    ends += [end for line in lines for band in line.bands for end in (band.low, band.high)]
    highest, lowest = max(ends, default=1.0) or 1.0, min(ends, default=0.0)
    room = 0.1 * (highest - (0 if from_zero else lowest)) or 0.1 * highest
    bottom, top = (0.0 if from_zero else lowest - room), highest + room
    gap = (WIDTH - LEFT - RIGHT) / max(len(commits), 1)

    def x(place: float) -> float:
        return LEFT + (place + 0.5) * gap

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (value - bottom) / (top - bottom) * (HEIGHT - BOTTOM - TOP)

    marks = [f'<text class="soft" x="{LEFT}" y="12">{html(unit)}</text>']
    digits = 1 if from_zero else 3
    for n in range(LINES + 1):
        value = bottom + (top - bottom) * n / LINES
        marks.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="var(--line)"/>'
            f'<text class="soft" x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:,.{digits}f}</text>'
        )
    for place in range(0, len(commits), -(-len(commits) // MOST_LABELS) or 1):
        label = html(commits[place])
        marks.append(
            f'<text class="soft" x="{x(place):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{label}</text>'
        )
    for line in lines:
        colour = colours[line.name]
        for band in line.bands:
            left, right = x(band.first - 0.5), x(band.last + 0.5)
            marks.append(
                f'<rect x="{left:.1f}" width="{right - left:.1f}" y="{y(band.high):.1f}" '
                f'height="{y(band.low) - y(band.high):.1f}" fill="{colour}" fill-opacity="0.12"/>'
            )
        for place in line.changes:
            at = f"{x(place - 0.5):.1f}"
            told = html(f"{line.name} changed with {commits[place]}")
            marks.append(
                f'<line class="change" x1="{at}" x2="{at}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="{colour}" '
                f'stroke-dasharray="4 3"><title>{told}</title></line>'
            )
        path = " ".join(f"{x(point.place):.1f},{y(point.value):.1f}" for point in line.points)
        marks.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for point in line.points:
            px, py = x(point.place), y(point.value)
            if point.interval is not None:
                low, high = map(y, point.interval)
                ends_of = f'x1="{px:.1f}" x2="{px:.1f}" y1="{low:.1f}" y2="{high:.1f}"'
                marks.append(f'<line {ends_of} stroke="{colour}" stroke-opacity="0.4" stroke-width="4"/>')
            marks.append(
                f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4" fill="{colour}"><title>{html(point.told)}</title></circle>'
            )
    drawing = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" role="img" aria-label="{html(unit)}">'
    return f"{drawing}{''.join(marks)}</svg>{legend(colours.items())}"
