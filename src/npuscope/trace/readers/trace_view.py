"""Ascend's timeline JSON: torch_npu's trace_view.json and msprof's msprof_*.json."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from npuscope.trace import build
from npuscope.trace.build import by_kernels, dress, kind_numbers, plain_lanes, recast
from npuscope.trace.core import Trace, add_counts
from npuscope.trace.event_table import EventTable
from npuscope.trace.names import QUEUE_ORDERS
from npuscope.trace.readers.kernel_details import AI_CPUS, SAME_NAME, scheduling
from npuscope.trace.source import json_field

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


def recognises(table: EventTable) -> bool:
    """True when a process has one of the names only Ascend's profiler gives."""
    return bool(EVIDENCE & set(table.process_names.values()))


def dress_up(table: EventTable) -> Trace:
    """Streams of Ascend Hardware run tasks and copies; HCCL lanes communicate; Overlap Analysis describes."""
    build.count_unknown_header(table)
    build.count_unknown_processes(table, PROCESSES.keys() | COUNTERS)
    processes = table.lane_processes()
    lanes = plain_lanes(table).with_columns(
        pl.Series("unit", [PROCESSES.get(p, ("host", "host"))[0] for p in processes], dtype=pl.String),
        pl.Series(
            "device",
            [_device(key[0], p) for key, p in zip(table.lane_keys, processes, strict=True)],
            dtype=pl.Int32,
        ),
    )
    by_lane = kind_numbers([PROCESSES.get(p, ("host", "host"))[1] for p in processes])
    kind = recast(table, by_lane[table.slices["lane"].to_numpy()], QUEUE_ORDERS, "task", "schedule")
    trace = dress(table, "trace_view", kind=by_kernels(table, kind), lanes=lanes, clock="epoch")
    trace = _mark_schedulers(_mark_parts(trace))
    # the profiler glues the flow's id to its name: HostToDevice40010542043807875071
    return replace(trace, edges=trace.edges.with_columns(pl.col("name").str.strip_chars_end("0123456789")))


def _device(pid: int | str, process: str) -> int | None:
    """msprof packs the device into the low five bits of the pid of its own processes."""
    packed = process in EVIDENCE - {"CANN"} or process in COUNTERS
    return pid & 31 if isinstance(pid, int) and packed and pid > 31 else None


def _mark_parts(trace: Trace) -> Trace:
    """HCCL lists a collective whole on its group's lane and in parts on its planes; the parts tell it again."""
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
    marked = add_counts(trace.meta.marked, {reason: pairs.height})
    return replace(trace, slices=trace.slices.with_columns(marks), meta=replace(trace.meta, marked=marked))
