"""Tables and numbers of a page in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

DASH = "–"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]


def number(value: float) -> str:
    """Three digits, or whole numbers; never a power of ten."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


def percent(value: float | None) -> str:
    return DASH if value is None or value != value else f"{100 * value:.0f} %"


def correlation(value: float) -> str:
    return DASH if value != value else f"{value:.2f}"


def listed(lines: Iterable[str]) -> list[str]:
    return [f"* {line}" for line in lines]
