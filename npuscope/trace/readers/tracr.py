"""TraCR bundles: a folder with proc.<pid>/metadata.json and proc.<pid>/thread.<tid>/traces.bts.

Slices pair as TraCR pairs them, except on core lanes written by the simpler runtime, where a core has a
running and a pending slot: there SET and RESET pair first in, first out, and a slice reaches from
dispatch to retired as the AICPU saw them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from npuscope.errors import BadInput
from npuscope.trace import progress, source
from npuscope.trace.core import Trace
from npuscope.trace.flows import edges_of
from npuscope.trace.intervals import Enclosing
from npuscope.trace.lane_names import unit_of_lane
from npuscope.trace.meta import Ledger
from npuscope.trace.phases import ROLE_LABELS, RUN_LABELS, phase_of
from npuscope.trace.readers.name_map import find_name_map
from npuscope.trace.tracr_records import (
    FLOW_END,
    FLOW_START,
    NO_EXTRA,
    RECORD,
    RESET,
    Pairs,
    first_in_first_out,
    one_open_slice,
)

_PROCESS = re.compile(r"^proc\.(\d+)$")
_LARGEST_TIME = np.uint64(2**63 - 1)


class Metadata(msgspec.Struct):
    """metadata.json; every field is optional in one build or another."""

    markerLabels: list[str] | None = None
    markerTypes: dict[str, str] = {}
    channel_names: list[str] | None = None
    num_channels: int | None = None
    start_time: int | None = None
    end_time: int | None = None
    extraIdLabels: dict[str, str] = {}

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


@dataclass
class Process:
    """One proc.<pid> folder, read."""

    pid: int
    metadata: Metadata
    records: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=RECORD))


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
    processes = [_read_process(folder, ledger) for folder in folders]
    kernel_names = find_name_map(root.parent) or {}
    parts = [_Process(process, kernel_names, ledger) for process in processes]
    lanes = pl.concat([part.lanes for part in parts]).with_row_index("lane")
    offsets = np.cumsum([0, *(part.lanes.height for part in parts)])
    slices = pl.concat(
        [
            part.slices.with_columns(pl.col("lane") + int(offset))
            for part, offset in zip(parts, offsets[:-1], strict=True)
        ]
    )
    flows = pl.concat(
        [
            part.flows.with_columns(pl.col("lane") + int(offset))
            for part, offset in zip(parts, offsets[:-1], strict=True)
        ]
    )
    slices = slices.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("task"))
    edges = None
    if flows.height:
        lane, start, dur = (slices[c].cast(pl.Int64).to_numpy() for c in ("lane", "start", "dur"))
        edges = edges_of(flows, Enclosing(lane, start, dur), slices["task"].to_numpy())
        edges = edges.with_columns(pl.lit("flow").alias("name"))
        lonely = pl.col("src_time").is_null() | pl.col("dst_time").is_null()
        ledger.marked["flow end without its other end"] = int(edges.select(lonely.sum()).item())
    files = tuple(str(folder / "metadata.json") for folder in folders)
    return Trace.of(slices, lanes, ledger.close("tracr", files, clock="monotonic, per process"), edges)


def _read_process(folder: Path, ledger: Ledger) -> Process:
    path = folder / "metadata.json"
    try:
        metadata = msgspec.json.decode(source.read_all(path), type=Metadata)
    except msgspec.DecodeError as error:
        raise BadInput(f"not a TraCR metadata file ({error})", path=path) from error
    threads = sorted(folder.glob("thread.*/traces.bts"), key=lambda p: (len(p.parent.name), p.parent.name))
    pieces = []
    for number, thread in enumerate(threads):
        progress.report(f"reading {folder.name}", number, len(threads))
        pieces.append(_read_thread(thread, ledger))
    records = np.concatenate(pieces) if pieces else np.empty(0, dtype=RECORD)
    users = np.zeros(65536, dtype=np.int64)
    for piece in pieces:
        users[np.unique(piece["channel"])] += 1
    shared = int((users > 1).sum())
    ledger.notes.setdefault("processes", {})[folder.name] = {
        "start_time": metadata.start_time,
        "end_time": metadata.end_time,
        "threads": len(threads),
        "largest_thread": max(map(len, pieces), default=0),
        "channels_of_several_threads": shared,
    }
    if np.any(records["time"][1:] < records["time"][:-1]):
        records = records[np.argsort(records["time"], kind="stable")]
    return Process(int(folder.name[5:]), metadata, records)


def _read_thread(path: Path, ledger: Ledger) -> np.ndarray:
    data = source.read_all(path) if source.is_packed(path) else path.read_bytes()
    tail = len(data) % RECORD.itemsize
    if tail:
        ledger.repaired["file with an incomplete last record, its bytes ignored"] += 1
        ledger.notes["ignored_bytes"] = ledger.notes.get("ignored_bytes", 0) + tail
    records = np.frombuffer(data, dtype=RECORD, count=len(data) // RECORD.itemsize)
    ledger.records += len(records)
    too_late = records["time"] > _LARGEST_TIME
    if too_late.any():
        ledger.dropped["trace point without a usable time"] += int(too_late.sum())
        records = records[~too_late]
    backwards = int((records["time"][1:] < records["time"][:-1]).sum())
    if backwards:
        ledger.repaired["trace point out of order, sorted"] += backwards
        records = records[np.argsort(records["time"], kind="stable")]
    return records


class _Process:
    """Slices, flows and lanes of one process; lanes are numbered from 0 by channel."""

    def __init__(self, process: Process, kernel_names: dict[int, str], ledger: Ledger) -> None:
        self._process, self._ledger, self._kernel_names = process, ledger, kernel_names
        records = process.records
        is_flow = (records["event"] == FLOW_START) | (records["event"] == FLOW_END)
        points = records[~is_flow] if is_flow.any() else records
        # by channel, then time: a stable sort of 16-bit numbers is linear
        points = points[np.argsort(points["channel"], kind="stable")]
        is_set = points["event"] != RESET
        labels = self._labels(points["event"][is_set])
        pairs, on_core = self._pair(points, is_set, labels)
        self._declared = process.metadata.declared_channels()
        self._count(pairs, records, is_flow)
        self.slices = self._slices(points, pairs, labels, on_core)
        self.flows = self._flows(records[is_flow])
        self.lanes = self._lanes(points, is_set, labels)

    def _labels(self, events: np.ndarray) -> list[str]:
        """Labels by event id, long enough for every id in use."""
        labels = self._process.metadata.labels()
        highest = int(events.max(initial=0))
        unknown = int((events >= len(labels)).sum())
        self._ledger.repaired["unknown marker named by its number"] += unknown
        return [*labels, *(f"event_{n}" for n in range(len(labels), highest + 1))]

    def _pair(self, points: np.ndarray, is_set: np.ndarray, labels: list[str]) -> tuple[Pairs, np.ndarray]:
        """Pairs over all channels, and which channels are cores of the simpler runtime."""
        channel = points["channel"]
        runs = np.array([label in RUN_LABELS for label in labels], dtype=bool)
        starts_run = np.zeros(len(points), dtype=bool)
        starts_run[is_set] = runs[points["event"][is_set]]
        sets, run_sets = (np.bincount(channel[which], minlength=65536) for which in (is_set, starts_run))
        on_core = (sets > 0) & (sets == run_sets)
        if not on_core.any():
            return one_open_slice(channel, is_set), on_core
        plain = np.flatnonzero(~on_core[channel])
        found = [one_open_slice(channel[plain], is_set[plain])]
        begins, ends = [plain[found[0].begin]], [plain[found[0].end]]
        for core in np.flatnonzero(on_core):
            first, last = np.searchsorted(channel, [core, core + 1])
            pairs = first_in_first_out(is_set[first:last])
            found.append(pairs)
            begins.append(pairs.begin + first)
            ends.append(pairs.end + first)
        begin = np.concatenate(begins)
        order = np.argsort(begin)
        unclosed, idle = sum(p.unclosed for p in found), sum(p.idle_resets for p in found)
        return Pairs(begin[order], np.concatenate(ends)[order], unclosed, idle), on_core

    def _count(self, pairs: Pairs, records: np.ndarray, is_flow: np.ndarray) -> None:
        ledger, flows = self._ledger, int(is_flow.sum())
        ledger.dropped["slice never closed"] += pairs.unclosed
        ledger.dropped["RESET with nothing open"] += pairs.idle_resets
        beyond = (records["channel"] >= self._declared) & (records["event"] != RESET)
        ledger.marked["trace point on a channel beyond the declared ones"] += int(beyond.sum())
        ledger.merged["flow trace point became an end of an edge"] += flows
        ledger.merged["RESET closed a slice"] += (
            len(records) - flows - len(pairs.begin) - pairs.unclosed - pairs.idle_resets
        )

    def _slices(self, points: np.ndarray, pairs: Pairs, labels: list[str], on_core: np.ndarray) -> pl.DataFrame:
        begin, metadata = points[pairs.begin], self._process.metadata
        start = begin["time"].astype(np.int64)
        stop = points["time"][pairs.end].astype(np.int64)
        slices = pl.DataFrame(
            {
                "lane": begin["channel"].astype(np.uint32),
                "start": start,
                "dur": stop - start,
                "marker": pl.Series(labels, dtype=pl.String).gather(begin["event"].astype(np.uint32)),
                "extra": begin["extra"].copy(),
            }
        )
        # in the order of time, as the processes lived it
        slices = slices.sort("start", maintain_order=True)
        extra = pl.when(pl.col("extra") != NO_EXTRA).then(pl.col("extra")).alias("extra")
        highest = int(begin["channel"].max(initial=0))
        kinds = pl.Series([unit_of_lane(metadata.channel_name(c)).kind for c in range(highest + 1)], dtype=pl.String)
        slices = slices.with_columns(
            extra, kinds.gather(slices["lane"]).alias("kind"), phase_of(pl.col("marker")).alias("phase")
        )
        return slices.with_columns(self._kernels(slices, on_core).alias("kernel"))

    def _kernels(self, slices: pl.DataFrame, on_core: np.ndarray) -> pl.Series:
        """The marker, except on cores, where `extra` is the kernel's function id."""
        labels = {int(k): v for k, v in self._process.metadata.extraIdLabels.items() if k.isdigit()}
        core = pl.Series(on_core[slices["lane"].to_numpy()])
        if not core.any():
            return slices["marker"]
        names = {number: f"func_{number}" for number in slices["extra"].filter(core).drop_nulls().unique()}
        names |= self._kernel_names | labels
        function = slices["extra"].cast(pl.Int64).replace_strict(names, default=None, return_dtype=pl.String)
        return function.zip_with(core & function.is_not_null(), slices["marker"])

    def _flows(self, records: np.ndarray) -> pl.DataFrame:
        begins = records["event"] == FLOW_START
        zeros = np.zeros(len(records), dtype=np.uint32)
        return pl.DataFrame(
            {
                "lane": records["channel"].astype(np.uint32),
                "time": records["time"].astype(np.int64),
                "flow": records["extra"].astype(np.int64),
                "category": zeros,
                "name": zeros,
                "begins": begins,
                "ends": ~begins,
            }
        )

    def _lanes(self, points: np.ndarray, is_set: np.ndarray, labels: list[str]) -> pl.DataFrame:
        """Every declared channel, used or not, and beyond them up to the highest in use."""
        metadata, pid = self._process.metadata, self._process.pid
        used = [int(frame["lane"].to_numpy().max(initial=0)) + 1 for frame in (self.slices, self.flows)]
        count = max(self._declared, *used)
        names = [metadata.channel_name(channel) for channel in range(count)]
        units = [unit_of_lane(name) for name in names]
        simpler = bool(RUN_LABELS & set(labels))
        roles = self._roles(points, is_set, labels)
        return pl.DataFrame(
            {
                "name": names,
                "unit": pl.Series([u.unit for u in units], dtype=pl.String),
                "core": pl.Series([u.core for u in units], dtype=pl.Int32),
                # simpler writes one process per device, numbered from 1000
                "device": pl.Series([pid - 1000 if simpler and pid >= 1000 else None] * count, dtype=pl.Int32),
                "role": pl.Series([roles.get(channel) for channel in range(count)], dtype=pl.String),
                "pid": pl.Series([pid] * count, dtype=pl.Int64),
                "channel": pl.Series(range(count), dtype=pl.Int32),
            }
        )

    def _roles(self, points: np.ndarray, is_set: np.ndarray, labels: list[str]) -> dict[int, str]:
        """AICPU lanes come in the order they arrived; what each did is told by its markers."""
        roles: dict[int, str] = {}
        for event, label in enumerate(labels):
            if label in ROLE_LABELS:
                for point in points[is_set & (points["event"] == event)][:64]:
                    number = "" if point["extra"] == NO_EXTRA else f" {point['extra']}"
                    roles.setdefault(int(point["channel"]), f"{ROLE_LABELS[label]}{number}")
        return roles
