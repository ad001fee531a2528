"""Forward passes as files: each pass a table with the columns and the text of its source, and a JSON beside it.

The JSON tells where the rows come from and what is known of the pass, so that the table can stand as ground truth.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from npuscope.base.errors import CannotWrite, NpuscopeError
from npuscope.explain.passes.condition import PHASES
from npuscope.explain.passes.found import NoPasses, Passes, passes
from npuscope.explain.passes.statistics import statistics
from npuscope.trace import schema
from npuscope.trace.core import OUTSIDE, Trace
from npuscope.trace.intervals import Ints
from npuscope.trace.schema import is_work
from npuscope.trace.writers.atomic import whole_file
from npuscope.trace.writers.kernel_details import write as write_table
from npuscope.trace.writers.kernel_details import write_parts

INDEX = "forward.json"
CLEAN = "clean"  # complete and undisturbed
MOST = 20  # steps named in an error
NUMBER = re.compile(r"[0-9]{1,18}")
_OURS = re.compile(rf"{re.escape(INDEX)}|(capture|pass_\d+_[a-z]+)\.(csv|json)")


def selected(found: Passes, words: Sequence[str]) -> list[int]:
    """Pass numbers from `3`, `2-5`, `all`, `clean`, `complete` or a phase; in order, each once."""
    table = found.table
    by_word = {
        "all": pl.lit(True),
        "complete": pl.col("complete"),
        CLEAN: pl.col("complete") & ~pl.col("disturbed"),
        **{phase: pl.col("phase") == phase for phase in PHASES},
    }
    chosen: set[int] = set()
    for word in words:
        if word in by_word:
            chosen.update(table.filter(by_word[word])["index"])
            continue
        first, _, last = word.partition("-")
        if not NUMBER.fullmatch(first) or not NUMBER.fullmatch(last or first):
            known = ", ".join(by_word)
            raise NpuscopeError(f"--select '{word}' is no pass number and no word", remedy=f"Words: {known}.")
        if max(int(first), int(last or first)) >= table.height:
            beyond = max(int(first), table.height)
            raise NpuscopeError(f"no pass {beyond}", remedy=f"There are passes 0 to {table.height - 1}.")
        chosen.update(range(int(first), int(last or first) + 1))
    if not chosen:
        raise NpuscopeError(f"no pass is {' or '.join(words)}", remedy="See --list; --select all takes every pass.")
    return sorted(chosen)


def rows_of(found: Passes, numbers: list[int], window: str) -> list[Ints]:
    """For each pass the rows of the trace inside its window; rows that list work again come with the first."""
    if window == "capture":
        return [np.arange(found.trace.slices.height)]
    in_pass = found.rows["in_pass"].fill_null(-1).to_numpy()
    order = np.argsort(in_pass, kind="stable")
    edges = np.searchsorted(in_pass[order], [*numbers, *(n + 1 for n in numbers)])
    rows = [order[a:b] for a, b in zip(edges[: len(numbers)], edges[len(numbers) :], strict=True)]
    if window == "full":
        return rows
    start = found.trace.slices["start"].to_numpy()
    first = found.rows["first_listing"].to_numpy()
    limits = found.table.select("anchor_start_ns", "anchor_end_ns").rows()
    if any(limits[n][0] is None for n in numbers):
        raise NpuscopeError("there is no anchor, so there is no anchor window", remedy="Use --window full.")
    return [
        r[(start[first[r]] >= limits[n][0]) & (start[first[r]] < limits[n][1])]
        for n, r in zip(numbers, rows, strict=True)
    ]


def cut_out(found: Passes, number: int) -> Trace:
    """One pass as a trace of its own, which remembers its window and how many rows are in other ones."""
    part = _part(found.trace, rows_of(found, [number], "full")[0])
    window = {"window_ns": [found.table[name][number] for name in ("start_ns", "end_ns")]}
    elsewhere = found.trace.slices.height - part.slices.height
    return replace(part, meta=found.trace.meta.plus(notes=window, dropped={OUTSIDE: elsewhere}))


def metadata_of(table: Path) -> Path:
    """Where the JSON of an exported table goes."""
    return table.with_name(f"{table.name.partition('.csv')[0]}.json")


def write_pass(found: Passes, number: int, window: str, path: Path) -> list[Path]:
    """One pass as a table at `path`, and what is known of it beside."""
    rows = rows_of(found, [number], window)[0]
    beside = metadata_of(path)
    if beside.exists() and b'"rows_written"' not in beside.read_bytes()[:100_000]:
        raise CannotWrite("something else is there already, where the pass's metadata would go", path=beside)
    with whole_file(beside) as file:  # the table goes first: its metadata never tells of a table that is not there
        write_table(_part(found.trace, rows), path)
        file.write(_metadata(found, window, [number], [rows])[0])
    return [path, beside]


def is_export(folder: Path) -> bool:
    """True where nothing lies in a folder but what `fill` writes, for one rank or for many: it may be replaced."""
    return all(
        is_export(path)
        if path.is_dir() and re.fullmatch(r"(rank\d*)?_?(device\d+)?", path.name)
        else _OURS.fullmatch(path.name)
        for path in folder.iterdir()
    )


def fill(found: Passes, numbers: list[int], window: str, place: Path) -> list[Path]:
    """Write passes and their index into a folder that is there."""
    whole = window == "capture"
    numbers = numbers[:1] if whole else numbers
    rows = [np.sort(part) for part in rows_of(found, numbers, window)]
    names = ["capture.csv"] if whole else [f"pass_{n:04d}_{found.table['phase'][n]}.csv" for n in numbers]
    tables = [place / name for name in names]
    write_parts(found.trace, list(zip(rows, tables, strict=True)))
    for table, about in zip(tables, _metadata(found, window, numbers, rows), strict=True):
        table.with_suffix(".json").write_bytes(about)
    (place / INDEX).write_bytes(_json(found.as_dict()))
    return [path for table in tables for path in (table, table.with_suffix(".json"))] + [place / INDEX]


def _part(trace: Trace, rows: Ints) -> Trace:
    return replace(trace, slices=trace.slices[np.sort(rows)], edges=trace.edges.clear())


def _metadata(found: Passes, window: str, numbers: list[int], rows: list[Ints]) -> list[bytes]:
    """What is known of exported passes, as JSON; the sequence of layers only where a complete pass taught one."""
    meta, each = found.trace.meta, found.main_table().rows()
    limits = ("anchor_start_ns", "anchor_end_ns") if window == "anchor" else ("start_ns", "end_ns")
    whole = window == "capture"
    learned = statistics(found).as_dict()["sequences"] if found.table["complete"].any() else []
    return [
        _json(
            {
                "source": list(meta.files),
                "window": window,
                "window_ns": list(found.trace.window_ns) if whole else [each[number][name] for name in limits],
                "rule": found.rule,
                "anchor": found.anchor,
                "rows_written": len(part),
                "pass": None if whole else each[number],
                "attentions_per_layer": found.attentions_per_layer,
                "sequences": learned,
                "capture": {name: dict(getattr(meta, name)) for name in ("marked", "repaired", "dropped")},
            }
        )
        for number, part in zip(numbers, rows, strict=True)
    ]


def _json(data: object) -> bytes:
    return json.dumps(data, indent=2, ensure_ascii=False, default=str).encode()


def numbered_pass(trace: Trace, number: int, path: str) -> Trace:
    """A pass by its number in `npuscope forward --list`."""
    found = passes(trace)
    if not 0 <= number < found.table.height:
        what = f"no forward pass {number}"
        raise NpuscopeError(what, path=path, remedy=f"`npuscope forward --list` has 0 to {found.table.height - 1}.")
    return cut_out(found, number)


def one_pass(trace: Trace, step: int | None, number: int | None, path: str, prefix: str = "--") -> Trace:
    """The pass chosen by step or number; without either the trace itself, if it does not hold several passes.

    `prefix` begins the options the user chooses with, for the errors.
    """
    if step is not None and number is not None:
        raise NpuscopeError(f"{prefix}step and {prefix}pass name a pass each", remedy="Give one of them.")
    if number is not None:
        return numbered_pass(trace, number, path)
    steps = trace.slices["step"].drop_nulls().unique().sort().to_list()
    if step is not None:
        check_steps(trace, [step], path)
        return trace.select(step=step)
    if len(steps) > 1:
        what = f"it holds {len(steps)} steps: {_listed(steps)}"
        raise NpuscopeError(what, path=path, remedy=f"Choose one forward pass with {prefix}step N.")
    if trace.slices.filter(is_work()).is_empty():
        return trace
    try:
        count = passes(trace).table.height
    except NoPasses:  # nothing tells passes apart: a table of kernels without order, a trace without layers
        return trace
    if count > 1:
        remedy = f"Choose one with {prefix}pass N; `npuscope forward` lists them."
        raise NpuscopeError(f"it holds {count} forward passes", path=path, remedy=remedy)
    return trace


def check_steps(trace: Trace, wanted: list[int], path: str) -> None:
    """Refuse steps that the trace does not mark."""
    known = trace.slices["step"].drop_nulls().unique().sort().to_list()
    for step in wanted:
        if step not in known:
            remedy = f"It has {_listed(known)}." if known else "It marks no steps."
            raise NpuscopeError(f"no step {step}", path=path, remedy=remedy)


def _listed(steps: list[int]) -> str:
    return ", ".join(map(str, steps[:MOST])) + (f" and {len(steps) - MOST} more" if len(steps) > MOST else "")


def with_tracks(found: Passes) -> Trace:
    """The trace with two more lanes: a slice per pass, and below it one per head, layer and tail."""
    trace = found.trace
    passes = found.table.select(
        pl.concat_str(pl.lit("pass "), "index", pl.lit(" "), "phase", _flag("complete", "", " incomplete"),
                      _flag("disturbed", " disturbed", "")).alias("kernel"),
        pl.col("start_ns").alias("start"),
        (pl.col("end_ns") - pl.col("start_ns")).alias("dur"),
    )  # fmt: skip
    spans = found.order.group_by("in_pass", "part", "layer").agg(
        pl.col("start").min(), (pl.col("start") + pl.col("dur")).max().alias("end")
    )
    spans = spans.sort("start")
    # streams overlap: a layer's slice ends where the next one begins, so that they do not cross
    end = pl.min_horizontal("end", pl.col("start").shift(-1).fill_null(pl.col("end")))
    layers = spans.select(
        pl.when(pl.col("part") == "layer")
        .then(pl.concat_str(pl.lit("layer "), pl.col("layer").fill_null(0)))
        .otherwise(pl.col("part").cast(pl.String))
        .alias("kernel"),
        "start",
        (end - pl.col("start")).alias("dur"),
    )
    first = int(trace.lanes["lane"].cast(pl.Int64).max() or 0) + 1  # type: ignore[arg-type]
    names = ["forward passes", "layers"]
    lanes = schema.conform(pl.DataFrame({"lane": [first, first + 1], "name": names, "unit": "host"}), schema.LANES)
    added = [
        part.with_columns(pl.lit(first + number).alias("lane"), pl.lit("derived").alias("kind"))
        for number, part in enumerate((passes, layers))
    ]
    slices = schema.conform(pl.concat(added), schema.SLICES)
    return replace(
        trace,
        slices=pl.concat([trace.slices, slices], how="diagonal"),
        lanes=pl.concat([trace.lanes, lanes], how="diagonal"),
    )


def _flag(column: str, yes: str, no: str) -> pl.Expr:
    return pl.when(pl.col(column)).then(pl.lit(yes)).otherwise(pl.lit(no))
