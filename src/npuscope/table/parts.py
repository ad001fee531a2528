"""A report as parts, which text, Markdown and pages all show: headings, sentences, tables, notes, charts.

One function per result makes the parts. How a format shows a part is here and nowhere else, so that a table cannot have
other columns in one of them. Whatever came from a capture or a program is text in all three.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Flag, auto
from typing import TypeAlias

from npuscope.base.frozen import dataclass
from npuscope.table.columns import MOST, Table
from npuscope.table.formats import many, printable, short
from npuscope.table.text import Paint, plain, wrapped

MARKDOWN_CELL = 80  # characters
INVISIBLE = "\u200b"  # a space of no width; nothing printable has one
ACTED_ON = r"(?i)[@#!](?=\w)|\bGH-(?=\d)|\b(https?|ftp|mailto)(?=:)|\bwww(?=\.)|:(?=[\w+-]+:)"
MOST_ON_A_PAGE = 300  # rows
FENCE = "```"


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
    legend: bool = True  # else a table above it has said what headings mean


Spec: TypeAlias = dict[str, object]


def axis(title: str, form: str = "number", log: bool = False) -> Spec:
    """Of a chart; `form` is how its ticks read (ns, si, number)."""
    return {"title": title, "form": form, "log": log}


@dataclass(frozen=True)
class Chart:
    """What a page draws, None where there is nothing; `lab/page/chart/` has a function for each `spec["chart"]`.

    Words come from captures and programs and stay words; colours are the page's: data has numbers of groups.
    """

    spec: Spec | None
    where: In = In.PAGE


@dataclass(frozen=True)
class Marked:
    """Markdown that is made already: lists with code in them."""

    markdown: str
    where: In = In.MARKDOWN


@dataclass(frozen=True)
class CodeLines:
    """Lines as they are, never wrapped: a diff, a piece of a program."""

    code: str
    language: str = ""
    where: In = In.TEXT | In.MARKDOWN


Part = Heading | Say | Notes | Rows | Chart | Marked | CodeLines


def as_text(parts: Iterable[Part], paint: Paint = plain, width: int | None = None) -> str:
    """Blocks with a blank line between; what follows a heading, and sentences or notes in a row, are one block. Lines
    are wrapped to the width where one is given."""
    blocks: list[list[str]] = []
    before: Part | None = None
    for part in parts:
        lines = _lines(part, paint, width) if In.TEXT in part.where else []
        if not lines:
            continue
        joined = isinstance(before, Heading) or (isinstance(part, Say | Notes) and type(part) is type(before))
        if blocks and joined:
            blocks[-1] += lines
        else:
            blocks.append(lines)
        before = part
    return "\n\n".join("\n".join(block) for block in blocks)


def _lines(part: Part, paint: Paint, width: int | None) -> list[str]:
    def fitted(lines: Iterable[str], before: str = "", what: str = "") -> list[str]:
        return [paint(one, what) for line in lines for one in wrapped(f"{before}{printable(line)}", width)]

    match part:
        case Heading(words):
            return fitted(words.splitlines(), what="heading")
        case Say(words, strong, kind):
            return fitted(words.splitlines(), what=kind or ("headline" if strong else ""))
        case Notes(lines, mark):
            return fitted(lines, f"  {mark}")
        case Rows(table):
            return table.lines(part.text, part.wide, paint, part.legend)
        case CodeLines(code):
            return [f"    {printable(line)}".rstrip() for line in code.splitlines()]
        case Chart() | Marked():
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
        case CodeLines(code, language):
            inside = "\n".join(printable(line) for line in code.splitlines()).replace(FENCE, "")
            return f"{FENCE}{language}\n{inside}\n{FENCE}"
        case Chart():
            return ""


def _markdown_table(table: Table, most: int | None) -> str:
    columns = table.shown()
    lines = ["| " + " | ".join(marked_down(one.heading) for one in columns) + " |"]
    lines.append("|" + "|".join("---:" if one.right else "---" for one in columns) + "|")
    for row in table.cells(most):
        lines.append("| " + " | ".join(marked_down(short(cell, MARKDOWN_CELL)) for cell in row) + " |")
    hidden = table.frame.height - (most or table.frame.height)
    return "\n".join([*lines, *(["", f"… and {many(hidden, 'more row')}."] if hidden > 0 else [])])


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
