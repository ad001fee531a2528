"""Checks of the rows themselves: none, told twice, crossing, or without a place."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from npuscope.explain.doctor.symptom import Severity, Symptom, describe
from npuscope.table.formats import duration, printable
from npuscope.trace.core import Trace
from npuscope.trace.intervals import crossing
from npuscope.trace.readers.kernel_details import ALIASES
from npuscope.trace.schema import is_work

MOST_UNKNOWN = 8  # findings, of a capture full of unknown things


def empty(trace: Trace) -> Iterator[Symptom]:
    """A capture without a slice."""
    if trace.slices.is_empty():
        yield Symptom("empty", "warning", "capture without a slice", 1, "There is nothing to measure.")


def unread_device(trace: Trace) -> Iterator[Symptom]:
    """A capture without device work that shows signs of some: categories of kernels, lanes called streams, launches."""
    if trace.slices.select(is_work().any()).item():
        return
    streams = trace.lanes.filter(pl.col("name").str.contains(r"(?i)^stream \d+"))["lane"]
    looks = pl.col("lane").is_in(streams.implode())
    if "cat" in trace.slices.columns:
        looks |= pl.col("cat").cast(pl.String).str.contains("(?i)kernel|memcpy|memset|gpu")
    device = trace.slices.filter(looks.fill_null(False))
    calls = trace.slices.filter(
        (pl.col("kind") == "host") & pl.col("kernel").str.contains("LaunchKernel", literal=True)
    )
    effect = "No device work was read: busy time, bounds and kernels are of what the host did."
    if device.height:
        what = "slice that looks like device work and is read as none"
        yield Symptom("device-unread", "warning", what, device.height, effect, str(device["kernel"][0]))
    elif calls.height:
        what = "call that launches device work, none of which is in the capture"
        yield Symptom("device-unread", "warning", what, calls.height, effect, str(calls["kernel"][0]))


def overlapping_slices(trace: Trace) -> Iterator[Symptom]:
    """Slices of one lane that cross without nesting."""
    crossed = np.flatnonzero(crossing(*trace.arrays()))
    if len(crossed):
        effect = "Viewers with one open slice per lane drop or cut these; a lane's sum exceeds its busy time."
        example = describe(trace, int(crossed[0]))
        yield Symptom("overlap", "warning", "slice crosses another one of its lane", len(crossed), effect, example)


def duplicates(trace: Trace) -> Iterator[Symptom]:
    """Rows that tell one piece of work twice."""
    rows = trace.slices.select("dur", "duplicate_of").with_row_index("row").drop_nulls("duplicate_of")
    if rows.height:
        twice = duration(int(rows["dur"].cast(pl.Int128).sum()))
        effect = f"A plain sum of durations counts {twice} twice; analyses skip rows with duplicate_of."
        example = describe(trace, int(rows["row"][0]))
        yield Symptom(
            "duplicates", "warning", "row that lists another row's work a second time", rows.height, effect, example
        )


def idle_cores(trace: Trace) -> Iterator[Symptom]:
    """Cores that are there and never ran."""
    cores = trace.lanes.filter(pl.col("unit").is_in(["AIC", "AIV"]))
    idle = cores.filter(~pl.col("lane").is_in(trace.slices["lane"].unique().implode()))
    if idle.height:
        effect = "Utilisation is over all cores of the device, these included."
        yield Symptom("idle-cores", "note", "core without a task", idle.height, effect, str(idle["name"][0]))
    for notes in trace.meta.all_notes()[:1]:
        told = notes.get("num_cores")
        if isinstance(told, int) and told != cores.height:
            missing = abs(told - cores.height)
            yield Symptom(
                "core-count",
                "warning",
                "core missing from the core types",
                missing,
                "Utilisation is over the listed cores.",
            )


def no_streams(trace: Trace) -> Iterator[Symptom]:
    """Kernel tables that do not say where things ran."""
    tables = [notes["header"] for notes in trace.meta.all_notes() if "header" in notes]
    without = [header for header in tables if not set(ALIASES["stream"]) & set(header)]
    if without:
        effect = "All its kernels share one lane (profiler level 0): overlap between streams cannot be told."
        yield Symptom("no-streams", "warning", "kernel table without streams", len(without), effect)


NOTED = {  # what a reader noted -> the symptom
    "deps_refused": ("deps-refused", "deps.json not joined", "Kernels have no names and tasks no dependencies."),
    "cut_short": (
        "cut-short",
        "reading that cuts pipelined tasks short",
        "Busy time is too low: read the bundle itself.",
    ),
    "unclosed_list": (
        "unclosed",
        "list of events that never ends",
        "The file was probably cut off while it was written: later events are missing.",
    ),
}


def noted(trace: Trace) -> Iterator[Symptom]:
    """A deps.json of another program, TraCR's own timeline of pipelined cores, a list of events without its end."""
    for key, (id, what, effect) in NOTED.items():
        told = [notes[key] for notes in trace.meta.all_notes() if notes.get(key)]
        if told:
            yield Symptom(id, "warning", what, len(told), effect, told[0] if isinstance(told[0], str) else "")


def not_understood(trace: Trace) -> Iterator[Symptom]:
    """Keys, columns, tables, kinds and categories that the reader has no meaning for.

    What may hold records is a warning: work may be missing from every number. What describes rows that are read is a
    note, and so is a single value beside them.
    """
    unknown = sorted(trace.meta.unknown.items(), key=lambda item: (-item[1], item[0]))
    beside = [(what, count) for what, count in unknown if _is_beside(what, count)]
    within = [one for one in unknown if one not in beside]
    missing = "npuscope does not know it: what it holds may be missing from every number."
    kept = "npuscope does not know it: no number rests on what it says."
    severe: list[tuple[list[tuple[str, int]], Severity, str]] = [(within, "warning", missing), (beside, "note", kept)]
    for found, severity, effect in severe:
        for what, count in found[:MOST_UNKNOWN]:
            yield Symptom("unknown", severity, f"unknown {printable(what)}", count, effect)
        if len(found) > MOST_UNKNOWN:
            rest = found[MOST_UNKNOWN:]
            example = f"unknown {rest[0][0]}; `npuscope info` lists them all"
            yield Symptom("unknown", severity, "further unknown thing", len(rest), effect, example)


def _is_beside(what: str, count: int) -> bool:
    return what.startswith(("column", "file ", "key of meta")) or (what.startswith("header key") and count == 1)


def files_not_read(trace: Trace) -> Iterator[Symptom]:
    """Captures of a profiler root that could not be opened."""
    broken = trace.meta.notes.get("files_not_read")
    if broken:
        name, reason = next(iter(broken.items()))
        effect = "What they hold is missing from this trace."
        yield Symptom("files-not-read", "warning", "file that cannot be read", len(broken), effect, f"{name}: {reason}")


def ranks(trace: Trace) -> Iterator[Symptom]:
    """Ranks claimed twice, and ranks that did not run at the same time."""
    if collisions := trace.meta.notes.get("rank_collisions"):
        what = "capture that claims a rank already taken"
        yield Symptom("ranks", "warning", what, int(collisions), "It got the next free number.")
    spans = (
        trace.slices.select("lane", "start", "dur")
        .join(trace.lanes.select("lane", "rank"), on="lane")
        .filter(pl.col("rank").is_not_null())
        .group_by("rank")
        .agg(begin=pl.col("start").min(), end=(pl.col("start") + pl.col("dur")).max())
        .sort("begin")
    )
    apart = int((spans["begin"] > spans["end"].cum_max().shift(1)).sum())
    if apart:
        effect = "They are captures of different runs, or their clocks differ: do not compare times across them."
        yield Symptom("ranks-apart", "warning", "rank that began after all earlier ones had ended", apart, effect)
