"""torch-profiler (Kineto) JSON of NVIDIA and AMD GPUs.

New files give `ts` relative to `baseTimeNanoseconds`, old ones absolute microseconds. Device events sit on (device,
stream) lanes; `ac2g` flows lead from the launching call to the kernel, or both have one correlation. Files of PyTorch
1.8 and 1.9 call categories and flows otherwise.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base.errors import BadInput
from npuscope.trace.build import (
    NO_OTHER_END,
    build_trace,
    by_kernels,
    count_unknown_categories,
    count_unknown_header,
    kind_numbers,
    plain_lanes,
    recast,
    step_windows,
    steps_at,
)
from npuscope.trace.core import Trace
from npuscope.trace.event_table import EventTable
from npuscope.trace.formats import EventReader
from npuscope.trace.names import LAUNCHES, ON_DEVICE, QUEUE_ORDERS, marked
from npuscope.trace.schema import LARGEST_US, is_work
from npuscope.trace.source import json_whole_number

COPY_CATEGORIES = {"gpu_memcpy", "gpu_memset"}
DEVICE_CATEGORIES = {"kernel", "mtia_ccp_events", "concurrent_kernel", *COPY_CATEGORIES}
# CUPTI's ranges hold counters of kernels that it runs one at a time, again and again: no time of theirs
DESCRIBING_CATEGORIES = {"user_annotation", "gpu_user_annotation", "Trace", "overhead", "cuda_profiler_range"}
HOST_CATEGORIES = {
    "cpu_op",
    "cuda_runtime",
    "cuda_driver",
    "python_function",
    "hip_runtime",
    "privateuse1_runtime",
}
# on host lanes too, and no evidence: other tools have such categories
FURTHER_HOST_CATEGORIES = {
    "cuda_sync", "cuda_event", "mtia_runtime", "mtia_insight", "glow_runtime", "hpu_op", "xpu_runtime", "xpu_driver",
    "privateuse1_driver", "collective_comm", "external_correlation", "cpu_instant_event",
}  # fmt: skip
KNOWN_CATEGORIES = DEVICE_CATEGORIES | DESCRIBING_CATEGORIES | HOST_CATEGORIES | FURTHER_HOST_CATEGORIES
# what the first versions called things: Kernel, Runtime and Operator are words of other tools too
OLD_CATEGORIES = {
    "Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset", "Runtime": "cuda_runtime", "Operator": "cpu_op",
}  # fmt: skip
CORRELATED = "launch"  # the name of edges that are no flows, or flows without a name that says so
CALLS = "(?i)runtime|driver"  # categories of the calls that launch
OLD_FLOWS = {"async", "async_gpu"}  # categories of flows from call to kernel that are named after the call, or `launch`
HEADER_KEYS = {"baseTimeNanoseconds", "deviceProperties", "distributedInfo"}
# facts worth keeping of the header; the rest may hold host names, environment and tokens
KNOWN_HEADER = HEADER_KEYS | {
    "INFO", "trace_id", "with_stack", "with_flops", "with_modules", "record_shapes", "profile_memory",
    "cuda_runtime_version", "cuda_driver_version", "cupti_version", "roctracer_version", "hip_runtime_version",
    "hip_driver_version", "rocprofiler_version", "metadata", "traceName",
}  # fmt: skip
SAFE_HEADER = (
    "schemaVersion",
    "traceName",
    "displayTimeUnit",
    "with_stack",
    "record_shapes",
    "profile_memory",
)


def recognises(table: EventTable) -> bool:
    """True when the header or the categories are the torch profiler's."""
    categories = set(table.categories)
    old = len(OLD_CATEGORIES.keys() & categories) > 1
    return bool(HEADER_KEYS & table.header.keys()) or bool(HOST_CATEGORIES & categories) or old


def build(table: EventTable) -> Trace:
    """Kernels are tasks, communication or copies on streams, calls are host work, annotations describe."""
    header = table.header
    distributed = header.get("distributedInfo")
    rank = distributed.get("rank") if isinstance(distributed, dict) else None
    base = header.get("baseTimeNanoseconds", 0)
    if not isinstance(base, int) or not 0 <= base <= LARGEST_US * 1000:
        raise BadInput(f"baseTimeNanoseconds is {base}, not a time since 1970", path=table.path)
    table.ledger.notes |= {key: header[key] for key in SAFE_HEADER if key in header}
    count_unknown_header(table, KNOWN_HEADER)
    count_unknown_categories(table, KNOWN_CATEGORIES | OLD_CATEGORIES.keys())
    _name_launches(table)
    if isinstance(distributed, dict) and "world_size" in distributed:
        table.ledger.notes["world_size"] = distributed["world_size"]
    trace = build_trace(
        table,
        "kineto",
        kind=_kinds(table),
        lanes=_lanes(table, rank if isinstance(rank, int) and 0 <= rank < 2**31 else None),
        epoch_ns=base,
        device=_device_name(header),
        clock="epoch" if base or _looks_absolute(table) else "relative",
    )
    return _steps_of_kernels(_with_correlated(trace))


def _kinds(table: EventTable) -> NDArray[np.uint8]:
    by_category = kind_numbers([_kind(category) for category in table.categories])
    kinds = by_category[table.slices["category"].to_numpy()]
    return by_kernels(table, recast(table, kinds, QUEUE_ORDERS, "task", "schedule"))


def _name_launches(table: EventTable) -> None:
    """Give old flows from call to kernel the name that says so."""
    old = [n for n, category in enumerate(table.categories) if category in OLD_FLOWS]
    other = ~pl.col("name").is_in([n for n, name in enumerate(table.names) if name in LAUNCHES])
    is_old = pl.col("category").is_in(old) & other
    if old and table.flows.select(is_old.any()).item():
        number = pl.lit(len(table.names), dtype=pl.UInt32)
        table.names.append(CORRELATED)
        table.flows = table.flows.with_columns(pl.when(is_old).then(number).otherwise("name").alias("name"))


def _kind(category: str) -> str:
    category = OLD_CATEGORIES.get(category, category)
    if category in DEVICE_CATEGORIES:
        return "copy" if category in COPY_CATEGORIES else "task"
    return "derived" if category in DESCRIBING_CATEGORIES else "host"


def _lanes(table: EventTable, rank: int | None) -> pl.DataFrame:
    """Lanes with a device event are streams: pid is the device, tid the stream."""
    device_numbers = [n for n, category in enumerate(table.categories) if _kind(category) in ("task", "copy")]
    categories, lane_numbers = (table.slices[c].to_numpy() for c in ("category", "lane"))
    on_device = pl.Series(np.unique(lane_numbers[np.isin(categories, device_numbers)]), dtype=pl.UInt32)
    lanes = plain_lanes(table).with_columns(pl.lit(rank, dtype=pl.Int32).alias("rank"))
    is_stream = pl.col("lane").is_in(on_device.implode())
    return lanes.with_columns(
        pl.when(is_stream).then(pl.lit("stream")).otherwise(pl.lit("host")).alias("unit"),
        pl.when(is_stream).then(pl.concat_str(pl.lit("stream "), "tid")).otherwise(pl.col("name")).alias("name"),
        pl.when(is_stream).then(pl.col("pid").cast(pl.Int32, strict=False)).alias("device"),
    )


def _steps_of_kernels(trace: Trace) -> Trace:
    """A kernel belongs to the step that launched it, however late it ran. One without a known launch belongs to the
    step whose range on the device it begins in. Where there are no such ranges, it belongs to the step of the last
    launch before it on its stream, which runs in order; where its stream has none, to the host's step it begins in."""
    slices, step = trace.slices, trace.slices["step"]
    if step.null_count() == len(step):
        return trace
    # a task here is its slice's row
    edges = trace.edges.filter(pl.col("name").is_in(LAUNCHES)).select("src", "dst").drop_nulls()
    edges = edges.unique("dst", keep="first")
    step = step.scatter(edges["dst"], step.gather(edges["src"]))
    work = slices.lazy().filter(is_work()).select("task", "lane", "start").sort("lane", "start").collect()
    work = work.with_columns(launched=pl.col("task").is_in(edges["dst"].implode()))
    unlaunched = ~pl.col("launched")
    if (ranges := _ranges_on_device(slices)).height:
        step = step.scatter(ranges["task"], ranges["step"])
        rows = work.filter(unlaunched)
        steps = steps_at(rows["start"], step_windows(ranges))
    else:
        before = pl.when("launched").then("task").forward_fill().over("lane")
        rows = work.with_columns(before=before).filter(unlaunched & pl.col("launched").any().over("lane"))
        steps = step.gather(rows["before"])
    return replace(trace, slices=slices.with_columns(step.scatter(rows["task"], steps)))


def _with_correlated(trace: Trace) -> Trace:
    """Work that no flow leads to was launched by the call that has its correlation. Captures without flows have only
    these, and so have the kernels of graphs on ROCm."""
    if "args" not in trace.slices.columns:
        return trace
    launches = pl.col("name").is_in(LAUNCHES) & pl.col("dst").is_not_null()
    known = trace.edges.filter(launches & pl.col("src").is_not_null())["dst"].unique()
    columns = trace.slices.lazy().select("task", "lane", "start", "kind", "cat", "args")
    work = columns.filter(is_work() & ~pl.col("task").is_in(known.implode())).collect()
    if work.is_empty():
        return trace
    calls = columns.filter((pl.col("kind") == "host") & pl.col("cat").cast(pl.String).str.contains(CALLS)).collect()
    both = [
        rows.select(
            json_whole_number(rows["args"], "correlation").alias("flow"),
            *(
                pl.col(own).alias(name)
                for own, name in (("task", side), ("lane", f"{side}_lane"), ("start", f"{side}_time"))
            ),
        ).drop_nulls("flow")
        for rows, side in ((calls, "src"), (work, "dst"))
    ]
    met = both[0].unique("flow", keep="first", maintain_order=True).join(both[1], on="flow", maintain_order="right")
    if met.is_empty():
        return trace
    replaced = launches & pl.col("src").is_null() & pl.col("dst").is_in(met["dst"].implode())
    kept = trace.edges.filter(~replaced)
    edges = pl.concat(
        [kept, met.with_columns(source=pl.lit("correlation"), name=pl.lit(CORRELATED))], how="diagonal_relaxed"
    )
    meta = trace.meta.plus(marked={NO_OTHER_END: kept.height - trace.edges.height})
    return replace(trace, edges=edges, meta=meta)


def _ranges_on_device(slices: pl.DataFrame) -> pl.DataFrame:
    """What Kineto says ran on each stream for the steps' annotations: the nth of a name is the nth mark of it."""
    marks = marked(slices).filter(pl.int_range(pl.len()).over("step") == 0).select("kernel", "start", "step")
    ranges = slices.lazy().filter(pl.col("kind") == "derived").filter(pl.col("cat") == ON_DEVICE)
    named = ranges.filter(pl.col("kernel").is_in(marks["kernel"].implode()))
    found = named.select("task", "kernel", "lane", "start", "dur").sort("start").collect()
    nth = pl.int_range(pl.len())
    marks = marks.sort("start").with_columns(nth.over("kernel").alias("nth")).drop("start")
    return found.with_columns(nth.over("kernel", "lane").alias("nth")).join(marks, on=["kernel", "nth"])


def _device_name(header: dict[str, object]) -> str | None:
    devices = header.get("deviceProperties")
    if isinstance(devices, list) and devices and isinstance(devices[0], dict):
        # a virtual function (MI300X VF) is a part of the chip, and runs as the chip does
        return str(devices[0].get("name")).removesuffix(" VF") if devices[0].get("name") else None
    return None


def _looks_absolute(table: EventTable) -> bool:
    first = table.slices["start"].min()
    return isinstance(first, int) and first > 10**18  # after 2001 in nanoseconds since 1970


READER = EventReader(
    "kineto",
    "torch-profiler JSON of NVIDIA and AMD GPUs",
    recognises,
    build,
    files=("*.pt.trace.json",),
    fallback=True,
    tells=(
        "kernels",
        "streams",
        "communication",
        "launches",
        "ranks",
        "steps: where marked",
        "shapes: with record_shapes",
    ),
)
