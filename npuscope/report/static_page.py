"""Small pages without a script: one offline file of text, tables and drawings. What came from a trace is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib.resources import files

import polars as pl

from npuscope.analysis.table import cell, heading, printable

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def static_page(title: str, parts: Iterable[str]) -> str:
    """A page of parts that are HTML already, in the look of the report."""
    css = files("npuscope.report").joinpath("page", "page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<title>{text(title)}</title><link rel="icon" href="data:,"><style>{css}</style></head>'
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def text(value: str) -> str:
    """Words from anywhere as HTML."""
    return escape(printable(value), quote=True)


def legend(colours: Iterable[tuple[str, str]], note: str = "") -> str:
    """Colours and what they stand for."""
    dots = "".join(
        f'<span><span class="dot" style="background:{colour}"></span>{text(words)}</span>' for words, colour in colours
    )
    return f'<div class="legend">{dots}{f"<span>{text(note)}</span>" if note else ""}</div>'


def notes(lines: Iterable[str]) -> str:
    """What to know beside the numbers."""
    return f'<ul class="notes">{"".join(f"<li>{text(line)}</li>" for line in lines)}</ul>'


def table(frame: pl.DataFrame) -> str:
    """A frame as a table; columns that end in `_ns` are shown in microseconds."""
    if frame.is_empty():
        return '<p class="soft">Nothing.</p>'
    numeric = [dtype.is_numeric() for dtype in frame.dtypes]
    head = "".join(f"<th{_side(n)}>{text(heading(c))}</th>" for c, n in zip(frame.columns, numeric, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{_side(n)}>{text(cell(c, v))}</td>" for c, v, n in zip(frame.columns, row, numeric, strict=True))
        + "</tr>"
        for row in frame.iter_rows()
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _side(number: bool) -> str:
    return ' class="number"' if number else ' class="name"'
