"""The tables of one run's report, as `npuscope report --json` has them, with their columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from npuscope.explain.explanation import Explanation
from npuscope.report.anchor import Section
from npuscope.table.columns import Table

MOST_ROWS = 2000  # of a table on a page


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
    kernels = e.heart().rows()
    hidden = len(kernels) - MOST_ROWS
    left_out = [f"{hidden:,} kernels with the least core time are left out of the tables."] if hidden > 0 else []
    first = {name: table.rows()[:MOST_ROWS] for name, table in e.path.tables().items()}
    return {
        **e.as_dict(),
        "kernels": kernels[:MOST_ROWS],
        "critical_path": {**path, **first, "bound": None},
        "fan_out": {**fan_out, "kernels": e.fan_out.tables()["kernels"].rows()[:MOST_ROWS]},
        "notes": [*e.notes, *left_out],
    }
