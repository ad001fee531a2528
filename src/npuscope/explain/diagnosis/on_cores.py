"""Why cores do not do more.

Where the capture says who waits for whom, by what the critical path consists of: waits for the scheduler; runs that
waited for their core, or ran while nearly all cores of their unit did; runs that waited for a producer while cores were
free; and what runs after the last start while cores are free. They add up to the window but for its edges. Else by
what the busiest unit does: it is full, waits between tasks, or has no work.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from npuscope.explain.changes import Change, changed_jobs, models_of
from npuscope.explain.diagnosis.cause import (
    CHAIN,
    CORES,
    Cause,
    CauseKind,
    Gain,
    RunFacts,
    found_in,
    gain_between,
    gain_of_gaps,
    quoted,
    spans,
    spans_of,
    top_kernel,
)
from npuscope.explain.replay import Cycle, wall_of
from npuscope.explain.waits import SCHEDULING, no_dependencies
from npuscope.explain.work import CORES as UNITS
from npuscope.explain.work import Work
from npuscope.table.formats import duration, many, percent, significant
from npuscope.trace.intervals import Intervals, Ints

CORE = CauseKind("core", "cores are full: only faster kernels, or fewer, help", tunable=True, of_work="task")
BANDWIDTH = CauseKind("bandwidth", "cores are full, and mostly move data", tunable=True, of_work="task")
DISPATCH = CauseKind("dispatch", "tasks that could run wait for the scheduler")
DEPENDENCY = CauseKind("dependency", "tasks wait for one another while cores are free")
GAP = CauseKind("gap", "cores or the device stand still for a moment between one piece of work and the next")
WIDTH = CauseKind("width", "cores have nothing to do before their first task, after their last, or at all")
TAIL = CauseKind("tail", "the last tasks leave cores idle")

CALLED = {"AIC": "cube cores", "AIV": "vector cores"}
FULL = 0.7  # of a unit's cores run: more could not
FEW_IN_FLIGHT = 0.5  # tasks in flight per core that runs any
MOST_REPLAYED = 5_000  # slices; longer runs get bounds instead
NEARLY_ALL = 0.95  # of the time: nothing but faster kernels is left to gain
FASTER_KERNELS = "Make the kernels on top faster or fewer; `npuscope roofline` shows how far each is from the chip."
ONLY_FASTER_KERNELS = f"Nothing to gain here but from kernels themselves. {FASTER_KERNELS}"
MOVES = ("aic_mte2_ratio", "aiv_mte2_ratio")
COMPUTES = ("aic_mac_ratio", "aiv_vec_ratio")
SCHEDULER = {  # a wait for the scheduler: how it reads, and what helps
    "FIN": (
        "until the scheduler notices that a task has ended",
        "Fewer tasks, or fewer that wait for one another: each end must be noticed before the next can start.",
    ),
    "dispatch": (
        "until a ready task is handed out",
        "Fewer and longer tasks: the scheduler cannot hand them out faster.",
    ),
    "pickup": (
        "until a core starts what it was handed",
        "Hand the next task out while the one before still runs, so that cores need not wait for it.",
    ),
    "FIN+dispatch+pickup": (
        "from the end of the last producer to the start",
        "Fewer and longer tasks; record dispatch and finish times to see which wait it is.",
    ),
    "starved": (
        "until the task is submitted",
        "Submit tasks earlier: build the graph ahead, or with less work per task.",
    ),
}


@found_in(CHAIN)
def scheduler(run: RunFacts) -> Iterator[Cause]:
    """Waits for the scheduler on the path."""
    waits = run.segments.filter(pl.col("part").is_in([*SCHEDULING, "starved"]))
    ns = int(waits["ns"].sum())
    if ns == 0:
        return
    by_reason = waits.group_by(pl.col("part").cast(pl.String)).agg(pl.col("ns").sum())
    by_reason = by_reason.sort("ns", "part", descending=[True, False])  # equal ones always in one order
    evidence = [f"{duration(each)} {SCHEDULER[reason][0]}" for reason, each in by_reason.iter_rows()]
    s = run.scheduling
    if s.in_flight is not None and s.tasks:
        in_flight = f"{significant(s.in_flight)} tasks in flight on {many(s.cores, 'core')}"
        evidence.append(f"{in_flight}, one task every {duration(s.ns_per_task)}")
    most, remedy = SCHEDULER[by_reason["part"][0]]
    yield DISPATCH(
        run,
        ns,
        f"Tasks wait for the scheduler for {run.in_words(ns)}, mostly {most}.",
        *evidence,
        *_overhead(run),
        remedy=remedy,
        gain=_without_waits(run, waits),
        where=spans(waits),
    )


def _overhead(run: RunFacts) -> list[str]:
    share = run.scheduling.overhead
    if share is None:
        return []
    return [f"{percent(share)} of the time from handing a task out to seeing it done is not its run"]


def _without_waits(run: RunFacts, waits: pl.DataFrame) -> Gain:
    """What a scheduler that takes no time is worth: by replaying the run in every way that `whatif` reads it, where it
    is short enough for that: at least what the least of them saves, likely what the most does."""
    bounds = gain_of_gaps(waits["ns"].to_numpy())
    if len(run.work.lane) > MOST_REPLAYED:
        return bounds
    change = Change(dispatch_cost=0.0)
    models, _ = models_of(run.work, run.ready, change)
    try:
        saved = [wall_of(model) - wall_of(changed_jobs(run.work, model, change)) for model in models]
    except Cycle:
        return bounds
    low, likely = (min(max(end, 0), bounds.high_ns) for end in (min(saved), max(saved)))
    return Gain(likely, low, bounds.high_ns)


@found_in(CHAIN)
def runs_of_the_path(path: RunFacts) -> Iterator[Cause]:
    """What runs on the path: on full cores, in a chain of tasks while cores are free, or as the last task."""
    run = path.segments.filter(pl.col("part") == "run")
    if run.is_empty():
        return
    last_start = int(np.max(path.work.start))
    last = run.tail(1)
    full = pl.Series(_fullness(path.work, run) >= FULL)
    tail = 0 if full[-1] else int(last["end"][0]) - max(int(last["start"][0]), last_start)
    only = run.height == 1 and not full[0]
    link = run["link"].cast(pl.String)
    waited = link != "core"
    producers = bool((link == "dependency").any())
    by_core = run.filter(~waited | full | (not producers and not only))
    chained = run.filter(waited & ~full & (producers or only))
    in_core = bool((by_core["row"] == last["row"][0]).any())
    yield from _full_cores(path, by_core, tail if in_core else 0)
    if only:
        tail = int(run["ns"].sum())
    else:
        yield from _chain_of_tasks(path, chained, 0 if in_core else tail)
    if tail > 0:
        yield TAIL(
            path,
            tail,
            f"One last task, {top_kernel(last)[0]}, runs alone for {path.in_words(tail)}.",
            "every other task has started before",
            remedy="Cut it into blocks, or start it earlier.",
            gain=gain_between(0, tail * (1 - 1 / max(path.scheduling.cores, 1))),
            where=spans(last),
        )


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


def _full_cores(run: RunFacts, segments: pl.DataFrame, tail: int) -> Iterator[Cause]:
    ns = int(segments["ns"].sum()) - tail
    if ns <= 0:
        return
    name, longest = top_kernel(segments)
    kind, counted = core_or_bandwidth(run.work)
    unit, busy = busiest(run.work)
    what = "mostly moving data" if kind is BANDWIDTH else f"{name} is {percent(longest / run.scope_ns)} of it"
    yield kind(
        run,
        ns,
        f"Work runs on full cores for {percent(ns / run.scope_ns)} of the critical path; {what}.",
        f"the {CALLED[unit]} run {percent(busy / max(run.wall, 1))} of the time",
        *counted,
        remedy=faster_kernels(ns / run.scope_ns),
        where=spans(segments),
    )


def _chain_of_tasks(run: RunFacts, segments: pl.DataFrame, tail: int) -> Iterator[Cause]:
    ns = int(segments["ns"].sum()) - tail
    if ns <= 0:
        return
    name, longest = top_kernel(segments)
    unit, least = busiest(run.work)
    yield DEPENDENCY(
        run,
        ns,
        f"Tasks wait for one another: a chain of {many(segments['row'].n_unique(), 'task')} takes {run.in_words(ns)} "
        f"while other cores are free; {name} is {duration(longest)} of it.",
        f"if nothing waited for anything, the {CALLED[unit]} would need {duration(least)}",
        remedy="Shorten the tasks of this chain, cut them into blocks that run side by side, or remove false "
        "dependencies.",
        gain=gain_between(0, min(ns, max(run.wall - least, 0))),
        where=spans(segments),
    )


def busiest(work: Work) -> tuple[str, float]:
    """The unit of cores that is busy the largest share of its time, and how long a core of it is, in the mean."""
    busy = work.busy.lengths(work.lanes.height)
    means = {unit: float(busy[work.units == unit].mean()) for unit in UNITS if (work.units == unit).any()}
    unit = max(means, key=lambda one: means[one])
    return unit, means[unit]


@found_in(CORES)
def busiest_unit(run: RunFacts) -> Iterator[Cause]:
    """The unit that is busiest: full, waiting between tasks, or without work."""
    work = run.work
    unit, busy = busiest(work)
    lanes = np.flatnonzero(work.units == unit)
    idle = work.idle.where(np.isin(work.idle.group, lanes))
    at_edge = (idle.start == work.window[0]) | (idle.end == work.window[1])
    yield _unit_runs(run, unit, busy)
    yield from _between_tasks(run, unit, lanes, idle.where(~at_edge))
    yield from _without_work(run, unit, lanes, idle.where(at_edge))


def _unit_runs(run: RunFacts, unit: str, busy: float) -> Cause:
    work, share = run.work, run.share(busy)
    kind, counted = core_or_bandwidth(work)
    rows = work.units[work.lane] == unit
    spent = np.bincount(work.kernel[rows], (work.end - work.start)[rows], len(work.kernels))
    longest = percent(float(spent.max()) / max(float(spent.sum()), 1))
    what = ", mostly moving data" if kind is BANDWIDTH else ""
    return kind(
        run,
        busy,
        f"The {CALLED[unit]} run {percent(share)} of the time{what}; {quoted(work.kernels[int(np.argmax(spent))])} "
        f"takes {longest} of it.",
        *counted,
        remedy=faster_kernels(share),
        where=spans_of(run, work.busy.where(work.units[work.busy.group] == unit)),
    )


def _between_tasks(run: RunFacts, unit: str, lanes: Ints, gaps: Intervals) -> Iterator[Cause]:
    """Cores that stand still between one task and the next."""
    if len(gaps.start) == 0:
        return
    ns = gaps.end - gaps.start
    mean = float(ns.sum()) / len(lanes)
    s, work = run.scheduling, run.work
    task = float(np.median((work.end - work.start)[work.units[work.lane] == unit]))
    usual = duration(float(np.median(ns)))
    few = s.in_flight is not None and s.in_flight < FEW_IN_FLIGHT * len(np.unique(work.lane))
    kind, sentence = (
        (
            DISPATCH,
            f"Only {significant(s.in_flight or 0)} of {s.cores:,} cores have a task in hand on average: the scheduler "
            f"hands out one task every {duration(s.ns_per_task)}.",
        )
        if few
        else (
            GAP,
            f"The {CALLED[unit]} stand still {usual} between one task and the next (median), "
            f"{percent(mean / max(run.scope_ns, 1))} of the time.",
        )
    )
    yield kind(
        run,
        mean,
        sentence,
        f"{many(len(ns), 'gap')} on {many(len(lanes), 'core')}; half of them are longer than {usual}, a tenth shorter "
        f"than {duration(float(np.quantile(ns, 0.1)))}",
        f"half of the tasks run longer than {duration(task)}",
        f"{no_dependencies(work.trace)}: waiting for a producer is part of this",
        *(_overhead(run) if few else ()),
        remedy="Hand the next task out while the one before still runs (two buffers per core), or make fewer, longer "
        "tasks.",
        gain=gain_of_gaps(ns, len(lanes)),
        where=spans_of(run, gaps),
        confidence="likely",
    )


def _without_work(run: RunFacts, unit: str, lanes: Ints, edges: Intervals) -> Iterator[Cause]:
    """Cores before their first task, after their last, and without any."""
    ns = edges.length / len(lanes)
    if ns == 0:
        return
    unused = len(lanes) - len(np.intersect1d(lanes, run.work.lane))
    never = f"{unused:,} of {len(lanes):,} {CALLED[unit]} never run anything"
    after = edges.where(edges.end == run.work.window[1]).length / len(lanes)
    yield WIDTH(
        run,
        ns,
        f"{never}: there are too few tasks at a time."
        if unused
        else f"The {CALLED[unit]} have no work before their first and after their last task: {run.in_words(ns)}.",
        *([never] if unused else []),
        f"{duration(after)} of it after a core's last task, on average",
        remedy="Cut the work into as many tasks as there are cores, of even length, and start the longest first.",
        gain=gain_between(0, ns),
        where=spans_of(run, edges),
    )


def faster_kernels(share: float) -> str:
    """What to do where work runs so much of the time."""
    return ONLY_FASTER_KERNELS if share >= NEARLY_ALL else FASTER_KERNELS


def core_or_bandwidth(work: Work) -> tuple[CauseKind, list[str]]:
    """Whether cores that run mostly compute or mostly load data, by the counters of kernels that have some, in words;
    that they compute where none has."""
    if not all(column in work.trace.slices.columns for column in (*MOVES, *COMPUTES)):
        return CORE, []
    ratio = pl.col(*MOVES, *COMPUTES).cast(pl.Float64, strict=False)
    rows = work.with_columns(*MOVES, *COMPUTES).lazy().filter(pl.col("kind") == "task").select("dur", ratio).collect()
    rows = rows.drop_nulls()
    whole = int(rows["dur"].sum())
    if whole == 0:
        return CORE, []
    weighted = [(pl.max_horizontal(*columns) * pl.col("dur")).sum() / whole for columns in (MOVES, COMPUTES)]
    moving, computing = rows.select(weighted[0].alias("moving"), weighted[1].alias("computing")).row(0)
    counted = percent(whole / int(work.slices["dur"].sum()))
    kind = BANDWIDTH if moving > computing else CORE
    return kind, [
        f"by the counters of {counted} of core time, cores load data {percent(moving)} of the time and compute "
        f"{percent(computing)}"
    ]
