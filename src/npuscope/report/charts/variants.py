"""Variants: a bar each, the fastest first, by what bounds it; every setting against time, the best marked."""

from __future__ import annotations

from collections.abc import Sequence

from npuscope.answer.answer import Answer
from npuscope.answer.rank import against_first, best_by_setting
from npuscope.answer.request import Request
from npuscope.explain.diagnosis import CAUSES
from npuscope.table.formats import figures
from npuscope.table.parts import Spec, axis
from npuscope.time.uncertainty import chance_told, estimate_told, interval_told

MEANING = (
    "Thin lines: where 80% of measured times lie. Ratios are to the first variant, with their own interval; faster is "
    "the probability that the variant is."
)
MOST = 300  # bars
MOST_POINTS = 5000  # of all settings


def variants_chart(found: Sequence[Answer], baseline: Answer) -> Spec | None:
    """Variants that run, the fastest first; `baseline` was named first."""
    ran = [one for one in found if one.error is None]
    if not ran:
        return None
    present = [kind for kind in CAUSES if any(one.bound == kind for one in ran[:MOST])]
    rows = []
    for place, one in enumerate(ran[:MOST]):
        wall = one.time
        rows.append(
            {
                "name": one.candidate,
                "value": one.wall_ns,
                "group": present.index(one.bound) if one.bound in present else 0,
                "low": None if wall is None else wall.low,
                "high": None if wall is None else wall.high,
                "text": told_of(one, baseline),
                "best": place == 0,
            }
        )
    more = f" The fastest {MOST:,} of {len(ran):,} are drawn." if len(ran) > MOST else ""
    return {
        "chart": "bars",
        "title": "Variants, the fastest first",
        "form": "ns",
        "groups": [f"limited by {kind}" for kind in present],
        "rows": rows,
        "note": MEANING + more,
    }


def knobs_chart(found: Sequence[Answer], variants: Sequence[Request]) -> Spec | None:
    """Every setting with several values: all variants as points over its values, the best of each value joined."""
    times = {one.candidate: one.wall_ns for one in found if one.wall_ns is not None}
    settings = best_by_setting(variants, found)
    if not settings or not times:
        return None
    winner = min(times, key=lambda name: times[name])
    knobs = []
    room = MOST_POINTS // len(settings)
    for name, best in settings.items():
        values = sorted(best, key=_order)
        place = {value: n for n, value in enumerate(values)}
        points = [
            {"x": place[dict(one.settings)[name]], "y": times[one.name], "name": one.name, "best": one.name == winner}
            for one in variants
            if one.name in times and name in dict(one.settings)
        ]
        points.sort(key=lambda point: (not point["best"], point["y"]))
        knobs.append(
            {
                "name": name,
                "values": values,
                "best": [best[value] for value in values],
                "points": points[:room],
                "left_out": max(len(points) - room, 0),
            }
        )
    return {
        "chart": "knobs",
        "title": "Every setting against time",
        "y": axis("wall", "ns"),
        "knobs": knobs,
        "winner": winner,
        "note": "The line joins the best time of each value, whatever the others are; the ring marks the best of all: "
        f"{winner}.",
    }


def _order(value: str) -> tuple[int, float, str]:
    """Numbers by size, then words."""
    try:
        return 0, float(value), value
    except ValueError:
        return 1, 0.0, value


def told_of(one: Answer, baseline: Answer) -> str:
    """Its time and how it stands against the first."""
    wall, versus = one.time, against_first(one, baseline)
    told = "" if wall is None else estimate_told(wall)
    if versus is None:
        return told
    ratio = f"{figures(versus.ratio.value)}x (80%: {interval_told(versus.ratio)})"
    return f"{told}, {ratio}, faster {chance_told(versus)}"


def without_names(variants: Sequence[Request]) -> tuple[dict[str, str], list[str]]:
    """Names of variants without the names of their settings, and the line that tells those."""
    found = {}
    for variant in variants:
        named = " ".join(f"{name}={value}" for name, value in variant.settings)
        found[variant.name] = variant.name.removesuffix(named) + ", ".join(value for _, value in variant.settings)
    names = ", ".join(name for name, _ in variants[0].settings)
    return found, [f"variants are values of {names}"] if names else []
