"""Variants in the order of their times, as text, and why the first one wins."""

from __future__ import annotations

from collections.abc import Sequence

from npuscope.analysis.comparison import Comparison
from npuscope.analysis.table import aligned, microseconds, percent, printable, short
from npuscope.report.check_text import many
from npuscope.report.explain_text import compare_text
from npuscope.simulate.variants import Outcome

COLUMNS = ("", "variant", "wall µs", "to first", "tasks", "blocks", "bound", "fullest memory")
RIGHT = (True, False, True, True, True, True, False, False)


def rank_text(title: str, found: Sequence[Outcome], baseline: Outcome, most: int) -> str:
    """The table; `found` is ranked, `baseline` is the variant that was named first."""
    ran = [one for one in found if one.error is None]
    failed = [one for one in found if one.error is not None]
    lines = [f"{printable(title)}: {many(len(found), 'variant')}, {len(failed)} of them cannot run"]
    rows = [_row(number, one, baseline) for number, one in enumerate(ran[:most], 1)]
    if rows:
        lines += aligned([COLUMNS, *rows], RIGHT)
    if len(ran) > most:
        lines.append(f"  … and {len(ran) - most:,} slower ones; --top shows more, --json all")
    if failed:
        lines += ["", "cannot run"]
        lines += [f"  {short(one.variant, 80)}: {printable(one.error or '')}" for one in failed[:most]]
    if len(failed) > most:
        lines.append(f"  … and {len(failed) - most:,} more")
    return "\n".join(lines)


def _row(number: int, one: Outcome, baseline: Outcome) -> list[str]:
    ratio = one.wall_ns / baseline.wall_ns if one.wall_ns is not None and baseline.wall_ns else None
    memory = one.memory
    full = f"{memory['space']} {percent(memory['share'])} ({memory['function']})" if memory else "–"
    return [
        str(number),
        short(one.variant, 80),
        microseconds(one.wall_ns),
        "–" if ratio is None else f"{ratio:.3f}x",
        f"{one.tasks:,}",
        f"{one.blocks:,}",
        one.bound or "–",
        short(full),
    ]


def why_text(names: tuple[str, str], comparison: Comparison) -> str:
    """Why the winner, B, beats A."""
    gain = 1 - comparison.b.work.wall / comparison.a.work.wall if comparison.a.work.wall else 0.0
    head = f"why {printable(names[1])} wins: {percent(gain)} less time than {printable(names[0])}"
    return f"{head}\n{compare_text(names, comparison)}"
