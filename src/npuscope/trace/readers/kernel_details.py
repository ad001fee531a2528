"""Ascend's kernel table: torch_npu's kernel_details.csv, msprof's op_summary_*.csv and task_time_*.csv.

One row per device task. Columns are found by name, in every header generation; every cell is kept as
text under its own column name, so that the table can be written back character by character.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from npuscope.base.errors import BadInput
from npuscope.chip.kernels import is_comm
from npuscope.trace import schema
from npuscope.trace.core import Trace
from npuscope.trace.csv_table import CsvTable, header_of, read_csv
from npuscope.trace.decimal_time import LONGEST_US, needs_rounding, ns_from_us
from npuscope.trace.duplicates import mark_duplicates
from npuscope.trace.meta import BELOW_NANOSECOND, NEGATIVE, Ledger
from npuscope.trace.queue_orders import QUEUE_ORDERS

# our word -> the column's names over the generations
ALIASES = {
    "name": ("Name", "Op Name", "kernel_name"),
    "start": ("Start Time(us)", "Task Start Time(us)", "task_start(us)"),
    "dur": ("Duration(us)", "Task Duration(us)", "task_time(us)"),
    "type": ("Type", "OP Type"),
    "core": ("Accelerator Core", "Task Type", "kernel_type"),
    "stream": ("Stream ID", "stream_id"),
    "device": ("Device_id",),
    "step": ("Step Id",),
    "shapes": ("Input Shapes",),
    "counter": ("aicore_time(us)",),  # the one that every group of counters has
}
# the table's columns over the generations, beside what the hardware counted
KNOWN = {name for names in ALIASES.values() for name in names} | {
    "Model ID", "Task ID", "OP State", "Wait Time(us)", "Task Wait Time(us)", "Block Dim", "Block Num",
    "Mix Block Dim", "Mix Block Num", "HF32 Eligible", "Input Data Types", "Input Formats", "Output Shapes",
    "Output Data Types", "Output Formats", "Context ID", "Model Name", "Infer ID", "Op Name", "Batch ID", "Attr Info",
    "task_id", "task_stop(us)", "batch_id", "subtask_id", "context_id",
}  # fmt: skip
# what a prediction adds to the columns when it is written as such a table
PREDICTED = ("part", "layer", "position", "role", "Source", "limit_ns")
PMU = re.compile(r"^(ai[cv]|aicore|cube|vector|ub|l2|main_mem|mac|vec|scalar|mte[123]|fixpipe|icache|r\d)[_ (]")
FORMATS = {"op_summary": "Op Name", "task_time": "kernel_name"}  # what the table is called, by a column only it has
REQUIRED = ("name", "start", "dur")


@dataclass(frozen=True)
class ColumnNames:
    """Where the words we need are in this file; absent words are not in it."""

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
    cells = _apart_from_ours(table.cells)
    # of columns with one name the first counts
    column_of = dict(zip(reversed(table.header), reversed(cells.columns), strict=True))
    columns = ColumnNames(
        {word: column_of[n] for word, names in ALIASES.items() for n in reversed(names) if n in column_of}
    )
    ledger = Ledger()
    ledger.records = cells.height + table.blank_lines
    ledger.dropped["blank line"] = table.blank_lines
    ledger.notes |= {
        "header": list(table.header),
        "columns": cells.columns,
        "line_end": table.line_end,
        "bom": table.bom,
    }
    for name in table.header:
        if name not in KNOWN and name not in PREDICTED and not PMU.match(name):
            ledger.count_unknown("column", name, cells.height)
    # the source's columns are wide: all work is on a narrow frame of our own, laid beside them at the end
    facts = _facts(cells, columns)
    _refuse_bad_times(facts, table, columns, path)
    ledger.repaired[BELOW_NANOSECOND] = int(facts["rounded"].sum())
    ledger.repaired[NEGATIVE] = int((facts["dur"] < 0).sum())
    facts, lanes = _with_lanes(facts.with_columns(pl.col("dur").clip(lower_bound=0)))
    facts = mark_duplicates(facts, ledger)
    if not facts["start"].is_sorted():
        ledger.notes["unsorted_rows"] = int((facts["start"].diff() < 0).sum())
    slices = pl.concat([facts.select(c for c in facts.columns if c in schema.SLICES), cells], how="horizontal")
    format_name = next((name for name, column in FORMATS.items() if column in table.header), "kernel_details")
    return Trace.of(slices, lanes, ledger.close(format_name, (str(path),), clock="epoch"))


def _apart_from_ours(cells: pl.DataFrame) -> pl.DataFrame:
    """Source columns that happen to have one of our names step aside."""
    taken = set(cells.columns)
    renamed = {}
    for name in cells.columns:
        if name in schema.SLICES:
            aside = f"source {name}"
            while aside in taken:
                aside = f"source {aside}"
            taken.add(aside)
            renamed[name] = aside
    return cells.rename(renamed)


def _facts(cells: pl.DataFrame, columns: ColumnNames) -> pl.DataFrame:
    """What slices, lanes and duplicates need to know of each row."""
    start, dur = (pl.col(columns.by_word[word]) for word in ("start", "dur"))
    type_, core = columns.get("type"), columns.get("core")
    # an order of the queue has no name but what it is
    kernel = pl.when(columns.get("name").is_null()).then(core).otherwise(None)
    kernel = pl.coalesce(kernel, pl.col(columns.by_word["name"]))
    facts = cells.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("task"),
        ns_from_us(start).alias("start"),
        pl.when(ns_from_us(dur) <= LONGEST_US * 1000).then(ns_from_us(dur)).alias("dur"),
        kernel.alias("kernel"),
        columns.get("step").cast(pl.Int64, strict=False).alias("step"),
        (needs_rounding(start) | needs_rounding(dur)).alias("rounded"),
        type_.alias("type"),
        core.alias("core"),
        columns.get("stream").alias("stream"),
        columns.get("shapes").is_not_null().alias("has_shapes"),
        columns.get("counter").is_not_null().alias("has_counters"),
        columns.get("device").cast(pl.Int32, strict=False).alias("device"),
    )
    comm = facts["core"].is_in(["HCCL", "COMMUNICATION"]).fill_null(False)
    comm |= is_comm(facts["type"]) | is_comm(facts["kernel"])
    copy = (facts["core"] == schema.COPY_CORE).fill_null(False)
    order = facts["core"].str.contains(QUEUE_ORDERS.pattern).fill_null(False)
    kind = (
        pl.when(comm)
        .then(pl.lit("comm"))
        .when(copy)
        .then(pl.lit("copy"))
        .when(order)
        .then(pl.lit("schedule"))
        .otherwise(pl.lit("task"))
    )
    return facts.with_columns(kind.cast(schema.KINDS).alias("kind"))


def _refuse_bad_times(facts: pl.DataFrame, table: CsvTable, columns: ColumnNames, path: Path) -> None:
    for word in ("start", "dur"):
        if facts[word].null_count():
            row, column = int(facts[word].is_null().arg_max() or 0), columns.by_word[word]
            cell = table.cells[row, column]
            what = f"'{cell}' in column {column} is not a time in microseconds"
            raise BadInput(what, path=path, line=int(table.lines[row]))


def _with_lanes(facts: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """One lane per device and stream. Logical communication rows have no stream and share a `link` lane."""
    facts = facts.with_columns(on_link=pl.col("stream").is_null() & (pl.col("kind") == "comm"))
    place = ["device", "stream", "on_link"]
    lanes = facts.select(place).unique(maintain_order=True).with_row_index("lane")
    facts = facts.join(lanes, on=place, nulls_equal=True, maintain_order="left")
    elsewhere = pl.when("on_link").then(pl.lit("communication")).otherwise(pl.lit("device"))
    lanes = lanes.select(
        "lane",
        pl.coalesce(pl.concat_str(pl.lit("stream "), "stream"), elsewhere).alias("name"),
        pl.when("on_link").then(pl.lit("link")).otherwise(pl.lit("stream")).alias("unit"),
        "device",
    )
    return facts, lanes
