"""Scheduling as one ledger that adds up: where the core time went, and what of it lies on the critical path.

Upstream's tools give "head overhead" two meanings and count idle cores with ready work whether or not anything
waits for them. Here the words are fixed: dispatch→start, start→end and end→finish of every task, whose sum is
dispatch→finish; and cores × window = run + one column of reasons, each with its share of the critical path.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base.frozen import dataclass
from npuscope.explain.busy_idle import scheduler_lanes
from npuscope.explain.idle_reasons import Bubbles
from npuscope.explain.path import CriticalPath
from npuscope.explain.waits import PARTS, REASON
from npuscope.explain.work import NEVER, NONE, Work
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import COUNT, MEAN_TIME, NUMBER, SHARE, TEXT, TIME, duration, many, percent
from npuscope.trace.core import arrays_of, overlaps
from npuscope.trace.intervals import Ints, self_times

MOST_CORES = 1_000_000  # a capture that claims more is not believed

LEDGER = Columns(
    "report.scheduling.ledger",
    "Where core time went: run, or a reason for idle time. Core times sum to cores × window, path times to the window.",
    Column("part", REASON, "run, or a reason (docs/reference/glossary.md)", title="where core time went"),
    Column("core_ns", TIME, "over all cores", title="all cores"),
    Column("share", SHARE, "of all cores' time", title="share"),
    Column("path_ns", TIME, "of the window, along the chain that decides the end", title="critical path"),
    Column("path_share", SHARE, "of the window", title="share"),
)
THREADS = Columns(
    "report.scheduling.threads",
    "What a thread of the AICPU did.",
    Column("thread", TEXT, "as the capture calls it"),
    Column("role", TEXT, "scheduler or orchestrator, where told"),
    Column("phase", TEXT, "what it did"),
    Column("count", COUNT, "times"),
    Column("self_ns", TIME, "without phases inside it"),
    Column("share", SHARE, "of the window", title="of window"),
)
SPMD = Columns(
    "report.scheduling.spmd",
    "A kernel whose launches have several blocks; means over its launches.",
    Column("kernel", TEXT, "its name", title="SPMD kernel"),
    Column("launches", COUNT, "with several blocks"),
    Column("blocks", NUMBER, "of a launch"),
    Column("width", NUMBER, "cores that a launch used", title="cores"),
    Column("waves", NUMBER, "the most blocks that a core got"),
    Column("tail_ns", MEAN_TIME, "from the first core with nothing left to the last block's end"),
    Column("tail_share", SHARE, "the tails, of the launches' time", title="tail"),
    Column("efficiency", SHARE, "run time, of cores × time of the launches"),
)
FACTS = Columns(
    "report.scheduling",
    "Means over task records that have the stamps; null where none has.",
    Column("tasks", COUNT, "task records: one per block on a core"),
    Column("launches", COUNT, "distinct tasks"),
    Column("cores", COUNT, "of the device"),
    Column("cores_seen", COUNT, "in the capture", wide=True),
    Column("window_ns", TIME, "the window"),
    Column("stamped", COUNT, "task records with dispatch and finish", wide=True),
    Column("mean_dispatch_to_start_ns", MEAN_TIME, "handed out to started", title="dispatch → start"),
    Column("mean_queued_ns", MEAN_TIME, "of that, behind a running task", title="of it queued"),
    Column("mean_run_ns", MEAN_TIME, "the run", title="start → end (run)"),
    Column("mean_end_to_finish_ns", MEAN_TIME, "until the scheduler saw the end", title="end → finish"),
    Column("mean_dispatch_to_finish_ns", MEAN_TIME, "all of it", title="dispatch → finish"),
    Column("overhead", SHARE, "1 − run / (dispatch → finish)", title="overhead, 1 − run / (dispatch → finish)"),
    Column("queued", SHARE, "of dispatch → finish, behind a running task", wide=True),
    Column("tasks_per_second", NUMBER, "over the window"),
    Column("in_flight", NUMBER, "by Little's law: tasks per second × dispatch → finish", title="tasks in flight"),
)


@dataclass(frozen=True, repr=False)
class Scheduling(Tabular):
    """What FACTS says, and where core time went; means are None where no task record has the stamps."""

    tasks: int
    launches: int
    cores: int
    cores_seen: int
    window_ns: int
    stamped: int
    mean_run_ns: float | None
    mean_dispatch_to_start_ns: float | None
    mean_queued_ns: float | None
    mean_end_to_finish_ns: float | None
    mean_dispatch_to_finish_ns: float | None
    overhead: float | None
    in_flight: float | None
    ledger: pl.DataFrame
    threads: pl.DataFrame
    spmd: pl.DataFrame
    notes: tuple[str, ...]

    @property
    def queued(self) -> float | None:
        """The share of dispatch -> finish spent behind a running task: a full queue, not a slow scheduler."""
        if self.mean_queued_ns is None or not self.mean_dispatch_to_finish_ns:
            return None
        return self.mean_queued_ns / self.mean_dispatch_to_finish_ns

    @property
    def ns_per_task(self) -> float | None:
        return self.window_ns / self.tasks if self.tasks else None

    @property
    def tasks_per_second(self) -> float:
        return self.tasks / (self.window_ns / 1e9) if self.window_ns else 0.0

    def tables(self) -> dict[str, Table]:
        tables = {"ledger": (LEDGER, self.ledger), "threads": (THREADS, self.threads), "spmd": (SPMD, self.spmd)}
        return {name: Table(*one) for name, one in tables.items()}

    def facts(self) -> Table:
        """The counts and means, in one row."""
        return Table(FACTS, pl.DataFrame({name: [getattr(self, name)] for name in FACTS.keys}))

    def title(self) -> str:
        flight = "" if self.in_flight is None else f"; {self.in_flight:.1f} tasks in flight on {self.cores} cores"
        first = (
            f"{many(self.tasks, 'task')}, one per {duration(self.ns_per_task)}, "
            f"mean run {duration(self.mean_run_ns)}, dispatch→finish "
            f"{duration(self.mean_dispatch_to_finish_ns)}, overhead {percent(self.overhead)}{flight}"
        )
        return "\n".join([first, *self.notes])

    def as_dict(self) -> dict[str, object]:
        return {**self.facts().rows()[0], "notes": list(self.notes), **super().as_dict()}


def scheduling_of(work: Work, idle: Bubbles, path: CriticalPath, cores: int | None = None) -> Scheduling:
    """The ledger; `cores` is the number of the device's cores where the capture does not tell it."""
    on_core = np.isin(work.lane, work.core_lanes)
    tasks = int(on_core.sum())
    dispatch, finish = work.dispatch[on_core], work.finish[on_core]
    start = work.slices["start"].to_numpy()[on_core]
    end = start + work.slices["dur"].to_numpy()[on_core]
    if work.spans_dispatch:
        dispatch, finish = start, end
    both = (dispatch != NEVER) & (finish != NEVER)
    # stamps that contradict themselves would spoil the means
    dispatched, finished = (dispatch != NEVER) & (dispatch <= start), (finish != NEVER) & (finish >= end)
    stamped = dispatched & finished
    count, whole = int(stamped.sum()), int((finish - dispatch)[stamped].sum())
    flight = whole / count * tasks / work.wall if count and work.wall else None
    if flight is not None and "window_ns" in work.trace.meta.notes:  # a cut leaves parts of tasks, whose time counts
        inside = np.minimum(finish, work.window[1]) - np.maximum(dispatch, work.window[0])
        flight = float(inside[stamped].sum()) / work.wall * tasks / count
    flight = None if flight is None else min(flight, float(tasks))  # stamps may reach beyond the window
    # how long each slice was handed out while its core still ran the one before
    busy_until = np.where(work.previous == NONE, NEVER // 2, np.append(work.end, NEVER)[work.previous])
    queued = np.maximum(np.minimum(busy_until, work.start) - np.maximum(work.dispatch, NEVER // 2), 0)

    def mean(values: Ints, known: NDArray[np.bool_]) -> float | None:
        """Of a part of a task's time, which a slice from dispatch to retired does not tell."""
        return float(values[known].mean()) if known.any() and not work.spans_dispatch else None

    noted = work.trace.meta.notes.get("num_cores")
    believed = [noted] if isinstance(noted, int) and noted <= MOST_CORES else []
    device_cores = max([len(work.core_lanes), *believed, cores or 0])
    return Scheduling(
        tasks=tasks,
        launches=work.tasks.filter(pl.Series(on_core)).n_unique(),
        cores=device_cores,
        cores_seen=len(work.core_lanes),
        window_ns=work.wall,
        stamped=count,
        mean_run_ns=mean(end - start, np.ones(tasks, dtype=bool)),
        mean_dispatch_to_start_ns=mean(start - dispatch, dispatched),
        mean_queued_ns=mean(queued[on_core], dispatched),
        mean_end_to_finish_ns=mean(finish - end, finished),
        mean_dispatch_to_finish_ns=whole / count if count else None,
        overhead=1 - int((end - start)[stamped].sum()) / whole if whole and not work.spans_dispatch else None,
        in_flight=flight,
        ledger=_ledger(work, idle, path, device_cores),
        threads=_threads(work),
        spmd=_spmd(work),
        notes=tuple(_notes(work, device_cores, count, tasks, int(both.sum()) - count)),
    )


def _ledger(work: Work, idle: Bubbles, path: CriticalPath, cores: int) -> pl.DataFrame:
    """cores × window, and the window along the path, split into the same parts."""
    lanes = len(work.core_lanes)
    run = lanes * work.wall - idle.total_ns
    on_cores = {"run": run, **idle.by_reason}
    on_path = path.by_part()
    rows = [(part, on_cores.get(part, 0), on_path.get(part, 0)) for part in PARTS]
    rows = [row for row in rows if row[1] or row[2]]
    if cores > lanes:
        rows.append(("cores not in the capture", (cores - lanes) * work.wall, 0))
    core, wall = max(cores * work.wall, 1), max(work.wall, 1)
    return LEDGER.table((part, ns, ns / core, path_ns, path_ns / wall) for part, ns, path_ns in rows).frame


def _threads(work: Work) -> pl.DataFrame:
    """What each thread of the AICPU did, inner phases not counted again in outer ones."""
    lanes = scheduler_lanes(work)
    slices = work.trace.slices.filter(pl.col("lane").is_in(lanes["lane"].implode()) & overlaps(*work.window))
    begin = pl.max_horizontal("start", pl.lit(work.window[0]))
    stop = pl.min_horizontal(pl.col("start") + pl.col("dur"), pl.lit(work.window[1]))
    slices = slices.with_columns(begin.alias("start"), (stop - begin).alias("dur"))
    self_ns = pl.Series("self_ns", self_times(*arrays_of(slices)), dtype=pl.Int64)
    phase = pl.coalesce("phase", "kernel") if "phase" in slices.columns else pl.col("kernel")
    role = pl.col("role") if "role" in lanes.columns else pl.lit(None, dtype=pl.String).alias("role")
    table = slices.select("lane", phase.alias("phase"), self_ns)
    table = table.group_by("lane", "phase").agg(pl.len().alias("count"), pl.col("self_ns").sum())
    named = table.join(lanes.select("lane", pl.col("name").alias("thread"), role), on="lane")
    share = pl.col("self_ns") / max(work.wall, 1)
    return named.select("thread", "role", "phase", "count", "self_ns", share.alias("share")).sort(
        "thread", "self_ns", "phase", descending=[False, True, False]
    )


def _spmd(work: Work) -> pl.DataFrame:
    """Waves and tails of tasks with several blocks, per kernel.

    A launch's width is the number of lanes it used, its waves the most blocks any lane got, its tail the time from
    the moment the first of those lanes had nothing left to do until the last block ended.
    """
    columns = {"lane": work.lane, "start": work.start, "end": work.end}
    tasks = work.slices.select("task", "kernel").with_columns(pl.Series(*column) for column in columns.items())
    tasks = tasks.filter(pl.col("task").is_not_null())
    if tasks["task"].n_unique() < tasks.height:
        lanes = tasks.group_by("task", "kernel", "lane").agg(
            blocks=pl.len(),
            start=pl.col("start").min(),
            end=pl.col("end").max(),
            core_ns=(pl.col("end") - pl.col("start")).sum(),
        )
        launches = lanes.group_by("task", "kernel").agg(
            blocks=pl.col("blocks").sum(),
            width=pl.len(),
            waves=pl.col("blocks").max(),
            span_ns=pl.col("end").max() - pl.col("start").min(),
            tail_ns=pl.col("end").max() - pl.col("end").min(),
            core_ns=pl.col("core_ns").sum(),
        )
    else:
        numbers = dict.fromkeys(("blocks", "width", "waves", "span_ns", "tail_ns", "core_ns"), pl.Int64)
        launches = pl.DataFrame(schema={"kernel": pl.String, **numbers})
    several = launches.filter(pl.col("blocks") > 1)
    return (
        several.group_by("kernel")
        .agg(
            launches=pl.len(),
            blocks=pl.col("blocks").mean(),
            width=pl.col("width").mean(),
            waves=pl.col("waves").mean(),
            tail_ns=pl.col("tail_ns").mean(),
            tail_share=pl.col("tail_ns").sum() / pl.col("span_ns").sum(),
            efficiency=pl.col("core_ns").sum() / (pl.col("width") * pl.col("span_ns")).sum(),
        )
        .sort("kernel")
    )


def _notes(work: Work, cores: int, stamped: int, tasks: int, contradictory: int) -> list[str]:
    notes = []
    if work.spans_dispatch:
        notes.append("TraCR slices reach from dispatch to retired: the run inside them is not recorded.")
    elif work.on_cores and stamped + contradictory < tasks:
        lacking = tasks - stamped - contradictory
        what = "no task has" if lacking == tasks else f"{lacking:,} of {tasks:,} tasks lack"
        notes.append(f"{what[0].upper()}{what[1:]} dispatch and finish times: overhead and tasks in flight need them.")
    if contradictory:
        notes.append(f"{contradictory:,} tasks were dispatched after their start or finished before their end.")
    if work.on_cores and cores == len(work.core_lanes) and "num_cores" not in work.trace.meta.notes:
        notes.append(f"The capture names {cores} cores and does not say how many the device has.")
    return notes
