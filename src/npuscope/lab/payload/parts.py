"""A report's parts as a page takes them: headings, sentences, notes, tables and charts.

Cells are words already, as text and Markdown have them, beside the values that they are sorted by.
"""

from __future__ import annotations

from collections.abc import Iterable

from npuscope.table.columns import Table
from npuscope.table.formats import printable
from npuscope.table.parts import Chart, Heading, In, Marked, Notes, Part, Rows, Say


def parts(found: Iterable[Part]) -> dict[str, object]:
    """Those of them that pages show."""
    return {"parts": [shown for part in found if In.PAGE in part.where for shown in [_part(part)] if shown is not None]}


def _part(part: Part) -> dict[str, object] | None:
    match part:
        case Heading(words, level):
            return {"part": "heading", "text": printable(words), "level": level}
        case Say(words, strong):
            return {"part": "say", "text": printable(words), "strong": strong}
        case Notes(lines):
            return {"part": "notes", "lines": [printable(line) for line in lines]}
        case Rows(table):
            return _table(table, part.page)
        case Chart(spec):
            return None if spec is None else {"part": "chart", "spec": spec}
        case Marked():
            return None


def _table(table: Table, most: int) -> dict[str, object]:
    shown = table.shown()
    values = table.frame.head(most).select(one.column.key for one in shown).rows()
    rows = [
        {
            one.column.name: {"text": cell, "value": _sorted_by(value)}
            for one, cell, value in zip(shown, cells, row, strict=True)
        }
        for cells, row in zip(table.cells(most), values, strict=True)
    ]
    columns = [{"key": one.column.name, "title": one.heading, "show": "told", "right": one.right} for one in shown]
    return {"part": "table", "columns": columns, "rows": rows, "left_out": max(table.frame.height - most, 0)}


def _sorted_by(value: object) -> object:
    """A number or words; what is neither is sorted as its cell reads."""
    return value if isinstance(value, int | float | str) else None
