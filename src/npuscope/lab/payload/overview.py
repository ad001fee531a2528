"""Reports as a page takes them: one run's tables, two runs compared, several ranks, and the parts of any report.

Cells are words already, as text and Markdown have them, beside the values that they are sorted by.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from npuscope.explain.comparison import Comparison
from npuscope.explain.explanation import Explanation
from npuscope.explain.ranks import Ranks
from npuscope.table.columns import Table
from npuscope.table.formats import printable
from npuscope.table.parts import Chart, CodeLines, Heading, In, Marked, Notes, Part, Rows, Say

if TYPE_CHECKING:
    from npuscope.report.simulate import Section

MOST_ROWS = 2000  # of a table on a page
OF_RUN = ("causes", "together")  # a run has them beside its panels, and of a program more is known of them later


def overview(e: Explanation, first: Sequence[Section] = ()) -> dict[str, object]:
    """`first` is what a command says before what every report has."""
    return {"report": _trimmed(e), "columns": heads(_tables(e)), "first": [section(*one) for one in first]}


def section(title: str, notes: Sequence[str], tables: Sequence[Table]) -> dict[str, object]:
    """Sentences and tables under a heading."""
    shown = [{"columns": one.heads(), "rows": one.rows()} for one in tables]
    return {"title": title, "notes": list(notes), "tables": shown}


def heads(tables: Iterable[Table]) -> dict[str, object]:
    """The columns of tables that the page's script fills, by their place in JSON."""
    return {table.columns.place: table.heads() for table in tables}


def _tables(e: Explanation) -> Iterable[Table]:
    parts = (e, e.scheduling, e.path, e.fan_out, e.steps)
    return [*(table for part in parts for table in part.tables().values()), e.scheduling.facts()]


def _trimmed(e: Explanation) -> dict[str, object]:
    """The report without the rows that a page's tables would not show anyway; the page says how many there are."""
    path, fan_out = e.path.as_dict(), e.fan_out.as_dict()
    kernels = e.main_table().rows()
    hidden = len(kernels) - MOST_ROWS
    left_out = [f"{hidden:,} kernels with the least core time are left out of the tables."] if hidden > 0 else []
    first = {name: table.rows()[:MOST_ROWS] for name, table in e.path.tables().items()}
    report = {name: value for name, value in e.as_dict().items() if name not in OF_RUN}
    return {
        **report,
        "kernels": kernels[:MOST_ROWS],
        "critical_path": {**path, **first, "bound": None},
        "fan_out": {**fan_out, "kernels": e.fan_out.tables()["kernels"].rows()[:MOST_ROWS]},
        "notes": [*e.notes, *left_out],
    }


def comparison(names: tuple[str, str], found: Comparison) -> dict[str, object]:
    """What `npuscope compare --json` has, with the columns of its tables."""
    return {**found.as_dict(), "names": list(names), "columns": heads(found.tables().values())}


def ranks(found: Ranks) -> dict[str, object]:
    together, waits = found.together(), found.waits.main_table()
    return {
        **found.diagnosis.as_dict(),
        "overview": found.overview,
        "waits_text": found.waits.title(),
        "what": found.what,
        "table": together.rows(),
        "waits": waits.rows(),
        "columns": heads([together, waits]),
    }


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
        case Marked() | CodeLines():
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
    columns = [{"key": one.column.name, "title": one.heading, "show": "words", "right": one.right} for one in shown]
    return {"part": "table", "columns": columns, "rows": rows, "left_out": max(table.frame.height - most, 0)}


def _sorted_by(value: object) -> object:
    """A number or words; what is neither is sorted as its cell reads."""
    return value if isinstance(value, int | float | str) else None
