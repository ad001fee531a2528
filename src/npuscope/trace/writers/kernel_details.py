"""Ascend's kernel table, written back with the columns and the text it was read with."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from npuscope.base import progress
from npuscope.base.errors import CannotWrite
from npuscope.base.frozen import dataclass
from npuscope.trace.core import Counts, Trace, note_of
from npuscope.trace.formats import Writer
from npuscope.trace.intervals import Ints
from npuscope.trace.readers.kernel_details import PREDICTED
from npuscope.trace.schema import COPY_CORE, cases, is_work, us_from_ns
from npuscope.trace.tables import BOM, guarded
from npuscope.trace.writers.atomic import whole_file

BATCH = 1 << 18
CORES = {"AIC": "AI_CORE", "AIV": "AI_VECTOR_CORE", "AICPU": "AI_CPU"}  # the profiler's words for our units
# columns of the profiler's that a trace from elsewhere may have
DESCRIBING = (
    "Stream ID", "Name", "Type", "Accelerator Core", "Input Shapes", "Input Data Types", "Input Formats",
    "Output Shapes", "Output Data Types", "Output Formats",
)  # fmt: skip


def write(trace: Trace, path: Path) -> Counts:
    """A trace read from such a table gives back its cells; any other gives the columns it has an answer for."""
    table = _Table.of(trace)
    with whole_file(path) as file:
        file.write(table.head)
        for begin in range(0, table.cells.height, BATCH):
            progress.report(f"writing {path.name}", begin, table.cells.height)
            file.write(table.text(table.cells.slice(begin, BATCH)))
    left_out = {
        "slice that is no device task": trace.slices.height - table.cells.height,
        "edge": trace.edges.height,
        "sample of a counter": trace.counters.height,
        "note of the window": len(note_of(trace)),
        **_losses(trace),
    }
    return {reason: count for reason, count in left_out.items() if count}


def _losses(trace: Trace) -> Counts:
    """What a table of kernels has no column for, of the rows that it lists."""
    if "columns" in trace.meta.notes:
        return {}
    rows = trace.slices.filter(is_work())
    lanes = trace.lanes.filter(pl.col("lane").is_in(rows["lane"].unique().implode()))
    return {
        "rank of a lane": lanes["rank"].count(),
        "core of a lane": lanes["core"].count(),
        "mark of a row that lists another's work again": rows["duplicate_of"].count(),
        "time of dispatch or finish": rows["dispatch"].count() + rows["finish"].count(),
    }


def write_parts(trace: Trace, parts: Sequence[tuple[Ints, Path]]) -> None:
    """Some rows of a trace each as a table of its own. Thousands cost little more than one with all their rows."""
    if "columns" not in trace.meta.notes:
        for rows, path in parts:
            write(replace(trace, slices=trace.slices[rows], edges=trace.edges.clear()), path)
        return
    table = _Table.of(trace)
    waiting: list[tuple[Ints, Path]] = []
    for number, part in enumerate(parts):
        waiting.append(part)
        if number == len(parts) - 1 or sum(len(rows) for rows, _ in waiting) > BATCH // 4:
            progress.report("writing tables", number + 1, len(parts))
            table.write_together(waiting)
            waiting = []


@dataclass(frozen=True)
class _Table:
    """The cells to write, and how their source wrote them."""

    header: list[str]
    cells: pl.DataFrame
    line_end: str
    bom: bool

    @staticmethod
    def of(trace: Trace) -> _Table:
        notes = trace.meta.notes
        if "columns" in notes and set(notes["columns"]) <= set(trace.slices.columns):
            cells = trace.slices.select(notes["columns"])
            return _Table(list(notes["header"]), cells, str(notes.get("line_end", "\n")), bool(notes.get("bom")))
        cells = _foreign_cells(trace)
        return _Table(cells.columns, cells, "\n", False)

    @property
    def head(self) -> bytes:
        first = io.StringIO()
        csv.writer(first, lineterminator=self.line_end).writerow(guarded(pl.DataFrame({"": self.header}))[""])
        return (BOM if self.bom else b"") + first.getvalue().encode()

    def text(self, cells: pl.DataFrame) -> bytes:
        # Polars puts empty text in quotes, unlike null; the profiler writes nothing
        rows = guarded(cells).select(pl.when(pl.all() != "").then(pl.all()))
        return rows.write_csv(
            include_header=False, line_terminator=self.line_end, quote_style="necessary", null_value=""
        ).encode()

    def write_together(self, parts: list[tuple[Ints, Path]]) -> None:
        """One text for all parts, cut at its lines; a cell with a line end in it makes each part a text of its own."""
        wanted = np.concatenate([rows for rows, _ in parts])
        in_a_row = np.array_equal(wanted, np.arange(wanted[0], wanted[0] + len(wanted))) if len(wanted) else False
        text = self.text(self.cells.slice(int(wanted[0]), len(wanted)) if in_a_row else self.cells[wanted])
        lines = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n")) + 1
        edges = np.cumsum([0, *(len(rows) for rows, _ in parts)])
        ends = np.concatenate([[0], lines])
        for number, (rows, path) in enumerate(parts):
            with whole_file(path) as file:
                file.write(self.head)
                if len(lines) == edges[-1]:
                    file.write(text[ends[edges[number]] : ends[edges[number + 1]]])
                else:
                    file.write(self.text(self.cells[rows]))


def _foreign_cells(trace: Trace) -> pl.DataFrame:
    """Device tasks, communication and copies only, sorted by start, as the profiler would list them."""
    rows = trace.slices.filter(is_work())
    if rows.is_empty():
        raise CannotWrite("this trace has no device tasks to list in a kernel table")
    rows = rows.join(trace.lanes.select("lane", "name", "unit", "device"), on="lane", maintain_order="left").sort(
        "start"
    )
    end = pl.col("start") + pl.col("dur")
    # the profiler's own meaning: the gap to the row before, whatever its stream
    wait = (pl.col("start") - end.shift(1)).clip(lower_bound=0).fill_null(0)
    stream = pl.when(pl.col("unit") != "link").then(pl.col("name").str.strip_prefix("stream "))
    core = cases(
        (pl.col("kind") == "comm", "COMMUNICATION"),
        (pl.col("kind") == "copy", COPY_CORE),
        otherwise=pl.col("unit").replace_strict(CORES, default=None),
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
    cells |= {name: pl.col(name).cast(pl.String) for name in (*DESCRIBING, *PREDICTED) if name in rows.columns}
    return rows.select(cell.fill_null("N/A").alias(name) for name, cell in cells.items())


WRITER = Writer("kernel_details", "Ascend's kernel table (.csv)", write, (".csv",))
