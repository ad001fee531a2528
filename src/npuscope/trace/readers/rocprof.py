"""rocprofv3's JSON (`rocprofv3 --output-format json`): an entry per process, with records by kind.

Times are nanoseconds. Names are elsewhere in the entry: a kernel's in `kernel_symbols` by its id, an operation's in
`strings` by the numbers of its kind and of itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import polars as pl

from npuscope.chip.kernels import kind_of
from npuscope.trace import source
from npuscope.trace.core import NEGATIVE, Ledger, Trace, with_depth
from npuscope.trace.formats import Reader
from npuscope.trace.schema import LARGEST_US, LONGEST_US
from npuscope.trace.source import WHOLE, decode_object
from npuscope.trace.tables import launches, on_lanes

KEY = b'"rocprofiler-sdk-tool"'
WHAT = "readable as rocprofv3's JSON"
GPU = 2  # the type of an agent
Record = dict[str, object]
DISPATCHES, COPIES = "kernel_dispatch", "memory_copy"
# sections whose records describe: memory that was allocated, queues that needed scratch memory
DESCRIBING = {"memory_allocation", "scratch_memory"}
# known sections without slices: counters of dispatches, samples of programs, events of the driver
NOT_READ = {"counter_collection", "pc_sample_host_trap", "pc_sample_stochastic", "att_filenames"}


class RocprofProcess(msgspec.Struct):
    """One entry of the list. What is not read is kept as text, to be passed over."""

    metadata: Record = {}
    agents: list[Record] = []
    kernel_symbols: list[Record] = []
    strings: Record = {}
    buffer_records: dict[str, list[Record]] = {}
    callback_records: dict[str, msgspec.Raw] = {}
    counters: msgspec.Raw = msgspec.Raw()
    code_objects: msgspec.Raw = msgspec.Raw()
    host_functions: msgspec.Raw = msgspec.Raw()
    summary: msgspec.Raw = msgspec.Raw()


class Processes(msgspec.Struct, rename={"processes": "rocprofiler-sdk-tool"}):
    processes: list[msgspec.Raw]


def read(path: Path) -> Trace:
    """Dispatches and copies on queues of their GPUs, API calls on threads, launches as edges."""
    ledger = Ledger()
    file = decode_object(source.read_all(path), Processes, WHAT, path, ledger.unknown)
    processes = [
        decode_object(raw, RocprofProcess, WHAT, path, ledger.unknown, "key of a process") for raw in file.processes
    ]
    rows = [row for number, process in enumerate(processes) for row in _ProcessRows(number, process, ledger).rows()]
    slices = pl.DataFrame(rows, schema=_ROWS, orient="row").with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("task")
    )
    slices, _, lanes = on_lanes(slices)
    # a call and what it caused have one process and one correlation
    edges = launches(slices, pl.col("kind") == "host", pl.col("launches"), ["process", "correlation"])
    devices = [str(name) for process in processes for agent in _gpus(process) if (name := agent.get("product_name"))]
    meta = ledger.close("rocprofv3", (str(path),), device=devices[0] if devices else None, clock="since boot")
    slices = with_depth(slices).drop("process", "launches")
    return Trace.of(slices, lanes, meta, edges)


class _ProcessRows:
    """The rows of one entry."""

    def __init__(self, number: int, process: RocprofProcess, ledger: Ledger) -> None:
        self.number, self.process, self.ledger = number, process, ledger
        self.devices = {_handle(agent.get("id")): place for place, agent in enumerate(_gpus(process))}
        self.kernels = {_whole(symbol.get("kernel_id")): _kernel_name(symbol) for symbol in process.kernel_symbols}
        kinds = process.strings.get("buffer_records")
        self.kinds = [kind if isinstance(kind, dict) else {} for kind in kinds] if isinstance(kinds, list) else []

    def rows(self) -> Iterator[tuple[object, ...]]:
        for section, records in self.process.buffer_records.items():
            self.ledger.records += len(records)
            if section in NOT_READ:
                self.ledger.dropped[f"{section} record"] += len(records)
                continue
            if section not in (DISPATCHES, COPIES) and section not in DESCRIBING and not section.endswith("_api"):
                self.ledger.count_unknown("section", section, max(len(records), 1))
            for record in records:
                if row := self._row(section, record):
                    yield row
        for section in self.process.callback_records.keys() - NOT_READ:
            self.ledger.count_unknown("section", section)

    def _row(self, section: str, record: Record) -> tuple[object, ...] | None:
        begin, end = (_whole(record.get(key)) for key in ("start_timestamp", "end_timestamp"))
        if begin is None or end is None or max(begin, end) > LARGEST_US * 1000 or end - begin > LONGEST_US * 1000:
            self.ledger.dropped["record without a usable time"] += 1
            return None
        self.ledger.repaired[NEGATIVE] += end < begin
        correlation = record.get("correlation_id")
        caused = _whole(correlation.get("internal") if isinstance(correlation, dict) else correlation)
        place, unit, device, kernel, kind = self._what(section, record)
        launches = kind in ("task", "comm", "copy")
        return (begin, max(end - begin, 0), kernel, kind, place, unit, device, self.number, caused, launches, section)

    def _what(self, section: str, record: Record) -> tuple[str, str, int | None, str, str]:
        """Lane, unit, device, name and kind."""
        if section == DISPATCHES:
            info = record.get("dispatch_info")
            info = info if isinstance(info, dict) else {}
            kernel = self.kernels.get(_whole(info.get("kernel_id"))) or f"kernel {info.get('kernel_id')}"
            device = self.devices.get(_handle(info.get("agent_id")))
            return f"queue {_handle(info.get('queue_id'))}", "stream", device, kernel, kind_of(kernel)
        name = self._operation(section, record)
        if section == COPIES:
            ends = (self.devices.get(_handle(record.get(side))) for side in ("dst_agent_id", "src_agent_id"))
            return "copies", "stream", next((end for end in ends if end is not None), None), name, "copy"
        if section.endswith("_api"):
            kind = "derived" if section.startswith("marker") else "host"
            beside = " markers" if kind == "derived" else ""
            return f"process {self.number} thread {record.get('thread_id')}{beside}", "host", None, name, kind
        return f"process {self.number} {section}", "host", None, name, "derived"

    def _operation(self, section: str, record: Record) -> str:
        """The name of what a record is about; of markers their own text."""
        kind, operation = (_whole(record.get(key)) for key in ("kind", "operation"))
        names = self.kinds[kind].get("operations") if kind is not None and kind < len(self.kinds) else None
        if isinstance(names, list) and operation is not None and operation < len(names):
            return str(names[operation])
        return f"{section} {operation}"


def _gpus(process: RocprofProcess) -> list[Record]:
    return [agent for agent in process.agents if agent.get("type") == GPU]


def _kernel_name(symbol: Record) -> str:
    keys = ("formatted_kernel_name", "demangled_kernel_name", "kernel_name")
    return next((str(symbol[key]) for key in keys if symbol.get(key)), "").removesuffix(".kd")


def _handle(value: object) -> int | None:
    return _whole(value.get("handle") if isinstance(value, dict) else value)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < WHOLE else None


_ROWS = {
    "start": pl.Int64, "dur": pl.Int64, "kernel": pl.String, "kind": pl.String, "place": pl.String, "unit": pl.String,
    "device": pl.Int32, "process": pl.Int64, "correlation": pl.Int64, "launches": pl.Boolean, "section": pl.String,
}  # fmt: skip


READER = Reader(
    "rocprofv3",
    "rocprofv3's JSON (rocprofv3 --output-format json)",
    lambda sample: sample.text.startswith(b"{") and KEY in sample.text[:4096],
    read,
    tells=("kernels", "streams", "communication", "launches"),
)
