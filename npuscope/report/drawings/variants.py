"""Variants drawn: a bar each, the fastest first, coloured by what bounds it; each setting at its best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from npuscope.analysis.forms import microseconds, percent, short
from npuscope.report.document import html
from npuscope.report.drawings.legend import COLOURS, legend
from npuscope.simulate.bound import LIMITS
from npuscope.simulate.results import Outcome
from npuscope.simulate.variants import Variant, best_by_setting

WIDTH, NAMES, NUMBERS, ROW = 980, 340, 190, 20
NAME = 42  # characters of a name beside a bar
MOST = 300  # bars
BOUND = {limit: COLOURS[n % len(COLOURS)] for n, limit in enumerate(LIMITS)}


def charts(found: Sequence[Outcome], baseline: Outcome, variants: Sequence[Variant]) -> str:
    """Variants that run, the fastest first, and each setting at its best; `baseline` was named first."""
    ran = [one for one in found if one.error is None]
    shown = ran[:MOST]
    names, above = {variant.name: variant.name for variant in variants}, list[str]()
    if max(map(len, names)) > NAME:
        names, above = without_names(variants)
    bars = [
        (names[one.variant], one.wall_ns or 0, _told(one, baseline), BOUND.get(one.bound or "", "gray"))
        for one in shown
    ]
    above += [f"The fastest {MOST:,} of {len(ran):,} are drawn."] if len(ran) > MOST else []
    present = dict.fromkeys(one.bound for one in shown if one.bound)
    parts = [*_chart("Variants", bars)]
    parts.append(legend(((f"{limit}-bound", BOUND.get(limit, "gray")) for limit in present), " ".join(above)))
    for name, best in best_by_setting(variants, found).items():
        bars = [(value, ns, f"{microseconds(ns)} µs", COLOURS[0]) for value, ns in best.items() if ns is not None]
        parts += _chart(f"{name} at its best, whatever the others are", bars)
    return "".join(parts)


def without_names(variants: Sequence[Variant]) -> tuple[dict[str, str], list[str]]:
    """Names of variants without the names of their settings, and the line that tells those."""
    found = {}
    for variant in variants:
        named = " ".join(f"{name}={value}" for name, value in variant.settings)
        found[variant.name] = variant.name.removesuffix(named) + ", ".join(value for _, value in variant.settings)
    names = ", ".join(name for name, _ in variants[0].settings)
    return found, [f"variants are values of {names}"] if names else []


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
            f"<g><title>{html(f'{name}: {told}, {share} of the longest')}</title>"
            f'<text x="{NAMES - 8}" y="{y + 14}" text-anchor="end">{html(short(name, NAME))}</text>'
            f'<rect x="{NAMES}" y="{y + 3}" width="{width:.1f}" height="{ROW - 6}" fill="{colour}"/>'
            f'<text class="soft" x="{NAMES + width + 6:.1f}" y="{y + 14}">{html(told)}</text></g>'
        )
    yield f"<h2>{html(title)}</h2>"
    yield f'<svg viewBox="0 0 {WIDTH} {len(bars) * ROW}" width="100%" role="img">{"".join(marks)}</svg>'
