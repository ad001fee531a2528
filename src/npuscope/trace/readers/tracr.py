"""TraCR bundles: a folder with proc.<pid>/metadata.json and proc.<pid>/thread.<tid>/traces.bts.

Slices pair as TraCR pairs them, except on core lanes written by the simpler runtime, where a core has a
running and a pending slot: there SET and RESET pair first in, first out, and a slice reaches from
dispatch to retired as the AICPU saw them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base import progress
from npuscope.base.errors import BadInput
from npuscope.base.frozen import dataclass
from npuscope.trace import schema, source
from npuscope.trace.build import edges_of
from npuscope.trace.core import NEVER_CLOSED, OUT_OF_ORDER, Ledger, Trace, arrays_of, combine, take_note
from npuscope.trace.formats import Reader
from npuscope.trace.intervals import Enclosing, Ints
from npuscope.trace.names import ROLE_LABELS, RUN_LABELS, phase_of, unit_of_lane
from npuscope.trace.readers.swimlane_file import find_name_map, records_in
from npuscope.trace.source import WHOLE, decode_object, whole_number

RECORD = np.dtype([("channel", "<u2"), ("event", "<u2"), ("extra", "<u4"), ("time", "<u8")])
RESET, FLOW_START, FLOW_END = 65535, 65534, 65533
NO_EXTRA = 0xFFFFFFFF
CHANNELS = 1 << 16

Flags = NDArray[np.bool_]
_END = pl.col("start") + pl.col("dur")
_PROCESS = re.compile(r"^proc\.([0-9]{1,9})$")


@dataclass(frozen=True)
class Points:
    """Trace points as columns, which are much faster to work on than records."""

    channel: NDArray[np.uint16]
    event: NDArray[np.uint16]
    extra: NDArray[np.uint32]
    time: Ints  # nanoseconds; negative for a time beyond 2^63

    @staticmethod
    def of(records: np.ndarray) -> Points:
        channel, event, extra, time = (np.ascontiguousarray(records[name]) for name in RECORD.names or ())
        return Points(channel, event, extra, time.view(np.int64))

    @staticmethod
    def concat(parts: list[Points]) -> Points:
        parts = [Points.of(np.empty(0, dtype=RECORD)), *parts]
        return Points(*(np.concatenate([getattr(p, name) for p in parts]) for name in Points.__dataclass_fields__))

    def take(self, which: Ints | Flags) -> Points:
        return Points(self.channel[which], self.event[which], self.extra[which], self.time[which])

    def __len__(self) -> int:
        return len(self.time)

    def by_channel(self) -> Points:
        """Sorted by channel, keeping the order within each; a stable sort of 16-bit numbers is linear."""
        return self.take(np.argsort(self.channel, kind="stable"))

    def by_time(self) -> Points:
        """Sorted by time, keeping the order of one moment."""
        return self.take(np.argsort(self.time, kind="stable"))

    def channels(self) -> Iterator[tuple[int, slice]]:
        """Each channel in use and its stretch of points, which must be sorted by channel."""
        ends = np.cumsum(np.bincount(self.channel, minlength=CHANNELS))
        begins = np.concatenate([[0], ends[:-1]])
        for channel in np.flatnonzero(ends > begins):
            yield int(channel), slice(int(begins[channel]), int(ends[channel]))


class PointPairs(NamedTuple):
    """Positions of SETs and of the points that end them; SETs nothing ended; RESETs that ended nothing."""

    begin: Ints
    end: Ints
    unclosed: int
    idle_resets: int


def one_open_slice(is_set: Flags) -> PointPairs:
    """TraCR's own reading of one channel: the next SET or RESET ends the open slice."""
    begin = np.flatnonzero(is_set[:-1])
    opened = np.zeros(len(is_set), dtype=bool)
    opened[1:] = is_set[:-1]
    return PointPairs(begin, begin + 1, int(is_set[-1:].sum()), int(np.count_nonzero(~is_set & ~opened)))


def first_in_first_out(is_set: Flags) -> PointPairs:
    """The reading for a core of the simpler runtime, which runs one task and holds the next.

    A SET queues a task, a RESET retires the oldest one; a RESET on an empty queue means nothing.
    """
    queued = np.cumsum(np.where(is_set, 1, -1))
    lowest = np.minimum.accumulate(np.minimum(queued, 0))
    fell = np.diff(lowest, prepend=0) < 0  # the queue was empty already
    begin, end = np.flatnonzero(is_set), np.flatnonzero(~is_set & ~fell)
    return PointPairs(begin[: len(end)], end, len(begin) - len(end), int(fell.sum()))


class TracrMetadata(msgspec.Struct):
    """metadata.json; every field is optional in one build or another."""

    markerLabels: list[str] | None = None
    markerTypes: dict[str, str] = {}
    channel_names: list[str] | None = None
    num_channels: int | None = None
    start_time: int | None = None
    end_time: int | None = None
    extraIdLabels: dict[str, str] = {}
    markerColorIds: msgspec.Raw = msgspec.Raw()
    pid: msgspec.Raw = msgspec.Raw()  # the folder's name has it
    tid: msgspec.Raw = msgspec.Raw()
    npuscope: dict[str, object] = {}  # our own notes

    def labels(self) -> list[str]:
        """Marker labels by event id; older writers have only a map whose sorted keys give the order."""
        if self.markerLabels is not None:
            return self.markerLabels
        return [self.markerTypes[key] for key in sorted(self.markerTypes)]

    def declared_channels(self) -> int:
        return len(self.channel_names) if self.channel_names is not None else self.num_channels or 1

    def channel_name(self, channel: int) -> str:
        names = self.channel_names or []
        return names[channel] if channel < len(names) else f"Channel_{channel + 1}"


def bundle_root(path: Path) -> Path | None:
    """The folder that holds proc.* folders: the path itself, its `tracr` child, or its parent for a proc.*."""
    if not path.is_dir():
        return None
    for folder in (path, path / "tracr", path.parent if _PROCESS.match(path.name) else path):
        if folder.is_dir() and any(_PROCESS.match(child.name) for child in folder.iterdir()):
            return folder
    return None


def read(path: Path) -> Trace:
    """The bundle as a Trace. Times are as recorded; processes do not share a clock to the nanosecond."""
    root = bundle_root(path)
    if root is None:
        raise BadInput("no proc.<pid> folder in this TraCR bundle", path=path)
    ledger = Ledger()
    folders = sorted((c for c in root.iterdir() if _PROCESS.match(c.name)), key=lambda c: int(c.name[5:]))
    processes = [(int(folder.name[5:]), *_read_process(folder, ledger)) for folder in folders]
    kernel_names = find_name_map(root.parent, ledger.unknown) or {}
    parts = [_Tables(*process, kernel_names, ledger) for process in processes]
    lanes = pl.concat([part.lanes for part in parts]).with_row_index("lane")
    first_lanes = np.cumsum([0, *(part.lanes.height for part in parts)])[:-1].tolist()
    slices, flows = (
        pl.concat(table.with_columns(pl.col("lane") + first) for table, first in zip(tables, first_lanes, strict=True))
        for tables in ([part.slices for part in parts], [part.flows for part in parts])
    )
    slices = slices.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("task"))
    edges = None
    if flows.height:
        edges = edges_of(flows, Enclosing(*arrays_of(slices)), ledger)
        edges = edges.with_columns(pl.lit("flow").alias("name"))
    files = tuple(str(folder / "metadata.json") for folder in folders)
    return Trace.of(slices, lanes, ledger.close("tracr", files, clock="monotonic, per process"), edges)


def _read_process(folder: Path, ledger: Ledger) -> tuple[TracrMetadata, Points]:
    """The metadata of a proc.<pid> folder, and its points by channel, then time."""
    path = folder / "metadata.json"
    text = source.read_all(path)
    metadata = decode_object(text, TracrMetadata, "a TraCR metadata file", path, ledger.unknown, "key of metadata.json")
    take_note(ledger, metadata.npuscope)
    if metadata.declared_channels() > CHANNELS:
        raise BadInput(
            f"{metadata.declared_channels()} channels, where a trace point has room for {CHANNELS}", path=path
        )
    # not by a pattern: that would pass over folders that cannot be opened
    folders = [child for child in folder.iterdir() if child.name.startswith("thread.")]
    files = [child / "traces.bts" for child in sorted(folders, key=lambda p: (len(p.name), p.name))]
    threads = [file for file in files if "traces.bts" in {entry.name for entry in file.parent.iterdir()}]
    pieces = []
    for number, thread in enumerate(threads):
        progress.report(f"reading {folder.name}", number, len(threads))
        pieces.append(_read_thread(thread, ledger))
    shared = _written_by_several([p.channel for p in pieces])
    # on a core of the simpler runtime that is usual and harmless; elsewhere slices of two threads cut each other
    setters = _written_by_several([p.channel[p.event < FLOW_END] for p in pieces]) if len(shared) else shared
    cutting = [c for c in setters if unit_of_lane(metadata.channel_name(int(c))).kind != "task"]
    ledger.notes.setdefault("processes", {})[folder.name] = {
        "start_time": _fitting(metadata.start_time),
        "end_time": _fitting(metadata.end_time),
        "threads": len(threads),
        "largest_thread": max(map(len, pieces), default=0),
        "channels_of_several_threads": len(cutting),
    }
    points = Points.concat(pieces)
    # each thread is in order, so a channel is too unless several threads wrote to it
    return metadata, (points.by_time() if len(shared) else points).by_channel()


def _written_by_several(channels: list[NDArray[np.uint16]]) -> NDArray[np.int64]:
    """The channels that more than one of the threads names."""
    used = [np.bincount(channel, minlength=CHANNELS) > 0 for channel in channels]
    return np.flatnonzero(sum(used, np.zeros(CHANNELS, dtype=np.int64)) > 1)


def _fitting(time: int | None) -> int | None:
    return time if time is not None and 0 <= time < WHOLE else None


def _read_thread(path: Path, ledger: Ledger) -> Points:
    data = source.read_all(path)
    tail = len(data) % RECORD.itemsize
    if tail:
        ledger.repaired["file with an incomplete last record, its bytes ignored"] += 1
        ledger.notes["ignored_bytes"] = ledger.notes.get("ignored_bytes", 0) + tail
    points = Points.of(np.frombuffer(data, dtype=RECORD, count=len(data) // RECORD.itemsize))
    ledger.records += len(points)
    too_late = points.time < 0
    if too_late.any():
        ledger.dropped["trace point without a usable time"] += int(too_late.sum())
        points = points.take(~too_late)
    backwards = int(np.count_nonzero(points.time[1:] < points.time[:-1]))
    if backwards:
        ledger.repaired[OUT_OF_ORDER] += backwards
        points = points.by_time()
    return points


class _Tables:
    """Slices, flows and lanes of one process; lanes are numbered from 0 by channel."""

    def __init__(
        self, pid: int, metadata: TracrMetadata, points: Points, kernel_names: dict[int, str], ledger: Ledger
    ) -> None:
        self._pid, self._metadata, self._kernel_names, self._ledger = pid, metadata, kernel_names, ledger
        is_flow = (points.event >= FLOW_END) & (points.event < RESET)
        flows = points.take(is_flow)
        beyond = (points.channel >= self._metadata.declared_channels()) & (points.event != RESET)
        ledger.marked["trace point on a channel beyond the declared ones"] += int(np.count_nonzero(beyond))
        ledger.merged["flow trace point became an end of an edge"] += len(flows)
        if len(flows):
            points = points.take(~is_flow)
        self._is_set = points.event != RESET
        self._labels = self._all_labels(points.event[self._is_set])
        self.slices = self._slices(points)
        self.flows = self._flows(flows)
        self.lanes = self._lanes(points)

    def _all_labels(self, events: np.ndarray) -> list[str]:
        """Labels by event id, long enough for every id in use."""
        labels = self._metadata.labels()
        unknown = int(np.count_nonzero(events >= len(labels)))
        self._ledger.repaired["unknown marker named by its number"] += unknown
        return [*labels, *(f"event_{n}" for n in range(len(labels), int(events.max(initial=0)) + 1))]

    def _slices(self, points: Points) -> pl.DataFrame:
        """Slices in the order of channels, then time."""
        runs = np.zeros(max(CHANNELS, len(self._labels)), dtype=bool)  # by event id
        runs[[event for event, label in enumerate(self._labels) if label in RUN_LABELS]] = True
        is_run = runs[points.event]
        begins, ends, cores, count = [], [], [], 0
        for _, stretch in points.channels():
            is_set = self._is_set[stretch]
            sets = int(np.count_nonzero(is_set))
            # a core of the simpler runtime holds nothing but tasks
            on_core = 0 < sets == np.count_nonzero(is_run[stretch])
            pairs = (first_in_first_out if on_core else one_open_slice)(is_set)
            begins.append(pairs.begin + stretch.start)
            ends.append(pairs.end + stretch.start)
            if on_core:
                cores.append(slice(count, count + len(pairs.begin)))
            count += len(pairs.begin)
            self._ledger.dropped[NEVER_CLOSED] += pairs.unclosed
            self._ledger.dropped["RESET with nothing open"] += pairs.idle_resets
            self._ledger.merged["RESET closed a slice"] += len(is_set) - sets - pairs.idle_resets
        none = np.empty(0, dtype=np.int64)
        begin, end = np.concatenate([none, *begins]), np.concatenate([none, *ends])
        lane, event, extra, start = (c[begin] for c in (points.channel, points.event, points.extra, points.time))
        names, number = self._kernels(event, extra, cores)
        kinds = [unit_of_lane(self._metadata.channel_name(c)).kind for c in range(int(lane.max(initial=0)) + 1)]
        markers = pl.Series(self._labels, dtype=pl.Categorical)
        phases = markers.to_frame("m").select(phase_of(pl.col("m").cast(pl.String)).cast(pl.Categorical))["m"]
        return pl.DataFrame(
            {
                "lane": lane.astype(np.uint32),
                "start": start,
                "dur": points.time[end] - start,
                "kernel": names.gather(number),
                "kind": pl.Series(kinds, dtype=schema.KINDS).gather(lane.astype(np.uint32)),
                "marker": markers.gather(event.astype(np.uint32)),
                "extra": pl.Series(extra).set(pl.Series(extra == NO_EXTRA), None),
                "phase": phases.gather(event.astype(np.uint32)),
            }
        )

    def _kernels(self, event: np.ndarray, extra: np.ndarray, cores: list[slice]) -> tuple[pl.Series, np.ndarray]:
        """Names, and which one each slice has: its marker's, or on cores that of the function in `extra`."""
        number = event.astype(np.uint32)
        labels = {int(k): v for k, v in self._metadata.extraIdLabels.items() if whole_number(k) is not None}
        used = np.unique(np.concatenate([np.empty(0, np.uint32), *(np.unique(extra[core]) for core in cores)]))
        functions = used[used != NO_EXTRA]
        for core in cores:
            known = extra[core] != NO_EXTRA
            place = np.searchsorted(functions, extra[core]) + len(self._labels)
            number[core] = np.where(known, place, number[core])
        names = {**self._kernel_names, **labels}
        return pl.Series([*self._labels, *(names.get(int(f), f"func_{f}") for f in functions)], dtype=pl.String), number

    def _flows(self, points: Points) -> pl.DataFrame:
        begins = points.event == FLOW_START
        zeros = np.zeros(len(points), dtype=np.uint32)
        return pl.DataFrame(
            {
                "lane": points.channel.astype(np.uint32),
                "time": points.time,
                "flow": points.extra.astype(np.int64),
                "category": zeros,
                "name": zeros,
                "begins": begins,
                "ends": ~begins,
            }
        )

    def _lanes(self, points: Points) -> pl.DataFrame:
        """Every declared channel, used or not, and beyond them up to the highest in use."""
        used = [int(frame["lane"].to_numpy().max(initial=0)) + 1 for frame in (self.slices, self.flows)]
        count = max(self._metadata.declared_channels(), *used)
        names = [self._metadata.channel_name(channel) for channel in range(count)]
        units = [unit_of_lane(name) for name in names]
        # simpler writes one process per device, numbered from 1000
        device = self._pid - 1000 if RUN_LABELS & set(self._labels) and self._pid >= 1000 else None
        roles = self._roles(points)
        return pl.DataFrame(
            {
                "name": names,
                "unit": pl.Series([u.unit for u in units], dtype=pl.String),
                "core": pl.Series([u.core for u in units], dtype=pl.Int32),
                "device": pl.Series([device] * count, dtype=pl.Int32),
                "role": pl.Series([roles.get(channel) for channel in range(count)], dtype=pl.String),
                "pid": pl.Series([self._pid] * count, dtype=pl.Int64),
                "channel": pl.Series(range(count), dtype=pl.Int32),
            }
        )

    def _roles(self, points: Points) -> dict[int, str]:
        """AICPU lanes come in the order they arrived; their markers say what each did."""
        roles: dict[int, str] = {}
        for event, label in enumerate(self._labels):
            if label in ROLE_LABELS:
                for at in np.flatnonzero(points.event == event)[:64]:
                    number = "" if points.extra[at] == NO_EXTRA else f" {points.extra[at]}"
                    roles.setdefault(int(points.channel[at]), f"{ROLE_LABELS[label]}{number}")
        return roles


def join(bundle: Trace, swimlane: Trace) -> Trace:
    """One run captured twice: the swimlane's trace, with `retired` on its tasks and the bundle's AICPU lanes.

    The swimlane knows each task's id, start and end on its core; the bundle knows when the AICPU dispatched and
    retired it, and what the AICPU threads did all the while. The nth task dispatched to a core is the nth in both. The
    clocks differ by one offset and a drift of some parts per million, fitted over all tasks. Raises BadInput when a
    core ran another number of tasks in one capture than in the other.
    """
    recorded, ran = _in_order(bundle, "start"), _in_order(swimlane, "dispatch")
    both = ran.join(
        recorded.rename({"task": "bundle task"}), on=["unit", "nth core", "nth"], how="full", suffix=" bundle"
    )
    unmatched = both.filter(pl.col("task").is_null() | pl.col("bundle task").is_null()).height
    if unmatched or both.is_empty():
        what = f"{unmatched} tasks are in only one of the two captures" if unmatched else "no task to match"
        raise BadInput(f"not the same run: {what}", path=next(iter(bundle.meta.files), None))
    there, here = both["begin bundle"].to_numpy(), both["begin"].to_numpy()
    clock = _fit(there, here)
    retired = pl.Series("retired", clock.here(both["stop bundle"].to_numpy()))
    times = both.select("task", "lane", pl.col("begin").alias("dispatch"), retired)
    slices = swimlane.slices.join(times, on=["task", "lane", "dispatch"], how="left", maintain_order="left")
    threads = bundle.lanes.filter(~pl.col("unit").is_in(["AIC", "AIV"]))
    first = swimlane.lanes.height
    threads = threads.with_columns(
        pl.col("lane").alias("old"),
        pl.int_range(first, first + pl.len(), dtype=pl.UInt32).alias("lane"),
        pl.concat_str(pl.lit("TraCR "), "name").alias("name"),
    )
    moved = bundle.slices.join(threads.select(pl.col("lane").alias("new"), pl.col("old").alias("lane")), on="lane")
    start, end = (clock.here(moved.select(time).to_series().to_numpy()) for time in ("start", _END))
    moved = moved.with_columns(
        pl.col("new").alias("lane"),
        pl.Series("start", start),
        pl.Series("dur", end - start),
        pl.lit(None, dtype=pl.Int64).alias("task"),  # a bundle has no task ids of its own
    ).drop("new")
    residual = np.abs(clock.here(there) - here)
    fit = {
        "tasks": both.height,
        "offset_ns": clock.middle_here - clock.middle_there,
        "drift_ppm": round((clock.rate - 1) * 1e6, 3),
        "residual_ns_median": int(np.median(residual)),
        "residual_ns_max": int(residual.max()),
    }
    metas = {"swimlane": swimlane.meta, "tracr": bundle.meta}
    meta = combine(metas, "swimlane+tracr", **{**swimlane.meta.notes, "join": fit})
    meta = meta.plus(merged={"TraCR slice joined to its task": both.height})
    return Trace.of(
        pl.concat([slices, moved], how="diagonal_relaxed"),
        pl.concat([swimlane.lanes, threads.drop("old")], how="diagonal_relaxed"),
        replace(meta, clock=swimlane.meta.clock),
        swimlane.edges,
        swimlane.counters,
    )


def _in_order(trace: Trace, begin: str) -> pl.DataFrame:
    """The tasks of every core lane, numbered in the order they were dispatched; cores numbered within their unit."""
    cores = trace.lanes.filter(pl.col("unit").is_in(["AIC", "AIV"])).sort("unit", "core")
    cores = cores.select("lane", "unit", pl.int_range(pl.len()).over("unit").alias("nth core"))
    tasks = trace.slices.filter(pl.col("kind") == "task").join(cores, on="lane")
    if tasks[begin].null_count():
        what = "a task without a dispatch time: this swimlane cannot be joined with a bundle"
        raise BadInput(what, path=next(iter(trace.meta.files), None))
    return tasks.select(
        "unit",
        "nth core",
        pl.int_range(pl.len()).over("lane", order_by=begin).alias("nth"),
        "task",
        "lane",
        pl.col(begin).alias("begin"),
        _END.alias("stop"),
    )


class _ClockFit(NamedTuple):
    """here = there * rate + offset, computed around a middle so that large numbers keep their nanoseconds."""

    middle_there: int
    middle_here: int
    rate: float

    def here(self, times: Ints) -> Ints:
        moved: Ints = np.rint((times - self.middle_there) * self.rate).astype(np.int64)
        return self.middle_here + moved


def _fit(there: Ints, here: Ints) -> _ClockFit:
    """Least squares, then once more without the tasks a descheduled thread stamped late."""
    close = np.ones(len(there), dtype=bool)
    for _ in range(2):
        middle_there, middle_here = int(there[close].mean()), int(here[close].mean())
        dx, dy = (there[close] - middle_there).astype(float), (here[close] - middle_here).astype(float)
        clock = _ClockFit(middle_there, middle_here, float((dx * dy).sum() / (dx * dx).sum()) if dx.any() else 1.0)
        off = np.abs(clock.here(there) - here)
        close = off <= max(3 * float(np.median(off)), 1.0)
    return clock


READER = Reader(
    "tracr",
    "TraCR bundle: a folder with proc.*/thread.*/traces.bts",
    lambda sample: bundle_root(sample.path) is not None and records_in(sample.path) is None,
    read,
    tells=("kernels: by the numbers of functions", "cores: from dispatch to retired", "scheduling"),
)
