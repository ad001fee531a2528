"""torch-profiler (Kineto) JSON of NVIDIA and AMD GPUs.

New files give `ts` relative to `baseTimeNanoseconds`, old ones absolute microseconds. Device events sit on
(device, stream) lanes; `ac2g` flows lead from the launching call to the kernel.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.errors import BadInput
from npuscope.trace import unknown
from npuscope.trace.core import Trace
from npuscope.trace.decimal_time import LARGEST_US
from npuscope.trace.dressing import by_kernels, dress, kind_numbers, plain_lanes
from npuscope.trace.event_table import EventTable

COPY_CATEGORIES = {"gpu_memcpy", "gpu_memset"}
DEVICE_CATEGORIES = {"kernel", "mtia_ccp_events", "concurrent_kernel", *COPY_CATEGORIES}
DESCRIBING_CATEGORIES = {"user_annotation", "gpu_user_annotation", "Trace", "overhead"}
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
LAUNCH_FLOWS = ["ac2g", "async_gpu", "async_cpu_to_gpu"]  # new and old names of the flow from call to kernel
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
    return bool(HEADER_KEYS & table.header.keys()) or bool(HOST_CATEGORIES & set(table.categories))


def dress_up(table: EventTable) -> Trace:
    """Kernels are tasks, communication or copies on streams, calls are host work, annotations describe."""
    header = table.header
    distributed = header.get("distributedInfo")
    rank = distributed.get("rank") if isinstance(distributed, dict) else None
    base = header.get("baseTimeNanoseconds", 0)
    if not isinstance(base, int) or not 0 <= base <= LARGEST_US * 1000:
        raise BadInput(f"baseTimeNanoseconds is {base}, not a time since 1970", path=table.path)
    table.ledger.notes |= {key: header[key] for key in SAFE_HEADER if key in header}
    unknown.header_keys(table, KNOWN_HEADER)
    unknown.categories(table, KNOWN_CATEGORIES)
    if isinstance(distributed, dict) and "world_size" in distributed:
        table.ledger.notes["world_size"] = distributed["world_size"]
    trace = dress(
        table,
        "kineto",
        kind=_kinds(table),
        lanes=_lanes(table, rank if isinstance(rank, int) and 0 <= rank < 2**31 else None),
        epoch_ns=base,
        device=_device_name(header),
        clock="epoch" if base or _looks_absolute(table) else "relative",
    )
    return _steps_of_kernels(trace)


def _kinds(table: EventTable) -> NDArray[np.uint8]:
    by_category = kind_numbers([_kind(category) for category in table.categories])
    return by_kernels(table, by_category[table.slices["category"].to_numpy()])


def _kind(category: str) -> str:
    if category in DEVICE_CATEGORIES:
        return "copy" if category in COPY_CATEGORIES else "task"
    return "derived" if category in DESCRIBING_CATEGORIES else "host"


def _lanes(table: EventTable, rank: int | None) -> pl.DataFrame:
    """Lanes with a device event are streams: pid is the device, tid the stream."""
    device_numbers = [n for n, category in enumerate(table.categories) if category in DEVICE_CATEGORIES]
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
    """A kernel belongs to the step that launched it, however late it ran."""
    step = trace.slices["step"]
    if step.null_count() == len(step) or trace.edges.is_empty():
        return trace
    launched = trace.edges.filter(pl.col("name").is_in(LAUNCH_FLOWS)).select("src", "dst").drop_nulls()
    # a task here is its slice's row
    launched = launched.select("dst", step.gather(launched["src"])).drop_nulls().unique("dst", keep="first")
    return replace(trace, slices=trace.slices.with_columns(step.scatter(launched["dst"], launched["step"])))


def _device_name(header: dict[str, object]) -> str | None:
    devices = header.get("deviceProperties")
    if isinstance(devices, list) and devices and isinstance(devices[0], dict):
        return str(devices[0].get("name")) if devices[0].get("name") else None
    return None


def _looks_absolute(table: EventTable) -> bool:
    first = table.slices["start"].min()
    return isinstance(first, int) and first > 10**18  # after 2001 in nanoseconds since 1970
