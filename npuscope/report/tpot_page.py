"""Times per token over commits as one offline page: a line per model and settings, and the table."""

from __future__ import annotations

from typing import Any

import polars as pl

from npuscope.llm.tpot_history import commit_told, series
from npuscope.report.roofline_page import COLOURS
from npuscope.report.static_page import legend, static_page, table, text

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 980, 360, 70, 46, 24, 20
MOST_LABELS = 9
SHOWN = {
    "date": "date", "commit": "commit", "model": "model", "ms_per_token": "ms per token",
    "tasks_per_step": "tasks per step", "records_per_step": "records per step", "mean_run_us": "mean run µs",
    "mean_dispatch_to_finish_us": "dispatch→finish µs", "overhead": "overhead",
}  # fmt: skip


def tpot_page(name: str, entries: list[dict[str, Any]]) -> str:
    """The page of a history file."""
    lines = series(entries)
    colours = {told: COLOURS[n % len(COLOURS)] for n, told in enumerate(lines)}
    return static_page(
        "Time per token",
        [
            f"<h1>Time per token: {text(name)}</h1>",
            f'<p class="verdict">{text(verdict(entries))}</p>',
            _plot(entries, lines, colours),
            legend(colours.items()),
            "<h2>Runs</h2>",
            table(_runs(entries)),
        ],
    )


def verdict(entries: list[dict[str, Any]]) -> str:
    """Where the longest-followed settings stand against their beginning."""
    if not entries:
        return "Nothing measured yet."
    told, run = max(series(entries).items(), key=lambda one: len(one[1]))
    first, last = (float(entry["ms_per_token"]) for _, entry in (run[0], run[-1]))
    change = f", {last / first - 1:+.1%} since {first:,.3f}" if len(run) > 1 and first else ""
    return f"{last:,.3f} ms/token{change} ({told})."


def _plot(
    entries: list[dict[str, Any]], lines: dict[str, list[tuple[int, dict[str, Any]]]], colours: dict[str, str]
) -> str:
    highest = max((float(entry["ms_per_token"]) for entry in entries), default=1.0) * 1.1 or 1.0
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
        label = text(commit_told(entries[place]))
        marks.append(
            f'<text class="soft" x="{x(place):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{label}</text>'
        )
    for told, run in lines.items():
        points = [(x(place), y(float(entry["ms_per_token"])), entry) for place, entry in run]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py, _ in points)
        marks.append(f'<polyline points="{path}" fill="none" stroke="{colours[told]}" stroke-width="2"/>')
        for px, py, entry in points:
            what = (
                f"{float(entry['ms_per_token']):,.3f} ms/token at {commit_told(entry)}, {entry.get('date', '')}: {told}"
            )
            marks.append(
                f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4" fill="{colours[told]}"><title>{text(what)}</title></circle>'
            )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" role="img" aria-label="ms per token">{"".join(marks)}</svg>'
    )


def _runs(entries: list[dict[str, Any]]) -> pl.DataFrame:
    """Newest first; what other versions did not write is a dash."""
    rows = [{**entry, "commit": commit_told(entry)} for entry in reversed(entries)]
    columns = {
        told: [row.get(name) if isinstance(row.get(name), int | float) else _word(row.get(name)) for row in rows]
        for name, told in SHOWN.items()
    }
    return pl.DataFrame({name: pl.Series(name, values, strict=False) for name, values in columns.items()})


def _word(value: object) -> str | None:
    return None if value is None else str(value)
