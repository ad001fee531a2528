"""A prediction as any CSV with a column of kernels and a column of times, laid end to end in the file's order.

Columns are found by their names; the unit stands in the time column's name (`time_us`, `latency (ms)`,
`duration_ns`), else it must be said. A count column repeats a row; one time per call is expected then. Other columns
known: shapes, layer, source, limit_ns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from npuscope.base.errors import BadInput, NpuscopeError, UnknownFormat
from npuscope.chip.kernels import is_comm
from npuscope.trace import read, source
from npuscope.trace.core import Ledger, Trace
from npuscope.trace.tables import CsvTable, header_of, read_csv

KERNEL = ("kernel", "type", "kernel_type", "op_type", "op", "name", "kernel_name", "op_name", "operator")
TIME = ("time", "dur", "duration", "latency", "mean", "average", "avg", "predicted", "cost", "elapsed")
SHAPES = ("shapes", "input_shapes", "shape", "inputs")
COUNT = ("count", "calls")
COUNTED = "a count"
UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
MOST_CALLS = 1_000_000
LONGEST_NS = 4_000_000_000_000_000  # as elsewhere: 46 days


@dataclass(frozen=True)
class Wanted:
    """What the user says of the file; None is found by name."""

    kernel: str | None = None
    time: str | None = None
    unit: str | None = None


def read_prediction_csv(path: str | Path, wanted: Wanted | None = None) -> Trace:
    """The file as a Trace of one lane, each call starting where the one before ended."""
    path, wanted = Path(path), wanted or Wanted()
    table = read_csv(path)
    twice = [name for name in table.header if table.header.count(name) > 1]
    if twice:
        raise BadInput(f"two columns are called '{twice[0]}'", path=path, line=1, remedy="Rename one of them.")
    kernel = _column(table, wanted.kernel, KERNEL, "kernel", path)
    time = _column(table, wanted.time, _time_names(), "time", path)
    scale = UNITS[_unit(time, wanted.unit, path)]
    cells = table.cells
    ns = _numbers(table, time, path, scale, LONGEST_NS, "a time")
    facts = {"kernel": cells[kernel], "Type": cells[kernel], "dur": ns}
    for ours, names in (("Input Shapes", SHAPES), ("Source", ("source",)), ("role", ("role",))):
        found = _found(table, names)
        if len(found) == 1:
            facts[ours] = cells[found[0]]
    for ours in ("layer", "limit_ns"):
        found = _found(table, (ours,))
        if len(found) == 1:
            facts[ours] = cells[found[0]].str.strip_chars().cast(pl.Int64, strict=False)
    slices = pl.DataFrame([series.alias(name) for name, series in facts.items()])
    ledger = Ledger()
    ledger.records = cells.height + table.blank_lines
    ledger.dropped["blank line"] = table.blank_lines
    counts = _found(table, COUNT)
    if len(counts) == 1:
        slices = _repeated(slices, _numbers(table, counts[0], path, 1, MOST_CALLS, COUNTED), path)
        ledger.notes["rows"] = cells.height
        ledger.records += slices.height - cells.height
    if slices.is_empty():
        raise BadInput("a header and no calls", path=path)
    if float(slices["dur"].cast(pl.Float64).sum()) > LONGEST_NS:
        raise BadInput("its times add up to more than 46 days", path=path, remedy="Check the unit with --unit.")
    slices = slices.with_columns(
        lane=pl.lit(0),
        start=pl.col("dur").cum_sum() - pl.col("dur"),
        task=pl.int_range(pl.len(), dtype=pl.Int64),
        kind=pl.when(is_comm(slices["kernel"])).then(pl.lit("comm")).otherwise(pl.lit("task")),
    )
    lanes = pl.DataFrame({"lane": [0], "name": ["prediction"], "unit": ["stream"]})
    return Trace.of(slices, lanes, ledger.close("prediction CSV", (str(path),)))


def _plain(name: str) -> str:
    return re.sub(r"[\s_]+", "_", re.sub(r"\((.*?)\)|\[(.*?)\]", r"_\1\2", name.strip().lower())).strip("_")


def _found(table: CsvTable, names: Sequence[str]) -> list[str]:
    """Columns that have the first of the names that any has; the source's columns that share it are ambiguous."""
    columns = {column: _plain(column) for column in table.cells.columns}
    return next((hits for name in names if (hits := [c for c, plain in columns.items() if plain == name])), [])


def _time_names() -> list[str]:
    """Names of time columns, with and without a unit."""
    return [f"{name}{unit}" for name in TIME for unit in ("", *(f"_{u}" for u in UNITS))] + [*UNITS]


def _column(table: CsvTable, said: str | None, names: Sequence[str], what: str, path: Path) -> str:
    columns = table.cells.columns
    there = ", ".join(columns[:20])
    option = f"Say it with --{what}-column."
    if said is not None:
        if said not in columns:
            raise BadInput(f"no column '{said}'", path=path, line=1, remedy=f"It has {there}.")
        return said
    # the first kernel name found is good; two columns of time are two predictions, and only the user knows which
    times = [column for column in columns if _plain(column) in names]
    found = _found(table, names) if what == "kernel" else times
    if len(found) == 1:
        return found[0]
    if found:
        raise BadInput(f"several columns of {what}: {', '.join(found)}", path=path, line=1, remedy=option)
    raise BadInput(f"no column of {what} among {there}", path=path, line=1, remedy=option)


def _unit(column: str, said: str | None, path: Path) -> str:
    if said is not None:
        if said not in UNITS:
            raise NpuscopeError(f"--unit takes {', '.join(UNITS)}, not '{said}'")
        return said
    last = _plain(column).rpartition("_")[2]
    if last in UNITS:
        return last
    what = f"column '{column}' does not say its unit"
    raise BadInput(what, path=path, line=1, remedy="Say it with --unit us (or ns, ms, s).")


def _numbers(table: CsvTable, column: str, path: Path, scale: int, most: int, what: str) -> pl.Series:
    """A column of non-negative numbers, scaled to whole ones; anything else is refused with its line."""
    numbers = table.cells[column].str.strip_chars().cast(pl.Float64, strict=False) * scale
    good = (numbers.is_finite() & (numbers >= 0) & (numbers <= most)).fill_null(False)
    if not good.all():
        row = int((~good).arg_max() or 0)
        found = table.cells[row, column]
        raise BadInput(f"'{found}' in column {column} is not {what}", path=path, line=int(table.lines[row]))
    if what == COUNTED and not (whole := numbers == numbers.round(0)).all():
        row = int((~whole).arg_max() or 0)
        raise BadInput(f"'{table.cells[row, column]}' is no whole count", path=path, line=int(table.lines[row]))
    return numbers.round(0).cast(pl.Int64).alias("dur")


def _repeated(slices: pl.DataFrame, counts: pl.Series, path: Path) -> pl.DataFrame:
    if int(counts.sum()) > MOST_CALLS:
        raise BadInput(f"its counts add up to {counts.sum():,} calls, too many to lay out", path=path)
    rows = pl.int_range(slices.height, eager=True).repeat_by(counts).explode().drop_nulls()
    return slices[rows.to_numpy()]


def read_side(path: str | Path, wanted: Wanted | None = None) -> Trace:
    """A prediction or a pass from a file: any capture npuscope knows, else a CSV with kernel and time."""
    if wanted is not None and wanted != Wanted():
        return read_prediction_csv(path, wanted)
    try:
        return read(path)
    except UnknownFormat:
        if header_of(source.head(Path(path))) is None:
            raise
    return read_prediction_csv(path)
