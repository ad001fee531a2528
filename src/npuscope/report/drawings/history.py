"""Times per token over commits: a line per model and settings."""

from __future__ import annotations

from collections.abc import Sequence

from npuscope.llm.tpot_history import Entry, commit_told, interval_of, ms_of, series
from npuscope.report.document import html
from npuscope.report.drawings.legend import COLOURS, legend
from npuscope.simulate.estimate_forms import three

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 980, 360, 70, 46, 24, 20
MOST_LABELS = 9


def likely(entry: Entry) -> str:
    """The interval of an entry that has one."""
    found = interval_of(entry)
    return "" if found is None else f" (80 %: {three(found[0])} to {three(found[1])})"


def plot(entries: Sequence[Entry]) -> str:
    lines = series(entries)
    colours = {told: COLOURS[n % len(COLOURS)] for n, told in enumerate(lines)}
    tops = [(interval_of(entry) or (0.0, ms_of(entry)))[1] for entry in entries]
    highest = max(tops, default=1.0) * 1.1 or 1.0
    gap = (WIDTH - LEFT - RIGHT) / max(len(entries), 1)

    def x(place: int) -> float:
        return LEFT + (place + 0.5) * gap

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / highest * (HEIGHT - BOTTOM - TOP)

    marks = [f'<text class="soft" x="{LEFT}" y="12">ms per token</text>']
    for n in range(5):
        value = highest * n / 4
        marks.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="var(--line)"/>'
            f'<text class="soft" x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:,.1f}</text>'
        )
    for place in range(0, len(entries), -(-len(entries) // MOST_LABELS) or 1):
        label = html(commit_told(entries[place]))
        marks.append(
            f'<text class="soft" x="{x(place):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{label}</text>'
        )
    for told, run in lines.items():
        points = [(x(place), y(ms_of(entry)), entry) for place, entry in run]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py, _ in points)
        marks.append(f'<polyline points="{path}" fill="none" stroke="{colours[told]}" stroke-width="2"/>')
        for px, py, entry in points:
            what = (
                f"{ms_of(entry):,.3f} ms/token{likely(entry)} at {commit_told(entry)}, {entry.get('date', '')}: {told}"
            )
            if (found := interval_of(entry)) is not None:
                low, high = map(y, found)
                line = f'x1="{px:.1f}" x2="{px:.1f}" y1="{low:.1f}" y2="{high:.1f}"'
                marks.append(f'<line {line} stroke="{colours[told]}" stroke-opacity="0.4" stroke-width="4"/>')
            marks.append(
                f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4" fill="{colours[told]}"><title>{html(what)}</title></circle>'
            )
    drawing = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" role="img" aria-label="ms per token">'
    return f"{drawing}{''.join(marks)}</svg>{legend(colours.items())}"
