"""Variants in the order of their times, as text, and why the first one wins."""

from __future__ import annotations

from collections.abc import Sequence

from npuscope.analysis.comparison import Comparison
from npuscope.analysis.table import aligned, microseconds, percent, printable, short
from npuscope.report.check_text import many
from npuscope.report.explain_text import compare_text
from npuscope.simulate.results import Outcome
from npuscope.simulate.variants import Variant, best_by_setting

COLUMNS = ("", "variant", "wall µs", "to first", "tasks", "blocks", "bound", "fullest memory")
RIGHT = (True, False, True, True, True, True, False, False)
WIDTH = 100  # characters of a line


def title_of(files: Sequence[str], device: str, found: Sequence[Outcome]) -> str:
    failed = sum(one.error is not None for one in found)
    what = printable(files[0]) if len(files) == 1 else f"{len(files)} programs"
    cannot = f", {failed:,} of them cannot run" if failed else ""
    return f"{what} on {device}: {many(len(found), 'variant')}{cannot}"


def rank_text(title: str, found: Sequence[Outcome], baseline: Outcome, most: int, variants: Sequence[Variant]) -> str:
    """The table; `found` is ranked, `baseline` is the variant that was named first."""
    ran = [one for one in found if one.error is None]
    failed = [one for one in found if one.error is not None]
    lines = [title]
    if ran:
        lines += _table(ran[:most], baseline, variants)
    if len(ran) > most:
        lines.append(f"  … and {len(ran) - most:,} slower ones; --top shows more, --json all")
    settings = best_by_setting(variants, found)
    if len(settings) > 1 and ran:
        lines += ["", "each setting at its best, µs, whatever the others are"]
        lines += aligned([(name, _best(best)) for name, best in settings.items()], (False, False))
    if failed:
        lines += ["", "cannot run", *_failures(failed, most)]
    return "\n".join(lines)


def _table(ran: Sequence[Outcome], baseline: Outcome, variants: Sequence[Variant]) -> list[str]:
    """As much as fits a line: first without the fullest function, then with the settings' names in a line above."""
    found: list[str] = []
    for names, above in (({variant.name: variant.name for variant in variants}, []), without_names(variants)):
        for with_function in (True, False):
            rows = [_row(number, one, names[one.variant], baseline, with_function) for number, one in enumerate(ran, 1)]
            found = [*above, *(table := aligned([COLUMNS, *rows], RIGHT))]
            if max(map(len, table)) <= WIDTH:
                return found
    return found


def without_names(variants: Sequence[Variant]) -> tuple[dict[str, str], list[str]]:
    """Names of variants without the names of their settings, and the line that tells those."""
    found = {}
    for variant in variants:
        named = " ".join(f"{name}={value}" for name, value in variant.settings)
        found[variant.name] = variant.name.removesuffix(named) + ", ".join(value for _, value in variant.settings)
    names = ", ".join(name for name, _ in variants[0].settings)
    return found, [f"variants are values of {printable(names)}"] if names else []


def _row(number: int, one: Outcome, name: str, baseline: Outcome, with_function: bool) -> list[str]:
    ratio = one.wall_ns / baseline.wall_ns if one.wall_ns is not None and baseline.wall_ns else None
    memory = one.memory
    full = f"{memory.space} {percent(memory.share)}" if memory else "–"
    return [
        str(number),
        short(name, 80),
        microseconds(one.wall_ns),
        "–" if ratio is None else f"{ratio:.3f}x",
        f"{one.tasks:,}",
        f"{one.blocks:,}",
        one.bound or "–",
        short(f"{full} ({memory.function})" if memory and with_function else full),
    ]


def _failures(failed: Sequence[Outcome], most: int) -> list[str]:
    """Errors with the variants that have them."""
    alike: dict[str, list[str]] = {}
    for one in failed:
        alike.setdefault(one.error or "", []).append(one.variant)
    lines = []
    for error, names in list(alike.items())[:most]:
        more = f" and {many(len(names) - 1, 'other')}" if len(names) > 1 else ""
        lines.append(f"  {short(names[0], 80)}{more}: {printable(error)}")
    return lines + ([f"  … and {len(alike) - most:,} other errors"] if len(alike) > most else [])


def _best(best: dict[str, int | None]) -> str:
    order = sorted(best.items(), key=lambda one: (one[1] is None, one[1] or 0))
    told = (f"{printable(value)}: {'cannot run' if ns is None else microseconds(ns)}" for value, ns in order)
    return ", ".join(told)


def why_text(slower: Outcome, winner: Outcome, comparison: Comparison) -> str:
    """Why the winner, B, beats A."""
    gain = 1 - (winner.wall_ns or 0) / slower.wall_ns if slower.wall_ns else 0.0
    names = slower.variant, winner.variant
    head = f"why {printable(names[1])} wins: {percent(gain)} less time than {printable(names[0])}"
    return f"{head} (below, a run's time begins when its first task starts)\n{compare_text(names, comparison)}"
