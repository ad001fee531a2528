"""Checks of the rows themselves: told twice, crossing, cut, or without a place."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from npuscope.analysis.doctor.finding import Finding, describe, microseconds
from npuscope.trace.core import Trace
from npuscope.trace.intervals import crossing


def overlapping_slices(trace: Trace) -> Iterator[Finding]:
    """Slices of one lane that cross without nesting."""
    lane, start, dur = trace.arrays()
    crossed = np.flatnonzero(crossing(lane, start, dur))
    if len(crossed):
        yield Finding(
            "overlap",
            "warning",
            "slice crosses another one of its lane",
            len(crossed),
            describe(trace, int(crossed[0])),
            "Viewers with one open slice per lane drop or cut these; a lane's sum exceeds its busy time.",
        )


def twins(trace: Trace) -> Iterator[Finding]:
    """Rows that tell one piece of work twice."""
    rows = trace.slices.with_row_index("row").filter(pl.col("duplicate_of").is_not_null())
    if rows.height:
        twice = int(rows["dur"].sum())
        yield Finding(
            "twins",
            "warning",
            "row tells another row's work again",
            rows.height,
            describe(trace, int(rows["row"][0])),
            f"A plain sum of durations counts {microseconds(twice)} twice; analyses skip rows with duplicate_of.",
        )


def missing_lanes(trace: Trace) -> Iterator[Finding]:
    """Cores that are there and never ran, and tables that do not say where things ran."""
    cores = trace.lanes.filter(pl.col("unit").is_in(["AIC", "AIV"]))
    idle = cores.filter(~pl.col("lane").is_in(trace.slices["lane"].unique().implode()))
    if idle.height:
        yield Finding(
            "idle-cores",
            "note",
            "core without a task",
            idle.height,
            str(idle["name"][0]),
            "Utilisation is over all cores of the device, these included.",
        )
    header = trace.meta.notes.get("header")
    if header is not None and "Stream ID" not in header:
        yield Finding(
            "no-streams",
            "warning",
            "row without a stream",
            trace.slices.height,
            "",
            "All kernels share one lane (profiler level 0): overlap between streams cannot be told.",
        )
    told, seen = trace.meta.notes.get("num_cores"), cores.height
    if isinstance(told, int) and told != seen:
        yield Finding(
            "core-count",
            "warning",
            "core missing from the core types",
            abs(told - seen),
            "",
            "Utilisation uses the listed cores.",
        )


def refused_companions(trace: Trace) -> Iterator[Finding]:
    """Files beside the capture that could not be joined, and readings known to be poorer than the source."""
    for key, what in (
        ("deps_refused", "deps.json not joined"),
        ("cut_short", "slice of a pipelined core cut short"),
    ):
        if key in trace.meta.notes:
            yield Finding(
                key.replace("_", "-"),
                "warning",
                what,
                1,
                str(trace.meta.notes[key]),
                "Names and dependencies, or busy time, are incomplete.",
            )
    broken = trace.meta.notes.get("files_not_read")
    if broken:
        name, reason = next(iter(broken.items()))
        effect = "What they hold is missing from this trace."
        yield Finding("files-not-read", "warning", "file that cannot be read", len(broken), f"{name}: {reason}", effect)
    if trace.meta.notes.get("unclosed_list"):
        effect = "The file was probably cut off while it was written: later events are missing."
        yield Finding("unclosed", "warning", "list of events that never ends", 1, "", effect)
    if trace.meta.notes.get("rank_collisions"):
        count = int(trace.meta.notes["rank_collisions"])
        yield Finding(
            "ranks",
            "warning",
            "capture that claims a rank already taken",
            count,
            "",
            "It got the next free number.",
        )
