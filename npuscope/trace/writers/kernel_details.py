"""Ascend's kernel table, written back with the columns and the text it was read with."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import polars as pl

from npuscope.errors import CannotWrite
from npuscope.trace import progress
from npuscope.trace.core import Trace
from npuscope.trace.csv_table import BOM
from npuscope.trace.decimal_time import us_from_ns
from npuscope.trace.meta import Counts
from npuscope.trace.writers.atomic import whole_file

BATCH = 1 << 18
CORES = {"AIC": "AI_CORE", "AIV": "AI_VECTOR_CORE", "AICPU": "AI_CPU"}  # the profiler's words for our units
# columns of the profiler's, and of a prediction, that a trace from elsewhere may have
TOLD = (
    "Stream ID", "Name", "Type", "Accelerator Core", "Input Shapes", "Input Data Types", "Input Formats",
    "Output Shapes", "Output Data Types", "Output Formats",
)  # fmt: skip
PREDICTED = ("part", "layer", "position", "role", "Source", "limit_ns")


def write(trace: Trace, path: Path) -> Counts:
    """A trace read from such a table gives back its cells; any other gives the columns it has an answer for."""
    notes = trace.meta.notes
    if "columns" in notes and set(notes["columns"]) <= set(trace.slices.columns):
        header, cells = list(notes["header"]), trace.slices.select(notes["columns"])
        line_end, bom = str(notes.get("line_end", "\n")), bool(notes.get("bom"))
    else:
        cells = _foreign_cells(trace)
        header, line_end, bom = cells.columns, "\n", False
    with whole_file(path) as file:
        file.write(BOM if bom else b"")
        first = io.StringIO()
        csv.writer(first, lineterminator=line_end).writerow(header)
        file.write(first.getvalue().encode())
        for begin in range(0, cells.height, BATCH):
            progress.report(f"writing {path.name}", begin, cells.height)
            # Polars puts empty text in quotes, to tell it from null; the profiler writes nothing
            rows = cells.slice(begin, BATCH).select(pl.when(pl.all() != "").then(pl.all()))
            text = rows.write_csv(
                include_header=False, line_terminator=line_end, quote_style="necessary", null_value=""
            )
            file.write(text.encode())
    left_out = {"slice that is no device task": trace.slices.height - cells.height, "edge": trace.edges.height}
    return {reason: count for reason, count in left_out.items() if count}


def _foreign_cells(trace: Trace) -> pl.DataFrame:
    """Device tasks and communication only, sorted by start, as the profiler would list them."""
    rows = trace.slices.filter(pl.col("kind").is_in(["task", "comm"]))
    if rows.is_empty():
        raise CannotWrite("this trace has no device tasks to list in a kernel table")
    rows = rows.join(trace.lanes.select("lane", "name", "unit", "device"), on="lane", maintain_order="left").sort(
        "start"
    )
    end = pl.col("start") + pl.col("dur")
    # the profiler's own meaning: the gap to the row before, whatever its stream
    wait = (pl.col("start") - end.shift(1)).clip(lower_bound=0).fill_null(0)
    stream = pl.when(pl.col("unit") != "link").then(pl.col("name").str.strip_prefix("stream "))
    core = (
        pl.when(pl.col("kind") == "comm")
        .then(pl.lit("COMMUNICATION"))
        .otherwise(pl.col("unit").replace_strict(CORES, default=None))
    )
    cells = {
        "Step Id": pl.col("step").cast(pl.String),
        "Device_id": pl.col("device").cast(pl.String),
        "Stream ID": stream,
        "Name": pl.col("kernel"),
        "Type": pl.col("kernel"),
        "Accelerator Core": core,
        "Start Time(us)": pl.concat_str(us_from_ns(pl.col("start")), pl.lit("\t")),
        "Duration(us)": us_from_ns(pl.col("dur")),
        "Wait Time(us)": us_from_ns(wait),
    }
    # what the trace itself calls so comes before what can be said of any trace
    cells |= {name: pl.col(name).cast(pl.String) for name in (*TOLD, *PREDICTED) if name in rows.columns}
    return rows.select(cell.fill_null("N/A").alias(name) for name, cell in cells.items())
