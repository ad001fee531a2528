"""Why cores stand still, where the capture does not tell who waits for whom: gaps between tasks, cores without work."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from npuscope.explain.diagnosis.device import (
    FASTER_KERNELS,
    NEARLY_ALL,
    ONLY_FASTER_KERNELS,
    core_or_bandwidth,
    counters_of,
    counters_told,
)
from npuscope.explain.diagnosis.known import Known, between, gain_of_gaps, quantile, spans_of
from npuscope.explain.diagnosis.shape import Cause
from npuscope.explain.waits import no_dependencies
from npuscope.explain.work import CORES, Work
from npuscope.table.formats import duration, many, percent, short, significant
from npuscope.trace.intervals import Intervals, Ints

CALLED = {"AIC": "cube cores", "AIV": "vector cores"}
FEW_IN_FLIGHT = 0.5  # tasks in flight per core that runs any


def busiest(work: Work) -> str:
    """The unit of cores that is busy the largest share of its time."""
    busy = work.busy.lengths(work.lanes.height)
    there = [unit for unit in CORES if (work.units == unit).any()]
    return max(there, key=lambda unit: float(busy[work.units == unit].mean()))


def cores(known: Known) -> Iterator[Cause]:
    """The unit that is busiest: full, waiting between tasks, or without work."""
    work = known.work
    unit = busiest(work)
    lanes = np.flatnonzero(work.units == unit)
    busy = int(work.busy.lengths(work.lanes.height)[lanes].sum())
    idle = work.idle.where(np.isin(work.idle.group, lanes))
    at_edge = (idle.start == work.window[0]) | (idle.end == work.window[1])
    yield _full(known, unit, busy / len(lanes))
    yield from _between(known, unit, lanes, idle.where(~at_edge))
    yield from _without_work(known, unit, lanes, idle.where(at_edge))


def _full(known: Known, unit: str, busy: float) -> Cause:
    share = known.share(busy)
    counters = counters_of(known.work)
    kind = core_or_bandwidth(counters)
    rows = known.work.units[known.work.lane] == unit
    spent = np.bincount(known.work.kernel[rows], (known.work.end - known.work.start)[rows], len(known.work.kernels))
    name = f"`{short(known.work.kernels[int(np.argmax(spent))], 48)}`"
    longest = percent(float(spent.max()) / max(float(spent.sum()), 1))
    what = ", mostly moving data" if kind == "bandwidth" else ""
    return Cause(
        kind,
        f"The {CALLED[unit]} run {percent(share)} of the time{what}; {name} takes {longest} of it.",
        share,
        tuple(counters_told(counters)),
        where=spans_of(
            known.work.busy.where(known.work.units[known.work.busy.group] == unit), known.work.lanes["lane"]
        ),
        remedy=ONLY_FASTER_KERNELS if share >= NEARLY_ALL else FASTER_KERNELS,
    )


def _between(known: Known, unit: str, lanes: Ints, gaps: Intervals) -> Iterator[Cause]:
    """Cores that stand still between one task and the next."""
    if len(gaps.start) == 0:
        return
    ns = gaps.end - gaps.start
    mean = float(ns.sum()) / len(lanes)
    s = known.scheduling
    run = known.work.units[known.work.lane] == unit
    task = float(np.median((known.work.end - known.work.start)[run]))
    evidence = [
        f"{many(len(ns), 'gap')} on {many(len(lanes), 'core')}; half of them are longer than "
        f"{duration(quantile(ns, 0.5))}, a tenth shorter than {duration(quantile(ns, 0.1))}",
        f"half of the tasks run longer than {duration(task)}",
        f"{no_dependencies(known.work.trace)}: waiting for a producer is part of this",
    ]
    used = len(np.unique(known.work.lane))
    few = s.in_flight is not None and s.in_flight < FEW_IN_FLIGHT * used
    told = f"{significant(s.in_flight or 0)} of {s.cores:,} cores have a task in hand on average"
    share = percent(mean / max(known.scope_ns, 1))
    sentence = (
        f"Only {told}: the scheduler hands out one task every {duration(s.ns_per_task)}."
        if few
        else f"The {CALLED[unit]} stand still {duration(quantile(ns, 0.5))} between one task and the next (median), "
        f"{share} of the time."
    )
    if few and s.overhead is not None:
        evidence.append(f"{percent(s.overhead)} of the time from handing a task out to seeing it done is not its run")
    yield Cause(
        "dispatch" if few else "gap",
        sentence,
        known.share(mean),
        tuple(evidence),
        gain_of_gaps(ns, len(lanes)),
        spans_of(gaps, known.work.lanes["lane"]),
        "Hand the next task out while the one before still runs (two buffers per core), or make fewer, longer tasks.",
        "likely",
    )


def _without_work(known: Known, unit: str, lanes: Ints, edges: Intervals) -> Iterator[Cause]:
    """Cores before their first task, after their last, and without any."""
    ns = edges.length / len(lanes)
    if ns == 0:
        return
    unused = len(lanes) - len(np.intersect1d(lanes, known.work.lane))
    evidence = [f"{unused:,} of {len(lanes):,} {CALLED[unit]} never run anything"] if unused else []
    last = pl.Series(edges.end == known.work.window[1]).to_numpy()
    after = edges.where(last).length / len(lanes)
    evidence.append(f"{duration(after)} of it after a core's last task, on average")
    sentence = (
        f"{unused:,} of {len(lanes):,} {CALLED[unit]} never run anything: there are too few tasks at a time."
        if unused
        else f"The {CALLED[unit]} have no work before their first and after their last task: {known.told(ns)}."
    )
    yield Cause(
        "width",
        sentence,
        known.share(ns),
        tuple(evidence),
        between(0, ns),
        spans_of(edges, known.work.lanes["lane"]),
        "Cut the work into as many tasks as there are cores, of even length, and start the longest first.",
    )
