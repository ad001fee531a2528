"""Chrome/Perfetto JSON of any origin. The events are collected once, then the first `EventReader` whose evidence is in
the file's own process names, categories or header builds the trace; anything else is read as it is.

Here are the readers of what npuscope wrote itself, of Ascend's timeline (trace_view.json of torch_npu, msprof_*.json)
and of the perfetto.json that TraCR's own post-processor writes.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import polars as pl
from polars.exceptions import PolarsError

from npuscope.base.errors import BadInput
from npuscope.trace import schema
from npuscope.trace.build import (
    build_trace,
    by_kernels,
    count_unknown_header,
    count_unknown_processes,
    kind_numbers,
    plain_lanes,
    recast,
)
from npuscope.trace.core import OWN, Trace, take_note
from npuscope.trace.event_table import NO_PHASE, EventTable, collect
from npuscope.trace.formats import EventReader, Reader, not_a_trace, readers, recognises
from npuscope.trace.names import QUEUE_ORDERS, unit_of_lane
from npuscope.trace.readers.kernel_details import AI_CPUS, SAME_NAME, scheduling
from npuscope.trace.source import json_field, json_whole_number


def read(path: Path) -> Trace:
    """The file as a Trace, by the reader that its events give away."""
    table = collect(path)
    other = table.header.get("otherData")
    note = other.get(OWN) if isinstance(other, dict) else None
    if isinstance(note, dict):
        return _build_own(table, note)
    for reader in readers(EventReader):
        if recognises(reader, table, path):
            return reader.build(table)
    count_unknown_header(table)
    if table.ledger.records and table.ledger.dropped[NO_PHASE] == table.ledger.records:
        what = f"a JSON list of {table.ledger.records:,} entries of which none is a trace event (an object with `ph`)"
        raise BadInput(what, path=path, remedy="Export the timeline of the profiler, not its tables.")
    if table.slices.select((pl.col("start", "dur") % 1000 == 0).all()).row(0) == (True, True):
        table.ledger.notes["unit_unknown"] = table.slices.height  # whole numbers: microseconds, or cycles
    return build_trace(table, "chrome")


def _build_own(table: EventTable, note: dict[str, object]) -> Trace:
    """What npuscope wrote: categories are kinds, names of lanes say their units, the window comes back."""
    count_unknown_header(table)
    lanes, columns, whole, device = (note.pop(key, None) for key in ("lanes", "columns", "whole_numbers", "device"))
    facts = {name: note.pop(name) for name in FACTS if isinstance(note.get(name), int)}
    with suppress(msgspec.ValidationError):
        facts[LAUNCHED] = msgspec.convert(note.pop(LAUNCHED, None), dict[int, dict[int, int]], strict=False)
    table.ledger.notes |= facts
    noted = _noted_lanes(lanes)
    take_note(table.ledger, note)
    known = set(schema.KINDS.categories)
    kinds = kind_numbers([category if category in known else "host" for category in table.categories])
    args = table.slices["args"]
    more = [name for name in whole if isinstance(name, str)] if isinstance(whole, list) else []
    numbers = {name: json_whole_number(args, name).alias(name) for name in (*NUMBERS, *more)}
    task = numbers.pop("task")
    alone = task.is_null()  # a number of their own while edges are joined: those of the file name slices
    highest = int(task.max() or 0) + 1  # type: ignore[arg-type]
    own = pl.int_range(highest, highest + len(task), dtype=pl.Int64, eager=True)
    trace = build_trace(
        table,
        "chrome",
        kind=kinds[table.slices["category"].to_numpy()],
        lanes=_own_lanes(table, noted),
        task=None if alone.all() else task.zip_with(~alone, own),
        device=device if isinstance(device, str) else None,
    )
    if not alone.all():
        linked = pl.concat([trace.edges["src"], trace.edges["dst"]]).drop_nulls().unique().implode()
        no_task = pl.when(pl.col("task").is_in(linked) | (pl.col("task") < highest)).then("task")
        trace = replace(trace, slices=trace.slices.with_columns(no_task))
    texts = list(dict.fromkeys(name for name in columns if isinstance(name, str))) if isinstance(columns, list) else []
    cells = [json_field(args, name).alias(name) for name in texts if name not in schema.SLICES]
    stamps = [column for column in numbers.values() if column.null_count() < len(column)]
    slices = schema.conform(trace.slices.with_columns(*stamps, *cells), schema.SLICES)
    return replace(trace, slices=slices, lanes=_with_idle(trace.lanes, noted))


def _noted_lanes(noted: object) -> pl.DataFrame | None:
    """What the file says of its lanes; None in files from before that."""
    try:
        rows = pl.DataFrame(noted, schema=LANE_NOTE, orient="row") if isinstance(noted, list) and noted else None
    except (PolarsError, TypeError, ValueError):
        return None
    if rows is None:
        return None
    return rows.filter(pl.col("unit").is_in(list(schema.UNITS.categories))).unique(
        ["pid", "tid"], keep="first", maintain_order=True
    )


def _with_idle(lanes: pl.DataFrame, noted: pl.DataFrame | None) -> pl.DataFrame:
    """Cores on which nothing ran are lanes, too."""
    if noted is None:
        return lanes
    idle = noted.join(lanes, on=["pid", "tid"], how="anti", maintain_order="left")
    first = int(lanes["lane"].max() or 0) + 1 if lanes.height else 0  # type: ignore[arg-type]
    idle = idle.with_columns(pl.int_range(first, first + idle.height, dtype=pl.UInt32, eager=True).alias("lane"))
    return schema.conform(pl.concat([lanes, idle], how="diagonal_relaxed"), schema.LANES)


def _own_lanes(table: EventTable, noted: pl.DataFrame | None) -> pl.DataFrame:
    """Lanes as they were written down, or else by their names."""
    lanes = _lanes_by_name(table)
    if noted is None:
        return lanes
    lanes = lanes.drop("unit", "core").join(noted.drop("name"), on=["pid", "tid"], how="left", maintain_order="left")
    return lanes.with_columns(pl.col("unit").fill_null("host"))


# columns of every trace that an event has among its arguments
NUMBERS = ("task", "block", "dispatch", "finish", "step", "duplicate_of")
LANE_NOTE = {
    "pid": pl.String, "tid": pl.String, "unit": pl.String, "core": pl.Int32, "device": pl.Int32, "rank": pl.Int32,
    "role": pl.String, "name": pl.String,
}  # fmt: skip
FACTS = ("num_cores", "whole_graph")
LAUNCHED = "launched_ns"  # when the host launched each run of each rank


def _lanes_by_name(table: EventTable) -> pl.DataFrame:
    units = [unit_of_lane(name) for name in table.lane_names()]
    return plain_lanes(table).with_columns(
        pl.Series("unit", [one.unit for one in units], dtype=pl.String),
        pl.Series("core", [one.core for one in units], dtype=pl.Int32),
    )


def _is_tracr(table: EventTable) -> bool:
    """True when every named process is one of TraCR's."""
    names = table.process_names.values()
    return bool(names) and all(name.startswith("TraCR proc.") for name in names)


def _build_tracr(table: EventTable) -> Trace:
    """Lanes as TraCR names them. On pipelined cores its slices are cut short: the bundle itself reads better."""
    count_unknown_header(table)
    kinds = [unit_of_lane(name).kind for name in table.lane_names()]
    if "task" in kinds:
        table.ledger.notes["cut_short"] = "core lanes hold one open slice at a time, so pipelined tasks are cut short"
    kind = kind_numbers(kinds)[table.slices["lane"].to_numpy()]
    return build_trace(table, "tracr-perfetto", kind=kind, lanes=_lanes_by_name(table), clock="per process")


# process name -> unit and kind
PROCESSES = {
    "Ascend Hardware": ("stream", "task"),
    "HCCL": ("link", "comm"),
    "Communication": ("link", "comm"),
    "Overlap Analysis": ("host", "derived"),
    "Python": ("host", "host"),
    "CANN": ("host", "host"),
}
# processes that hold counters only
COUNTERS = {"AI Core Freq", "HBM", "LLC", "NPU MEM", "Stars Soc Info", "Acc PMU", "QoS", "DDR"}
EVIDENCE = {"Ascend Hardware", "CANN", "Overlap Analysis"}


def _is_trace_view(table: EventTable) -> bool:
    """True when a process has one of the names only Ascend's profiler gives."""
    return bool(EVIDENCE & set(table.process_names.values()))


def _build_trace_view(table: EventTable) -> Trace:
    """Streams of Ascend Hardware run tasks and copies; HCCL lanes communicate; Overlap Analysis describes."""
    count_unknown_header(table)
    count_unknown_processes(table, PROCESSES.keys() | COUNTERS)
    processes = table.lane_processes()
    lanes = plain_lanes(table).with_columns(
        pl.Series("unit", [PROCESSES.get(p, ("host", "host"))[0] for p in processes], dtype=pl.String),
        pl.Series("device", [_device(*one) for one in zip(table.lane_keys, processes, strict=True)], dtype=pl.Int32),
    )
    by_lane = kind_numbers([PROCESSES.get(p, ("host", "host"))[1] for p in processes])
    kind = recast(table, by_lane[table.slices["lane"].to_numpy()], QUEUE_ORDERS, "task", "schedule")
    trace = build_trace(table, "trace_view", kind=by_kernels(table, kind), lanes=lanes, clock="epoch")
    trace = _mark_schedulers(_mark_parts(trace))
    # the profiler glues the flow's id to its name: HostToDevice40010542043807875071
    return replace(trace, edges=trace.edges.with_columns(pl.col("name").str.strip_chars_end("0123456789")))


def _device(key: tuple[int | str, int | str], process: str) -> int | None:
    """msprof packs the device into the low five bits of the pid of its own processes."""
    pid = key[0]
    packed = process in EVIDENCE - {"CANN"} or process in COUNTERS
    return pid & 31 if isinstance(pid, int) and packed and pid > 31 else None


def _mark_parts(trace: Trace) -> Trace:
    """HCCL lists a collective whole on its group's lane and in parts on its planes; the parts are duplicates."""
    comm = trace.slices.join(trace.lanes.filter(pl.col("unit") == "link").select("lane", "name"), on="lane")
    is_part = pl.col("name").str.starts_with("Plane")
    whole = (
        comm.filter(~is_part).sort("start").select("start", duplicate_of="task", stop=pl.col("start") + pl.col("dur"))
    )
    met = comm.filter(is_part).sort("start").select("task", "start").join_asof(whole, on="start")
    met = met.filter(pl.col("start") <= pl.col("stop"))
    return _marked(trace, met, "part of a collective that is listed whole")


def _mark_schedulers(trace: Trace) -> Trace:
    """AI CPU tasks with the name of a kernel that runs at the same time are that kernel's scheduling (PyPTO)."""
    if "args" not in trace.slices.columns:
        return trace
    tasks = trace.slices.filter(pl.col("kind") == "task").select("task", "start", "dur", "kernel", "args")
    on_ai_cpu = json_field(tasks["args"], "Task Type").is_in(AI_CPUS).fill_null(False)
    return _marked(trace, scheduling(tasks.filter(on_ai_cpu), tasks.filter(~on_ai_cpu)), SAME_NAME)


def _marked(trace: Trace, pairs: pl.DataFrame, reason: str) -> Trace:
    if pairs.is_empty():
        return trace
    marks = trace.slices["duplicate_of"].scatter(pairs["task"], pairs["duplicate_of"])  # a task here is its slice's row
    meta = trace.meta.plus(marked={reason: pairs.height})
    return replace(trace, slices=trace.slices.with_columns(marks), meta=meta)


TRACE_VIEW = EventReader(
    "trace_view",
    "Ascend's timeline JSON",
    _is_trace_view,
    _build_trace_view,
    files=("trace_view.json", "msprof_*.json"),
    tells=("kernels", "streams", "communication", "launches", "ranks", "steps: where marked", "counters"),
)
TRACR_PERFETTO = EventReader(
    "tracr-perfetto",
    "the perfetto.json of TraCR's own post-processor",
    _is_tracr,
    _build_tracr,
    tells=("kernels: by the numbers of functions", "cores: pipelined tasks are cut short"),
)
READER = Reader(
    "chrome",
    "any other Chrome or Perfetto JSON",
    lambda sample: sample.text.startswith((b"{", b"[")) and not_a_trace(sample) is None,
    read,
    fallback=True,
)
