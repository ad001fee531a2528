"""Colours that drawings share, and what they stand for."""

from __future__ import annotations

from collections.abc import Iterable

from npuscope.report.document import html

COLOURS = (
    "#1f5fbf", "#c2571a", "#1a7f4b", "#8a3ab9", "#b3261e", "#0b7a8c",
    "#946b00", "#5b6573", "#d0417e", "#4a7c00", "#3d3d8f", "#7a4a2b",
)  # fmt: skip


def legend(colours: Iterable[tuple[str, str]], note: str = "") -> str:
    """Words, each with its colour."""
    dots = "".join(
        f'<span><span class="dot" style="background:{colour}"></span>{html(words)}</span>' for words, colour in colours
    )
    return f'<div class="legend">{dots}{f"<span>{html(note)}</span>" if note else ""}</div>'
