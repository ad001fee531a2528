"""Tables: columns declared once beside a result, which text, Markdown, pages and JSON all follow.

A result gives its `tables()`. Each is a frame with its `Columns`: what a column is called in the frame and in JSON,
what people read above it, how its cells read, and where it is shown. Text leaves out what is `wide` unless it is asked
for; Markdown and pages have room for all; JSON also has what is `only` for programs. To add a column, add a `Column`.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields, is_dataclass, replace
from html import escape
from math import isfinite
from textwrap import wrap
from typing import ClassVar

import polars as pl

from npuscope.base.frozen import dataclass
from npuscope.table.formats import NOTHING, TEXT, VALUE, Form, Unit, in_unit, many, short_but_distinct
from npuscope.table.text import Paint, aligned, plain

MOST = 20  # rows printed of a long table
LEGEND = 110  # characters of a line below a table


TYPES: dict[str, pl.DataType] = {  # what JSON has -> what a frame has
    "string": pl.String(),
    "int": pl.Int64(),
    "number": pl.Float64(),
    "bool": pl.Boolean(),
    "list of strings": pl.List(pl.String()),
    "list of numbers": pl.List(pl.Float64()),
}


@dataclass(frozen=True)
class Column:
    """One column, for every output. `meaning` is what the page of columns says of it."""

    key: str  # in the frame
    form: Form
    meaning: str
    title: str = ""  # the heading without its unit; made from the key where it says enough
    scale: str = ""  # columns of one scale have one unit, to be compared
    more_is: str = ""  # "worse" or "better": a terminal colours what is above and below nothing
    json: str = ""  # the key in JSON where it is another one
    wide: bool = False  # only where there is room: left out of text unless asked for
    only: str = ""  # why only programs get it
    optional: bool = False  # people do not see it where no row has it
    explained: bool = False  # its heading does not say enough: the meaning stands below the table in text
    absent: str = NOTHING  # what people read where a row has none
    of: pl.Expr | None = field(default=None, compare=False, repr=False)  # how it is computed over the rows it sums up

    @property
    def name(self) -> str:
        return self.json or self.key

    @property
    def label(self) -> str:
        """What people read above it, without the unit, which hangs on the cells."""
        return self.title or self.key.removesuffix("_ns").replace("_", " ")


@dataclass(frozen=True)
class Shown:
    """A column as people see it: with the one unit that fits its cells."""

    column: Column
    unit: Unit | None

    @property
    def heading(self) -> str:
        return f"{self.column.label} {self.unit.name}" if self.unit else self.column.label

    @property
    def right(self) -> bool:
        return self.column.form.right

    def cell(self, value: object) -> str:
        absent = value is None or value != value
        return self.column.absent if absent else self.column.form.show(in_unit(value, self.unit))

    def colour(self, value: object) -> str:
        """How a terminal shows a cell; "" is as it is."""
        if not self.column.more_is or not isinstance(value, int | float) or value != value or not value:
            return ""
        return "good" if (value > 0) == (self.column.more_is == "better") else "bad"


class Columns:
    """The columns of a table in order. `place` is where JSON has it (`report.kernels`), `about` says what a row is."""

    def __init__(self, place: str, about: str, *columns: Column) -> None:
        self.place, self.about, self.columns = place, about, columns

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def plus(self, *more: Column, place: str = "") -> Columns:
        """These, and further ones; of a table somewhere else where `place` is given."""
        return Columns(place or self.place, self.about, *self.columns, *more)

    def titled(self, **titles: str) -> Columns:
        """With other headings, by key."""
        return Columns(self.place, self.about, *(replace(c, title=titles.get(c.key, c.title)) for c in self.columns))

    def computed(self) -> list[pl.Expr]:
        """The columns that are an expression over the rows they sum up."""
        return [column.of.alias(column.key) for column in self.columns if column.of is not None]

    @property
    def keys(self) -> list[str]:
        return [column.key for column in self.columns]

    def table(self, rows: Iterable[Sequence[object] | Mapping[str, object]]) -> Table:
        """A table of rows, each in the order of the columns or by key, with the types that JSON has."""
        as_rows = [[row.get(key) for key in self.keys] if isinstance(row, Mapping) else row for row in rows]
        schema = {column.key: TYPES[column.form.json.split(",")[0]] for column in self.columns}
        return Table(self, pl.DataFrame(as_rows, schema=schema, orient="row"))


@dataclass(frozen=True)
class Table:
    """A frame and what its columns are. A column that the frame does not have is nowhere."""

    columns: Columns
    frame: pl.DataFrame

    @property
    def present(self) -> list[Column]:
        return [column for column in self.columns if column.key in self.frame.columns]

    def shown(self, wide: bool = True) -> list[Shown]:
        """The columns for people."""
        shown = [column for column in self.present if self._is_shown(column, wide)]
        return [Shown(column, self._unit(column, shown)) for column in shown]

    def _unit(self, column: Column, shown: Sequence[Column]) -> Unit | None:
        alike = [other for other in shown if other.scale == column.scale] if column.scale else [column]
        return column.form.unit_for(value for other in alike for value in self.frame[other.key].to_list())

    def _is_shown(self, column: Column, wide: bool) -> bool:
        absent = column.optional and self.frame[column.key].null_count() == self.frame.height
        return not column.only and (wide or not column.wide) and not absent

    def rows(self) -> list[dict[str, object]]:
        """The rows as JSON has them."""
        return self.frame.select(pl.col(column.key).alias(column.name) for column in self.present).to_dicts()

    def keyed(self) -> dict[str, dict[str, object]]:
        """The same as an object: the first column's value -> the others."""
        first = self.present[0].name
        return {str(row.pop(first)): row for row in self.rows()}

    def cells(self, most: int | None = None, wide: bool = True) -> list[list[str]]:
        """The rows as people read them."""
        shown = self.shown(wide)
        return [[one.cell(value) for one, value in zip(shown, row, strict=True)] for row in self._values(shown, most)]

    def _values(self, shown: Sequence[Shown], most: int | None) -> Iterator[tuple[object, ...]]:
        rows = self.frame.head(self.frame.height if most is None else most)
        return rows.select(one.column.key for one in shown).iter_rows()

    def lines(self, most: int = MOST, wide: bool = False, paint: Paint = plain, legend: bool = True) -> list[str]:
        """As aligned text."""
        shown = self.shown(wide)
        rows = list(
            zip(*(short_but_distinct(column) for column in zip(*self.cells(most, wide), strict=True)), strict=True)
        )
        colours = [["heading"] * len(shown)]
        colours += [[one.colour(v) for one, v in zip(shown, row, strict=True)] for row in self._values(shown, most)]
        lines = aligned([[one.heading for one in shown], *rows], [one.right for one in shown], colours, paint)
        if self.frame.height > most:
            lines.append(paint(f"  … and {many(self.frame.height - most, 'more row')}", "soft"))
        return [*lines, *(paint(line, "soft") for line in (self._legend(shown) if legend else ()))]

    def _legend(self, shown: Sequence[Shown]) -> list[str]:
        """What headings mean that do not say it."""
        said = dict.fromkeys(f"{c.label}: {c.meaning}" for c in (one.column for one in shown) if c.explained)
        return wrap("; ".join(said), LEGEND, initial_indent="  ", subsequent_indent="  ") if self.frame.height else []

    def as_html(self, most: int = MOST) -> str:
        """As a notebook shows it: a share has a bar behind it."""
        shown = self.shown(wide=False)
        head = "".join(f"<th>{escape(one.heading)}</th>" for one in shown)
        rows = []
        for cells, values in zip(self.cells(most, wide=False), self._values(shown, most), strict=True):
            parts = [_cell(one, cell, value) for one, cell, value in zip(shown, cells, values, strict=True)]
            rows.append(f"<tr>{''.join(parts)}</tr>")
        more = self.frame.height - most
        below = f"<p>… and {many(more, 'more row')}</p>" if more > 0 else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{below}"

    def heads(self) -> list[dict[str, object]]:
        """The columns as page/table.js takes them, beside `rows()`."""
        return [
            {
                "key": one.column.name,
                "title": one.heading,
                "show": one.column.form.name,
                "right": one.right,
                "per": one.unit.worth if one.unit else 1,
                "meaning": one.column.meaning,
                "words": dict(one.column.form.words),
            }
            for one in self.shown()
        ]

    def facts(self) -> Table:
        """One row upright: a line per column with its name and its value."""
        shown = self.shown()
        [values] = self._values(shown, 1)
        pairs = [
            (one.column.label, one.column.form.with_unit(value))
            for one, value in zip(shown, values, strict=True)
            if value is not None and value == value
        ]
        return Table(FACTS, pl.DataFrame(pairs, schema={"what": pl.String, "value": pl.String}, orient="row"))

    def sorted_by(self, key: str) -> Table:
        return replace(self, frame=self.frame.sort(key, descending=True, nulls_last=True, maintain_order=True))


def _cell(shown: Shown, text: str, value: object) -> str:
    side = "right" if shown.right else "left"
    bar = ""
    if shown.column.form.name == "share" and isinstance(value, float) and 0 <= value <= 1:
        bar = f";background:linear-gradient(to left,rgba(63,127,208,.3) {100 * value:.1f}%,transparent 0)"
    return f'<td style="text-align:{side}{bar}">{escape(text)}</td>'


FACTS = Columns("", "A number with its name.", Column("what", TEXT, "which"), Column("value", VALUE, "how much"))


class Tabular(ABC):
    """A result of tables, the main one first. Subclasses are frozen dataclasses with `repr=False`."""

    in_json: ClassVar[tuple[str, ...]] = ()  # attributes that JSON has beside the tables

    @abstractmethod
    def tables(self) -> Mapping[str, Table]:
        """Every table by the key that JSON has it under; times are integer nanoseconds."""

    def main_table(self) -> Table:
        return next(iter(self.tables().values()))

    def frame(self) -> pl.DataFrame:
        """The main table as a Polars frame."""
        return self.main_table().frame

    def as_dict(self) -> dict[str, object]:
        """What JSON has of it: the attributes that it names, then every table's rows."""
        return {**{name: as_data(getattr(self, name)) for name in self.in_json}, **all_rows(self.tables())}

    def title(self) -> str:
        """One line above the table."""
        return type(self).__name__

    def __str__(self) -> str:
        return "\n".join([self.title(), *self.main_table().lines()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<p>{'<br>'.join(map(escape, self.title().splitlines()))}</p>{self.main_table().as_html()}"


def all_rows(tables: Mapping[str, Table]) -> dict[str, object]:
    """Tables as JSON has them."""
    return {name: table.rows() for name, table in tables.items()}


def as_data(value: object) -> object:
    """A result, or anything made of results, records and numbers, as plain data; JSON has no NaN, so it is null."""
    if isinstance(value, Tabular):
        return as_data(value.as_dict())
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: as_data(one) for name, one in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, list | tuple):
        return [as_data(one) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: as_data(getattr(value, one.name)) for one in fields(value)}
    return value


def as_json(data: object, indent: int | None = 2) -> str:
    """One JSON document; characters that a terminal would obey are escaped in it."""
    text = json.dumps(as_data(data), indent=indent, ensure_ascii=False, default=str, allow_nan=False)
    return re.sub(r"[^\n -~]", lambda one: one[0] if one[0].isprintable() else json.dumps(one[0])[1:-1], text)
