"""Forward passes as one offline page: every pass as a bar, every layer as a point with its spread, and the tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl

from npuscope.analysis.table import microseconds
from npuscope.forward.passes.ranks import Ranks
from npuscope.forward.passes.skew import RankPasses
from npuscope.report.forward_text import count, flags, pass_table
from npuscope.report.static_page import legend, notes, static_page, table, text

WIDTH, HEIGHT, LEFT, BOTTOM = 1200, 190, 70, 22
COMPUTE, COMM, IDLE, MIDDLE, FAR = "#1f5fbf", "#c2571a", "#d5dbe3", "#1f5fbf", "#9db8de"
MOST_BARS = 400
MOST_ROWS = 300


def forward_page(result: Ranks) -> str:
    """The page of all ranks."""
    parts = ["<h1>Forward passes</h1>"]
    if result.skew is not None:
        parts += [f'<p class="verdict">{text(result.skew.title())}</p>', table(result.skew.table)]
    for rank in result.ranks:
        parts += _rank(rank)
    return static_page("Forward passes", parts)


def _rank(rank: RankPasses) -> list[str]:
    passes = rank.passes
    name = rank.path if rank.rank is None else f"rank {rank.rank}: {rank.path}"
    told = count(len(passes), "forward pass", "forward passes")
    told += f", told apart by {rank.told['rule']}; layers by {rank.told['anchor']}"
    wrong = notes(flags({**rank.told, "passes": passes}))
    parts = [f"<h2>{text(name)}</h2>", f"<p>{text(told)}</p>", wrong, _bars(passes)]
    if rank.statistics is not None and rank.statistics["positions"]:
        layers = pl.DataFrame(rank.statistics["layers"], infer_schema_length=None)
        positions = pl.DataFrame(rank.statistics["positions"], infer_schema_length=None)
        parts += [f"<h3>Layers of {text(rank.statistics['phase'])} passes</h3>", _points(layers)]
        for kind in rank.statistics["sequences"]:
            parts.append(f"<p>layer {text(kind['layers'])}: {text(' → '.join(kind['kernels']))}</p>")
        parts += ["<h3>Positions</h3>", table(positions.head(MOST_ROWS))]
    return [*parts, "<h3>Passes</h3>", table(pass_table(passes).head(MOST_ROWS))]


def _bars(passes: list[dict[str, Any]]) -> str:
    """A bar per pass: what the device computed, what only communication ran, and what of the span nothing did."""
    shown = passes[:MOST_BARS]
    longest = max((p["end_ns"] - p["start_ns"] for p in shown), default=1) or 1
    step = (WIDTH - LEFT) / max(len(shown), 1)
    bars = []
    for number, p in enumerate(shown):
        span = p["end_ns"] - p["start_ns"]
        parts = ((COMPUTE, p["union_ns"] - p["comm_ns"]), (COMM, p["comm_ns"]), (IDLE, span - p["union_ns"]))
        wrong = [word for word, there in (("incomplete", not p["complete"]), ("disturbed", p["disturbed"])) if there]
        title = text(f"pass {p['index']}, {p['phase']}: {microseconds(span)} µs {', '.join(wrong)}")
        low = HEIGHT - BOTTOM
        for colour, ns in parts:
            height = max(ns, 0) / longest * (HEIGHT - BOTTOM - 10)
            low -= height
            bars.append(
                f'<rect x="{LEFT + number * step:.2f}" y="{low:.2f}" width="{max(step * 0.8, 0.5):.2f}" '
                f'height="{height:.2f}" fill="{colour}"><title>{title}</title></rect>'
            )
    key = [("compute", COMPUTE), ("communication", COMM), ("nothing ran", IDLE)]
    more = f"the first {MOST_BARS} of {len(passes)}" if len(passes) > MOST_BARS else ""
    return _svg("passes", bars, longest) + legend(key, more)


def _points(layers: pl.DataFrame) -> str:
    """The median of each layer, and up to where 95 % of the passes are."""
    if layers.is_empty():
        return ""
    longest = max(float(layers["p95_ns"].max()), 1.0)  # type: ignore[arg-type]
    step = (WIDTH - LEFT) / layers.height
    marks = []
    for number, (layer, p50, p95, cv) in enumerate(layers.select("layer", "p50_ns", "p95_ns", "cv").iter_rows()):
        x = LEFT + (number + 0.5) * step
        middle, far = (HEIGHT - BOTTOM - ns / longest * (HEIGHT - BOTTOM - 10) for ns in (p50, p95))
        told = f"layer {layer}: median {microseconds(p50)} µs, p95 {microseconds(p95)}, CV {cv or 0:.2f}"
        marks.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{middle:.1f}" y2="{far:.1f}" stroke="{FAR}" stroke-width="5"/>'
            f'<circle cx="{x:.1f}" cy="{middle:.1f}" r="4" fill="{MIDDLE}"><title>{text(told)}</title></circle>'
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
