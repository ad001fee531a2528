"""From a table of events to a Trace: what every JSON dialect does after it has decided what things are."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import polars as pl

from npuscope.trace import schema
from npuscope.trace.core import Trace
from npuscope.trace.event_table import EventTable
from npuscope.trace.flows import edges_of
from npuscope.trace.intervals import Enclosing, Ints

_KIND_NUMBER = {name: number for number, name in enumerate(schema.KINDS.categories)}
_PROFILER_STEP = re.compile(r"^ProfilerStep#(\d+)$")


def kind_numbers(kinds: Sequence[str]) -> Ints:
    """Kinds as numbers, to be indexed by a table's category or name numbers."""
    return np.array([_KIND_NUMBER[kind] for kind in kinds], dtype=np.int64)


def dress(
    table: EventTable,
    format: str,
    *,
    kind: Ints | None = None,
    lanes: pl.DataFrame | None = None,
    task: pl.Series | None = None,
    kernel: pl.Series | None = None,
    epoch_ns: int = 0,
    device: str | None = None,
    clock: str | None = None,
) -> Trace:
    """The Trace of a table. What a dialect does not decide stays plain: host slices on host lanes,
    the record's number as `task`, the event's name as `kernel`."""
    events = table.slices
    lane, start, dur = (events[c].cast(pl.Int64).to_numpy() for c in ("lane", "start", "dur"))
    kind = np.full(events.height, _KIND_NUMBER["host"]) if kind is None else kind
    task = pl.int_range(events.height, dtype=pl.Int64, eager=True) if task is None else task
    names = pl.Series(table.names, dtype=pl.String)
    enclosing = Enclosing(lane, start, dur)
    slices = events.select(
        "lane",
        pl.col("start") + epoch_ns,
        "dur",
        (names.gather(events["name"]) if kernel is None else kernel).alias("kernel"),
        pl.Series(schema.KINDS.categories).cast(schema.KINDS).gather(kind).alias("kind"),
        pl.Series("depth", enclosing.depths(), dtype=pl.UInt32),
        task.alias("task"),
        pl.Series("step", _steps(table), dtype=pl.Int64),
        pl.Series([c or None for c in table.categories], dtype=pl.String).gather(events["category"]).alias("cat"),
        *[c for c in ("args", "other") if c in events.columns],
    )
    edges = edges_of(table.flows, enclosing, task.fill_null(-1).to_numpy())
    edges = edges.with_columns(
        pl.col("src", "dst").replace(-1, None),
        names.gather(edges["name"]).alias("name"),
        pl.col("src_time", "dst_time") + epoch_ns,
    )
    table.ledger.marked["flow end without its other end"] = int(
        edges.select((pl.col("src_time").is_null() | pl.col("dst_time").is_null()).sum()).item()
    )
    lanes = plain_lanes(table) if lanes is None else lanes
    # lanes that only counters or flows mentioned are not lanes things ran on
    lanes = lanes.filter(pl.col("lane").is_in(slices["lane"].unique().implode()))
    return Trace.of(slices, lanes, table.ledger.close(format, (str(table.path),), device=device, clock=clock), edges)


def plain_lanes(table: EventTable) -> pl.DataFrame:
    """One lane per (pid, tid), named as the file names them."""
    pids, tids = ([str(key[i]) for key in table.lane_keys] for i in (0, 1))
    return pl.DataFrame(
        {
            "lane": pl.Series(range(len(table.lane_keys)), dtype=pl.UInt32),
            "name": pl.Series(table.lane_names(), dtype=pl.String),
            "unit": pl.Series(["host"] * len(pids), dtype=pl.String),
            "process": pl.Series(table.lane_processes(), dtype=pl.String),
            "pid": pl.Series(pids, dtype=pl.String),
            "tid": pl.Series(tids, dtype=pl.String),
        }
    )


def _steps(table: EventTable) -> pl.Series:
    """The ProfilerStep annotation a slice begins in, if any."""
    steps = {number: int(m[1]) for number, name in enumerate(table.names) if (m := _PROFILER_STEP.match(name))}
    if not steps:
        return pl.Series([None], dtype=pl.Int64).new_from_index(0, table.slices.height)
    marks = table.slices.filter(pl.col("name").is_in(list(steps))).unique("name", keep="first").sort("start")
    begin, stop = marks["start"].to_numpy(), (marks["start"] + marks["dur"]).to_numpy()
    number = np.array([steps[n] for n in marks["name"]])
    start = table.slices["start"].to_numpy()
    at = np.searchsorted(begin, start, side="right") - 1
    inside = (at >= 0) & (start < stop[at])
    return pl.Series(np.where(inside, number[at], 0)).set(pl.Series(~inside), None)
