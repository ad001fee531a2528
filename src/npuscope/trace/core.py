"""Trace: the five tables that every reader makes and every analysis takes; Meta and Ledger, the account of its making.

A counter's value holds from its time until the next sample of its lane and name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl

from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.trace import schema
from npuscope.trace.intervals import Ints, depths
from npuscope.trace.names import FURTHER_LAUNCHES, LAUNCHES, marked

Wanted = str | int | Sequence[str] | Sequence[int]  # one value or several
OUTSIDE = "outside the window"


Counts = Mapping[str, int]

# reasons that several readers count under, or that the doctor looks for
BELOW_NANOSECOND = "time with digits below a nanosecond rounded"
NEGATIVE = "negative duration set to zero"
BACKWARDS = "end before start, duration set to zero"
NO_DURATION = "slice without a duration given zero"
NEVER_ENDED = "slice never ended, closed at the last event"
OUT_OF_ORDER = "trace point out of order, sorted"
NEVER_CLOSED = "slice never closed"
UNSCHEDULED = "task without dispatch and finish"
UNRECORDED = "dispatch and finish of a task no core recorded"
NOT_UTF8 = "byte that is not UTF-8 replaced"
ZERO_DURATIONS = (NEGATIVE, BACKWARDS, NO_DURATION)
CUT_OFF = (NEVER_CLOSED, UNSCHEDULED, UNRECORDED)
LONGEST_NAME = 80  # characters of an unknown thing's name
ACCOUNTS = ("merged", "dropped", "marked", "repaired", "unknown")


@dataclass(frozen=True)
class Meta:
    """The fifth table of a Trace: what a capture says of itself, and the account of all that its reader did to it.

    The account balances: `records` read = slices + samples of counters + `merged` + `dropped`.
    """

    format: str
    files: tuple[str, ...] = ()
    device: str | None = None
    clock: str | None = None
    records: int = 0  # records of the source: rows, events, trace points, samples of counters
    merged: Counts = field(default_factory=dict)  # reason -> records that became part of a slice, lane or edge
    dropped: Counts = field(default_factory=dict)  # reason -> records that left no slice and no sample
    marked: Counts = field(default_factory=dict)  # reason -> slices kept and flagged
    repaired: Counts = field(default_factory=dict)  # reason -> slices kept with a mended value
    unknown: Counts = field(default_factory=dict)  # keys, columns, tables, categories without a meaning here -> entries
    notes: Mapping[str, Any] = field(default_factory=dict)  # facts of the capture, JSON-able

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    def plus(
        self, records: int = 0, files: Sequence[str] = (), notes: Mapping[str, Any] | None = None, **counts: Counts
    ) -> Meta:
        """With what a further step of reading read, noted and counted; `counts` by account and reason."""
        sums = {name: add_counts(getattr(self, name), more) for name, more in counts.items()}
        kept: dict[str, Any] = {name: {why: n for why, n in each.items() if n} for name, each in sums.items()}
        notes = {**self.notes, **(notes or {})}
        return replace(self, records=self.records + records, files=(*self.files, *files), notes=notes, **kept)

    def all_notes(self) -> list[Mapping[str, Any]]:
        """The notes, and those of every capture that went into this trace."""
        parts = self.notes.get("parts", {})
        return [self.notes, *(parts.values() if isinstance(parts, Mapping) else ())]


class Ledger:
    """The running account a reader keeps; `close` turns it into a Meta."""

    def __init__(self) -> None:
        self.records = 0
        self.merged: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.marked: Counter[str] = Counter()
        self.repaired: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.notes: dict[str, Any] = {}

    def count_unknown(self, what: str, name: object, entries: int = 1) -> None:
        """Something the reader has no meaning for: what it is, and its name."""
        self.unknown[f"{what} '{str(name)[:LONGEST_NAME]}'"] += entries

    def close(
        self, format: str, files: tuple[str, ...], *, device: str | None = None, clock: str | None = None
    ) -> Meta:
        counts = {name: {why: int(n) for why, n in getattr(self, name).items() if n} for name in ACCOUNTS}
        return Meta(format, files, device, clock, self.records, **counts, notes=self.notes)


def account_of(meta: Meta) -> Counts:
    """What the account adds up to."""
    return {"records": meta.records, "merged": sum(meta.merged.values()), "dropped": sum(meta.dropped.values())}


def add_counts(*counts: Counts) -> dict[str, int]:
    """Counts of several captures, reason by reason."""
    total: dict[str, int] = {}
    for count in counts:
        for reason, n in count.items():
            total[reason] = total.get(reason, 0) + n
    return total


def combine(metas: Mapping[str, Meta], format: str, **notes: Any) -> Meta:
    """The meta of a trace made of several captures, whose own notes stay under `parts` by name."""
    several = list(metas.values())
    devices = list(dict.fromkeys(meta.device for meta in several if meta.device))
    clocks = {meta.clock for meta in several}
    return Meta(
        format,
        tuple(file for meta in several for file in meta.files),
        ", ".join(devices) or None,
        clocks.pop() if len(clocks) == 1 else "several",
        sum(meta.records for meta in several),
        **{name: add_counts(*(getattr(meta, name) for meta in several)) for name in ACCOUNTS},
        notes={"parts": {name: dict(meta.notes) for name, meta in metas.items()}, **notes},
    )


@dataclass(frozen=True)
class Trace:
    """One run, measured or simulated: `slices` on `lanes`, `edges` between tasks, `counters`, `meta` of the capture.

    Build it with `Trace.of`, which fills in the columns a source does not have.
    """

    slices: pl.DataFrame
    lanes: pl.DataFrame
    edges: pl.DataFrame
    counters: pl.DataFrame
    meta: Meta
    # What `write` calls; `npuscope.trace` sets it: writers know what a trace is, a trace does not know its writers.
    writer: ClassVar[Callable[[Trace, str | Path, str | None], Counts]]

    @staticmethod
    def of(
        slices: pl.DataFrame,
        lanes: pl.DataFrame,
        meta: Meta,
        edges: pl.DataFrame | None = None,
        counters: pl.DataFrame | None = None,
    ) -> Trace:
        """A Trace whose tables have every column of the schema."""
        return Trace(
            schema.conform(slices, schema.SLICES),
            schema.conform(lanes, schema.LANES),
            schema.conform(pl.DataFrame(schema=schema.EDGES) if edges is None else edges, schema.EDGES),
            schema.conform(pl.DataFrame(schema=schema.COUNTERS) if counters is None else counters, schema.COUNTERS),
            meta,
        )

    @property
    def span(self) -> tuple[int, int]:
        """First start and last end of any slice, in nanoseconds; (0, 0) for an empty trace."""
        if self.slices.is_empty():
            return (0, 0)
        row = self.slices.select(pl.col("start").min(), (pl.col("start") + pl.col("dur")).max().alias("end")).row(0)
        return (int(row[0]), int(row[1]))

    @cached_property
    def marks(self) -> pl.DataFrame:
        """The slices that mark a step, with `phase` and `tokens`."""
        return marked(self.slices)

    @cached_property
    def launches(self) -> tuple[Ints, Ints]:
        """The tasks that the host put on a stream, in order of their numbers, and when its call returned; the
        framework's call where no launch is."""
        none = np.zeros(0, dtype=np.int64)
        if "name" not in self.edges.columns:
            return none, none
        host = self.slices.lazy().filter(pl.col("kind") == "host")
        calls = host.select("task", pl.col("start") + pl.col("dur")).drop_nulls("task").collect()
        call, end = _last_of_each(*(column.to_numpy() for column in calls))
        found = []
        for names in (LAUNCHES, FURTHER_LAUNCHES):
            edges = self.edges.lazy().filter(pl.col("name").is_in(names)).select("src", "dst").drop_nulls().collect()
            src, dst = (edges[side].to_numpy() for side in ("src", "dst"))
            place = np.minimum(np.searchsorted(call, src), len(call) - 1)
            known = call[place] == src if len(call) else np.zeros(len(src), dtype=bool)
            found.append(_last_of_each(dst[known], end[place[known]]))
        (launched, returned), (further, queued) = found
        other = ~np.isin(further, launched)
        if not other.any():
            return launched, returned
        return _last_of_each(np.append(launched, further[other]), np.append(returned, queued[other]))

    @property
    def window_ns(self) -> tuple[int, int]:
        """The window this trace was cut to, else its span."""
        cut = self.meta.notes.get("window_ns")
        return (int(cut[0]), int(cut[1])) if cut else self.span

    @property
    def first_time(self) -> int:
        """The earliest time of any slice or counter, in nanoseconds; 0 for an empty trace."""
        starts = [self.slices["start"].min(), self.counters["time"].min()]
        return min((time for time in starts if isinstance(time, int)), default=0)

    def window(self, start: int, end: int) -> Trace:
        """The slices that overlap [start, end), whole, on all lanes, with the edges between them.

        Slices are not clipped: analyses clip to `window_ns`, which remembers the cut. Of a counter stay the samples
        of the window and the last one before it, whose value holds when the window begins.
        """
        if end < start:
            raise NpuscopeError(f"a window from {start} to {end} ends before it begins")
        counters = within(self.counters.lazy(), start, end).collect()
        kept = self._keep(overlaps(start, end), self.lanes, counters, OUTSIDE)
        return replace(kept, meta=kept.meta.plus(notes={"window_ns": [start, end]}))

    def select(
        self,
        where: pl.Expr | None = None,
        *,
        kernel: str | None = None,
        kind: Wanted | None = None,
        unit: Wanted | None = None,
        lane: Wanted | None = None,
        rank: Wanted | None = None,
        step: Wanted | None = None,
    ) -> Trace:
        """The slices that meet every condition given.

        `kernel` is a regular expression found anywhere in the name (`(?i)` ignores case), `where` any Polars
        expression over `slices`, the others one value or several. Lanes stay if `unit`, `rank` and `lane` allow
        them, idle or not, and their counters with them; edges unless a task of theirs lost all its slices.
        """
        condition = pl.lit(True) if where is None else where
        if kernel is not None:
            condition &= pl.col("kernel").str.contains(kernel)
        for column, wanted in (("kind", kind), ("step", step)):
            if wanted is not None:
                condition &= _is_any_of(column, wanted)
        lanes, counters = self.lanes, self.counters
        for column, wanted in (("unit", unit), ("rank", rank), ("lane", lane)):
            if wanted is not None:
                lanes = lanes.filter(_is_any_of(column, wanted))
        if lanes.height < self.lanes.height:
            on_these = pl.col("lane").is_in(lanes["lane"].implode())
            condition &= on_these
            counters = counters.filter(on_these | pl.col("lane").is_null())
        return self._keep(condition, lanes, counters, "not selected")

    def _keep(self, condition: pl.Expr, lanes: pl.DataFrame, counters: pl.DataFrame, reason: str) -> Trace:
        slices = self.slices.filter(condition)
        gone = self.slices["task"].unique()
        gone = gone.filter(~gone.is_in(slices["task"].unique().implode())).implode()
        # an edge from or to a task without a slice, a barrier, stays
        edges = self.edges.filter(
            ~pl.col("src").is_in(gone).fill_null(False) & ~pl.col("dst").is_in(gone).fill_null(False)
        )
        return Trace(slices, lanes, edges, counters, self.meta_of_part(slices, counters, reason))

    def meta_of_part(self, slices: pl.DataFrame, counters: pl.DataFrame, reason: str) -> Meta:
        """The account of a part of the trace: what is not in it was left out for a reason."""
        left_out = self.slices.height - slices.height + self.counters.height - counters.height
        notes = {name: note for name, note in self.meta.notes.items() if name != SIMULATED}  # it is of the whole
        return replace(self.meta, notes=notes).plus(dropped={reason: left_out})

    def write(self, path: str | Path, format: str | None = None) -> Counts:
        """Write the trace, whole or not at all; the format comes from the path's ending unless given.

        Returns what the format has no room for (reason -> count). See `npuscope.trace.writers`.
        """
        return type(self).writer(self, path, format)

    def arrays(self) -> tuple[Ints, Ints, Ints]:
        """lane, start, dur as int64 arrays, for the arithmetic of `npuscope.trace.intervals`."""
        return arrays_of(self.slices)

    def __repr__(self) -> str:
        start, end = self.window_ns
        counted = f"{self.counters.height} samples of counters, " if self.counters.height else ""
        return (
            f"Trace({self.meta.format}: {self.slices.height} slices on {self.lanes.height} lanes, "
            f"{self.edges.height} edges, {counted}{(end - start) / 1000:.3f} µs)"
        )

    def _repr_html_(self) -> str:
        start, end = self.window_ns
        units = self.lanes["unit"].value_counts(sort=True)
        rows = [
            ("format", self.meta.format),
            ("slices", f"{self.slices.height:,}"),
            ("lanes", ", ".join(f"{n} {unit}" for unit, n in units.iter_rows())),
            ("edges", f"{self.edges.height:,}"),
            ("counters", f"{self.counters['name'].n_unique():,}"),
            ("kernels", f"{self.slices['kernel'].n_unique():,}"),
            ("window", f"{(end - start) / 1000:,.3f} µs"),
        ]
        body = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in rows)
        return f"<table>{body}</table>{self.slices.head(5)._repr_html_()}"


def _last_of_each(keys: Ints, times: Ints) -> tuple[Ints, Ints]:
    """The distinct keys in order, and the latest time of each."""
    if np.all(keys[1:] > keys[:-1]):
        return keys, times
    order = np.lexsort((times, keys))
    last = order[np.append(keys[order][1:] != keys[order][:-1], True)]
    return keys[last], times[last]


def arrays_of(slices: pl.DataFrame) -> tuple[Ints, Ints, Ints]:
    """lane, start and dur of slices as int64 arrays."""
    lane, start, dur = (slices[c].cast(pl.Int64).to_numpy() for c in ("lane", "start", "dur"))
    return lane, start, dur


def with_depth(slices: pl.DataFrame) -> pl.DataFrame:
    """The slices with `depth`: how many others of the lane were open when each began."""
    return slices.with_columns(pl.Series("depth", depths(*arrays_of(slices)), dtype=pl.UInt32))


def overlaps(start: int, end: int) -> pl.Expr:
    """True for slices that overlap [start, end); those of no length count where they begin."""
    begin = pl.col("start")
    return (begin < end) & ((begin + pl.col("dur") > start) | (begin >= start))


def _is_any_of(column: str, wanted: Wanted) -> pl.Expr:
    several = isinstance(wanted, Sequence) and not isinstance(wanted, str)
    return pl.col(column).is_in(list(wanted) if several else [wanted])  # type: ignore[arg-type]


SERIES = ("lane", "name")  # one counter
WHOLE_DEVICE = "whole device"  # the name of a place for counters without a lane, where a format asks for one
# depths of the scheduler's queues of ready tasks, by what the tasks run on: in the order that swimlanes list them,
# under the names that the runtime's own converter gives them
READY_QUEUES = ("shared_ready_queue AIC", "shared_ready_queue AIV", "shared_ready_queue MIX")


def lane_id(lane: str) -> str:
    """The id of a lane's counters, where a format knows counters by name and id only."""
    return f"lane {lane}"


def within(counters: pl.LazyFrame, start: int, end: int) -> pl.LazyFrame:
    """The samples of [start, end), and of each counter the last one before, which holds when it begins."""
    rows = counters.with_row_index("row")
    inside = rows.filter(pl.col("time") >= start, pl.col("time") < end)
    # of samples at one moment the last in the table counts
    held = rows.filter(pl.col("time") < start).sort("time", "row").unique(SERIES, keep="last")
    return pl.concat([inside, held]).sort("row").drop("row")


def by_time(counters: pl.DataFrame) -> pl.DataFrame:
    """Sorted by lane, name and time; samples of one moment keep their order, and of them only the last holds."""
    return counters.sort(*SERIES, "time", maintain_order=True, nulls_last=True)


OWN = "npuscope"  # the key of our notes among others'
WINDOW = "window_ns"
RANK_WINDOWS = "rank_windows_ns"  # of each rank by its number as text, where ranks share a clock and not a window
SIMULATED = "simulated"  # what the simulation knows of the run that its slices do not show: wall and diagnosis
LARGEST = 2**62  # nanoseconds: differences of two such times fit a column


def note_of(trace: Trace, shift: int = 0) -> dict[str, object]:
    """What to write; times are moved by `shift` as the format moves all of them."""
    notes = trace.meta.notes
    kept = {SIMULATED: notes[SIMULATED]} if SIMULATED in notes and not shift else {}
    return {**({WINDOW: [time + shift for time in trace.window_ns]} if WINDOW in notes else {}), **kept}


def take_note(ledger: Ledger, note: Mapping[str, object]) -> None:
    """What was written; anything else under our name is counted as unknown."""
    for key, value in note.items():
        match value:
            case [int(start), int(end)] if key == WINDOW and -LARGEST < start <= end < LARGEST:
                ledger.notes[WINDOW] = [int(start), int(end)]
            case {"wall": {}, "diagnosis": {}} if key == SIMULATED:
                ledger.notes[SIMULATED] = value
            case _:
                ledger.count_unknown("note of npuscope", key)
