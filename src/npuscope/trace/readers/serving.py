"""pypto-serving's profile (SA_PROFILE): what the engine and its workers did, in fragments (a line per event) or merged.

<out>/fragments/trace.<pid>.jsonl has a file per process, <out>/trace.json all of them; for an <out> that ends in .json
the fragments lie in <out>.json.fragments/. Times are whole microseconds of the host's monotonic clock, the same as in
simpler's host logs. A process that was killed leaves half a line, which is counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from npuscope.base.errors import BadInput
from npuscope.trace import source
from npuscope.trace.build import build_trace
from npuscope.trace.core import Ledger, Trace
from npuscope.trace.event_table import EventTable
from npuscope.trace.formats import EventReader, Reader, Sample
from npuscope.trace.readers.host_log import HostSpan, on_threads
from npuscope.trace.schema import LARGEST_US, LONGEST_US

FRAGMENTS = "fragments"
CLOCK = "host monotonic"
_OWN = re.compile(r"^(scheduler\.(schedule|queue_worker_step|wait_worker_output|process_step_output)|WorkerProcess\.)")
_LINE = re.compile(rb'^\s*\{[^\n]*"ph"\s*:\s*"[XiMBEC]"')


@dataclass
class ServingProfile:
    """What some files say."""

    spans: list[HostSpan] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)  # of each span
    processes: dict[int, str] = field(default_factory=dict)
    threads: dict[tuple[int, int], str] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)

    def read(self, path: Path) -> ServingProfile:
        """Adds the events of a fragment or of a merged file."""
        self.files.append(str(path))
        for event in _events(path, self.ledger):
            self.ledger.records += 1
            self._add(event)
        return self

    def _add(self, event: Any) -> None:
        match event:
            case {"ph": "M", "name": "process_name", "pid": int(pid), "args": {"name": str(name)}}:
                self.processes[pid] = name  # a process that is renamed writes it again
                self.ledger.merged["metadata event names a lane"] += 1
            case {"ph": "M", "name": "thread_name", "pid": int(pid), "tid": int(tid), "args": {"name": str(name)}}:
                self.threads[pid, tid] = name
                self.ledger.merged["metadata event names a lane"] += 1
            case {"ph": "X", "name": str(name), "pid": int(pid), "tid": int(tid), "ts": ts, "dur": dur}:
                begin, length = _us(ts, LARGEST_US), _us(dur, LONGEST_US)
                if begin is None or length is None:
                    self.ledger.dropped["span without times that can be"] += 1
                    return
                args = event.get("args")
                self.categories.append(str(event.get("cat", "")))
                self.spans.append(HostSpan(pid, tid, name, begin, length, args if isinstance(args, dict) else {}))
            case {"ph": "i", "name": str(name)}:
                self.ledger.dropped[f"instant '{name[:40]}'"] += 1
            case _:
                self.ledger.dropped["event that is no span"] += 1

    def named(self, name: str) -> list[HostSpan]:
        """The spans of a name, in order of time."""
        return sorted((one for one in self.spans if one.name == name), key=lambda one: one.start_ns)


def _us(value: object, most: int) -> int | None:
    """Nanoseconds of microseconds, whole ones usually."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        return None
    return round(value * 1000)


def _events(path: Path, ledger: Ledger) -> Iterator[Any]:
    """The events of a file, line by line or of one list; lines that do not parse are counted."""
    data = source.read_all(path)
    if path.suffix == ".jsonl" or not data.lstrip().startswith((b'{"traceEvents"', b"[")):
        for line in data.splitlines():
            if line.strip():
                try:
                    yield msgspec.json.decode(line)
                except source.NO_JSON:
                    ledger.records += 1
                    ledger.dropped["line cut off or no JSON"] += 1
        return
    try:
        whole = msgspec.json.decode(data)
    except source.NO_JSON as error:
        raise BadInput(f"no JSON: {error}", path=path) from error
    events = whole.get("traceEvents") if isinstance(whole, dict) else whole
    yield from events if isinstance(events, list) else []


def profile_files(path: Path) -> list[Path]:
    """The files of a profile: the fragments, which stay after merging, or the merged file."""
    if path.is_file():
        beside = path.with_name(f"{path.name}.fragments")
        return sorted(beside.glob("trace.*.jsonl")) or [path]
    for folder in (path / FRAGMENTS, path):
        if found := sorted(folder.glob("trace.*.jsonl")):
            return found
    if found := sorted(path.glob("*.json.fragments/trace.*.jsonl")):
        return found
    return []


def read_profile(paths: Iterable[Path]) -> ServingProfile:
    profile = ServingProfile()
    for path in paths:
        profile.read(path)
    return profile


def recognises(sample: Sample) -> bool:
    if sample.is_folder:
        return bool(profile_files(sample.path))
    return sample.path.suffix == ".jsonl" and _LINE.match(sample.text[:4096]) is not None


def read(path: Path) -> Trace:
    """Every process and task of asyncio a lane."""
    profile = read_profile([path] if path.is_file() else profile_files(path))
    if not profile.spans:
        raise BadInput("no span that can be read", path=path)
    threads, slices = on_threads(profile.spans, lambda one: (one.pid, one.tid))
    args = [msgspec.json.encode(one.attributes).decode() if one.attributes else None for one in profile.spans]
    slices = slices.with_columns(
        pl.Series("cat", [one or None for one in profile.categories], dtype=pl.String),
        pl.Series("args", args, dtype=pl.String),
    )
    lanes = [
        {
            "name": f"{profile.processes.get(pid, pid)}, {profile.threads.get((pid, tid), tid)}",
            "unit": "host", "process": f"{profile.processes.get(pid, 'process')} {pid}",
        }
        for pid, tid in threads
    ]  # fmt: skip
    meta = profile.ledger.close("serving", tuple(profile.files), clock=CLOCK)
    return Trace.of(slices, pl.DataFrame(lanes).with_row_index("lane"), meta)


def _is_merged(table: EventTable) -> bool:
    return any(_OWN.match(name) for name in table.names)


TELLS = ("launches", "steps: `npuscope step`")
READER = Reader(
    "serving",
    "pypto-serving's profile (SA_PROFILE): fragments/trace.*.jsonl, or the folder of them",
    recognises,
    read,
    files=("trace.*.jsonl",),
    tells=TELLS,
)
MERGED = EventReader(
    "serving-merged",
    "the merged trace.json of pypto-serving's profile",
    _is_merged,
    lambda table: build_trace(table, "serving", clock=CLOCK),
    tells=TELLS,
)
