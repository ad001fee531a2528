"""What a capture tells of a slice beside its times: arguments and counters, under the capture's own names."""

from __future__ import annotations

import polars as pl

from npuscope.lab.payload.packed import packed, whole_numbers
from npuscope.trace.core import Trace
from npuscope.trace.schema import SLICES

MOST_TEXT = 4_000_000  # characters of all different texts of a column
MOST_CELLS = 20_000_000  # of all columns


def slice_facts(trace: Trace, rows: pl.Series) -> list[dict[str, object]]:
    """A column each: numbers packed, texts as codes into their different values; what is the same in no row is left
    out where it would make the page too large. `rows` are the drawn slices' places in the trace, -1 for none."""
    found: list[dict[str, object]] = []
    place = pl.select(pl.when(rows >= 0).then(rows)).to_series().cast(pl.UInt32)
    cells = 0
    for name in ("step", *(name for name in trace.slices.columns if name not in SLICES)):
        if cells + len(rows) > MOST_CELLS:
            break
        column = trace.slices[name].gather(place)
        if column.null_count() == len(column):
            continue
        cells += len(rows)
        if column.dtype.is_numeric() or column.dtype == pl.Boolean:
            numbers = column.cast(pl.Float64).fill_null(float("nan"))
            found.append({"name": name, "number": packed(numbers, "f64")})
            continue
        texts = column.cast(pl.String, strict=False) if not column.dtype.is_nested() else None
        if texts is None:
            continue
        different = texts.drop_nulls().unique(maintain_order=True)
        if different.is_empty() or int(different.str.len_chars().sum()) > MOST_TEXT:
            continue
        codes = texts.cast(pl.Enum(different)).to_physical().cast(pl.Int64).fill_null(-1)
        found.append({"name": name, "code": whole_numbers(codes), "text": different.to_list()})
    return found
