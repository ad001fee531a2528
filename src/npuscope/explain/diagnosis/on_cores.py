"""Why cores do not do more.

Where the capture says who waits for whom, by what the critical path consists of: waits for the orchestrator and the
scheduler; runs while HBM is at its limit, where the capture says what that is; runs that waited for their core, or ran
while nearly all cores of their unit did; runs that waited for a producer while cores were free; and what runs after the
last start while cores are free. They add up to the window but for its edges, and every share is that of rows of the
ledger. Else by what the busiest unit does: it is full, waits between tasks, or has no work. Simulated runs are
diagnosed by the same; only what mending is worth a simulation knows better (time/diagnosis.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base.interval import Gain
from npuscope.explain.diagnosis.cause import (
    CHAIN,
    CORES,
    FEWER,
    MAIN,
    MORE,
    Cause,
    CauseKind,
    RunFacts,
    by_kernel,
    found_in,
    gain_between,
    gain_of_gaps,
    gain_of_kernels,
    quoted,
    spans,
    spans_of,
    top_kernel,
    tuned_text,
)
from npuscope.explain.waits import IN_WORDS, SCHEDULING, no_dependencies
from npuscope.explain.work import CORES as UNITS
from npuscope.explain.work import Work
from npuscope.table.formats import duration, many, percent, significant
from npuscope.trace.intervals import Intervals, Ints, Parts, inside, one_group, outside, union

CORE = CauseKind("core", "cores are full: only faster kernels, or fewer, help", tunable=True, of_work="task")
BANDWIDTH = CauseKind("bandwidth", "cores are full, and mostly move data", tunable=True, of_work="task")
DISPATCH = CauseKind("dispatch", "tasks that could run wait for the orchestrator or the scheduler")
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
        "Submit fewer tasks: make equal ones blocks of one launch (pl.spmd), or build the graph ahead.",
    ),
}
BEST_CASE = "what it is worth: as few tasks as can be, {}; at most: no scheduler at all"
ONE_TASK = "It is what starting and ending one task takes: give it more work, or have less before and after it."
HBM = "HBM GB/s"  # a counter of all cores together
HBM_LIMIT = "hbm_limit"  # of the notes: the most that the counter can be
AT_LIMIT = 0.98  # of it


@found_in(CHAIN)
def scheduler(run: RunFacts) -> Iterator[Cause]:
    """Waits for the orchestrator and the scheduler on the path."""
    waits = run.segments.filter(pl.col("part").is_in([*SCHEDULING, "starved"]))
    ns = int(waits["ns"].sum())
    if ns == 0:
        return
    by_reason = waits.group_by(pl.col("part").cast(pl.String)).agg(pl.col("ns").sum())
    by_reason = by_reason.sort("ns", "part", descending=[True, False])  # equal ones always in one order
    parts = dict(by_reason.iter_rows())
    rows = "; ".join(f"{IN_WORDS[reason]} {percent(run.share(each))}" for reason, each in parts.items())
    evidence = [f"on the critical path: {rows}"]
    s = run.scheduling
    if s.in_flight is not None and s.tasks:
        in_flight = f"{significant(s.in_flight)} tasks in flight on {many(s.cores, 'core')}"
        evidence.append(f"{in_flight}, one task every {duration(s.ns_per_task)}")
    first = next(iter(parts))
    most, remedy = SCHEDULER[first]
    who = "scheduler" if "starved" not in parts else "orchestrator"
    if 0 < parts.get("starved", 0) < ns:
        who = "orchestrator and the scheduler" if first == "starved" else "scheduler and the orchestrator"
    mostly = f", {duration(parts[first])} of it {most}" if len(parts) > 1 else f", {most}"
    if 0 < (once := run.work.once_ns) < run.wall:
        evidence.append(f"{duration(once)} every run pays: a first task handed out, a last one seen done")
    gain, best_case = _fewer_waits(run, waits)
    yield DISPATCH(
        run,
        ns,
        f"Tasks wait for the {who} for {run.in_words(ns)}{mostly}.",
        *evidence,
        *_overhead(run),
        *best_case,
        remedy=ONE_TASK if s.launches == 1 else remedy,
        gain=gain,
        where=spans(waits),
        rows=parts,
        wants="" if s.launches == 1 or first == "starved" else FEWER,
    )


def _overhead(run: RunFacts) -> list[str]:
    share = run.scheduling.overhead
    if share is None:
        return []
    return [f"{percent(share)} of the time from handing a task out to seeing it done is not its run"]


def _fewer_waits(run: RunFacts, waits: pl.DataFrame) -> tuple[Gain, list[str]]:
    """What as few tasks as can be are worth, in words too: by replaying the run in every way that `whatif` reads it,
    where it is short enough for that. Likely what the likeliest of them saves, at most what no scheduler at all would.
    """
    bounds = gain_of_gaps(waits["ns"].to_numpy())
    if not run.replays or len(run.work.lane) > MOST_REPLAYED:
        return bounds, []
    from npuscope.explain.changes import fewest_tasks, without_scheduler
    from npuscope.explain.replay import Cycle

    fewest = fewest_tasks(run.work, run.ready)
    try:
        saved = without_scheduler(run.work, run.ready, fewest.handing_out, fewest.submitting)
        most = without_scheduler(run.work, run.ready)
    except Cycle:
        return bounds, []
    told = [BEST_CASE.format(fewest)]
    if saved[0] > int(waits["ns"].sum()):
        told.append("worth more than these waits: tasks that come at once also keep more cores at work")
    return Gain.around(saved[0], min(saved), max(*saved, *most)), told


@found_in(CHAIN)
def runs_of_the_path(path: RunFacts) -> Iterator[Cause]:
    """What runs on the path: at the limit of HBM, on full cores, in a chain of tasks while cores are free, or last."""
    # a collective is no work of the cores: what it takes is mostly waiting for other ranks, and a cause of its own
    ran = path.segments.filter((pl.col("part") == "run") & (pl.col("kind") != "comm").fill_null(True))
    run, at_limit = _by_memory(path, ran)
    yield from _memory(path, at_limit)
    if run.is_empty():
        return
    last_start = int(np.max(path.work.start))
    last = run.tail(1)
    full = pl.Series(_fullness(path.work, run) >= FULL)
    tail = 0 if full[-1] else max(int(last["end"][0]) - max(int(last["start"][0]), last_start), 0)
    only = run.height == 1 and not full[0]
    link = run["link"].cast(pl.String)
    waited = link != "core"
    producers = bool((link == "dependency").any())
    by_core = run.filter(~waited | full | (not producers and not only))
    chained = run.filter(waited & ~full & (producers or only))
    in_core = bool((by_core["start"] == last["start"][0]).any())
    yield from _full_cores(path, by_core, tail if in_core else 0)
    if only:
        tail = int(run["ns"].sum())
    else:
        yield from _chain_of_tasks(path, chained, 0 if in_core else tail)
    if tail > 0:
        yield _last_blocks(path, last, tail)


def _last_blocks(path: RunFacts, last: pl.DataFrame, tail: int) -> Cause:
    """What runs after the last start, or the only task there is."""
    work, end = path.work, int(last["end"][0])
    begin = end - tail
    unit = _units_of(work, last)[0]
    here = (work.units[work.lane] == unit) & (work.end > begin) & (work.start < end)
    cores, busy = int((work.units == unit).sum()), len(np.unique(work.lane[here]))
    blocks = work.slices.filter(pl.Series(here)).height
    name = top_kernel(last)[0]
    free = 1 - float(_fullness(work, last.with_columns(start=pl.lit(begin)))[0])
    whole = int((work.units[work.lane] == unit).sum())
    waves = f"{whole:,} blocks on {cores:,} cores: in the last wave run {busy:,}"
    of = f" of {name}" if len(np.unique(work.kernel[here])) == 1 else f", of {name} and others,"
    what = f"The last block{of} leaves" if blocks == 1 else f"The last {blocks:,} blocks{of} leave"
    return TAIL(
        path,
        tail,
        f"{what} {cores - busy:,} of {cores:,} {CALLED[unit]} idle for {_part(path, tail)}.",
        *([waves] if whole > cores else []),
        "every other block has started before",
        remedy=f"Cut the work of {name} into as many blocks as there are cores, or a multiple of it, or start it "
        "earlier.",
        gain=Gain.around(tail * free, 0, tail),
        where=spans(last),
        rows=("run",),
        kernels=_named(last),
        wants=MORE,
    )


def _by_memory(run: RunFacts, segments: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Runs on the path cut into those while HBM is not at its limit and those while it is."""
    limit = run.work.trace.meta.notes.get(HBM_LIMIT)
    samples = run.work.trace.counters.filter(pl.col("name") == HBM) if isinstance(limit, int | float) else None
    if samples is None or samples.is_empty():
        return segments, segments.clear()
    value, time = samples["value"].to_numpy(), samples["time"].to_numpy()
    high = np.flatnonzero(value >= AT_LIMIT * float(limit or 0))
    until = np.append(time[1:], run.work.window[1])
    full = union(one_group(time[high], until[high]))
    asked = one_group(segments["start"].to_numpy(), segments["end"].to_numpy())

    def cut(parts: Parts) -> pl.DataFrame:
        found = segments[parts.of].with_columns(start=pl.Series(parts.start), end=pl.Series(parts.end))
        return found.with_columns(ns=pl.col("end") - pl.col("start")).sort("start")

    return cut(outside(asked, full)), cut(inside(asked, full))


def _memory(run: RunFacts, segments: pl.DataFrame) -> Iterator[Cause]:
    ns = int(segments["ns"].sum())
    if ns == 0:
        return
    samples = run.work.trace.counters.filter(pl.col("name") == HBM).sort("time")
    until = np.append(samples["time"].to_numpy()[1:], run.work.window[1])
    drawn = float(np.sum((until - samples["time"].to_numpy()) * samples["value"].to_numpy())) / max(run.wall, 1)
    rates = [significant(rate / 1e3) for rate in (drawn, run.work.trace.meta.notes[HBM_LIMIT])]
    names = " and ".join(quoted(name) for name in _named(segments)[:2])
    yield BANDWIDTH(
        run,
        ns,
        f"HBM is at its limit for {_part(run, ns)}, most of it in {names}.",
        f"on average over the run {rates[0]} of {rates[1]} TB/s",
        remedy="Move fewer bytes: keep tiles on the chip, load what several blocks share once, take narrower types.",
        where=spans(segments),
        rows=("run",),
        kernels=_named(segments),
    )


def _part(run: RunFacts, ns: int) -> str:
    """A part of the runs, with its share and that of the row of the ledger which it is of."""
    whole = run.path.by_part().get("run", 0)
    of = "" if ns >= whole else f", of the {percent(whole / max(run.scope_ns, 1))} in which tasks run"
    return run.in_words(ns).removesuffix(")") + f"{of})"


def _named(segments: pl.DataFrame) -> list[str]:
    """The kernels of segments, the one with most time first."""
    return [str(name) for name in by_kernel(segments)["kernel"]]


def _main_kernels(times: Mapping[str, float]) -> dict[str, float]:
    """Those on top that make up half of the time together, MAIN at most."""
    found: dict[str, float] = {}
    for kernel, ns in sorted(times.items(), key=lambda one: -one[1])[:MAIN]:
        found[kernel] = ns
        if sum(found.values()) >= sum(times.values()) / 2:
            break
    return found


def _units_of(work: Work, segments: pl.DataFrame) -> list[str]:
    unit = dict(zip(work.lanes["lane"].to_list(), work.units.tolist(), strict=True))
    return [str(unit[one]) for one in segments["lane"].to_list()]


def _fullness(work: Work, run: pl.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Of the cores of the unit that a segment runs on, the share that runs meanwhile."""
    units = np.array(_units_of(work, run))
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
    longest = min(longest, ns)
    kind, counted = core_or_bandwidth(run.work)
    unit, busy = busiest(run.work)
    what = "mostly moving data" if kind is BANDWIDTH else f"{name} is {duration(longest)} of it"
    spent = by_kernel(segments).sort("kernel")
    main = _main_kernels(dict(spent.iter_rows()))
    fullness = float(np.average(_fullness(run.work, segments), weights=segments["ns"].to_numpy()))
    where = "on full cores" if fullness >= FULL else f"on {percent(fullness)} of the cores it needs"
    yield kind(
        run,
        ns,
        f"Work runs {where} for {_part(run, ns)}; {what}.",
        f"the {CALLED[unit]} run {percent(busy / max(run.wall, 1))} of the time",
        *counted,
        tuned_text(main),
        remedy=faster_kernels(ns / run.scope_ns),
        gain=gain_of_kernels(min(ns, sum(main.values()))),
        where=spans(segments),
        rows=("run",),
        kernels=main,
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
        f"Tasks wait for one another: a chain of {many(segments['row'].n_unique(), 'task')} takes {_part(run, ns)} "
        f"while other cores are free; {name} is {duration(min(longest, ns))} of it.",
        f"if nothing waited for anything, the {CALLED[unit]} would need {duration(least)}",
        remedy="Shorten the tasks of this chain, cut them into blocks that run side by side, or remove false "
        "dependencies.",
        gain=gain_between(0, min(ns, max(run.wall - least, 0))),
        where=spans(segments),
        rows=("run",),
        kernels=_named(segments),
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
    if (work.units[work.lane] == unit)[_computes(work)].any():
        yield _unit_runs(run, unit, busy)
    yield from _between_tasks(run, unit, lanes, _of_its_own(run, idle.where(~at_edge)))
    yield from _without_work(run, unit, lanes, _of_its_own(run, idle.where(at_edge)))


def _unit_runs(run: RunFacts, unit: str, busy: float) -> Cause:
    work = run.work
    kind, counted = core_or_bandwidth(work)
    rows, computes = work.units[work.lane] == unit, _computes(work)
    if not computes.all():  # collectives are mostly waiting for other ranks, and a cause of their own
        rows &= computes
        busy = float((work.end - work.start)[rows].sum()) / int((work.units == unit).sum())
    share = run.share(busy)
    spent = np.bincount(work.kernel[rows], (work.end - work.start)[rows], len(work.kernels))
    longest = percent(float(spent.max()) / max(float(spent.sum()), 1))
    what = ", mostly moving data" if kind is BANDWIDTH else ""
    main = _main_kernels({name: float(ns) for name, ns in zip(work.kernels, spent, strict=True)})
    return kind(
        run,
        busy,
        f"The {CALLED[unit]} run {percent(share)} of the time{what}; {quoted(next(iter(main)))} takes {longest} of it.",
        *counted,
        tuned_text(main),
        remedy=faster_kernels(share),
        gain=gain_of_kernels(busy * sum(main.values()) / max(float(spent.sum()), 1)),
        where=spans_of(run, work.busy.where(work.units[work.busy.group] == unit)),
    )


def _computes(work: Work) -> NDArray[np.bool_]:
    return (work.slices["kind"] != "comm").to_numpy()


def _of_its_own(run: RunFacts, idle: Intervals) -> Intervals:
    """Idle time of cores without that in which the rank is in a collective, where it waits for others, or between two
    dispatches, where it waits for the host."""
    work, pauses = run.work, (run.ready.between, run.ready.apart)
    rows = ~_computes(work)
    if not rows.any() and not any(len(one.start) for one in pauses):
        return idle
    start = np.concatenate([work.start[rows], *(one.start for one in pauses)])
    end = np.concatenate([work.end[rows], *(one.end for one in pauses)])
    left = outside(one_group(idle.start, idle.end), union(one_group(start, end)))
    return Intervals(idle.group[left.of], left.start, left.end)


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
        wants=FEWER,
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
        wants=MORE,
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
