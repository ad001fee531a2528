"""One side of an alignment: the kernel calls of a forward pass in order, measured or predicted alike.

Calls are device work that counts once, ordered by start. What is left out is counted with its time: rows that tell
another row's work again, AI_CPU rows (tilings and host-like work, which a model does not price), spans that enclose
others. Predictions say more of a call than captures do (source, layer, limit_ns), as columns or in an event's
arguments; TensorCast's traces name the kernel (`kernel_type`) and its parts (`sub_kernel_durations`) there.

A prediction may be any CSV with a column of kernels and one of times, found by their names; the unit stands in the
time column's name (`time_us`, `latency (ms)`), else it must be said. A count column repeats a row.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base.errors import BadInput, NpuscopeError, UnknownFormat
from npuscope.base.frozen import dataclass
from npuscope.chip.kernels import aligned_name, is_comm, plain, stem
from npuscope.explain.work import CORE_KINDS, NOT_RECORDED, TYPES, rows_of_work
from npuscope.table.formats import short
from npuscope.trace import read, source
from npuscope.trace.core import Ledger, Trace, arrays_of
from npuscope.trace.intervals import lane_order
from npuscope.trace.names import source_column
from npuscope.trace.source import json_field
from npuscope.trace.tables import CsvTable, header_of, read_csv

# our word -> columns of a table, then fields of an event's arguments
WORDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "type": (TYPES, ("Type", "kernel_type")),
    "source": (("Source",), ("Source", "source")),
    "layer": (("layer",), ("layer",)),
    "role": (("role",), ("role",)),
    "limit_ns": (("limit_ns",), ("limit_ns",)),
    "core": (CORE_KINDS, ("Accelerator Core",)),
    "parts": ((), ("sub_kernel_durations",)),
    "zero_cost": ((), ("zero_cost",)),
}
SHAPE_FIELDS = ("Input Shapes", "simulation_shapes", "Input Dims", "input_shapes", "shapes")
TENSORCAST = "simulation_shapes"
DUPLICATE, AI_CPU, ENCLOSING = "lists another row's work a second time", "AI_CPU", "encloses other spans"
FREE = "takes no time, and the other side has no such kernel"


@dataclass(frozen=True)
class PassSide:
    """`events`: the rows that count once; `calls`: the same in order, composites apart; `rows`: duplicates too."""

    name: str
    calls: pl.DataFrame  # start, dur, kernel, name, shapes, formats, layer, role, source, limit_ns, comm
    events: pl.DataFrame
    rows: pl.DataFrame
    left_out: dict[str, tuple[int, int]]  # reason -> rows, nanoseconds
    ordered: bool  # False where a table gives counts and no order
    of_kernels: bool  # a table of kernels; else events of any kind, views and reshapes among them

    def tells(self, word: str) -> bool:
        return self.calls[word].null_count() < self.calls.height


def side_of(trace: Trace, name: str, process: str | None = None) -> PassSide:
    """The calls of a trace that holds one forward pass; `process` chooses among several models in one file."""
    path = trace.meta.files[0] if trace.meta.files else None
    if trace.lanes["rank"].drop_nulls().n_unique() > 1:
        raise NpuscopeError(f"the {name} holds several ranks", path=path, remedy="Name the capture of one rank.")
    rows = _in_our_words(rows_of_work(trace.slices))
    rows = _one_model(rows, trace, process, name)
    left_out: dict[str, tuple[int, int]] = {}
    events = rows
    for reason, out in (
        (DUPLICATE, pl.col("duplicate_of").is_not_null()),
        (AI_CPU, (pl.col("core") == "AI_CPU").fill_null(False)),
    ):
        gone = events.filter(out)
        if gone.height:
            left_out[reason] = (gone.height, int(gone["dur"].sum()))
        events = events.filter(~out)
    if events["kind"].n_unique() == 1 and events["kind"][0] == "host":
        encloses = pl.Series(_encloses(events))
        if encloses.any():
            left_out[ENCLOSING] = (int(encloses.sum()), int(events["dur"].filter(encloses).sum()))
            events = events.filter(~encloses)
    if events.is_empty():
        raise NpuscopeError(f"the {name} holds no kernel that ran on the device", path=path)
    events = events.sort("start", maintain_order=True)
    ordered, of_kernels = "rows" not in trace.meta.notes, _has_types(trace.slices)
    return PassSide(name, _taken_apart(events), events, rows, left_out, ordered, of_kernels)


def families_of(names: Iterable[str], others: Iterable[str] = ()) -> dict[str, str]:
    """Each name's family. Names no rule knows meet by their plain form and show the stem that sorts first."""
    distinct = sorted({*names, *others})
    shown: dict[str, str] = {}
    for name in distinct:
        shown.setdefault(plain(name), stem(name))
    return {name: aligned_name(name) or shown[plain(name)] for name in distinct}


def without_free(ours: PassSide, theirs: PassSide) -> PassSide:
    """A prediction without the events that cost nothing and are no kernels (aten.view); a known kernel stays."""
    calls = ours.calls
    nothing = (pl.col("dur") == 0) & (pl.col("source").fill_null("") != "UNKNOWN")
    if ours.of_kernels or not calls.select(nothing.any()).item():
        return ours
    families = families_of(calls["kernel"].to_list(), theirs.calls["kernel"].to_list())
    known = {families[kernel] for kernel in theirs.calls["kernel"]}
    there = [name for name in calls["kernel"].unique() if families[name] in known]
    free = nothing & ~pl.col("kernel").is_in(there)
    gone = calls.filter(free).height
    if gone in (0, calls.height):
        return ours
    return replace(ours, calls=calls.filter(~free), left_out={**ours.left_out, FREE: (gone, 0)})


def _in_our_words(slices: pl.DataFrame) -> pl.DataFrame:
    """The slices with our words, whatever the source calls them."""
    words = {word: _word(slices, columns, fields) for word, (columns, fields) in WORDS.items()}
    shapes = [name for name in (source_column(slices, "input_shapes"), *SHAPE_FIELDS) if name is not None]
    formats = source_column(slices, "input_formats")
    words["shapes"] = _word(slices, shapes, SHAPE_FIELDS)
    words["formats"] = _word(slices, [] if formats is None else [formats], ("Input Formats",))
    for word in ("layer", "limit_ns"):
        words[word] = words[word].cast(pl.Float64, strict=False).round(0).cast(pl.Int64, strict=False)
    words["source"] = words["source"].str.to_uppercase().str.split(".").list.last()  # QuerySource.MEASURED
    single = words["type"].set(words["type"].str.contains(",", literal=True).fill_null(False), None)
    work = slices.select("lane", "start", "dur", "kind", "duplicate_of", pl.col("kernel").fill_null("").alias("name"))
    work = work.with_columns(
        *(column.alias(word) for word, column in words.items()),
        pl.coalesce(single, "name").alias("kernel"),
    )
    # an event's own name is the function it stands for
    work = work.with_columns(pl.col("kernel" if _has_types(slices) else "name").alias("function"))
    return work.with_columns(((work["kind"] == "comm").fill_null(False) | is_comm(work["kernel"])).alias("comm"))


def _has_types(slices: pl.DataFrame) -> bool:
    return any(name in slices.columns for name in TYPES)


def _word(slices: pl.DataFrame, columns: Iterable[str], fields: Iterable[str]) -> pl.Series:
    """The first of the columns and then of the arguments' fields that tell anything, as text."""
    for name in columns:
        if name in slices.columns:
            text = slices[name].cast(pl.String).str.strip_chars()
            return text.set(text.is_in(NOT_RECORDED).fill_null(False), None)
    if "args" in slices.columns:
        for name in fields:
            text = json_field(slices["args"], name)
            if text.null_count() < len(text):
                return text.set(text.is_in(NOT_RECORDED).fill_null(False), None)
    return pl.Series([None], dtype=pl.String).new_from_index(0, slices.height)


def _one_model(rows: pl.DataFrame, trace: Trace, process: str | None, name: str) -> pl.DataFrame:
    """TensorCast writes a process per performance model, each a whole prediction: one of them is meant."""
    if "process" not in trace.lanes.columns:
        if process is not None:
            raise NpuscopeError(f"the {name} has no processes to choose from")
        return rows
    lanes = trace.lanes.filter(pl.col("lane").is_in(rows["lane"].unique().implode()))
    names = lanes["process"].unique(maintain_order=True).to_list()
    is_tensorcast = "args" in trace.slices.columns and json_field(trace.slices["args"], TENSORCAST).null_count() == 0
    if process is not None:
        wanted = [n for n in names if n == process or n.startswith(f"{process} (PID")]
    elif len(names) > 1 and is_tensorcast:
        sourced = rows.filter(pl.col("source").is_not_null())["lane"].unique()
        wanted = lanes.filter(pl.col("lane").is_in(sourced.implode()))["process"].unique().to_list()
    else:
        return rows
    if len(wanted) != 1:
        listed = ", ".join(short(n, 40) for n in names[:10])
        raise NpuscopeError(f"the {name} holds several models' processes: {listed}", remedy="Choose with --process.")
    kept = lanes.filter(pl.col("process") == wanted[0])["lane"]
    return rows.filter(pl.col("lane").is_in(kept.implode()))


def _encloses(rows: pl.DataFrame) -> NDArray[np.bool_]:
    """True for spans with another one, not of no length, wholly inside them on their lane.

    Spans in whole microseconds overlap by up to one through rounding; that is not nesting.
    """
    lane, start, dur = arrays_of(rows)
    lasting = np.flatnonzero(dur > 0)
    order = lasting[lane_order(lane[lasting], start[lasting], dur[lasting])]
    here, after = order[:-1], order[1:]
    inside = (lane[here] == lane[after]) & (start[after] + dur[after] <= start[here] + dur[here])
    inside &= (dur[after] < dur[here]) & (start[here] + dur[here] - start[after] > 1000)
    result = np.zeros(rows.height, dtype=bool)
    result[here[inside]] = True
    return result


CALL_COLUMNS = (
    "start", "dur", "kernel", "name", "shapes", "formats", "layer", "role", "source", "limit_ns", "comm",
)  # fmt: skip


def _taken_apart(events: pl.DataFrame) -> pl.DataFrame:
    """The calls; an event that lists the kernels it stands for, with their microseconds, becomes those."""
    calls = events.select(*CALL_COLUMNS).with_columns(pl.lit(0).alias("part"))
    composite = events["parts"].is_not_null()
    if not composite.any():
        return calls.drop("part")
    rows: list[dict[str, object]] = []
    for row, text in zip(calls.filter(composite).to_dicts(), events["parts"].filter(composite), strict=True):
        start = row["start"]
        for kernel, us in _parts(text):
            ns = round(us * 1000)
            rows.append({**row, "kernel": kernel, "start": start, "dur": ns, "part": len(rows), "limit_ns": None})
            start += ns
        if start == row["start"]:
            rows.append(row)
    whole = calls.filter(~composite)
    parts = pl.DataFrame(rows, schema=calls.schema)
    return pl.concat([whole, parts]).sort("start", "part", maintain_order=True).drop("part")


def _parts(text: str) -> list[tuple[str, float]]:
    """[('BatchMatMulV2', 8.6), …]; nothing where the text is anything else."""
    try:
        listed = ast.literal_eval(text) if len(text) < 100_000 else []
        found = [(str(kernel), float(us)) for kernel, us in listed]
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return []
    return found if all(0 <= us < 4e12 for _, us in found) else []


KERNEL = ("kernel", "type", "kernel_type", "op_type", "op", "name", "kernel_name", "op_name", "operator")
TIME = ("time", "dur", "duration", "latency", "mean", "average", "avg", "predicted", "cost", "elapsed")
SHAPES = ("shapes", "input_shapes", "shape", "inputs")
COUNT = ("count", "calls")
COUNTED = "a count"
UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
MOST_CALLS = 1_000_000
LONGEST_NS = 4_000_000_000_000_000  # as elsewhere: 46 days


@dataclass(frozen=True)
class CsvColumns:
    """What the user says of the file; None is found by name."""

    kernel: str | None = None
    time: str | None = None
    unit: str | None = None


def read_prediction_csv(path: str | Path, wanted: CsvColumns | None = None) -> Trace:
    """The file as a Trace of one lane, each call starting where the one before ended."""
    path, wanted = Path(path), wanted or CsvColumns()
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


def read_side(path: str | Path, wanted: CsvColumns | None = None) -> Trace:
    """A prediction or a pass from a file: any capture npuscope knows, else a CSV with kernel and time."""
    if wanted is not None and wanted != CsvColumns():
        return read_prediction_csv(path, wanted)
    try:
        return read(path)
    except UnknownFormat:
        if header_of(source.head(Path(path))) is None:
            raise
    return read_prediction_csv(path)
