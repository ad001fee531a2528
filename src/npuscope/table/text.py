"""Plain text for a terminal: colours by what words are, and rows of even columns. Pipes get no colour."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from shutil import get_terminal_size
from textwrap import wrap
from typing import TextIO

Paint = Callable[[str, str], str]  # words and what they are -> words as shown

CODES = {"headline": "1", "heading": "1", "good": "32", "bad": "31", "error": "1;31", "warning": "33", "soft": "2"}
NARROWEST = 40  # characters that lines are wrapped to, at least
NUMERIC = re.compile(r"[-+<]?[\d,]+(\.\d+)?")


def plain(words: str, what: str) -> str:
    return words


def ansi(words: str, what: str) -> str:
    code = CODES.get(what)
    return f"\x1b[{code}m{words}\x1b[0m" if code and words.strip() else words


def paint_for(stream: TextIO) -> Paint:
    """Colour on a terminal, unless NO_COLOR is set (no-color.org); FORCE_COLOR wants it anywhere."""
    if os.environ.get("NO_COLOR"):
        return plain
    wanted = bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")
    return ansi if wanted else plain


def width_of(stream: TextIO) -> int | None:
    """How wide lines may be: as the terminal; a pipe and a file get them whole."""
    return max(get_terminal_size().columns, NARROWEST) if stream.isatty() else None


def wrapped(line: str, width: int | None) -> list[str]:
    """A line as several where it is too long, those that follow indented like it. Code stays in one line."""
    indent = line[: len(line) - len(line.lstrip())]
    if width is None or len(line) <= width or line.startswith("+", len(indent)):
        return [line]
    return wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def aligned(
    rows: Sequence[Sequence[str]],
    right: Iterable[bool],
    colours: Sequence[Sequence[str]] = (),
    paint: Paint = plain,
) -> list[str]:
    """Rows of cells as lines of even columns, some to the right, where points stand below one another."""
    columns = [
        _to_the_right(cells) if side else [cell.ljust(max(map(len, cells))) for cell in cells]
        for cells, side in zip(zip(*rows, strict=True), right, strict=True)
    ]
    lines = []
    for number, (*first, last) in enumerate(zip(*columns, strict=True)):
        cells = [*first, last.rstrip()]  # a colour would keep the spaces at the end
        if colours:
            cells = [paint(cell, how) for cell, how in zip(cells, colours[number], strict=True)]
        lines.append("  " + "  ".join(cells).rstrip())
    return lines


def _to_the_right(cells: Sequence[str]) -> list[str]:
    """A heading and numbers below it, their points in one line; what ends in a word or a sign ends the line."""
    heading, *numbers = cells
    decimals = [len(cell) - 1 - cell.rfind(".") if NUMERIC.fullmatch(cell) and "." in cell else -1 for cell in numbers]
    most = max(decimals, default=-1)
    padded = [
        cell + " " * (most - there) if NUMERIC.fullmatch(cell) else cell
        for cell, there in zip(numbers, decimals, strict=True)
    ]
    width = max(map(len, [heading, *padded]))
    return [cell.rjust(width) for cell in (heading, *padded)]
