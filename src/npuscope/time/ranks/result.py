"""What came of ranks that ran together: one trace of all, and how long each waited for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import numpy as np
import numpy.typing as npt
import polars as pl

from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import COUNT, SHARE, TEXT, TIME, duration
from npuscope.tile.record.model import short_name
from npuscope.time.chip.job import BEGIN, Floats, Times
from npuscope.time.chip.trace import FORMAT, trace_of
from npuscope.time.ranks.together import RankRun, Sender, kernel_of
from npuscope.trace.core import RANK_WINDOWS, WINDOW, Meta, Trace
from npuscope.trace.readers.root import TASKS_PER_RANK, merge
from npuscope.trace.schema import SIGNAL, SIGNALS, is_work

OUTLASTS = 0.05  # of the wall of the rank that is launched last
RANKS = Columns(
    "simulate.ranks",
    "A rank of a program that was simulated on all of them.",
    Column("rank", COUNT, "which"),
    Column("start_ns", TIME, "when its first program was launched, after that of the first rank", title="launched"),
    Column("end_ns", TIME, "when its last program was seen done, by the same clock", title="done"),
    Column("wall_ns", TIME, "from the one to the other", title="wall"),
    Column("wait_ns", TIME, "while some block of it waited for another rank", title="waits"),
    Column("waits", SHARE, "the same, of its wall", title="of wall"),
    Column("signals", COUNT, "signals that it sent to other ranks"),
    Column("remote", COUNT, "transfers from and to other ranks", title="transfers"),
    Column("longest", TEXT, "the kernel in which it waited longest"),
)


@dataclass(frozen=True)
class RanksResult(Tabular):
    """Of every rank when it ran and how long it waited."""

    runs: tuple[RankRun, ...]

    @cached_property
    def wall_ns(self) -> int:
        """From the launch of the first rank until the last has done."""
        return round(max(one.end for one in self.runs))

    @property
    def outlasts(self) -> str:
        """The rank that works on for long after the one that is told of, in words; mostly none does."""
        told = self.runs[-1]
        begin = next(one.begin for one in self.runs if one.rank == told.rank)
        last = max(self.runs, key=lambda one: one.end)
        later = last.end - told.end
        if later <= OUTLASTS * (told.end - begin):
            return ""
        return f"rank {last.rank} is done {duration(later)} later than rank {told.rank}, whose time this is"

    @cached_property
    def rows(self) -> list[dict[str, object]]:
        found = []
        for rank, some in groupby(self.runs, key=lambda one: one.rank):
            programs = list(some)
            begin, end = programs[0].begin, programs[-1].end
            waits = sum(waiting_time(one) for one in programs)
            longest = max(programs, key=lambda one: float(np.max(one.waited, initial=0.0)))
            sent = [m for one in programs for m in one.prepared.messages if not m.waits and m.peer not in (-1, rank)]
            found.append(
                {
                    "rank": rank,
                    "start_ns": round(begin),
                    "end_ns": round(end),
                    "wall_ns": round(end - begin),
                    "wait_ns": round(waits),
                    "waits": waits / (end - begin) if end > begin else 0.0,
                    "signals": len(sent),
                    "remote": sum(map(_transfers, programs)),
                    "longest": _longest(longest),
                }
            )
        return found

    def tables(self) -> dict[str, Table]:
        return {"ranks": Table(RANKS, pl.DataFrame(self.rows, infer_schema_length=None))}


def _transfers(one: RankRun) -> int:
    streams = [one.prepared.classes.streams[stream].remote for stream, _ in one.prepared.classes.entries]
    return sum(streams[number] for number in one.prepared.job.block_class.tolist() if number < len(streams))


def _longest(one: RankRun) -> str:
    if not np.any(one.waited > 0):
        return ""
    return short_name(kernel_of(one.prepared, one.prepared.job, int(np.argmax(one.waited))))


def waiting_time(one: RankRun) -> float:
    """Nanoseconds in which at least one block waited for another rank."""
    waits = (one.waited > 0) & _for_others(one)
    order = np.argsort(one.times.reached[waits])
    begin, end = one.times.reached[waits][order], one.prepared.job.stops.release[waits][order]
    if not len(begin):
        return 0.0
    before = np.concatenate([[0.0], np.maximum.accumulate(end)[:-1]])
    return float(np.sum(np.maximum(end - np.maximum(begin, before), 0.0)))


def _for_others(one: RankRun) -> npt.NDArray[np.bool_]:
    """Of each stop whether another rank's signal ended it."""
    return np.array([by is not None and by.rank != one.rank for by in one.ended_by], bool)


@dataclass(frozen=True)
class LatePeer:
    """A task that waited until another rank's task had sent its signal, in nanoseconds of the clock of all ranks."""

    task: int
    by: Sender
    since: float  # when it began to wait
    late: float  # so much of the wait passed before the signal was sent; the rest is its way


def late_peers(one: RankRun) -> list[LatePeer]:
    """For whom the tasks of a program waited. Waits of a block without a signal of its own in between are one, for the
    rank that came last; of a task's blocks the one that waited longest counts."""
    job, reached = one.prepared.job, one.times.reached
    stops = np.flatnonzero((one.waited > 0) & _for_others(one))
    if not len(stops):
        return []
    sent = np.cumsum([not message.waits for message in one.prepared.messages])
    rows = np.searchsorted(job.stops.first, stops, "right") - 1
    found: dict[tuple[int, int], list[LatePeer]] = {}  # by block and signals before
    for stop, row in zip(stops.tolist(), rows.tolist(), strict=True):
        by, since = one.ended_by[stop], one.begin + float(reached[stop])
        if by is not None and by.sent > since:
            late = min(by.sent, one.begin + float(job.stops.release[stop])) - since
            found.setdefault((row, int(sent[stop])), []).append(LatePeer(int(job.task_of[row]), by, since, late))
    by_block: dict[tuple[int, Sender, int], LatePeer] = {}  # those of one rank's task added up
    for (row, _), waits in found.items():
        last = max(waits, key=lambda wait: wait.by.sent)
        whole = replace(last, since=min(wait.since for wait in waits), late=sum(wait.late for wait in waits))
        key = (whole.task, whole.by._replace(sent=0.0), row)
        if key in by_block:
            whole = replace(by_block[key], by=whole.by, late=by_block[key].late + whole.late)
        by_block[key] = whole
    longest: dict[tuple[int, Sender], LatePeer] = {}
    for (task, sender, _), whole in by_block.items():
        if (task, sender) not in longest or longest[task, sender].late < whole.late:
            longest[task, sender] = whole
    return list(longest.values())


def rank_trace(programs: Sequence[RankRun], since: float = 0.0, told: int = 0) -> Trace:
    """What a rank ran, by the clock of all ranks less a moment; several programs as dispatches of one run, of which one
    is told of: its tasks come first and keep their numbers."""
    traces = [_shifted(one, since) for one in programs]
    if len(traces) == 1:
        return traces[0]
    slices, edges = [], []
    for number, (one, shift) in enumerate(zip(traces, _first_tasks(programs, told), strict=True)):
        dispatch = {"step": pl.lit(number, dtype=pl.Int64), "run": pl.lit(0)}
        slices.append(one.slices.with_columns(pl.col("task", "duplicate_of") + shift, **dispatch))
        edges.append(one.edges.with_columns(pl.col("src", "dst") + shift))
    last = traces[-1]
    notes = {**last.meta.notes, WINDOW: [round(programs[0].begin - since), round(programs[-1].end - since)]}
    return Trace.of(
        pl.concat(slices, how="diagonal_relaxed").sort("start", maintain_order=True),
        last.lanes,
        replace(last.meta, records=sum(one.meta.records for one in traces), notes=notes),
        pl.concat(edges, how="diagonal_relaxed"),
        pl.concat([one.counters for one in traces], how="diagonal_relaxed").sort("name", "time", maintain_order=True),
    )


def _first_tasks(programs: Sequence[RankRun], told: int = 0) -> list[int]:
    """The number that each program's first task has among all of its rank."""
    found, free = [0] * len(programs), len(programs[told].prepared.program.recording.tasks)
    for number, one in enumerate(programs):
        if number != told:
            found[number] = free
            free += len(one.prepared.program.recording.tasks)
    return found


def ranks_trace(runs: Sequence[RankRun]) -> Trace:
    """All ranks side by side, by the clock that they share; an edge to each task that waited for another rank."""
    by_rank = {rank: list(some) for rank, some in groupby(runs, key=lambda one: one.rank)}
    parts = [(rank, _of_rank(rank_trace(programs), rank)) for rank, programs in by_rank.items()]
    whole = merge(parts)
    firsts = {
        (rank, one.number): place * TASKS_PER_RANK + first
        for place, (rank, programs) in enumerate(by_rank.items())
        for one, first in zip(programs, _first_tasks(programs), strict=True)
    }
    signals = [
        {
            "src": firsts[wait.by.rank, wait.by.number] + wait.by.task,
            "dst": firsts[one.rank, one.number] + wait.task,
            "source": SIGNAL,
            "since": round(wait.since),
            "late_ns": round(wait.late),
        }
        for one in runs
        for wait in late_peers(one)
    ]
    edges = pl.concat([whole.edges, pl.DataFrame(signals, SIGNALS)], how="diagonal_relaxed")
    first = runs[0].prepared.program
    windows = {str(rank): [round(some[0].begin), round(some[-1].end)] for rank, some in by_rank.items()}
    whole_window = [0, max(end for _, end in windows.values())]
    notes = {**parts[0][1].meta.notes, WINDOW: whole_window, RANK_WINDOWS: windows, "ranks": len(parts)}
    records = whole.slices.height + whole.counters.height
    meta = Meta(FORMAT, device=first.device.name, clock="simulated", records=records, notes=notes)
    return replace(whole, edges=edges, meta=meta)


def _shifted(one: RankRun, since: float) -> Trace:
    """A program's trace by the clock of all ranks less a moment."""
    times: Times = one.times

    def later(values: Floats) -> Floats:
        return values + (one.begin - since)

    loops = times.loops.copy()
    loops[:, BEGIN] += one.begin - since
    moved = times._replace(
        dispatch=later(times.dispatch), start=later(times.start), end=later(times.end), finish=later(times.finish),
        submitted=later(times.submitted), began=later(times.began), ready=later(times.ready), loops=loops,
    )  # fmt: skip
    trace = trace_of(one.prepared, moved, round(one.end - since))
    early = pl.max_horizontal(round(one.begin - since) - pl.col("start"), 0)  # a thread is not there before the launch
    trace = replace(trace, slices=trace.slices.with_columns(pl.col("start") + early, pl.col("dur") - early))
    stops = one.prepared.job.stops
    meets = [stop for stop, message in enumerate(one.prepared.messages) if message.waits]
    rows = np.searchsorted(stops.first, np.array(meets, np.int64), "right") - 1
    tasks = np.unique(one.prepared.job.task_of[rows])
    if not len(tasks):
        return trace
    meeting = pl.when(pl.col("task").is_in(tasks.tolist()) & is_work()).then(
        pl.format("{} {} {}", pl.lit(one.number), "kernel", "task")
    )
    return replace(trace, slices=trace.slices.with_columns(meeting=meeting))


def _of_rank(trace: Trace, rank: int) -> Trace:
    number = pl.lit(rank, dtype=pl.Int32)
    return replace(trace, lanes=trace.lanes.with_columns(rank=number, device=number))
