"""Results that print as a table, show as one in a notebook, and convert to a Polars frame."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from html import escape
from math import ceil

import polars as pl

WIDEST = 56  # characters of a text cell
LEVELS = " ▁▂▃▄▅▆▇█"
MOST = 20  # rows printed of a long table


class Tabular(ABC):
    """A result whose heart is one table. Subclasses are frozen dataclasses with `repr=False`."""

    @abstractmethod
    def frame(self) -> pl.DataFrame:
        """The result as a Polars frame; times are integer nanoseconds."""

    def title(self) -> str:
        """One line above the table."""
        return type(self).__name__

    def __str__(self) -> str:
        return "\n".join([self.title(), *frame_lines(self.frame())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.title())}</p>{self.frame()._repr_html_()}"


def frame_lines(frame: pl.DataFrame, most: int = MOST) -> list[str]:
    """A frame as aligned text. Columns that end in `_ns` are shown in microseconds, floats as they are read."""
    names = [heading(name) for name in frame.columns]
    rows = [
        [short(cell(name, value)) for name, value in zip(frame.columns, row, strict=True)]
        for row in frame.head(most).rows()
    ]
    numeric = [dtype.is_numeric() for dtype in frame.dtypes]
    lines = aligned([names, *rows], numeric)
    if frame.height > most:
        lines.append(f"  … and {frame.height - most:,} more rows")
    return lines


def heading(column: str) -> str:
    """A column's name as people read it, with its unit."""
    return column[:-3] + " µs" if column.endswith("_ns") else column


def cell(column: str, value: object) -> str:
    """A value as people read it, in the unit of its column's heading."""
    if value is None:
        return "–"
    if column.endswith("_ns") and isinstance(value, int | float):
        return microseconds(value)
    if isinstance(value, float):
        return f"{value:,.3f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def aligned(rows: Sequence[Sequence[str]], right: Iterable[bool]) -> list[str]:
    """Rows of cells as lines of even columns, some to the right."""
    sides = list(right)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, sides, strict=True)).rstrip()
        for row in rows
    ]


def printable(text: str) -> str:
    """Names come from captures: what would move a terminal's cursor is shown, not obeyed."""
    return "".join(c if c.isprintable() else "�" for c in text)


def short(text: str, width: int = WIDEST) -> str:
    """A name that fits a table."""
    return printable(text if len(text) <= width else text[: width - 1] + "…")


def microseconds(ns: float | None) -> str:
    """Nanoseconds as microseconds with three decimals; a dash for none."""
    return "–" if ns is None or ns != ns else f"{ns / 1000:,.3f}"


def percent(share: float | None) -> str:
    return "–" if share is None or share != share else f"{share:.1%}"


def levels(shares: Iterable[float]) -> str:
    """Shares of one as a row of bars, a character each; what is not nothing can be seen."""
    most = len(LEVELS) - 1
    return "".join(LEVELS[min(max(ceil(share * most - 0.01), 0), most)] for share in shares)


def times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}x"
