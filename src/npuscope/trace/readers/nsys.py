"""Nsight Systems' SQLite export (`nsys export --type sqlite`): kernels, copies, CUDA calls, NVTX ranges, GPU metrics.

Tables are there only if something of their kind was traced, and their columns vary with the version. Times are
nanoseconds since the session began; text is an id into StringIds.
"""

from __future__ import annotations

import polars as pl

from npuscope.chip.kernels import kind_of
from npuscope.trace.core import NEVER_ENDED, Ledger, Trace, with_depth
from npuscope.trace.formats import Reader, Sample
from npuscope.trace.schema import LARGEST_US
from npuscope.trace.tables import (
    NO_SAMPLES,
    NO_SLICES,
    SqliteFile,
    launches,
    numbered,
    on_lanes,
    placed,
    read_sqlite,
    sound_rows,
    sound_samples,
)

ACTIVITY = "CUPTI_ACTIVITY_KIND_"
KERNEL, MEMCPY, MEMSET, GRAPH, RUNTIME, SYNCHRONIZATION = (
    f"{ACTIVITY}{what}" for what in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE", "RUNTIME", "SYNCHRONIZATION")
)
ON_DEVICE = (KERNEL, MEMCPY, MEMSET, GRAPH)
NVTX, OS_CALLS, METRICS = "NVTX_EVENTS", "OSRT_API", "GPU_METRICS"
SLICES = (*ON_DEVICE, RUNTIME, SYNCHRONIZATION, NVTX, OS_CALLS)
NAMES = ("demangledName", "shortName", "mangledName", "nameId", "textId")  # ids of text, the one to show first
TEXT = ("text", "jsonText")  # columns of text itself
# known, and no part of a trace; TARGET_INFO_* describes the machine, ENUM_* names numbers
NOT_READ = {
    "StringIds", "PROCESSES", "ThreadNames", "EXPORT_META_DATA", "META_DATA_CAPTURE", "META_DATA_EXPORT",
    "ANALYSIS_DETAILS", "ANALYSIS_FILE", "DIAGNOSTIC_EVENT", "PROFILER_OVERHEAD", "PROCESS_STREAMS", "SCHED_EVENTS",
    "COMPOSITE_EVENTS", "SAMPLING_CALLCHAINS", "OSRT_CALLCHAINS", "CUDA_CALLCHAINS", "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "CUDA_GRAPH_EVENTS", "CUDA_GRAPH_NODE_EVENTS", "CUDA_UM_CPU_PAGE_FAULT_EVENTS",
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS", "NVTX_PAYLOAD_SCHEMAS", "NVTX_PAYLOAD_SCHEMA_ENTRIES", "NVTX_PAYLOAD_ENUMS",
    "UNWIND_METHOD_TYPE_DESCRIPTION", "ProcessStreams", "CUPTI_ACTIVITY_KIND_OVERHEAD", "CUDA_CONTEXT_INFO",
    "CUPTI_ACTIVITY_KIND_CONTEXT", "CUPTI_ACTIVITY_KIND_DEVICE", "CUDA_STREAM_INFO",
}  # fmt: skip
# of the tables that become slices, over the versions
KNOWN_COLUMNS = {
    *NAMES, *TEXT, "start", "end", "deviceId", "contextId", "greenContextId", "streamId", "correlationId", "globalPid",
    "globalTid", "eventClass", "returnValue", "callchainId", "nestingLevel", "launchType", "cacheConfig",
    "registersPerThread", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "clusterX", "clusterY", "clusterZ",
    "clusterSchedulingPolicy", "maxPotentialClusterSize", "staticSharedMemory", "dynamicSharedMemory",
    "sharedMemoryExecuted", "sharedMemoryLimitConfig", "localMemoryPerThread", "localMemoryTotal", "gridId",
    "graphNodeId", "graphId", "graphExecId", "originalGraphNodeId", "priority", "bytes", "copyKind", "deprecatedSrcId",
    "srcKind", "dstKind", "srcDeviceId", "srcContextId", "dstDeviceId", "dstContextId", "migrationCause",
    "virtualAddress", "copyCount", "value", "memKind", "syncType", "eventId", "eventSyncId", "eventType", "rangeId",
    "category", "color", "endGlobalTid", "domainId", "uint64Value", "int64Value", "doubleValue", "uint32Value",
    "int32Value", "floatValue", "jsonTextId", "binaryData", "id",
}  # fmt: skip
NOT_READ_BEGIN = ("TARGET_INFO_", "ENUM_", "sqlite_", "NETWORK_DEVICE", "NIC_")
COPIES = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
PUSHED, STARTED, MARK = 59, 60, 34  # kinds of NVTX events: ranges pushed and popped, ranges started and ended, marks
THREAD = 1 << 24  # a global id is process * THREAD + thread


def recognises(sample: Sample) -> bool:
    """True for a database with Nsight Systems' table of strings and anything that it traced."""
    known = (t in SLICES or t.startswith((ACTIVITY, "TARGET_INFO_")) for t in sample.tables)
    return "StringIds" in sample.tables and any(known)


class _Session:
    """Streams run kernels and copies, threads call, NVTX ranges describe; a call launches what has its id."""

    def __init__(self, file: SqliteFile) -> None:
        self.file, self.ledger = file, Ledger()
        strings = self._rows("StringIds", {"value"})
        self.strings = strings.drop_nulls("id").unique("id", keep="first", maintain_order=True).select("id", "value")

    def trace(self) -> Trace:
        parts = [part for table in SLICES if table in self.file.tables and (part := self._slices(table)).height]
        slices = pl.concat(parts or [NO_SLICES], how="diagonal_relaxed")
        slices = slices.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("task"))
        slices, counters, lanes = on_lanes(slices, self._counters())
        edges = None
        if "correlationId" in slices.columns:  # a call and what it launched have one process and one correlation
            table = pl.col("table")
            edges = launches(slices, table == RUNTIME, table.is_in(ON_DEVICE), ["process", "correlationId"])
        slices = with_depth(slices).drop("table", "process", strict=False)
        self._note()
        meta = self.ledger.close("nsys", (str(self.file.path),), device=self._device(), clock="since the session began")
        return Trace.of(slices, lanes, meta, edges, counters)

    def _rows(self, table: str, text: set[str] | frozenset[str] = frozenset()) -> pl.DataFrame:
        """A table; only `id`, without rows, where it is absent."""
        if table not in self.file.tables:
            return pl.DataFrame(schema={"id": pl.Int64, **dict.fromkeys(sorted(text), pl.String)})
        known = {*TEXT, *text}
        return self.file.rows(
            table, self.file.columns(table), lambda c: pl.String() if c in known else _number_kind(table, c)
        )

    def _slices(self, table: str) -> pl.DataFrame:
        rows = self._rows(table)
        for column in sorted(set(rows.columns) - KNOWN_COLUMNS):
            self.ledger.count_unknown(f"column of {table}", column, rows.height)
        self.ledger.records += rows.height
        if table == NVTX:
            rows = self._ranges(rows)
        for column in ("start", "end", "deviceId", "streamId", "globalTid", "globalPid", "correlationId"):
            if column not in rows.columns:
                rows = rows.with_columns(pl.lit(None, dtype=pl.Int64).alias(column))
        sound = sound_rows(rows, "start", "end", self.ledger)
        kernel = self._named(sound, table)
        owner = pl.coalesce("globalPid", "globalTid") // THREAD
        placed = sound.with_columns(
            kernel.alias("kernel"),
            self._kinds(kernel, table).alias("kind"),
            pl.lit(table).alias("table"),
            owner.alias("process"),
            *_place(table),
        )
        return placed.drop(*(c for c in NAMES if c in placed.columns))

    def _ranges(self, events: pl.DataFrame) -> pl.DataFrame:
        """Ranges of NVTX; one that never ended lasts to the last event, marks and definitions are no slices."""
        kind = pl.col("eventType") if "eventType" in events.columns else pl.repeat(PUSHED, pl.len(), dtype=pl.Int64)
        kinds = events.select(kind.alias("kind"))["kind"]
        is_range = kinds.is_in([PUSHED, STARTED]).fill_null(False)
        marks = int((kinds == MARK).sum())
        self.ledger.dropped["instant event"] += marks
        self.ledger.merged["NVTX event names a domain or a category"] += events.height - int(is_range.sum()) - marks
        ranges = events.filter(is_range)
        if "end" not in ranges.columns:
            ranges = ranges.with_columns(pl.lit(None, dtype=pl.Int64).alias("end"))
        never = ranges["end"].is_null() | (ranges["end"] < 0)
        if never.any():
            self.ledger.repaired[NEVER_ENDED] += int(never.sum())
            times = [pl.col(column) for column in ("start", "end") if column in events.columns]
            last = events.select(pl.max_horizontal(*times, pl.lit(None, dtype=pl.Int64)).max()).item()
            ranges = ranges.with_columns(pl.when(never).then(pl.lit(last)).otherwise("end").alias("end"))
        return ranges

    def _named(self, rows: pl.DataFrame, table: str) -> pl.Series:
        """What a row is called: its text, the text its ids lead to, or what its table says."""
        if table == MEMCPY:
            kinds = rows["copyKind"] if "copyKind" in rows.columns else pl.Series([None] * rows.height, dtype=pl.Int64)
            return "Memcpy " + kinds.replace_strict(COPIES, default="of an unknown kind", return_dtype=pl.String)
        texts = [rows["text"]] if "text" in rows.columns else []
        for column in NAMES:
            if column in rows.columns:
                ids = rows.select(pl.col(column).alias("id"))
                texts.append(ids.join(self.strings, on="id", how="left", maintain_order="left")["value"])
        otherwise = {MEMSET: "Memset", GRAPH: "CUDA graph", SYNCHRONIZATION: "synchronization"}.get(table, "")
        columns = [pl.lit(series) for series in texts]
        return rows.with_columns(pl.coalesce(*columns, pl.lit(otherwise)).alias("kernel"))["kernel"]

    def _kinds(self, kernel: pl.Series, table: str) -> pl.Series:
        if table in (MEMCPY, MEMSET):
            kind = "copy"
        elif table in (NVTX, SYNCHRONIZATION):
            kind = "derived"
        else:
            kind = "task" if table in ON_DEVICE else "host"
        if table != KERNEL:
            return pl.Series([kind], dtype=pl.String).new_from_index(0, len(kernel))
        names = kernel.unique()
        return kernel.replace_strict(names, [kind_of(name) for name in names], return_dtype=pl.String)

    def _counters(self) -> pl.DataFrame:
        """GPU metrics, named by the table that lists them."""
        if METRICS not in self.file.tables:
            return NO_SAMPLES
        samples = self._rows(METRICS)
        names = self._rows("TARGET_INFO_GPU_METRICS", {"metricName", "typeName", "sourceName"})
        needed = {"timestamp", "metricId", "value"}
        if not needed <= set(samples.columns) or not {"metricId", "metricName"} <= set(names.columns):
            self.ledger.count_unknown("form of the table", METRICS, samples.height)
            return NO_SAMPLES
        key = [c for c in ("typeId", "metricId") if c in samples.columns and c in names.columns]
        named = samples.join(names.unique(key, keep="first"), on=key, how="left", maintain_order="left")
        place = pl.col("typeName") if "typeName" in named.columns else pl.lit(None, dtype=pl.String)
        number = numbered("metric", pl.col("metricId"))
        samples = named.select(
            pl.concat_str(pl.lit("GPU metrics "), place.fill_null("")).str.strip_chars().alias("place"),
            pl.lit(None, dtype=pl.Int32).alias("device"),
            pl.coalesce("metricName", number).alias("name"),
            pl.when(pl.col("timestamp").is_between(0, LARGEST_US * 1000)).then("timestamp").alias("time"),
            pl.col("value").cast(pl.Float64, strict=False),
        )
        return sound_samples(samples, self.ledger)

    def _device(self) -> str | None:
        names = self._rows("TARGET_INFO_GPU", {"name"})
        devices = names["name"].drop_nulls() if "name" in names.columns else pl.Series([], dtype=pl.String)
        return str(devices[0]) if len(devices) else None

    def _note(self) -> None:
        """When the session began, and the tables that nobody here knows."""
        session = self._rows("TARGET_INFO_SESSION_START_TIME")
        if "utcEpochNs" in session.columns and session["utcEpochNs"].drop_nulls().len():
            self.ledger.notes["session_start_utc_ns"] = int(session["utcEpochNs"].drop_nulls()[0])
        for table in sorted(self.file.tables - {*SLICES, METRICS} - NOT_READ):
            if not table.startswith(NOT_READ_BEGIN):
                self.ledger.count_unknown("table", table, max(self.file.count(table), 1))


def _place(table: str) -> list[pl.Expr]:
    """Lane, unit and device. Ranges and calls into the system have lanes of their own beside their thread's."""
    stream, device = numbered("stream", pl.col("streamId")), pl.col("deviceId")
    if table in ON_DEVICE:
        return placed(stream, "stream", device)
    if table == SYNCHRONIZATION:
        return placed(pl.concat_str(stream, pl.lit(" synchronization")), "host", device)
    beside = {NVTX: " NVTX", OS_CALLS: " OS runtime"}.get(table, "")
    return placed(pl.concat_str(_thread(pl.col("globalTid")), pl.lit(beside)), "host")


def _thread(id: pl.Expr) -> pl.Expr:
    return pl.concat_str(numbered("process", id // THREAD % THREAD), pl.lit(" "), numbered("thread", id % THREAD))


def _number_kind(table: str, column: str) -> pl.DataType:
    real = column in ("doubleValue", "floatValue") or (table, column) == (METRICS, "value")
    return pl.Float64() if real else pl.Int64()


READER = Reader(
    "nsys",
    "Nsight Systems' SQLite export (nsys export --type sqlite)",
    recognises,
    lambda path: read_sqlite(path, lambda file: _Session(file).trace()),
    tells=("kernels", "streams", "communication", "launches", "counters: GPU metrics, where sampled"),
)
