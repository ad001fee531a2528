"""What the critical path consists of, where the capture tells who waits for whom.

Waits for the scheduler; runs that waited for their core, or ran while nearly all cores of their unit did; runs that
waited for a producer while cores were free; and what runs after the last start while cores are free. They add up to
the window but for its edges.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from npuscope.explain.changes import Change, changed_jobs, models_of
from npuscope.explain.diagnosis.cores import CALLED, busiest
from npuscope.explain.diagnosis.device import (
    FASTER_KERNELS,
    NEARLY_ALL,
    ONLY_FASTER_KERNELS,
    core_or_bandwidth,
    counters_of,
    counters_told,
)
from npuscope.explain.diagnosis.known import Known, between, gain_of_gaps, spans, top_kernel
from npuscope.explain.diagnosis.shape import Cause, Gain
from npuscope.explain.replay import Cycle, wall_of
from npuscope.explain.waits import SCHEDULING
from npuscope.explain.work import Work
from npuscope.table.formats import duration, many, percent, significant

FULL = 0.7  # of a unit's cores run: more could not
MOST_REPLAYED = 5_000  # slices; longer runs get bounds instead
WAITS = {
    "FIN": "until the scheduler notices that a task has ended",
    "dispatch": "until a ready task is handed out",
    "pickup": "until a core starts what it was handed",
    "FIN+dispatch+pickup": "from the end of the last producer to the start",
    "starved": "until the task is submitted",
}
REMEDIES = {
    "FIN": "Fewer tasks, or fewer that wait for one another: each end must be noticed before the next can start.",
    "dispatch": "Fewer and longer tasks: the scheduler cannot hand them out faster.",
    "pickup": "Hand the next task out while the one before still runs, so that cores need not wait for it.",
    "FIN+dispatch+pickup": "Fewer and longer tasks; record dispatch and finish times to see which wait it is.",
    "starved": "Submit tasks earlier: build the graph ahead, or with less work per task.",
}


def chain(known: Known) -> Iterator[Cause]:
    """The path's causes."""
    path = known.segments
    run = path.filter(pl.col("part") == "run")
    yield from _scheduler(known, path.filter(pl.col("part").is_in([*SCHEDULING, "starved"])))
    if run.is_empty():
        return
    last_start = int(np.max(known.work.start))
    last = run.tail(1)
    full = pl.Series(_fullness(known.work, run) >= FULL)
    tail = 0 if full[-1] else int(last["end"][0]) - max(int(last["start"][0]), last_start)
    alone = run.height == 1 and not full[0]
    waited = run["link"].cast(pl.String) != "core"
    producers = bool((run["link"].cast(pl.String) == "dependency").any())
    by_core = run.filter(~waited | full | (not producers and not alone))
    chained = run.filter(waited & ~full & (producers or alone))
    in_core = bool((by_core["row"] == last["row"][0]).any())
    yield from _core(known, by_core, tail if in_core else 0)
    if alone:
        tail = int(run["ns"].sum())
    else:
        yield from _dependency(known, chained, 0 if in_core else tail)
    yield from _tail(known, last, tail)


def _fullness(work: Work, run: pl.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Of the cores of the unit that a segment runs on, the share that runs meanwhile."""
    lane = dict(zip(work.lanes["lane"].to_list(), work.units.tolist(), strict=True))
    units = np.array([lane[one] for one in run["lane"].to_list()])
    share = np.zeros(run.height)
    start, end = run["start"].to_numpy(), run["end"].to_numpy()
    for unit in set(units.tolist()):
        lanes = np.flatnonzero(work.units == unit)
        busy = work.busy.where(np.isin(work.busy.group, lanes))
        times = np.append(busy.start, busy.end)
        order = np.argsort(times, kind="stable")
        level = np.cumsum(np.append(np.ones(len(busy.start)), -np.ones(len(busy.end)))[order])
        times = times[order]
        done = np.append(0, np.cumsum(level[:-1] * np.diff(times)))
        here = units == unit
        covered = np.interp(end[here], times, done) - np.interp(start[here], times, done)
        share[here] = covered / np.maximum(end - start, 1)[here] / len(lanes)
    return share


def _scheduler(known: Known, waits: pl.DataFrame) -> Iterator[Cause]:
    ns = int(waits["ns"].sum())
    if ns == 0:
        return
    by_reason = waits.group_by(pl.col("part").cast(pl.String)).agg(pl.col("ns").sum())
    by_reason = by_reason.sort("ns", "part", descending=[True, False])  # equal ones always in one order
    reasons = [(str(reason), int(each)) for reason, each in by_reason.iter_rows()]
    evidence = [f"{duration(each)} {WAITS[reason]}" for reason, each in reasons]
    s = known.scheduling
    if s.in_flight is not None and s.tasks:
        told = f"{significant(s.in_flight)} tasks in flight on {many(s.cores, 'core')}"
        evidence.append(f"{told}, one task every {duration(s.ns_per_task)}")
    if s.overhead is not None:
        evidence.append(f"{percent(s.overhead)} of the time from handing a task out to seeing it done is not its run")
    yield Cause(
        "dispatch",
        f"Tasks wait for the scheduler for {known.told(ns)}, mostly {WAITS[reasons[0][0]]}.",
        known.share(ns),
        tuple(evidence),
        _without_waits(known, waits),
        spans(waits),
        REMEDIES[reasons[0][0]],
    )


def _without_waits(known: Known, waits: pl.DataFrame) -> Gain:
    """What a scheduler that takes no time is worth: by replaying the run in every way that `whatif` reads it, where it
    is short enough for that: at least what the least of them saves, likely what the most does."""
    bounds = gain_of_gaps(waits["ns"].to_numpy())
    if len(known.work.lane) > MOST_REPLAYED:
        return bounds
    change = Change(dispatch_cost=0.0)
    models, named, _ = models_of(known.work, known.ready, change)
    try:
        saved = [
            wall_of(model) - wall_of(changed_jobs(known.work, model, change, units))
            for model, units in zip(models, named, strict=True)
        ]
    except Cycle:
        return bounds
    low, likely = (min(max(end, 0), bounds.high_ns) for end in (min(saved), max(saved)))
    return Gain(likely, low, bounds.high_ns)


def _core(known: Known, run: pl.DataFrame, tail: int) -> Iterator[Cause]:
    ns = int(run["ns"].sum()) - tail
    if ns <= 0:
        return
    name, longest = top_kernel(run)
    counters = counters_of(known.work)
    kind = core_or_bandwidth(counters)
    unit = busiest(known.work)
    lanes = known.work.units == unit
    used = float(known.work.busy.lengths(len(lanes))[lanes].mean()) / max(known.wall, 1)
    what = "mostly moving data" if kind == "bandwidth" else f"{name} is {percent(longest / known.scope_ns)} of it"
    yield Cause(
        kind,
        f"Work runs on full cores for {percent(ns / known.scope_ns)} of the critical path; {what}.",
        known.share(ns),
        (f"the {CALLED[unit]} run {percent(used)} of the time", *counters_told(counters)),
        where=spans(run),
        remedy=ONLY_FASTER_KERNELS if ns >= NEARLY_ALL * known.scope_ns else FASTER_KERNELS,
    )


def _dependency(known: Known, run: pl.DataFrame, tail: int) -> Iterator[Cause]:
    ns = int(run["ns"].sum()) - tail
    if ns <= 0:
        return
    name, longest = top_kernel(run)
    tasks = run["row"].n_unique()
    unit = busiest(known.work)
    lanes = known.work.units == unit
    least = float(known.work.busy.lengths(len(lanes))[lanes].mean())
    yield Cause(
        "dependency",
        f"Tasks wait for one another: a chain of {many(tasks, 'task')} takes {known.told(ns)} while other cores "
        f"are free; {name} is {duration(longest)} of it.",
        known.share(ns),
        (f"if nothing waited for anything, the {CALLED[unit]} would need {duration(least)}",),
        between(0, min(ns, max(known.wall - least, 0))),
        spans(run),
        "Shorten the tasks of this chain, cut them into blocks that run side by side, or remove false dependencies.",
    )


def _tail(known: Known, last: pl.DataFrame, ns: int) -> Iterator[Cause]:
    if ns <= 0:
        return
    name, _ = top_kernel(last)
    cores = max(known.scheduling.cores, 1)
    yield Cause(
        "tail",
        f"One last task, {name}, runs alone for {known.told(ns)}.",
        known.share(ns),
        ("every other task has started before",),
        between(0, ns * (1 - 1 / cores)),
        spans(last),
        "Cut it into blocks, or start it earlier.",
    )
