"""What recording itself is likely to have added to a run. Only published figures are used; each names its source."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from npuscope.explain.doctor.symptom import Symptom
from npuscope.trace.core import Trace

# A core that goes from one task to the next takes 0.81 µs (1.22 at the 99th percentile) with the swimlane on: 0.52 µs
# are its record and loop. Source: simpler, docs/investigations/2026-07-aicore-swimlane-switch-overhead-and-ack-gate.md
SWITCH_NS, RECORD_NS, SLOW_SWITCH_NS = 810, 520, 1_220
# Inside the scheduler's loop level 4 took 9% longer. Source: the authors of simpler's pull request 1173
ORCHESTRATED = 4
# One training step took 116.3, 136.6 and 129.9 ms at levels 0, 1 and 2 of Ascend's profiler, one run each. Source:
# Ascend-msinsight, test/data/pytorch (January 2025)
ASCEND_LONGER = "12 to 17%"
COUNTED = ("aicore_time(us)", "aic_total_cycles", "aiv_total_cycles")  # columns that only levels 1 and 2 have


def instrumentation(trace: Trace) -> Iterator[Symptom]:
    """The level a capture was taken at, and what it costs."""
    levels = [level for notes in trace.meta.all_notes() if isinstance(level := notes.get("level"), int)]
    if levels and "swimlane" in trace.meta.format:
        yield from _swimlane(trace, max(levels))
    elif any(column in trace.slices.columns for column in COUNTED):
        effect = (
            f"Levels with hardware counters cost time: the one public step captured at all levels took {ASCEND_LONGER} "
            "longer than at level 0, in one run each (Ascend-msinsight's test data)."
        )
        there = [pl.col(c).cast(pl.String).is_in(["N/A", ""]).not_() for c in COUNTED if c in trace.slices.columns]
        kernels = int(trace.slices.select(pl.any_horizontal(there).fill_null(False).sum()).item())
        if kernels:
            yield Symptom("instrumented", "note", "kernel timed with hardware counters", kernels, effect)


def _swimlane(trace: Trace, level: int) -> Iterator[Symptom]:
    """Every task pays for its record; it shows where a core goes from one task to the next at once."""
    cores = trace.lanes.filter(pl.col("unit").is_in(["AIC", "AIV"]))["lane"]
    on_cores = pl.col("lane").is_in(cores.implode()) & (pl.col("kind") == "task")
    tasks = trace.slices.select(pl.col("lane", "start", "dur").filter(on_cores)).sort("lane", "start")
    gap = pl.col("start") - (pl.col("start") + pl.col("dur")).shift(1).over("lane")
    switches = tasks.filter(gap.is_between(0, SLOW_SWITCH_NS)).group_by("lane").len()
    if tasks.is_empty():
        return
    most = int(switches["len"].to_numpy().max(initial=0))
    low, high = (f"{most * ns / 1000:.3g}" for ns in (RECORD_NS, SWITCH_NS))
    here = f", {low} to {high} µs on the core with most of them" if most else ", of which there is none here"
    effect = (
        f"Every task writes a record, which takes {RECORD_NS / 1000} to {SWITCH_NS / 1000} µs of each gap between two "
        f"tasks that a core runs back to back{here} (simpler's investigation of July 2026)."
    )
    if level >= ORCHESTRATED:
        effect += " At level 4 the scheduler's loop took 9% longer besides (authors of simpler's pull request 1173)."
    what = f"task recorded at swimlane level {level}"
    yield Symptom("instrumented", "note", what, tasks.height, effect, f"{int(switches['len'].sum()):,} back to back")
