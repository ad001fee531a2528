"""Variants as one offline page: a bar each, the fastest first, coloured by what bounds it; each setting at its best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from npuscope.analysis.table import microseconds, percent, short
from npuscope.report.rank_text import without_names
from npuscope.report.roofline_page import COLOURS
from npuscope.report.static_page import legend, notes, static_page, text
from npuscope.simulate.bound import LIMITS
from npuscope.simulate.results import Outcome
from npuscope.simulate.variants import Variant, best_by_setting

WIDTH, NAMES, NUMBERS, ROW = 980, 340, 190, 20
NAME = 42  # characters of a name beside a bar
MOST = 300  # bars
BOUND = {limit: COLOURS[n % len(COLOURS)] for n, limit in enumerate(LIMITS)}


def rank_page(title: str, found: Sequence[Outcome], baseline: Outcome, variants: Sequence[Variant]) -> str:
    """The page of ranked variants; `baseline` was named first."""
    ran = [one for one in found if one.error is None]
    shown = ran[:MOST]
    names, above = {variant.name: variant.name for variant in variants}, list[str]()
    if max(map(len, names)) > NAME:
        names, above = without_names(variants)
    bars = [
        (names[one.variant], one.wall_ns or 0, _told(one, baseline), BOUND.get(one.bound or "", "gray"))
        for one in shown
    ]
    parts = [f"<h1>{text(title)}</h1>", notes(above) if above else "", *_chart("Variants", bars)]
    present = dict.fromkeys(one.bound for one in shown if one.bound)
    parts.append(legend((f"{limit}-bound", BOUND.get(limit, "gray")) for limit in present))
    if len(ran) > MOST:
        parts.append(notes([f"The fastest {MOST:,} of {len(ran):,} are drawn."]))
    for name, best in best_by_setting(variants, found).items():
        bars = [(value, ns, f"{microseconds(ns)} µs", COLOURS[0]) for value, ns in best.items() if ns is not None]
        parts += _chart(f"{name} at its best, whatever the others are", bars)
    failed = [f"{one.variant}: {one.error}" for one in found if one.error is not None]
    if failed:
        parts += ["<h2>Cannot run</h2>", notes(failed)]
    return static_page("Variants", parts)


def _told(one: Outcome, baseline: Outcome) -> str:
    ratio = f", {(one.wall_ns or 0) / baseline.wall_ns:.3f}x" if baseline.wall_ns else ""
    return f"{microseconds(one.wall_ns)} µs{ratio}"


def _chart(title: str, bars: Sequence[tuple[str, int, str, str]]) -> Iterator[str]:
    """Bars from zero: name, length, what stands beside it, colour."""
    if not bars:
        return
    longest = max(length for _, length, _, _ in bars) or 1
    room = WIDTH - NAMES - NUMBERS
    marks = []
    for n, (name, length, told, colour) in enumerate(bars):
        y, width = n * ROW, max(length / longest * room, 1.0)
        share = percent(length / longest)
        marks.append(
            f"<g><title>{text(f'{name}: {told}, {share} of the longest')}</title>"
            f'<text x="{NAMES - 8}" y="{y + 14}" text-anchor="end">{text(short(name, NAME))}</text>'
            f'<rect x="{NAMES}" y="{y + 3}" width="{width:.1f}" height="{ROW - 6}" fill="{colour}"/>'
            f'<text class="soft" x="{NAMES + width + 6:.1f}" y="{y + 14}">{text(told)}</text></g>'
        )
    yield f"<h2>{text(title)}</h2>"
    yield f'<svg viewBox="0 0 {WIDTH} {len(bars) * ROW}" width="100%" role="img">{"".join(marks)}</svg>'
