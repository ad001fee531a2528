"""A report as parts, which text, Markdown and pages all show: headings, sentences, tables, notes, drawings.

One function per result makes the parts. How a format shows a part is here and nowhere else, so that a table cannot have
other columns in one of them. Whatever came from a capture or a program is text in all three.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from html import escape
from importlib.resources import files

from npuscope.analysis.forms import printable, short
from npuscope.analysis.table import MOST, Table
from npuscope.paint import Paint, plain

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
MARKDOWN_CELL = 80  # characters
PAGE_CELL = 60  # as page/table.js has it
INVISIBLE = "\u200b"  # a space of no width; nothing printable has one
ACTED_ON = r"(?i)[@#!](?=\w)|\bGH-(?=\d)|\b(https?|ftp|mailto)(?=:)|\bwww(?=\.)|:(?=[\w+-]+:)"
MOST_ON_A_PAGE = 300  # rows


class In(Flag):
    """The formats that show a part."""

    TEXT = auto()
    MARKDOWN = auto()
    PAGE = auto()
    POSTED = MARKDOWN | PAGE  # what has room for more than half a screen
    ALL = TEXT | MARKDOWN | PAGE


@dataclass(frozen=True)
class Heading:
    """Stands above what follows, in text without a line between them."""

    words: str
    level: int = 2
    where: In = In.ALL


@dataclass(frozen=True)
class Say:
    """A sentence; the verdict is strong. `kind` is how a terminal colours it (paint.py)."""

    words: str
    strong: bool = False
    kind: str = ""
    where: In = In.ALL


@dataclass(frozen=True)
class Notes:
    """What to know beside the numbers, a line each; `mark` is said before each in text."""

    lines: Sequence[str]
    mark: str = ""
    where: In = In.ALL


@dataclass(frozen=True)
class Rows:
    """A table, or its first rows; in text without its wide columns unless they are asked for."""

    table: Table
    text: int = MOST
    markdown: int | None = None
    page: int = MOST_ON_A_PAGE
    wide: bool = False
    where: In = In.ALL


@dataclass(frozen=True)
class Drawing:
    """SVG, and what explains it: HTML that is made already."""

    html: str
    where: In = In.PAGE


@dataclass(frozen=True)
class Marked:
    """Markdown that is made already: lists with code in them."""

    markdown: str
    where: In = In.MARKDOWN


Part = Heading | Say | Notes | Rows | Drawing | Marked


def as_text(parts: Iterable[Part], paint: Paint = plain) -> str:
    """Blocks with a blank line between; what follows a heading, and sentences or notes in a row, are one block."""
    blocks: list[list[str]] = []
    before: Part | None = None
    for part in parts:
        lines = _lines(part, paint) if In.TEXT in part.where else []
        if not lines:
            continue
        joined = isinstance(before, Heading) or (isinstance(part, Say | Notes) and type(part) is type(before))
        if blocks and joined:
            blocks[-1] += lines
        else:
            blocks.append(lines)
        before = part
    return "\n\n".join("\n".join(block) for block in blocks)


def _lines(part: Part, paint: Paint) -> list[str]:
    match part:
        case Heading(words):
            return [paint(printable(line), "heading") for line in words.splitlines()]
        case Say(words, strong, kind):
            what = kind or ("headline" if strong else "")
            return [paint(printable(line), what) for line in words.splitlines()]
        case Notes(lines, mark):
            return [f"  {mark}{printable(line)}" for line in lines]
        case Rows(table):
            return table.lines(part.text, part.wide, paint)
        case Drawing() | Marked():
            return []


def as_markdown(parts: Iterable[Part], command: str | None = None) -> str:
    """Ready to post; at the end the command that makes it again."""
    shown = [_markdown(part) for part in parts if In.MARKDOWN in part.where]
    if command is not None:
        shown += ["## How to reproduce", f"```\n{printable(command)}\n```"]
    return "\n\n".join(part for part in shown if part) + "\n"


def _markdown(part: Part) -> str:
    match part:
        case Heading(words, level):
            return f"{'#' * level} {marked_down(words)}"
        case Say(words, strong):
            return f"**{_line_down(words)}**" if strong and words.strip() else _line_down(words)
        case Notes(lines):
            return "\n".join(f"- {_line_down(line)}" for line in lines)
        case Rows(table):
            return _markdown_table(table, part.markdown)
        case Marked(made):
            return made
        case Drawing():
            return ""


def _markdown_table(table: Table, most: int | None) -> str:
    columns = table.shown()
    lines = ["| " + " | ".join(marked_down(one.heading) for one in columns) + " |"]
    lines.append("|" + "|".join("---:" if one.right else "---" for one in columns) + "|")
    for row in table.cells(most):
        lines.append("| " + " | ".join(marked_down(short(cell, MARKDOWN_CELL)) for cell in row) + " |")
    hidden = table.frame.height - (most or table.frame.height)
    return "\n".join([*lines, *(["", f"… and {hidden:,} more rows."] if hidden > 0 else [])])


def marked_down(words: str) -> str:
    """Words from anywhere inside a line, with nothing left that Markdown, HTML or a tracker would act on.

    Trackers look at what is shown: they notify @name, link #12, !12, GH-12 and addresses, and draw :smile: whether or
    not a backslash stands before it. An invisible character in between keeps them from it.
    """
    safe = re.sub(ACTED_ON, rf"\g<0>{INVISIBLE}", printable(words)).replace("&", "&amp;").replace("<", "&lt;")
    safe = re.sub(r"[\\`*\[\]|~$#]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", safe)
    return safe.replace(INVISIBLE, "&#8203;")


def _line_down(words: str) -> str:
    """As `marked_down`, for words that begin a line: they begin no list, heading, quotation or code there."""
    return re.sub(r"^(\d*)(>|[-+=.)](?=[-=\s]|$))", r"\1\\\2", marked_down(words).strip())


def as_page(title: str, parts: Iterable[Part]) -> str:
    """One small offline page without a script, in the look of the report."""
    css = files("npuscope.report").joinpath("page", "page.css").read_text(encoding="utf-8")
    body = "".join(_html(part) for part in parts if In.PAGE in part.where)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<title>{html(title)}</title><link rel="icon" href="data:,"><style>{css}</style></head>'
        f"<body><main>{body}</main></body></html>\n"
    )


def _html(part: Part) -> str:
    match part:
        case Heading(words, level):
            return f"<h{level}>{html(words)}</h{level}>"
        case Say(words, strong):
            return f'<p class="verdict">{html(words)}</p>' if strong else f"<p>{html(words)}</p>"
        case Notes(lines):
            items = "".join(f"<li>{html(line)}</li>" for line in lines)
            return f'<ul class="notes">{items}</ul>' if lines else ""
        case Rows(table):
            return _html_table(table, part.page)
        case Drawing(made):
            return made
        case Marked():
            return ""


def _html_table(table: Table, most: int) -> str:
    if table.frame.is_empty():
        return '<p class="soft">Nothing.</p>'
    columns = table.shown()
    sides = [' class="number"' if one.right else ' class="name"' for one in columns]
    head = "".join(f"<th{side}>{html(one.heading)}</th>" for one, side in zip(columns, sides, strict=True))
    body = "".join(
        "<tr>" + "".join(_html_cell(cell, side) for cell, side in zip(row, sides, strict=True)) + "</tr>"
        for row in table.cells(most)
    )
    hidden = table.frame.height - most
    more = f'<p class="soft">… and {hidden:,} more rows</p>' if hidden > 0 else ""
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'


def _html_cell(cell: str, side: str) -> str:
    """A cell; one that is too long shows the rest where the pointer rests."""
    whole = f' title="{html(cell)}"' if len(cell) > PAGE_CELL else ""
    return f"<td{side}{whole}>{html(short(cell, PAGE_CELL))}</td>"


def html(words: str) -> str:
    """Words from anywhere as HTML."""
    return escape(printable(words), quote=True)
