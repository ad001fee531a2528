"""Variants drawn: a bar each, the fastest first, coloured by what bounds it; each setting at its best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from npuscope.analysis.forms import duration, percent, short
from npuscope.report.document import html
from npuscope.report.drawings.legend import COLOURS, legend
from npuscope.simulate.bound import LIMITS
from npuscope.simulate.estimate_forms import chance_told, estimate_told, interval_told
from npuscope.simulate.uncertainty import Estimate
from npuscope.study.results import Outcome, against_first, wall_estimate
from npuscope.study.variants import Variant, best_by_setting

WIDTH, NAMES, NUMBERS, ROW = 1180, 300, 430, 20
LINE = 'fill="none" stroke="currentColor"'
MEANING = (
    "Thin lines: measured, a time lies in there 80 % of the time. Ratios are to the first variant, with their own "
    "interval; faster is the probability that the variant is."
)
NAME = 42  # characters of a name beside a bar
MOST = 300  # bars
BOUND = {limit: COLOURS[n % len(COLOURS)] for n, limit in enumerate(LIMITS)}


@dataclass(frozen=True)
class Bar:
    """A bar, what stands beside it, and where the measured value is likely to lie."""

    name: str
    length: int
    told: str
    colour: str
    likely: Estimate | None = None

    @property
    def end(self) -> float:
        return self.length if self.likely is None else self.likely.high


def charts(found: Sequence[Outcome], baseline: Outcome, variants: Sequence[Variant]) -> str:
    """Variants that run, the fastest first, and each setting at its best; `baseline` was named first."""
    ran = [one for one in found if one.error is None]
    shown = ran[:MOST]
    names, above = {variant.name: variant.name for variant in variants}, list[str]()
    if max(map(len, names)) > NAME:
        names, above = without_names(variants)
    bars = [
        Bar(
            names[one.variant],
            one.wall_ns or 0,
            _told(one, baseline),
            BOUND.get(one.bound or "", "gray"),
            wall_estimate(one),
        )
        for one in shown
    ]
    above += [MEANING] if shown else []
    above += [f"The fastest {MOST:,} of {len(ran):,} are drawn."] if len(ran) > MOST else []
    present = dict.fromkeys(one.bound for one in shown if one.bound)
    parts = [*_chart("Variants", bars)]
    parts.append(legend(((f"{limit}-bound", BOUND.get(limit, "gray")) for limit in present), " ".join(above)))
    for name, best in best_by_setting(variants, found).items():
        bars = [Bar(value, ns, f"{duration(ns)}", COLOURS[0]) for value, ns in best.items() if ns is not None]
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
    wall, versus = wall_estimate(one), against_first(one, baseline)
    told = "" if wall is None else estimate_told(wall.times(1e-3), "µs")
    if versus is None:
        return told
    ratio = f"{versus.ratio.value:.3f}x (80 %: {interval_told(versus.ratio)})"
    return f"{told}, {ratio}, faster {chance_told(versus)}"


def _chart(title: str, bars: Sequence[Bar]) -> Iterator[str]:
    """Bars from zero."""
    if not bars:
        return
    longest = max(bar.length for bar in bars) or 1
    most = max(bar.end for bar in bars) or 1
    room = WIDTH - NAMES - NUMBERS
    marks = []
    for n, bar in enumerate(bars):
        y, width = n * ROW, max(bar.length / most * room, 1.0)
        share = percent(bar.length / longest)
        marks.append(
            f"<g><title>{html(f'{bar.name}: {bar.told}, {share} of the longest')}</title>"
            f'<text x="{NAMES - 8}" y="{y + 14}" text-anchor="end">{html(short(bar.name, NAME))}</text>'
            f'<rect x="{NAMES}" y="{y + 3}" width="{width:.1f}" height="{ROW - 6}" fill="{bar.colour}"/>'
        )
        if bar.likely is not None:
            low, high = (NAMES + value / most * room for value in (bar.likely.low, bar.likely.high))
            marks.append(f'<path d="M{low:.1f} {y + 10}H{high:.1f}M{low:.1f} {y + 6}v8M{high:.1f} {y + 6}v8" {LINE}/>')
        at = NAMES + max(bar.end / most * room, 1.0) + 6
        marks.append(f'<text class="soft" x="{at:.1f}" y="{y + 14}">{html(bar.told)}</text></g>')
    yield f"<h2>{html(title)}</h2>"
    yield f'<svg viewBox="0 0 {WIDTH} {len(bars) * ROW}" width="100%" role="img">{"".join(marks)}</svg>'
