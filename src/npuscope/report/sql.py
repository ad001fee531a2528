"""What a query says: its rows, and a drawing of them where they can be drawn."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from npuscope.explain.sql import EXAMPLES, MOST_ROWS, SqlAnswer, schema_of
from npuscope.table.columns import Shown
from npuscope.table.formats import many, printable
from npuscope.table.parts import Chart, Heading, In, Marked, Notes, Part, Rows, Say, Spec, axis
from npuscope.table.text import aligned
from npuscope.trace.core import Trace
from npuscope.trace.tables import guarded

ROWS = 50  # printed, unless asked for otherwise
FENCE = "```"
BARS, POINTS = 60, 2000


def sql(name: str, found: SqlAnswer, rows: int = ROWS) -> Iterator[Part]:
    """The answer over the capture called `name`."""
    table = found.main_table()
    yield Heading(f"SQL over {name}", 1, In.POSTED)
    yield Marked(f"```sql\n{printable(found.query).replace(FENCE, '')}\n```")
    if not found.rows.height:
        yield Say("No row.")
        return
    yield Chart(chart_of(found))
    yield Rows(table, rows)
    if found.cut:
        yield Notes([f"Only the first {MOST_ROWS:,} rows: the query has more."], "note: ")


def tables(trace: Trace | None) -> Iterator[Part]:
    """What a query can name."""
    for (name,), columns in schema_of(trace).frame.group_by("table", maintain_order=True):
        yield Heading(str(name))
        yield Notes([line.strip() for line in aligned(columns.drop("table").rows(), [False] * 3)])


def examples() -> Iterator[Part]:
    for one in EXAMPLES:
        yield Heading(one.question)
        yield Say(one.text)


def csv_of(found: SqlAnswer) -> str:
    """The rows as CSV; no cell of it is a formula, and a list is text."""
    nested = [name for name, dtype in found.rows.schema.items() if dtype.is_nested()]
    plain = found.rows.with_columns(pl.Series(name, map(str, found.rows[name].to_list())) for name in nested)
    return guarded(plain).write_csv()


def chart_of(found: SqlAnswer) -> Spec | None:
    """Bars where rows have a name and a number, points over a number where they have two; None for other rows."""
    shown = found.main_table().shown()
    numbers = [one for one in shown if found.rows.schema[one.column.key].is_numeric()]
    names = [one for one in shown if one not in numbers and not found.rows.schema[one.column.key].is_nested()]
    if names and numbers:
        return _bars(found.rows, names, numbers[-1])
    return _points(found.rows, numbers[0], numbers[1]) if len(numbers) > 1 else None


def _bars(rows: pl.DataFrame, names: list[Shown], number: Shown) -> Spec | None:
    key = number.column.key
    drawn = rows.filter(pl.col(key) >= 0).head(BARS)
    if drawn.is_empty():
        return None
    title = number.column.label
    return {
        "chart": "bars",
        "title": title,
        "form": "ns" if number.unit else "number",
        "groups": [],
        "rows": [
            {
                "name": ", ".join(one.cell(row[one.column.key]) for one in names),
                "value": row[key],
                "group": 0,
                "low": None,
                "high": None,
                "text": number.column.form.with_unit(row[key]),
                "best": False,
            }
            for row in drawn.iter_rows(named=True)
        ],
        "note": "" if drawn.height == rows.height else f"{drawn.height:,} of {many(rows.height, 'row')} are drawn.",
    }


def _points(rows: pl.DataFrame, x: Shown, y: Shown) -> Spec | None:
    across, up = x.column.key, y.column.key
    drawn = rows.drop_nulls([across, up]).head(POINTS)
    if drawn.is_empty():
        return None
    titles = (x.column.label, y.column.label)
    return {
        "chart": "scatter",
        "title": f"{titles[1]} over {titles[0]}",
        "x": axis(titles[0], "ns" if x.unit else "number"),
        "y": axis(titles[1], "ns" if y.unit else "number"),
        "groups": [],
        "points": [
            {
                "x": a,
                "y": b,
                "size": 0,
                "group": 0,
                "name": "",
                "text": [f"{x.column.form.with_unit(a)}, {y.column.form.with_unit(b)}"],
            }
            for a, b in drawn.select(across, up).iter_rows()
        ],
        "lines": [],
        "note": "" if drawn.height == rows.height else f"{drawn.height:,} of {many(rows.height, 'row')} are drawn.",
    }
