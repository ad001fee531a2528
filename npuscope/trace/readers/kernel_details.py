"""Ascend's kernel table: torch_npu's kernel_details.csv and msprof's op_summary_*.csv.

One row per device task. Columns are found by name, in every header generation; every cell is kept as
text under its own column name, so that the table can be written back character by character.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from npuscope.errors import BadInput
from npuscope.trace import schema
from npuscope.trace.core import Trace
from npuscope.trace.csv_table import CsvTable, header_of, read_csv
from npuscope.trace.decimal_time import needs_rounding, ns_from_us
from npuscope.trace.meta import Ledger
from npuscope.trace.twins import COLLECTIVE, mark_twins

# our word -> the column's names over the generations
ALIASES = {
    "name": ("Name", "Op Name"),
    "start": ("Start Time(us)", "Task Start Time(us)"),
    "dur": ("Duration(us)", "Task Duration(us)"),
    "type": ("Type", "OP Type"),
    "core": ("Accelerator Core", "Task Type"),
    "stream": ("Stream ID",),
    "device": ("Device_id",),
    "step": ("Step Id",),
    "shapes": ("Input Shapes",),
}
REQUIRED = ("name", "start", "dur")


@dataclass(frozen=True)
class Columns:
    """Where the words we need are in this file; None for an absent one."""

    by_word: dict[str, str]

    def get(self, word: str) -> pl.Expr:
        """The column's text without padding; `N/A` and absent are null."""
        if word not in self.by_word:
            return pl.lit(None, dtype=pl.String)
        text = pl.col(self.by_word[word]).str.strip_chars()
        return pl.when(text.is_in(["N/A", ""])).then(None).otherwise(text)


def recognises(head: bytes) -> bool:
    """True for a CSV whose header has a name, a start and a duration under any of their names."""
    header = header_of(head)
    return header is not None and all(set(ALIASES[word]) & set(header) for word in REQUIRED)


def read(path: Path) -> Trace:
    """The table as a Trace: one slice per row, in the file's order; `task` is the row's number."""
    table = read_csv(path)
    header, cells = _apart_from_ours(table)
    columns = Columns(
        {word: name for word, names in ALIASES.items() for name in header if table.header[header.index(name)] in names}
    )
    ledger = Ledger()
    ledger.records = cells.height + table.blank_lines
    ledger.dropped["blank line"] = table.blank_lines
    ledger.notes |= {
        "header": list(table.header),
        "columns": header,
        "line_end": table.line_end,
        "bom": table.bom,
    }
    slices = _with_times(cells, columns, path, ledger)
    slices, lanes = _with_lanes(slices, columns)
    slices = mark_twins(slices, columns.get, ledger)
    format_name = "op_summary" if "Op Name" in table.header else "kernel_details"
    if not slices["start"].is_sorted():
        ledger.notes["unsorted_rows"] = int((slices["start"].diff() < 0).sum())
    return Trace.of(slices, lanes, ledger.close(format_name, (str(path),), clock="epoch"))


def _apart_from_ours(table: CsvTable) -> tuple[list[str], pl.DataFrame]:
    """Source columns that happen to have one of our names step aside."""
    renamed = {name: f"source {name}" for name in table.cells.columns if name in schema.SLICES}
    cells = table.cells.rename(renamed)
    return cells.columns, cells


def _with_times(cells: pl.DataFrame, columns: Columns, path: Path, ledger: Ledger) -> pl.DataFrame:
    start, dur = (pl.col(columns.by_word[word]) for word in ("start", "dur"))
    slices = cells.with_columns(
        ns_from_us(start).alias("start"),
        ns_from_us(dur).alias("dur"),
        columns.get("name").fill_null("N/A").alias("kernel"),
        columns.get("step").cast(pl.Int64, strict=False).alias("step"),
        pl.int_range(pl.len(), dtype=pl.Int64).alias("task"),
    )
    for word in ("start", "dur"):
        if slices[word].null_count():
            row = int(slices[word].is_null().arg_max() or 0)
            cell, column = cells[row, columns.by_word[word]], columns.by_word[word]
            # the header is line 1; cells with line breaks inside would shift this, and no such file is known
            raise BadInput(f"'{cell}' in column {column} is not a time in microseconds", path=path, line=row + 2)
    ledger.repaired["time with digits below a nanosecond rounded"] = int(
        cells.select((needs_rounding(start) | needs_rounding(dur)).sum()).item()
    )
    negative = pl.col("dur") < 0
    ledger.repaired["negative duration set to zero"] = int(slices.select(negative.sum()).item())
    return slices.with_columns(pl.when(negative).then(0).otherwise(pl.col("dur")).alias("dur"))


def _with_lanes(slices: pl.DataFrame, columns: Columns) -> tuple[pl.DataFrame, pl.DataFrame]:
    """One lane per device and stream. Logical communication rows have no stream and share a `link` lane."""
    is_comm = (
        columns.get("core").is_in(["HCCL", "COMMUNICATION"])
        | pl.col("kernel").str.contains(COLLECTIVE)
        | columns.get("type").str.contains(COLLECTIVE)
    ).fill_null(False)
    stream = columns.get("stream")
    elsewhere = pl.when(is_comm).then(pl.lit("communication")).otherwise(pl.lit("device"))
    place = pl.when(stream.is_not_null()).then(pl.concat_str(pl.lit("stream "), stream)).otherwise(elsewhere)
    slices = slices.with_columns(
        pl.when(is_comm).then(pl.lit("comm")).otherwise(pl.lit("task")).cast(schema.KINDS).alias("kind"),
        place.alias("lane name"),
        columns.get("device").cast(pl.Int32, strict=False).alias("lane device"),
    )
    key = ["lane device", "lane name"]
    lanes = slices.select(key).unique(maintain_order=True).with_row_index("lane")
    slices = slices.join(lanes, on=key, nulls_equal=True, maintain_order="left").drop(key)
    unit = pl.when(pl.col("lane name") == "communication").then(pl.lit("link")).otherwise(pl.lit("stream"))
    return slices, lanes.select(
        "lane", pl.col("lane name").alias("name"), unit.alias("unit"), pl.col("lane device").alias("device")
    )
