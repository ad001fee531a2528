"""What a slice says beside its place and time: the columns a timeline shows as arguments."""

from __future__ import annotations

import msgspec
import polars as pl

PLACE = {"lane", "start", "dur", "kernel", "kind", "depth", "phase"}  # phase follows from the marker
JSON_COLUMNS = ("args", "other")


def annotation_columns(slices: pl.DataFrame) -> list[pl.Series]:
    """Columns of numbers and text, nulls where a slice has nothing to say; the JSON of `args` as its fields."""
    own = [_news(slices[name], slices) for name in slices.columns if name not in PLACE and name not in JSON_COLUMNS]
    columns = [column for column in own if column.null_count() < slices.height]
    taken = {column.name for column in columns}
    for name in JSON_COLUMNS:
        if name in slices.columns:
            fields = [c.alias(f"{name} {c.name}") if c.name in taken else c for c in _fields(slices[name])]
            taken |= {column.name for column in fields}
            columns += fields
    return columns


def _news(column: pl.Series, slices: pl.DataFrame) -> pl.Series:
    """The column without what is said already: the kernel's name again, or the record's number as its task."""
    if column.name == "task":
        counts = bool(column[0] == 0 and (column.diff().drop_nulls() == 1).all()) if len(column) else False
        return column.clear(len(column)) if counts else column
    if column.dtype in (pl.String, pl.Categorical):
        same = column == slices["kernel"]
        return column.set(same, None) if same.any() else column
    return column


def _fields(texts: pl.Series) -> list[pl.Series]:
    """The fields of JSON objects, a column each; what is neither a number nor text stays JSON."""
    values: dict[str, list[int | float | str | None]] = {}
    for row, text in enumerate(texts):
        if text is None:
            continue
        fields = msgspec.json.decode(text)
        if not isinstance(fields, dict):
            fields = {"args": fields}
        for name, value in fields.items():
            column = values.get(name)
            if column is None:
                column = values[name] = [None] * len(texts)
            plain = isinstance(value, int | float | str) and not isinstance(value, bool)
            column[row] = value if plain or value is None else msgspec.json.encode(value).decode()
    return [_series(name, column) for name, column in values.items()]


def _series(name: str, values: list[int | float | str | None]) -> pl.Series:
    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {int} and all(value is None or abs(int(value)) < 2**63 for value in values):
        return pl.Series(name, values, dtype=pl.Int64)
    if kinds <= {int, float}:
        return pl.Series(name, values, dtype=pl.Float64, strict=False)
    return pl.Series(name, [None if v is None else str(v) for v in values], dtype=pl.String)
