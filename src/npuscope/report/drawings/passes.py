"""Forward passes drawn: every pass as a bar, every layer as a point with its spread."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from npuscope.analysis.forms import duration
from npuscope.report.document import html
from npuscope.report.drawings.legend import legend

WIDTH, HEIGHT, LEFT, BOTTOM = 1200, 190, 70, 22
COMPUTE, COMM, IDLE, MIDDLE, FAR = "#1f5fbf", "#c2571a", "#d5dbe3", "#1f5fbf", "#9db8de"
MOST_BARS = 400


def bars(passes: pl.DataFrame) -> str:
    """A bar per pass: what the device computed, what only communication ran, and what of the span nothing did."""
    shown = passes.head(MOST_BARS).rows(named=True)
    longest = max((p["span_ns"] for p in shown), default=1) or 1
    step = (WIDTH - LEFT) / max(len(shown), 1)
    marks = []
    for number, p in enumerate(shown):
        span = p["span_ns"]
        parts = ((COMPUTE, p["union_ns"] - p["comm_ns"]), (COMM, p["comm_ns"]), (IDLE, span - p["union_ns"]))
        wrong = [word for word, there in (("incomplete", not p["complete"]), ("disturbed", p["disturbed"])) if there]
        title = html(f"pass {p['index']}, {p['phase']}: {duration(span)} {', '.join(wrong)}")
        low = HEIGHT - BOTTOM
        for colour, ns in parts:
            height = max(ns, 0) / longest * (HEIGHT - BOTTOM - 10)
            low -= height
            marks.append(
                f'<rect x="{LEFT + number * step:.2f}" y="{low:.2f}" width="{max(step * 0.8, 0.5):.2f}" '
                f'height="{height:.2f}" fill="{colour}"><title>{title}</title></rect>'
            )
    key = [("compute", COMPUTE), ("communication", COMM), ("nothing ran", IDLE)]
    more = f"the first {MOST_BARS} of {passes.height}" if passes.height > MOST_BARS else ""
    return _svg("passes", marks, longest) + legend(key, more)


def points(layers: pl.DataFrame) -> str:
    """The median of each layer, and up to where 95 % of the passes are."""
    if layers.is_empty():
        return ""
    longest = max(float(layers["p95_ns"].max()), 1.0)  # type: ignore[arg-type]
    step = (WIDTH - LEFT) / layers.height
    marks = []
    for number, (layer, p50, p95, cv) in enumerate(layers.select("layer", "p50_ns", "p95_ns", "cv").iter_rows()):
        x = LEFT + (number + 0.5) * step
        middle, far = (HEIGHT - BOTTOM - ns / longest * (HEIGHT - BOTTOM - 10) for ns in (p50, p95))
        told = f"layer {layer}: median {duration(p50)}, p95 {duration(p95)}, CV {cv or 0:.2f}"
        marks.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{middle:.1f}" y2="{far:.1f}" stroke="{FAR}" stroke-width="5"/>'
            f'<circle cx="{x:.1f}" cy="{middle:.1f}" r="4" fill="{MIDDLE}"><title>{html(told)}</title></circle>'
        )
    return _svg("layers", marks, longest) + legend([("median", MIDDLE), ("to p95", FAR)])


def _svg(name: str, marks: Iterable[str], longest: float) -> str:
    axis = (
        f'<text class="soft" x="{LEFT - 6}" y="14" text-anchor="end">{longest / 1000:,.0f} µs</text>'
        f'<text class="soft" x="{LEFT - 6}" y="{HEIGHT - BOTTOM}" text-anchor="end">0</text>'
        f'<line x1="{LEFT}" x2="{WIDTH}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}" stroke="var(--line)"/>'
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" role="img" aria-label="{name}">{axis}{"".join(marks)}</svg>'
    )
