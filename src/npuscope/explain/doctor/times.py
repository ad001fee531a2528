"""Checks of times: resolution, order, durations, and clocks that disagree."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from npuscope.explain.doctor.symptom import Symptom, describe
from npuscope.table.formats import duration
from npuscope.trace.core import BELOW_NANOSECOND, NEVER_ENDED, OUT_OF_ORDER, ZERO_DURATIONS, Trace
from npuscope.trace.schema import is_work

FEWEST = 20  # device slices from which a pattern in their times is no accident


def text_times(trace: Trace) -> Iterator[Symptom]:
    """Times in quotes."""
    count = sum(int(notes.get("times_as_text", 0)) for notes in trace.meta.all_notes())
    if count:
        effect = "Read exactly here; tools that pass them through a float64 are off by up to 249 ns."
        yield Symptom("text-times", "note", "time written as text", count, effect)


def below_nanosecond(trace: Trace) -> Iterator[Symptom]:
    """Times with more digits than nanoseconds have."""
    count = trace.meta.repaired.get(BELOW_NANOSECOND, 0)
    if count:
        effect = "Rounded to the nanosecond; sums may differ by that much."
        yield Symptom("sub-ns", "note", "time with digits below a nanosecond", count, effect)


def coarse_times(trace: Trace) -> Iterator[Symptom]:
    """Times in whole microseconds, or that passed through a float64 before."""
    device = trace.slices.select(pl.col("start", "dur").filter(is_work()))
    starts, durs = device["start"].to_numpy(), device["dur"].to_numpy()
    if device.height < FEWEST:
        return
    if np.all(starts % 1000 == 0) and np.all(durs % 1000 == 0):
        effect = "Gaps and kernels shorter than a microsecond vanish or appear; a mean over many kernels is still fair."
        yield Symptom("whole-us", "warning", "time in whole microseconds", device.height, effect)
    elif np.all(starts % 125 == 0) and int(starts.max()) > 10**18:
        effect = "The times passed through a float64 before they came here: each start is off by up to 125 ns."
        yield Symptom("float-times", "warning", "start is a multiple of 125 ns", device.height, effect)


def unordered(trace: Trace) -> Iterator[Symptom]:
    """Rows or trace points that went back in time."""
    rows = sum(int(notes.get("unsorted_rows", 0)) for notes in trace.meta.all_notes())
    count = rows + trace.meta.repaired.get(OUT_OF_ORDER, 0)
    if count:
        effect = "Analyses sort by start; tools that trust the order underflow."
        yield Symptom("unsorted", "note", "record out of order", count, effect)


def bad_durations(trace: Trace) -> Iterator[Symptom]:
    """Durations that had to be set to zero, or closed by guess."""
    for reason in ZERO_DURATIONS:
        if count := trace.meta.repaired.get(reason, 0):
            yield Symptom("durations", "warning", reason, count, "The time of these slices is missing from every sum.")
    if count := trace.meta.repaired.get(NEVER_ENDED, 0):
        effect = "Their time reaches to the end of the capture, which is a guess."
        yield Symptom("durations", "warning", NEVER_ENDED, count, effect)


def clocks_of_processes(trace: Trace) -> Iterator[Symptom]:
    """Flows that arrive before they leave."""
    if not {"src_time", "dst_time"} <= set(trace.edges.columns):
        return
    early = trace.edges.select(pl.col("src_time") - pl.col("dst_time")).to_series().drop_nulls().to_numpy()
    early = early[early > 0]
    if len(early):
        effect = "The processes' clocks differ: do not compare absolute times across them."
        example = f"by up to {duration(int(early.max()))}"
        yield Symptom("clock-skew", "warning", "flow arrives before it leaves", len(early), effect, example)


def clocks_of_cores(trace: Trace) -> Iterator[Symptom]:
    """Starts before their dispatch, and finishes before the end."""
    effect = "AICPU and AICore clocks differ by at least that much: scheduling overheads are off by it."
    end = trace.slices["start"] + trace.slices["dur"]
    for id, what, early in (
        ("dispatch-skew", "task starts before its dispatch", trace.slices["dispatch"] - trace.slices["start"]),
        ("finish-skew", "finish is seen before the end", end - trace.slices["finish"]),
    ):
        rows = np.flatnonzero((early > 0).fill_null(False).to_numpy())
        if len(rows):
            most = int(early.gather(rows).to_numpy().max())
            example = f"{describe(trace, int(rows[0]))}, by up to {duration(most)}"
            yield Symptom(id, "warning", what, len(rows), effect, example)
