"""Variants of programs and settings in the order of their times, and a search among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from npuscope.answer.answer import Answer
from npuscope.answer.rank import against_first, best_by_setting, ranked, variant_rows, variant_table
from npuscope.answer.request import Request
from npuscope.answer.tune import Tuned
from npuscope.explain.comparison import Comparison
from npuscope.explain.diagnosis import CAUSES
from npuscope.report.comparison import compare
from npuscope.table.formats import duration, estimate_text, figures, interval_text, many, percent, short
from npuscope.table.parts import Chart, Heading, In, Notes, Part, Rows, Say, Spec, axis

WIDTH = 100  # characters of a line
BARS, POINTS = 300, 5000  # drawn, points of all settings together
BARS_MEANING = (
    "Thin lines: where 80% of measured times lie. Ratios are to the first variant, with their own interval and how "
    "likely the variant is faster or slower."
)


def rank(
    files: Sequence[str],
    found: Sequence[Answer],
    baseline: Answer,
    most: int,
    variants: Sequence[Request],
) -> Iterator[Part]:
    """Which is the fastest, how sure that is, what limits it; then all of them, as `_table` has them."""
    ran = [one for one in found if one.error is None]
    yield Say(_fastest(ran, baseline) if ran else "None of them can run.", strong=True)
    if ran and ran[0].bound_message:
        yield Say(ran[0].bound_message)
    what = files[0] if len(files) == 1 else f"{len(files)} programs"
    failed = len(found) - len(ran)
    cannot = f", {failed:,} of them cannot run" if failed else ""
    yield from _table(
        f"{what} on {baseline.device}: {many(len(found), 'variant')}{cannot}", found, baseline, most, variants
    )


def _table(
    title: str, found: Sequence[Answer], baseline: Answer, most: int, variants: Sequence[Request]
) -> Iterator[Part]:
    """`found` is ranked, `baseline` is the variant that was named first."""
    ran = [one for one in found if one.error is None]
    failed = [one for one in found if one.error is not None]
    yield Heading(title, 1)
    yield Chart(knobs_chart(found, variants))
    yield Chart(variants_chart(found, baseline))
    if ran:
        yield from _fitting(ran, baseline, most, variants)
        yield Rows(variant_table(ran, baseline), where=In.POSTED)
    if messages := dict.fromkeys(one.message for one in ran if one.message):
        yield Notes([f"notice: {message}" for message in messages])
    settings = best_by_setting(variants, found)
    if len(settings) > 1 and ran:
        yield Heading("each setting at its best, whatever the others are", where=In.TEXT)
        yield Notes([f"{name}  {_best(best)}" for name, best in settings.items()], where=In.TEXT)
    if failed:
        yield Heading("cannot run")
        yield Notes(_failures(failed, most))


def _fastest(ran: Sequence[Answer], baseline: Answer) -> str:
    best, *others = ran
    wall = best.time
    assert wall is not None
    text = f"{best.candidate} is the fastest: {estimate_text(wall)}"
    other = baseline if baseline.wall_ns and baseline.wall_ns != best.wall_ns else next(iter(others), None)
    if other is None or not other.wall_ns or best.wall_ns is None:
        return f"{text}."
    if other.wall_ns == best.wall_ns:
        return f"{text}, as {other.candidate}."
    versus = against_first(best, other)
    sure = "" if versus is None else f" ({versus})"
    return f"{text}, {percent(1 - best.wall_ns / other.wall_ns)} less than {other.candidate}{sure}."


def _fitting(ran: Sequence[Answer], baseline: Answer, most: int, variants: Sequence[Request]) -> Iterator[Part]:
    """As much as fits a line: first without the fullest function, then with the settings' names in a line above."""
    whole = {variant.name: variant.name for variant in variants}
    layouts = [(*names, function) for names in ((whole, []), _without_names(variants)) for function in (True, False)]
    for names, above, function in layouts:
        shown = [replace(one, candidate=names[one.candidate]) for one in ran]
        if not function:
            shown = [replace(one, memory=one.memory and replace(one.memory, function="")) for one in shown]
        table, lines_above = variant_table(shown, baseline), above
        if max(map(len, table.lines(most))) <= WIDTH:
            break
    for line in lines_above:
        yield Heading(line, where=In.TEXT)
    yield Rows(table, most, where=In.TEXT)
    if len(ran) > most:
        yield Notes(["--top shows more, --json all"], where=In.TEXT)
    lines = [f"{kind}: {cause.meaning}" for kind, cause in CAUSES.items() if any(one.bound == kind for one in ran)]
    if any(against_first(one, baseline) for one in ran):
        lines.append("80%: measured ratios lie in there so often; likely faster: the probability of a ratio below 1")
    yield Notes(lines, where=In.TEXT)


def _failures(failed: Sequence[Answer], most: int) -> list[str]:
    """Errors with the variants that have them."""
    alike: dict[str, list[str]] = {}
    for one in failed:
        alike.setdefault(one.error or "", []).append(one.candidate)
    lines = []
    for error, names in list(alike.items())[:most]:
        more = f" and {many(len(names) - 1, 'other')}" if len(names) > 1 else ""
        lines.append(f"{short(names[0], 80)}{more}: {error}")
    return lines + ([f"… and {len(alike) - most:,} other errors"] if len(alike) > most else [])


def _best(best: dict[str, int | None]) -> str:
    order = sorted(best.items(), key=lambda one: (one[1] is None, one[1] or 0))
    return ", ".join(f"{value}: {'cannot run' if ns is None else duration(ns)}" for value, ns in order)


def why(names: tuple[str, str], comparison: Comparison) -> Iterator[Part]:
    """Why the second beats the first."""
    yield Heading("Why:", where=In.TEXT)
    yield from compare(names, comparison)


def tune(file: str, tuned: Tuned, top: int, comparison: Comparison | None) -> Iterator[Part]:
    """The headline, the table of the best, the front where one was asked for, and why the best one wins."""
    first = tuned.answers[0]
    yield Heading(_tuned_headline(file, tuned), 1)
    if tuned.best is not None and tuned.best.bound_message:
        yield Say(tuned.best.bound_message, strong=True)
    yield Notes(_how_tuned(tuned))
    able = {one.candidate: one for one in tuned.answers if one.error is None}
    if able:
        tried = [variant for variant in tuned.variants if variant.name in able]
        yield from _table("the best of them", ranked([*able.values()]), first, top, tried)
    if tuned.front:
        yield Heading("none of these is beaten in both: time against what it takes")
        yield Rows(variant_table(tuned.front, first), top)
    if comparison is not None and tuned.best is not None:
        yield from why((first.candidate, tuned.best.candidate), comparison)


def _tuned_headline(file: str, tuned: Tuned) -> str:
    """`layer.py: 45.1 µs with TILE=128, from 96 µs (−53.0%, 91% likely faster)`."""
    best, first = tuned.best, tuned.answers[0]
    if best is None:
        return f"{file} on {tuned.answers[0].device}: nothing was found that runs and is right"
    text = f"{file} on {tuned.answers[0].device}: {duration(best.wall_ns or 0)} with {best.candidate}"
    if first.wall_ns is None:
        return f"{text}; as it is it does not run"
    if best.candidate == first.candidate or not best.wall_ns or best.wall_ns >= first.wall_ns:
        return f"{file} on {tuned.answers[0].device}: {duration(first.wall_ns)} as it is, and nothing faster was found"
    less, sure = percent(1 - best.wall_ns / first.wall_ns), against_first(best, first)
    return f"{text}, from {duration(first.wall_ns)} (−{less}{'' if sure is None else f', {sure}'})"


def _how_tuned(tuned: Tuned) -> list[str]:
    tried, size = len(tuned.answers), tuned.space.size
    lines = [
        f"{'all' if tried == size else f'{tried:,} of {size:,}'} combinations of "
        f"{many(len(tuned.space.settings), 'setting')} were tried: {tuned.simulated:,} simulated, {tuned.pruned:,} "
        "dropped because they cannot run"
    ]
    lines += [f"{name}: {', '.join(values)}" for name, values in tuned.space.settings]
    if failed := [one for one in tuned.answers if one.error is not None]:
        lines.append(f"one of those dropped: {failed[0].candidate}: {failed[0].error}")
    for name, numbers in tuned.golden:
        taken = ", and so it is not taken" if numbers.right is False else ""
        lines.append(f"{name}: {numbers.message or 'its numbers are right'}{taken}")
    return lines


def tune_data(file: str, tuned: Tuned) -> dict[str, object]:
    """The contract of `npuscope tune --json` (docs/reference/json.md)."""
    settings = {variant.name: dict(variant.settings) for variant in tuned.variants}
    first = tuned.answers[0]

    def rows(found: list[Answer]) -> list[dict[str, object]]:
        return variant_rows(found, first, settings)

    return {
        "file": file,
        "device": tuned.answers[0].device,
        "space": {name: list(values) for name, values in tuned.space.settings},
        "size": tuned.space.size,
        "simulated": tuned.simulated,
        "dropped": tuned.pruned,
        "best": None if tuned.best is None else rows([tuned.best])[0],
        "golden": [{"variant": name, "passed": one.right, "message": one.message} for name, one in tuned.golden],
        "front": rows(list(tuned.front)),
        "variants": rows(ranked(tuned.answers)),
    }


def variants_chart(found: Sequence[Answer], baseline: Answer) -> Spec | None:
    """Variants that run, the fastest first; `baseline` was named first."""
    ran = [one for one in found if one.error is None]
    if not ran:
        return None
    present = [kind for kind in CAUSES if any(one.bound == kind for one in ran[:BARS])]
    rows = []
    for place, one in enumerate(ran[:BARS]):
        wall = one.time
        rows.append(
            {
                "name": one.candidate,
                "value": one.wall_ns,
                "group": present.index(one.bound) if one.bound in present else 0,
                "low": None if wall is None else wall.low,
                "high": None if wall is None else wall.high,
                "text": _bar_text(one, baseline),
                "best": place == 0,
            }
        )
    more = f" The fastest {BARS:,} of {len(ran):,} are drawn." if len(ran) > BARS else ""
    return {
        "chart": "bars",
        "title": "Variants, the fastest first",
        "form": "ns",
        "groups": [f"limited by {kind}" for kind in present],
        "rows": rows,
        "note": BARS_MEANING + more,
    }


def knobs_chart(found: Sequence[Answer], variants: Sequence[Request]) -> Spec | None:
    """Every setting with several values: all variants as points over its values, the best of each value joined."""
    times = {one.candidate: one.wall_ns for one in found if one.wall_ns is not None}
    settings = best_by_setting(variants, found)
    if not settings or not times:
        return None
    winner = min(times, key=lambda name: times[name])
    knobs = []
    room = POINTS // len(settings)
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


def _bar_text(one: Answer, baseline: Answer) -> str:
    """Its time and how it stands against the first."""
    wall, versus = one.time, against_first(one, baseline)
    text = "" if wall is None else estimate_text(wall)
    if versus is None:
        return text
    ratio = f"{figures(versus.ratio.value)}x (80%: {interval_text(versus.ratio)})"
    return f"{text}, {ratio}, {versus}"


def _without_names(variants: Sequence[Request]) -> tuple[dict[str, str], list[str]]:
    """Names of variants without the names of their settings, and the line that names those."""
    found = {}
    for variant in variants:
        named = " ".join(f"{name}={value}" for name, value in variant.settings)
        found[variant.name] = variant.name.removesuffix(named) + ", ".join(value for _, value in variant.settings)
    names = ", ".join(name for name, _ in variants[0].settings)
    return found, [f"variants are values of {names}"] if names else []
