"""simpler's host log: the spans of `[STRACE] v=1`, alone in host.<pid>.log or among the lines of a server.

A span is written when it ends, so children stand before their parents. A call is a process (pid) and its count of runs
(inv). Spans with `clk=dev` count from the start of the device's part of that call; only their lengths can be compared
with the host's. Forked ranks may put two records on one line, and a record may be cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import polars as pl

from npuscope.base.errors import BadInput
from npuscope.base.frozen import dataclass
from npuscope.trace import source
from npuscope.trace.core import Ledger, Trace, with_depth
from npuscope.trace.formats import Reader, Sample
from npuscope.trace.schema import LARGEST_US
from npuscope.trace.source import chunks

MARK = "[STRACE] v="
ROOTS = ("chip.run", "simpler_run")  # the whole of a call; the second until summer 2026
CHIP = "chip.run"
RUNNER = "chip.run.runner_run"
LAUNCH = "chip.run.runner_run.aicpu_launch"  # a moment, since September 2026
DEVICE_WALL = "chip.run.runner_run.device_wall"
ON_DEVICE = "span of the device's clock, which has no place on the host's"
_RECORD = re.compile(r"\[STRACE\] v=(\d+) (.*?)(?=\[mono_ns=|\[STRACE\]|\[HOSTLOG_DROPS\]|$)")
_FIELD = re.compile(r"(\w+)=(\S*)")
_LOOSE = re.compile(r"\bbind phase=(\w+) start_ns=(\d{1,19}) dur_ns=(\d{1,19})")  # spans since September 2026
_ANCHOR = re.compile(r"\[CLOCK_ANCHOR\] v=1 pid=(\d{1,9}) mono_ns=(\d{1,19}) wall_ns=(\d{1,19})")
_COLLECTOR = re.compile(r"^\[mono_ns=(\d{1,19})\].*\bcopy_ai\w+_buffer\b")
_OF_PROCESS = re.compile(r"host\.(\d{1,9})\.log")
_CHIP_PROCESS = re.compile(r"\[chip_process pid=(\d+) dev=(\d+)\]")
_NUMBERS = ("pid", "tid", "inv", "depth", "ts", "dur")
_LARGEST = LARGEST_US * 1000
_SLICES = {"lane": pl.UInt32, "start": pl.Int64, "dur": pl.Int64, "kernel": pl.String, "kind": pl.String}
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class HostSpan:
    """A span of a thread, of a log or of a server's profile. `start_ns`: of the host's monotonic clock, or since the
    device's part began where `on_device`."""

    pid: int
    tid: int
    name: str
    start_ns: int
    dur_ns: int
    attributes: Mapping[str, Any] = field(default_factory=dict)
    call: int = 0
    on_device: bool = False

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.dur_ns

    def number(self, name: str) -> int | None:
        """An attribute that is a whole number."""
        value = self.attributes.get(name)
        if isinstance(value, str):
            return int(value) if value.isdecimal() and len(value) < 20 else None
        return value if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(frozen=True)
class HostCall:
    """One call of a program on one chip: its spans by name, in order of ending."""

    pid: int
    number: int
    spans: tuple[HostSpan, ...]

    @cached_property
    def by_name(self) -> dict[str, HostSpan]:
        """The last span of each name; the root under its name of today."""
        return {CHIP if span.name in ROOTS else span.name: span for span in self.spans}

    @property
    def whole(self) -> HostSpan | None:
        """The call itself; None where the log begins or ends inside it."""
        return self.by_name.get(CHIP)

    @property
    def is_complete(self) -> bool:
        """Whether the log has the call from its first part to its end."""
        return self.whole is not None and f"{CHIP}.bind" in self.by_name

    def below(self, name: str) -> list[HostSpan]:
        """Every span right below one, several of a name too."""
        return [one for one in self.spans if one.name.rpartition(".")[0] == name and one.name not in ROOTS]

    def children(self, name: str) -> list[HostSpan]:
        """The spans right below one, in order of time."""
        found = [span for other, span in self.by_name.items() if other.rpartition(".")[0] == name]
        return sorted(found, key=lambda span: span.start_ns)

    def attribute(self, name: str) -> int | None:
        """A number that the call carries: run_id, dispatch_id, slot_id, generation, run_epoch."""
        return None if self.whole is None else self.whole.number(name)


@dataclass
class HostLog:
    """What some logs say."""

    spans: list[HostSpan] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    devices: dict[int, int] = field(default_factory=dict)  # pid -> device, where a line says it
    anchors: dict[int, tuple[int, int]] = field(default_factory=dict)  # pid -> a moment of both clocks
    loose: list[HostSpan] = field(default_factory=list)  # segments of a bind that name no call
    collected_ns: dict[int, list[int]] = field(default_factory=dict)  # pid -> when its collector took records over

    def wall_ns(self, pid: int, ns: int) -> int | None:
        """A moment of a process on the wall clock."""
        anchor = self.anchors.get(pid)
        return None if anchor is None else anchor[1] + ns - anchor[0]

    @cached_property
    def calls(self) -> list[HostCall]:
        """Every call, by process and number; spans of no run are left out."""
        found: dict[tuple[int, int], list[HostSpan]] = {}
        for span in self.spans:
            if span.name.split(".")[0] in ("chip", "simpler_run"):
                found.setdefault((span.pid, span.call), []).append(span)
        self._place_loose(found)
        return [HostCall(*key, tuple(spans)) for key, spans in sorted(found.items())]

    def _place_loose(self, found: dict[tuple[int, int], list[HostSpan]]) -> None:
        """Segments of a bind that name no call lie in the one whose bind is around them."""
        binds = [(key, span) for key, spans in found.items() for span in spans if span.name == f"{CHIP}.bind"]
        for loose in self.loose:
            around = [key for key, bind in binds if bind.pid == loose.pid and bind.start_ns <= loose.start_ns
                      and loose.end_ns <= bind.end_ns]  # fmt: skip
            if around:
                found[around[0]].append(loose)
            else:
                self.ledger.dropped["segment of a bind that no call is around"] += 1

    def read(self, path: Path) -> HostLog:
        """Adds the spans of one file."""
        text = source.read_all(path).decode("utf-8", errors="replace")
        named = _OF_PROCESS.search(path.name)
        own = int(named[1]) if named else None
        for line in text.splitlines():
            self.read_line(line, own)
        return self

    def read_line(self, line: str, own: int | None = None) -> None:
        """Adds what one line says; `own` is the process whose log it is, where the file's name tells."""
        if "[HOSTLOG_DROPS]" in line:
            self.ledger.notes["host_log_drops"] = self.ledger.notes.get("host_log_drops", 0) + 1
        if process := _CHIP_PROCESS.search(line):
            self.devices[int(process[1])] = int(process[2])
        if anchor := _ANCHOR.search(line):
            self.anchors[int(anchor[1])] = (int(anchor[2]), int(anchor[3]))
        if own is not None and (collected := _COLLECTOR.match(line)):
            self.collected_ns.setdefault(own, []).append(int(collected[1]))
        if own is not None and (loose := _LOOSE.search(line)):
            self.ledger.records += 1
            phase, start, dur = loose[1], int(loose[2]), int(loose[3])
            self.loose.append(HostSpan(own, own, f"{CHIP}.bind.{phase}", start, dur))
        if MARK in line:
            for version, rest in _RECORD.findall(line):
                self._add(version, rest)

    def _add(self, version: str, text: str) -> None:
        self.ledger.records += 1
        if version != "1":
            self.ledger.dropped[f"span of version {version[:10]}"] += 1
            return
        fields = {key: unquote(value) for key, value in _FIELD.findall(text)}
        numbers = [fields.pop(key, "") for key in _NUMBERS]
        name = fields.pop("name", "")
        if not name or not all(number.isdecimal() and int(number) <= _LARGEST for number in numbers):
            self.ledger.dropped["span cut off or without its numbers"] += 1
            return
        if name.endswith("~") or any(value.endswith("~") for value in fields.values()):
            self.ledger.marked["span with a value cut off"] += 1
        pid, tid, call, _, start, dur = map(int, numbers)
        device = fields.pop("clk", "") == "dev"
        self.spans.append(HostSpan(pid, tid, name, start, dur, fields, call, device))


def read_logs(paths: Iterable[Path]) -> HostLog:
    log = HostLog()
    for path in paths:
        log.read(path)
    return log


def on_threads(spans: Iterable[HostSpan], thread: Callable[[HostSpan], K]) -> tuple[list[K], pl.DataFrame]:
    """The threads that spans are of, in the order in which they come, and the spans as slices on them."""
    lanes: dict[K, int] = {}
    rows = [(lanes.setdefault(thread(one), len(lanes)), one.start_ns, one.dur_ns, one.name, "host") for one in spans]
    slices = with_depth(pl.DataFrame(rows, schema=_SLICES, orient="row"))
    return list(lanes), slices.with_columns(task=pl.int_range(pl.len(), dtype=pl.Int64))


def host_slices(log: HostLog, ranks: Mapping[int, int] | None = None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Lanes and slices of the host's own spans; the device's spans of a call have no place here.

    `ranks`: pid -> rank. A thread is a lane; calls that are under way at once are told apart by their slot.
    """
    slots = {(one.pid, one.call): one.attributes.get("slot_id", "") for one in log.spans if one.name in ROOTS}
    several = {pid for pid, _ in slots if len({slot for (p, _), slot in slots.items() if p == pid}) > 1}

    def thread(span: HostSpan) -> tuple[int, int, str]:
        return span.pid, span.tid, slots.get((span.pid, span.call), "") if span.pid in several else ""

    threads, slices = on_threads((one for one in log.spans if not one.on_device), thread)
    lanes = []
    for pid, tid, slot in threads:
        name = f"host {pid}" if tid == pid else f"host {pid}, thread {tid}"
        name += f", slot {slot}" if slot else ""
        lanes.append({"name": name, "unit": "host", "rank": (ranks or {}).get(pid)})
    return pl.DataFrame(lanes, infer_schema_length=None), slices


def trace_of(log: HostLog, format: str, path: Path) -> Trace:
    """The host's spans of one file as a trace of their own."""
    if not log.spans:
        raise BadInput("no span that can be read", path=path)
    lanes, slices = host_slices(log)
    log.ledger.dropped[ON_DEVICE] += sum(span.on_device for span in log.spans)
    meta = log.ledger.close(format, (str(path),), clock="host monotonic")
    return Trace.of(slices, lanes.with_row_index("lane"), meta)


def recognises(sample: Sample) -> bool:
    """True for text with a span among its first lines; a server's log may have many others before."""
    if sample.is_folder or b"\x00" in sample.head[:4096]:
        return False
    mark = MARK.encode()
    if mark in sample.text:
        return True
    return sample.path.suffix in (".log", ".out", ".txt") and any(mark in piece for piece in chunks(sample.path))


def read(path: Path) -> Trace:
    log = HostLog().read(path)
    log.ledger.notes["calls"] = len(log.calls)
    log.ledger.notes["calls_cut_off"] = sum(call.whole is None for call in log.calls)
    return trace_of(log, "host-log", path)


READER = Reader(
    "host-log",
    "simpler's host log, alone or inside a server's log: host.*.log",
    recognises,
    read,
    files=("host.*.log",),
    tells=("launches",),
)
