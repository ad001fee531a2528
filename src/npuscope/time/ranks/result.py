"""What came of ranks that ran together: one trace of all, and how long each waited for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import numpy as np
import polars as pl

from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import COUNT, SHARE, TEXT, TIME
from npuscope.tile.record.model import short_name
from npuscope.time.chip.job import BEGIN, Floats, Times
from npuscope.time.chip.trace import FORMAT, trace_of
from npuscope.time.ranks.together import RankRun, kernel_of
from npuscope.trace.core import RANK_WINDOWS, WINDOW, Meta, Trace
from npuscope.trace.readers.root import merge

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
    waits = one.waited > 0
    order = np.argsort(one.times.reached[waits])
    begin, end = one.times.reached[waits][order], one.prepared.job.stops.release[waits][order]
    if not len(begin):
        return 0.0
    before = np.concatenate([[0.0], np.maximum.accumulate(end)[:-1]])
    return float(np.sum(np.maximum(end - np.maximum(begin, before), 0.0)))


def ranks_trace(runs: Sequence[RankRun]) -> Trace:
    """All ranks side by side, by the clock that they share."""
    parts = []
    for rank, some in groupby(runs, key=lambda one: one.rank):
        traces = [_shifted(one) for one in some]
        parts.append((rank, _of_rank(traces[0] if len(traces) == 1 else _one_after_another(traces), rank)))
    whole = merge(parts)
    first = runs[0].prepared.program
    by_rank = {rank: list(some) for rank, some in groupby(runs, key=lambda one: one.rank)}
    windows = {str(rank): [round(some[0].begin), round(some[-1].end)] for rank, some in by_rank.items()}
    whole_window = [0, max(end for _, end in windows.values())]
    notes = {**parts[0][1].meta.notes, WINDOW: whole_window, RANK_WINDOWS: windows, "ranks": len(parts)}
    records = whole.slices.height + whole.counters.height
    meta = Meta(FORMAT, device=first.device.name, clock="simulated", records=records, notes=notes)
    return replace(whole, meta=meta)


def _shifted(one: RankRun) -> Trace:
    """A program's trace by the clock of all ranks."""
    times: Times = one.times

    def later(values: Floats) -> Floats:
        return values + one.begin

    loops = times.loops.copy()
    loops[:, BEGIN] += one.begin
    moved = times._replace(
        dispatch=later(times.dispatch), start=later(times.start), end=later(times.end), finish=later(times.finish),
        submitted=later(times.submitted), began=later(times.began), ready=later(times.ready), loops=loops,
    )  # fmt: skip
    return trace_of(one.prepared, moved, round(one.end))


def _of_rank(trace: Trace, rank: int) -> Trace:
    number = pl.lit(rank, dtype=pl.Int32)
    return replace(trace, lanes=trace.lanes.with_columns(rank=number, device=number))


def _one_after_another(traces: Sequence[Trace]) -> Trace:
    """Programs of one rank, on the same lanes."""
    slices, edges, counters, shift = [], [], [], 0
    for trace in traces:
        slices.append(trace.slices.with_columns(pl.col("task", "duplicate_of") + shift))
        edges.append(trace.edges.with_columns(pl.col("src", "dst") + shift))
        counters.append(trace.counters)
        shift += int(trace.slices["task"].max() or 0) + 1  # type: ignore[arg-type]
    last = traces[-1]
    return Trace.of(
        pl.concat(slices, how="diagonal_relaxed").sort("start", maintain_order=True),
        last.lanes,
        replace(last.meta, records=sum(len(one) for one in slices)),
        pl.concat(edges, how="diagonal_relaxed"),
        pl.concat(counters, how="diagonal_relaxed").sort("name", "time", maintain_order=True),
    )
