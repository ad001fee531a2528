"""Checks of times: resolution, order, durations, and clocks that disagree."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from npuscope.analysis.doctor.finding import Finding, describe, microseconds
from npuscope.trace.core import Trace


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
                f"by up to {microseconds(most)}",
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
                f"{describe(trace, int(wrong['row'][0]))}, by up to {microseconds(most)}",
                "AICPU and AICore clocks differ by at least that much: scheduling overheads are off by it.",
            )
