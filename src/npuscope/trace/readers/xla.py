"""Profiles of XLA: XPlane files (*.xplane.pb), read as they are, and the trace viewer's JSON made of them.

A plane is a device (`/device:GPU:0`, `/device:TPU:0`) or the host; its lines are streams or what is derived from them.
Kernels are on lines called streams; a plane without such, as of a TPU, has its work on `XLA Ops`, where an operation
that holds others (a loop) is no work of its own. All other lines of a device describe. Steps are those that the
framework numbered: the line `Steps`, else the host's annotations with a `step_num`, whose launches belong to them.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from npuscope.base.errors import BadInput
from npuscope.trace.build import (
    build_trace,
    by_kernels,
    count_unknown_header,
    kind_numbers,
    plain_lanes,
    step_windows,
    steps_at,
)
from npuscope.trace.core import BELOW_NANOSECOND, NEGATIVE, Ledger, Trace
from npuscope.trace.event_table import EventTable, Interner
from npuscope.trace.formats import EventReader, Reader, Sample
from npuscope.trace.schema import LARGEST_US, LONGEST_US, is_work
from npuscope.trace.source import json_whole_number, read_all
from npuscope.trace.tables import launches

PLANES = (b"/host:", b"/device:", b"Task Environment", b"#Chip")  # how names of planes begin
_DEVICE = re.compile(r"^/device:[A-Za-z_]+:([0-9]{1,6})")
_STREAM = re.compile(r"^Stream #", re.IGNORECASE)
OPS, STEPS = ("XLA Ops", "Async XLA Ops"), "Steps"
DESCRIBING = {
    STEPS, "XLA Modules", "XLA TraceMe", "Source code", "Framework Name Scope", "TensorFlow Name Scope", "Launch Stats",
    "Framework Ops", "TensorFlow Ops", "Step Time", "Name Scope", *OPS,
}  # fmt: skip
CORRELATION = ("correlation_id", "CorrelationId")
Kinds = dict[int, tuple[int, dict[str, Any]]]  # of events: the number of a name, and what all of a kind share
REPLACED = 16  # characters that stand for bytes of no text, more than names have


def _is_space(sample: Sample) -> bool:
    """True for a message whose first field is a plane with a name that XLA gives."""
    head = sample.head[:4096]
    return head.startswith(b"\x0a") and any(name in head for name in PLANES)


def read(path: Path) -> Trace:
    """The file's planes, lines and events as processes, lanes and slices."""
    return _build(_Space(path).table(), "xplane")


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The number and value of each field of a protobuf message, in order; raises ValueError where it is none."""
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, at = _varint(message, at)
        if size is None or number == 0 or at + size > end:
            raise ValueError("not a protobuf message, or cut short")
        yield number, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("a number without an end")


class XplaneMessage(dict[int, list[int | memoryview]]):
    """The values of each field by its number; one that may come once is the last."""

    def __init__(self, message: memoryview) -> None:
        for number, value in fields(message):
            self.setdefault(number, []).append(value)

    def number(self, field: int) -> int:
        value = self.get(field, [0])[-1]
        number = value if isinstance(value, int) else 0
        return number - 2**64 if number >= 2**63 else number

    def text(self, field: int) -> str:
        value = self.get(field, [memoryview(b"")])[-1]
        return bytes(value).decode(errors="replace") if isinstance(value, memoryview) else str(value)

    def messages(self, field: int) -> list[memoryview]:
        return [value for value in self.get(field, ()) if isinstance(value, memoryview)]


class _Space:
    """An XSpace (github.com/openxla/xla, xplane.proto) as a table of events."""

    def __init__(self, path: Path) -> None:
        self.path, self.ledger = path, Ledger()
        self.lanes: Interner = Interner()
        self.names: Interner = Interner()
        self.processes: dict[int | str, str] = {}
        self.threads: dict[tuple[int | str, int | str], str] = {}
        self.rows: list[tuple[int, int, int, int, str | None]] = []

    def table(self) -> EventTable:
        try:
            space = XplaneMessage(memoryview(read_all(self.path)))
            for plane in space.messages(1):
                self._plane(XplaneMessage(plane))
            if said := [bytes(one).decode(errors="replace")[:200] for n in (2, 3) for one in space.messages(n)]:
                self.ledger.notes["profiler_said"] = said  # its errors and warnings
            for number in space.keys() - {1, 2, 3, 4}:  # 4: names of hosts
                self.ledger.count_unknown("field of XSpace", number, len(space[number]))
        except ValueError as error:
            as_text = read_all(self.path).count("\N{REPLACEMENT CHARACTER}".encode()) > REPLACED
            why = "it was copied as text, which replaced bytes of it" if as_text else error
            raise BadInput(f"not an XPlane file of XLA ({why})", path=self.path, remedy="Copy it again.") from error
        table = EventTable(self.path, self.ledger)
        table.process_names, table.thread_names = self.processes, self.threads
        table.lane_keys, table.names, table.categories = list(self.lanes), list(self.names), [""]
        lane, start, dur, name, args = zip(*self.rows, strict=True) if self.rows else ((), (), (), (), ())
        schema = {"lane": pl.UInt32, "start": pl.Int64, "dur": pl.Int64, "name": pl.UInt32, "args": pl.String}
        columns = dict(zip(schema, (lane, start, dur, name, args), strict=True))
        table.slices = pl.DataFrame(columns, schema=schema).with_columns(pl.lit(0, dtype=pl.UInt32).alias("category"))
        table.flows = pl.DataFrame(schema=_FLOWS)
        return table

    def _plane(self, plane: XplaneMessage) -> None:
        entries = {number: [XplaneMessage(one) for one in plane.messages(number)] for number in (4, 5)}  # maps by id
        known = {n: {one.number(1): XplaneMessage(one.messages(2)[-1]) for one in each if one.messages(2)}
                 for n, each in entries.items()}  # fmt: skip
        stats = {key: one.text(2) for key, one in known[5].items()}
        place = len(self.processes)
        self.processes[place] = plane.text(2)
        # of each kind of event the number of the name that people read, and what is said of all events of the kind
        kinds = {key: (self.names[one.text(4) or one.text(2)], _stats(one, 5, stats)) for key, one in known[4].items()}
        for line in plane.messages(3):
            self._line(XplaneMessage(line), place, kinds, stats)

    def _line(self, line: XplaneMessage, plane: int, kinds: Kinds, stats: dict[int, str]) -> None:
        number, name = line.number(1), line.text(2)
        key = (plane, number if (plane, number) not in self.threads else f"{number} {name}")
        self.threads[key] = line.text(11) or name or str(number)
        events = line.messages(4)
        lane = self.lanes[key] if events else 0
        for event in events:
            self._event(XplaneMessage(event), lane, line.number(3), kinds, stats)

    def _event(self, event: XplaneMessage, lane: int, begin: int, kinds: Kinds, stats: dict[int, str]) -> None:
        self.ledger.records += 1
        kind, offset, lasts, counted = event.number(1), event.number(2), event.number(3), 5 in event
        name, more = kinds.get(kind, (self.names[f"event {kind}"], {}))
        start, end = begin + offset // 1000, begin + (offset + lasts) // 1000
        if counted or abs(start) > LARGEST_US * 1000 or end - start > LONGEST_US * 1000:
            self.ledger.dropped["event without a time of its own" if counted else "event without a usable time"] += 1
            return
        self.ledger.repaired[NEGATIVE] += end < start
        self.ledger.repaired[BELOW_NANOSECOND] += bool(offset % 1000 or lasts % 1000)
        args = {**more, **_stats(event, 4, stats)}
        self.rows.append((lane, start, max(end - start, 0), name, json.dumps(args) if args else None))


_FLOWS = {
    "lane": pl.UInt32, "time": pl.Int64, "flow": pl.Int64, "category": pl.UInt32, "name": pl.UInt32,
    "begins": pl.Boolean, "ends": pl.Boolean,
}  # fmt: skip


def _stats(message: XplaneMessage, field: int, names: dict[int, str]) -> dict[str, Any]:
    """Statistics by their names; a reference is the name of another."""
    found: dict[str, Any] = {}
    for one in map(XplaneMessage, message.messages(field)):
        value: Any = None
        for number in one.keys() - {1}:
            last = one[number][-1]
            if number == 2 and isinstance(last, memoryview) and len(last) == 8:
                value = struct.unpack("<d", last)[0]
            elif number == 3:
                value = last if isinstance(last, int) else None
            elif number in (4, 5):
                value = one.number(4) if number == 4 else one.text(5)
            elif number == 6:
                value = f"{len(last) if isinstance(last, memoryview) else 0} bytes"
            elif number == 7:
                value = names.get(one.number(7), str(last))
        found[names.get(one.number(1), str(one.number(1)))] = value
    return found


def _is_viewer(table: EventTable) -> bool:
    """True for the trace viewer's JSON: processes are planes."""
    names = table.process_names.values()
    return any(_DEVICE.match(name) for name in names) or {"/host:CPU"} <= set(names)


def _build(table: EventTable, format: str) -> Trace:
    processes, threads = table.lane_processes(), table.lane_names()
    with_streams = {p for p, t in zip(processes, threads, strict=True) if _DEVICE.match(p) and _STREAM.match(t)}
    kinds = [_kind(p, t, p in with_streams) for p, t in zip(processes, threads, strict=True)]
    devices = [_DEVICE.match(process) for process in processes]
    lanes = plain_lanes(table).with_columns(
        pl.Series("unit", ["stream" if kind == "task" else "host" for kind in kinds], dtype=pl.String),
        pl.Series("device", [int(one[1]) if one else None for one in devices], dtype=pl.Int32),
    )
    count_unknown_header(table)
    lane = table.slices["lane"].to_numpy()
    kind = kind_numbers(kinds)[lane] if len(kinds) else np.zeros(0, dtype=np.uint8)
    trace = build_trace(table, format, kind=by_kernels(table, kind), lanes=lanes, clock="epoch")
    trace = _without_containers(trace)
    return _with_steps(_with_launches(trace))


def _kind(process: str, thread: str, has_streams: bool) -> str:
    if not _DEVICE.match(process):
        return "host"
    if has_streams:
        return "task" if _STREAM.match(thread) else "derived"
    return "task" if thread in OPS or thread not in DESCRIBING else "derived"


def _without_containers(trace: Trace) -> Trace:
    """Device operations that hold others on their own line describe these."""
    work = trace.slices.with_row_index("row").filter(is_work()).sort("lane", "start", -pl.col("dur"), "row")
    inner = (pl.col("depth").shift(-1) > pl.col("depth")) & (pl.col("lane").shift(-1) == pl.col("lane"))
    rows = work.filter(inner.fill_null(False))["row"]
    if rows.is_empty():
        return trace
    kind = trace.slices["kind"].cast(pl.String).scatter(rows, "derived").alias("kind")
    trace = replace(trace, slices=trace.slices.with_columns(kind.cast(trace.slices.schema["kind"])))
    return replace(trace, meta=trace.meta.plus(marked={"operation that holds others is no work of its own": len(rows)}))


def _with_launches(trace: Trace) -> Trace:
    """Calls of the host that have the correlation of a kernel launched it."""
    if "args" not in trace.slices.columns:
        return trace
    found = pl.select(pl.coalesce(json_whole_number(trace.slices["args"], name) for name in CORRELATION)).to_series()
    rows = trace.slices.select("task", "kind").with_columns(found.alias("correlation"))
    edges = launches(rows, pl.col("kind") == "host", is_work(), ["correlation"])
    return replace(trace, edges=pl.concat([trace.edges, edges], how="diagonal_relaxed")) if edges.height else trace


def _with_steps(trace: Trace) -> Trace:
    """Steps by the device's own line, else by the host's numbered annotations and what they launched."""
    places = trace.lanes.select("lane", "device", pl.col("name").alias("line"))
    slices = trace.slices.join(places, on="lane", how="left", maintain_order="left")
    step = pl.Series("step", [None], dtype=pl.Int64).new_from_index(0, slices.height)
    numbers = slices["kernel"].str.extract(r"([0-9]{1,18})\s*$").cast(pl.Int64, strict=False)
    own = slices.with_columns(numbers.alias("number")).with_row_index("row").filter(pl.col("line") == STEPS)
    marked = json_whole_number(slices["args"], "step_num") if "args" in slices.columns else step
    host = slices.with_columns(marked.alias("number")).filter(pl.col("kind") == "host", pl.col("number").is_not_null())
    if host.height:
        step = steps_at(slices["start"], step_windows(host.with_columns(step="number"))).alias("step")
        edges = trace.edges.filter(pl.col("name") == "launch").select("src", "dst").unique("dst")
        step = step.scatter(edges["dst"], step.gather(edges["src"]))
    for (device,), windows in own.drop_nulls("number").partition_by("device", as_dict=True).items():
        here = slices.with_row_index("row").filter(pl.col("device").eq_missing(device))
        step = step.scatter(here["row"], steps_at(here["start"], step_windows(windows.with_columns(step="number"))))
    return replace(trace, slices=trace.slices.with_columns(step.alias("step")))


_TELLS = ("kernels", "streams", "communication", "launches: of GPUs", "ranks", "steps: where numbered")
READER = Reader(
    "xplane", "an XPlane file of XLA, JAX or TensorFlow", _is_space, read, files=("*.xplane.pb",), tells=_TELLS
)
VIEWER = EventReader(
    "xla-viewer",
    "the trace viewer's JSON of XLA, JAX or TensorFlow",
    _is_viewer,
    lambda table: _build(table, "xla-viewer"),
    files=("*.trace.json.gz",),
    tells=_TELLS,
)
