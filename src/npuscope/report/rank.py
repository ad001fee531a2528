"""Variants in the order of their times as a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from npuscope.answer.answer import Answer, Fullest
from npuscope.answer.rank import against_first, best_by_setting, variant_table
from npuscope.answer.request import Request
from npuscope.explain.comparison import Comparison
from npuscope.explain.diagnosis import CAUSES
from npuscope.report.charts.variants import knobs_chart, variants_chart, without_names
from npuscope.report.comparison import compare
from npuscope.table.formats import duration, many, percent, short
from npuscope.table.parts import Chart, Heading, In, Notes, Part, Rows, Say
from npuscope.time.uncertainty import chance_told, estimate_told

WIDTH = 100  # characters of a line


def title_of(files: Sequence[str], device: str, found: Sequence[Answer]) -> str:
    failed = sum(one.error is not None for one in found)
    what = files[0] if len(files) == 1 else f"{len(files)} programs"
    cannot = f", {failed:,} of them cannot run" if failed else ""
    return f"{what} on {device}: {many(len(found), 'variant')}{cannot}"


def rank(
    title: str, found: Sequence[Answer], baseline: Answer, most: int, variants: Sequence[Request]
) -> Iterator[Part]:
    """The table; `found` is ranked, `baseline` is the variant that was named first."""
    ran = [one for one in found if one.error is None]
    failed = [one for one in found if one.error is not None]
    yield Heading(title, 1)
    yield Chart(knobs_chart(found, variants))
    yield Chart(variants_chart(found, baseline))
    if ran:
        yield from _fitting(ran, baseline, most, variants)
        yield Rows(variant_table(ran, baseline), where=In.POSTED)
    if told := dict.fromkeys(one.message for one in ran if one.message):
        yield Notes([f"notice: {message}" for message in told])
    settings = best_by_setting(variants, found)
    if len(settings) > 1 and ran:
        yield Heading("each setting at its best, whatever the others are", where=In.TEXT)
        yield Notes([f"{name}  {_best(best)}" for name, best in settings.items()], where=In.TEXT)
    if failed:
        yield Heading("cannot run")
        yield Notes(_failures(failed, most))


def headline(found: Sequence[Answer], baseline: Answer) -> Iterator[Part]:
    """Which is the fastest, how sure that is, and what limits it."""
    ran = [one for one in found if one.error is None]
    yield Say(_fastest(ran, baseline) if ran else "None of them can run.", strong=True)
    if ran and ran[0].bound_message:
        yield Say(ran[0].bound_message)


def _fastest(ran: Sequence[Answer], baseline: Answer) -> str:
    best, *others = ran
    wall = best.time
    assert wall is not None
    told = f"{best.candidate} is the fastest: {estimate_told(wall)}"
    other = baseline if baseline.wall_ns and baseline.wall_ns != best.wall_ns else next(iter(others), None)
    if other is None or not other.wall_ns or best.wall_ns is None:
        return f"{told}."
    if other.wall_ns == best.wall_ns:
        return f"{told}, as {other.candidate}."
    versus = against_first(best, other)
    sure = "" if versus is None else f", faster with a probability of {chance_told(versus)}"
    return f"{told}, {percent(1 - best.wall_ns / other.wall_ns)} less than {other.candidate}{sure}."


def _fitting(ran: Sequence[Answer], baseline: Answer, most: int, variants: Sequence[Request]) -> Iterator[Part]:
    """As much as fits a line: first without the fullest function, then with the settings' names in a line above."""
    whole = {variant.name: variant.name for variant in variants}
    layouts = [(*names, function) for names in ((whole, []), without_names(variants)) for function in (True, False)]
    for names, above, function in layouts:
        shown = [replace(one, candidate=names[one.candidate], memory=_memory(one.memory, function)) for one in ran]
        table, told = variant_table(shown, baseline), above
        if max(map(len, table.lines(most))) <= WIDTH:
            break
    for line in told:
        yield Heading(line, where=In.TEXT)
    yield Rows(table, most, where=In.TEXT)
    if len(ran) > most:
        yield Notes(["--top shows more, --json all"], where=In.TEXT)
    yield Notes(_meaning(ran, baseline), where=In.TEXT)


def _meaning(ran: Sequence[Answer], baseline: Answer) -> list[str]:
    """What the kinds of causes, the interval and the probability mean."""
    lines = [f"{kind}: {cause.meaning}" for kind, cause in CAUSES.items() if any(one.bound == kind for one in ran)]
    if any(against_first(one, baseline) for one in ran):
        lines.append("80%: measured ratios lie in there so often; faster: the probability of a ratio below 1")
    return lines


def _memory(memory: Fullest | None, function: bool) -> Fullest | None:
    return memory if memory is None or function else replace(memory, function="")


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
