"""What is wrong with a capture, and which numbers that touches. One check per function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from npuscope.trace.core import Trace
from npuscope.trace.intervals import crossing

SEVERITIES = ("note", "warning")  # a note is worth knowing; a warning makes some number wrong if ignored


@dataclass(frozen=True)
class Finding:
    """One thing found: how often, an example, and what it does to the numbers."""

    id: str
    severity: str
    what: str
    count: int
    example: str
    effect: str


@dataclass(frozen=True)
class Diagnosis:
    """All findings of a capture, warnings first."""

    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> str:
        """One line."""
        warnings = [f for f in self.findings if f.severity == "warning"]
        notes = len(self.findings) - len(warnings)
        if not self.findings:
            return "sound: nothing found that would touch a number"
        if not warnings:
            return f"sound, with {notes} {_plural(notes, 'note')}: {'; '.join(f.what for f in self.findings[:2])}"
        told = "; ".join(f"{f.count:,} × {f.what}" for f in warnings[:3])
        more = f"; and {len(warnings) - 3} more" if len(warnings) > 3 else ""
        return f"{len(warnings)} {_plural(len(warnings), 'warning')}: {told}{more}"

    def as_dict(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "findings": [asdict(f) for f in self.findings]}


def diagnose(trace: Trace) -> Diagnosis:
    """Every check, on any Trace. A check that needs what the capture lacks stays silent."""
    found = [finding for check in CHECKS for finding in check(trace)]
    return Diagnosis(tuple(sorted(found, key=lambda f: f.severity != "warning")))


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
            _describe(trace, int(crossed[0])),
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
            _describe(trace, int(rows["row"][0])),
            f"A plain sum of durations counts {_us(twice)} twice; npuscope's analyses skip rows with duplicate_of.",
        )


def time_resolution(trace: Trace) -> Iterator[Finding]:
    """Times that are text, rounded, or coarser than a nanosecond."""
    notes = trace.meta.notes
    if notes.get("times_as_text"):
        yield Finding(
            "text-times",
            "note",
            "time written as text",
            int(notes["times_as_text"]),
            "",
            "Read exactly here; tools that pass them through a float64 are off by up to 249 ns.",
        )
    rounded = trace.meta.repaired.get("time with digits below a nanosecond rounded", 0)
    if rounded:
        yield Finding(
            "sub-ns",
            "note",
            "time with digits below a nanosecond",
            rounded,
            "",
            "Rounded to the nanosecond; sums may differ by that much.",
        )
    device = trace.slices.filter(pl.col("kind").is_in(["task", "comm"]))
    starts, durs = device["start"].to_numpy(), device["dur"].to_numpy()
    if device.height < 20:
        return
    if np.all(starts % 1000 == 0) and np.all(durs % 1000 == 0):
        yield Finding(
            "whole-us",
            "warning",
            "time in whole microseconds",
            device.height,
            "",
            "Gaps and kernels shorter than a microsecond vanish or appear; a mean over many kernels is still fair.",
        )
    elif np.all(starts % 125 == 0) and int(starts.max()) > 10**18:
        yield Finding(
            "float-times",
            "warning",
            "start is a multiple of 125 ns",
            device.height,
            "",
            "The times passed through a float64 before they came here: each start is off by up to 125 ns.",
        )


def unordered(trace: Trace) -> Iterator[Finding]:
    """Rows or trace points that went back in time."""
    count = int(trace.meta.notes.get("unsorted_rows", 0)) + trace.meta.repaired.get(
        "trace point out of order, sorted", 0
    )
    if count:
        yield Finding(
            "unsorted",
            "note",
            "record out of order",
            count,
            "",
            "Analyses sort by start; tools that trust the order underflow.",
        )


def bad_durations(trace: Trace) -> Iterator[Finding]:
    """Durations that had to be set to zero or closed by guess."""
    for reason, count in trace.meta.repaired.items():
        if "duration" in reason or "never ended" in reason:
            yield Finding(
                "durations",
                "warning",
                reason,
                count,
                "",
                "The time of these slices is missing from every sum.",
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


def steps(trace: Trace) -> Iterator[Finding]:
    """Steps that are missing, cut short, or unlike the others."""
    per_step = (
        trace.slices.filter(pl.col("step").is_not_null() & (pl.col("kind") != "derived"))
        .group_by("step")
        .agg(rows=pl.len(), span=(pl.col("start") + pl.col("dur")).max() - pl.col("start").min())
        .sort("step")
    )
    if per_step.height < 2:
        return
    ids = per_step["step"]
    gaps = int((ids.diff().drop_nulls() - 1).sum())
    if gaps:
        yield Finding("step-gaps", "warning", "step without any row", gaps, "", "Means per step leave these out.")
    usual = float(per_step["rows"].median() or 0)  # type: ignore[arg-type]
    cut = per_step.filter(pl.col("rows") < 0.5 * usual)
    if cut.height:
        yield Finding(
            "step-cut",
            "warning",
            "step with less than half the usual rows",
            cut.height,
            f"step {cut['step'][0]}: {cut['rows'][0]} of usually {usual:.0f} rows",
            "Likely cut by the capture's start or end: leave it out of means.",
        )
    middle = float(per_step["span"].median() or 0)  # type: ignore[arg-type]
    odd = per_step.filter(pl.col("span") > 1.5 * middle)
    if odd.height:
        yield Finding(
            "step-outlier",
            "warning",
            "step longer than 1.5 times the median",
            odd.height,
            f"step {odd['step'][0]}: {_us(int(odd['span'][0]))}, median {_us(int(middle))}",
            "A mean over all steps is pulled up; the first step is seldom typical.",
        )


def clocks(trace: Trace) -> Iterator[Finding]:
    """Effects before their causes: clocks of processes, or of AICPU and AICore, that disagree."""
    if {"src_time", "dst_time"} <= set(trace.edges.columns):
        back = trace.edges.filter(pl.col("dst_time") < pl.col("src_time"))
        if back.height:
            most = int((back["src_time"] - back["dst_time"]).max() or 0)  # type: ignore[arg-type]
            yield Finding(
                "clock-skew",
                "warning",
                "flow arrives before it leaves",
                back.height,
                f"by up to {_us(most)}",
                "The processes' clocks differ: do not compare absolute times across them.",
            )
    for id, early, late, what in (
        ("dispatch-skew", "dispatch", "start", "task starts before its dispatch"),
        ("finish-skew", "end", "finish", "finish is seen before the end"),
    ):
        times = trace.slices.with_columns(end=pl.col("start") + pl.col("dur")).with_row_index("row")
        wrong = times.filter(pl.col(early) > pl.col(late))
        if wrong.height:
            most = int((wrong[early] - wrong[late]).max() or 0)  # type: ignore[arg-type]
            yield Finding(
                id,
                "warning",
                what,
                wrong.height,
                f"{_describe(trace, int(wrong['row'][0]))}, by up to {_us(most)}",
                "AICPU and AICore clocks differ by at least that much: scheduling overheads are off by it.",
            )


def full_buffers(trace: Trace) -> Iterator[Finding]:
    """Signs that the capture lost records because a buffer was full or wrapped."""
    for name, process in trace.meta.notes.get("processes", {}).items():
        largest = int(process.get("largest_thread", 0))
        if largest >= 1 << 14 and largest & (largest - 1) == 0:
            yield Finding(
                "full-buffer",
                "warning",
                "thread with exactly a power of two of trace points",
                1,
                f"{name}: {largest:,}",
                "Its buffer was probably full: what came later is missing.",
            )
        if process.get("channels_of_several_threads"):
            yield Finding(
                "shared-channel",
                "warning",
                "channel written by several threads",
                int(process["channels_of_several_threads"]),
                name,
                "Their slices cut each other: a slice ends when the other thread sets a marker.",
            )
    capture = trace.meta.notes.get("host_capture")
    if isinstance(capture, Mapping) and capture.get("dropped_records"):
        yield Finding(
            "dropped-records",
            "warning",
            "host record lost by the profiler",
            int(capture["dropped_records"]),
            "",
            "Submit times are incomplete.",
        )
    if "reg_task_id" in trace.slices.columns:
        per_core = (
            trace.slices.filter(pl.col("reg_task_id").is_not_null())
            .group_by("lane")
            .agg(
                missing=pl.col("reg_task_id").max() - pl.col("reg_task_id").min() + 1 - pl.col("reg_task_id").n_unique()
            )
        )
        lost = int(per_core["missing"].sum())
        if lost:
            yield Finding(
                "lost-tasks",
                "warning",
                "task missing from a core's sequence",
                lost,
                "",
                "The swimlane's buffer wrapped or was full: busy time is too low.",
            )
    for reason in (
        "slice never closed",
        "task without dispatch and finish",
        "dispatch and finish of a task no core recorded",
    ):
        count = trace.meta.dropped.get(reason, 0) + trace.meta.marked.get(reason, 0)
        if count:
            yield Finding(
                "cut-off",
                "warning",
                reason,
                count,
                "",
                "The capture ended, or a buffer filled, while this was under way.",
            )


def graph_replays(trace: Trace) -> Iterator[Finding]:
    """Kernels that a replayed graph launched, so that no host call tells of them one by one."""
    if "Model ID" in trace.slices.columns:
        inside = trace.slices.filter(~pl.col("Model ID").is_in(["4294967295", "N/A", ""]))
        if inside.height:
            yield Finding(
                "graph",
                "note",
                "kernel launched by a graph",
                inside.height,
                f"Model ID {inside['Model ID'][0]}",
                "Task IDs restart with every replay and host calls cannot be matched to these kernels.",
            )
    launches = trace.slices.filter(pl.col("kernel").str.contains("GraphLaunch"))
    if launches.height and "name" in trace.edges.columns:
        launched = trace.edges.filter(
            pl.col("src").is_in(launches["task"].implode()) & pl.col("dst").is_not_null()
        ).height
        orphans = trace.edges.filter(pl.col("src").is_null()).height
        yield Finding(
            "graph",
            "warning",
            "graph replay",
            launches.height,
            f"{launched} kernels reached by flow, {orphans} without a launching call",
            "Shapes and CPU ops of replayed kernels are not in this capture.",
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


CHECKS: list[Callable[[Trace], Iterator[Finding]]] = [
    overlapping_slices,
    twins,
    time_resolution,
    unordered,
    bad_durations,
    missing_lanes,
    steps,
    clocks,
    full_buffers,
    graph_replays,
    refused_companions,
]


def _describe(trace: Trace, row: int) -> str:
    lane, start, kernel = trace.slices.select("lane", "start", "kernel").row(row)
    names = trace.lanes.filter(pl.col("lane") == lane)["name"]
    return f"{kernel} on {names[0] if len(names) else lane} at {_us(start - trace.span[0])}"


def _us(nanoseconds: int) -> str:
    return f"{nanoseconds / 1000:,.3f} µs"


def _plural(count: int, word: str) -> str:
    return word if count == 1 else f"{word}s"
