"""The Ascend profiler's SQLite database: ascend_pytorch_profiler_*.db and msprof_*.db.

TASK has every device task with exact integer nanoseconds; names, types and shapes are ids into
STRING_IDS. Which other tables exist depends on the profiler's level.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from npuscope.base.errors import BadInput
from npuscope.chip import kernels
from npuscope.trace.core import Ledger, Trace, with_depth
from npuscope.trace.formats import Reader
from npuscope.trace.readers.kernel_details import AI_CPUS, SAME_NAME, scheduling
from npuscope.trace.schema import LARGEST_US, cases
from npuscope.trace.tables import (
    NO_SAMPLES,
    NO_SLICES,
    SqliteFile,
    numbered,
    on_lanes,
    placed,
    read_sqlite,
    sound_rows,
    sound_samples,
)


class Sampled(NamedTuple):
    """A table of samples: a row has one of each value, named after `of`, the columns `which`, and its unit."""

    of: str
    which: tuple[str, ...]
    values: dict[str, str]
    time: str = "timestampNs"
    text: tuple[str, ...] = ()  # which of the columns are ids into STRING_IDS


SAMPLED = {
    "HBM": Sampled("HBM", ("hbmId", "type"), {"bandwidth": "B/s"}, text=("type",)),
    "LLC": Sampled("LLC", ("llcId", "mode"), {"hitRate": "hit rate %", "throughput": "B/s"}, text=("mode",)),
    "NPU_MEM": Sampled("", ("type",), {"ddr": "DDR bytes", "hbm": "HBM bytes"}, text=("type",)),
    "AICORE_FREQ": Sampled("AI Core", (), {"freq": "MHz"}),
    "SOC_BANDWIDTH_LEVEL": Sampled("", (), {"l2BufferBwLevel": "L2 buffer level", "mataBwLevel": "Mata level"}),
    "ACC_PMU": Sampled(
        "accelerator",
        ("accId",),
        {
            "readBwLevel": "read bandwidth",
            "writeBwLevel": "write bandwidth",
            "readOstLevel": "reads outstanding",
            "writeOstLevel": "writes outstanding",
        },
    ),
    "NPU_MODULE_MEM": Sampled("module", ("moduleId",), {"totalReserved": "reserved bytes"}),
    "MEMORY_RECORD": Sampled(
        "",
        ("component",),
        {"totalAllocated": "allocated bytes", "totalReserved": "reserved bytes", "totalActive": "active bytes"},
        time="timestamp",
        text=("component",),
    ),
}


def columns_of(sampled: Sampled) -> list[str]:
    """The columns a table of samples must have."""
    return [sampled.time, "deviceId", *sampled.which, *sampled.values]


# the tables read: columns that must be there, and among all columns those that are ids into STRING_IDS
TABLES = {
    "STRING_IDS": (["id", "value"], []),
    "TASK": (["startNs", "endNs", "deviceId", "globalTaskId", "streamId"], ["taskType"]),
    "COMPUTE_TASK_INFO": (
        ["globalTaskId", "name"],
        [
            *("name", "taskType", "opType", "attrInfo"),
            *("inputFormats", "inputDataTypes", "inputShapes"),
            *("outputFormats", "outputDataTypes", "outputShapes"),
        ],
    ),
    "COMMUNICATION_TASK_INFO": (["globalTaskId", "name", "taskType", "opId"], ["name", "taskType", "groupName"]),
    "COMMUNICATION_OP": (
        ["opName", "startNs", "endNs", "connectionId", "opId"],
        ["opName", "groupName", "algType", "opType"],
    ),
    "PYTORCH_API": (["startNs", "endNs", "globalTid", "name"], ["name", "inputDtypes", "inputShapes"]),
    "CANN_API": (["startNs", "endNs", "globalTid", "name"], ["name"]),
    "TASK_PMU_INFO": (["globalTaskId", "name", "value"], ["name"]),
    "CONNECTION_IDS": (["id", "connectionId"], []),
    "STEP_TIME": (["id", "startNs", "endNs"], []),
    "RANK_DEVICE_MAP": (["rankId"], []),
    "NPU_INFO": (["name"], []),
    **{name: (columns_of(sampled), list(sampled.text)) for name, sampled in SAMPLED.items()},
}  # fmt: skip
# known, and no part of a trace: names of numbers, memory by operator, call stacks, what other tools add
NOT_READ = {
    "SESSION_TIME_INFO", "HOST_INFO", "META_DATA", "NPU_OP_MEM", "OP_MEMORY", "PYTORCH_CALLCHAINS", "MSTX_EVENTS",
    "OVERLAP_ANALYSIS", "status_info", "connectionCats", "CommAnalyzerTime", "CommAnalyzerBandwidth",
    "CommAnalyzerMatrix", "StepTraceTime", "GC_RECORD", "STEP_INFO", "RANK_INFO",
}  # fmt: skip
# further columns of the tables that are read
FURTHER = {
    "TASK": {"connectionId", "globalPid", "taskType", "contextId", "taskId", "modelId"},
    "COMPUTE_TASK_INFO": {
        "blockDim", "mixBlockDim", "blockNum", "mixBlockNum", "taskType", "opType", "opState", "hf32Eligible",
        "attrInfo", "inputFormats", "inputDataTypes", "inputShapes", "outputFormats", "outputDataTypes", "outputShapes",
    },
    "COMMUNICATION_TASK_INFO": {
        "planeId", "groupName", "notifyId", "rdmaType", "srcRank", "dstRank", "transportType", "size", "dataType",
        "linkType", "bandwidth",
    },
    "COMMUNICATION_OP": {"groupName", "relay", "retry", "dataType", "algType", "count", "opType", "deviceId"},
    "PYTORCH_API": {
        "connectionId", "sequenceNumber", "fwdThreadId", "inputDtypes", "inputShapes", "callchainId", "type",
    },
    "CANN_API": {"type", "connectionId"},
    "RANK_DEVICE_MAP": {"deviceId"},
    "NPU_INFO": {"id"},
    "MEMORY_RECORD": {"streamPtr"},
}  # fmt: skip
_TEXT = {"STRING_IDS.value", "NPU_INFO.name"}  # columns that are text themselves
_REAL = {
    "TASK_PMU_INFO.value", "COMMUNICATION_OP.count",
    *(f"{name}.{column}" for name, sampled in SAMPLED.items() for column in sampled.values),
}  # fmt: skip
PRIVATE = {"callchainId"}  # leads to call stacks, which hold home folders


def kind_of(table: str, column: str) -> pl.DataType:
    """Numbers unless the column is known to be text or real; names of functions and shapes are ids too."""
    if f"{table}.{column}" in _TEXT:
        return pl.String()
    return pl.Float64() if f"{table}.{column}" in _REAL else pl.Int64()


EVIDENCE = {"TASK", "CANN_API", "PYTORCH_API"}


class _Database:
    """Device tasks on streams, collectives on link lanes, PyTorch and CANN calls on host lanes."""

    def __init__(self, file: SqliteFile) -> None:
        self.path, self.file, self.ledger = file.path, file, Ledger()
        self.tables = file.tables
        strings = self._rows("STRING_IDS").drop_nulls("id").unique("id", keep="first", maintain_order=True)
        self.strings = strings.select("id", "value")

    def trace(self) -> Trace:
        parts = [
            self._tasks(),
            self._collectives(),
            self._calls("PYTORCH_API", "Python"),
            self._calls("CANN_API", "CANN"),
        ]
        slices = pl.concat([part for part in parts if part.height] or [NO_SLICES], how="diagonal_relaxed")
        slices = slices.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("task"))
        slices = self._mark_schedulers(self._mark_parts(self._with_steps(slices)))
        slices, counters, lanes = on_lanes(slices, self._samples())
        edges = self._edges(slices)
        slices = with_depth(slices).drop("table", "opId", strict=False)
        lanes = lanes.with_columns(self._rank().alias("rank"))
        devices = self._rows("NPU_INFO")["name"].drop_nulls()
        device = str(devices[0]) if len(devices) else None
        self._count_tables_not_read()
        meta = self.ledger.close("ascend-db", (str(self.path),), device=device, clock="epoch")
        return Trace.of(slices, lanes, meta, edges, counters)

    def _rows(self, table: str) -> pl.DataFrame:
        """A table with its text ids resolved; without rows if the level did not record it."""
        needed, text_ids = TABLES[table]
        if table not in self.tables:
            return pl.DataFrame(schema={c: pl.String if c in text_ids else kind_of(table, c) for c in needed})
        columns = self.file.columns(table)
        missing = sorted(set(needed) - set(columns))
        if missing:
            raise BadInput(f"table {table} lacks the column {missing[0]}", path=self.path)
        frame = self.file.rows(table, [c for c in columns if c not in PRIVATE], lambda c: kind_of(table, c))
        for column in sorted(set(columns) - set(needed) - FURTHER.get(table, set())):
            self.ledger.count_unknown(f"column of {table}", column, frame.height)
        for column in text_ids:
            if column in frame.columns:
                named = self.strings.rename({"id": column, "value": "text"})
                frame = frame.join(named, on=column, how="left", maintain_order="left")
                frame = frame.with_columns(pl.col("text").alias(column)).drop("text")
        return frame

    def _once(self, table: str, key: str) -> pl.DataFrame:
        """A table of facts with one row per key; further rows of a key are counted."""
        rows = self._rows(table).drop_nulls(key)
        once = rows.unique(key, keep="first", maintain_order=True)
        if once.height < rows.height:
            self.ledger.notes.setdefault("repeated_rows", {})[table] = rows.height - once.height
        return once

    def _times(self, frame: pl.DataFrame, table: str) -> pl.DataFrame:
        """start and dur from startNs and endNs, which PYTORCH_API has as text."""
        self.ledger.records += frame.height
        return sound_rows(frame, "startNs", "endNs", self.ledger).with_columns(pl.lit(table).alias("table"))

    def _tasks(self) -> pl.DataFrame:
        tasks = self._rows("TASK")
        if tasks.is_empty():
            return pl.DataFrame()
        tasks = self._times(tasks, "TASK").rename({"taskType": "deviceTaskType"}, strict=False)
        compute = self._once("COMPUTE_TASK_INFO", "globalTaskId").rename({"name": "computeName"})
        comm = self._once("COMMUNICATION_TASK_INFO", "globalTaskId")
        comm = comm.rename({"taskType": "commName", "name": "commOpName"})
        for info in (compute, comm, self._counters()):
            if info.height:
                tasks = tasks.join(info, on="globalTaskId", how="left", maintain_order="left")
        for column in ("computeName", "commName", "deviceTaskType"):
            if column not in tasks.columns:
                tasks = tasks.with_columns(pl.lit(None, dtype=pl.String).alias(column))
        is_compute, is_comm = (pl.col(c).is_not_null() for c in ("computeName", "commName"))
        orders = tasks["deviceTaskType"].drop_nulls().unique()
        copies = [order for order in orders if kernels.kind_of(order) == "copy"]
        is_copy = pl.col("deviceTaskType").is_in(copies)
        kind = cases((is_compute, "task"), (is_comm, "comm"), (is_copy, "copy"), otherwise="schedule")
        return tasks.with_columns(
            pl.coalesce("computeName", "commName", "deviceTaskType", pl.lit("task")).alias("kernel"),
            kind.alias("kind"),
            *placed(numbered("stream", pl.col("streamId")), "stream", pl.col("deviceId")),
        ).drop("computeName", "commName", "deviceId")

    def _counters(self) -> pl.DataFrame:
        """The hardware counters, one column each."""
        long = self._rows("TASK_PMU_INFO").drop_nulls(["globalTaskId", "name"])
        if long.is_empty():
            return long
        return long.pivot(on="name", index="globalTaskId", values="value", aggregate_function="first")

    def _collectives(self) -> pl.DataFrame:
        rows = self._rows("COMMUNICATION_OP")
        whole = rows.filter(pl.col("opId").is_first_distinct() | pl.col("opId").is_null())
        self.ledger.records += rows.height - whole.height
        self.ledger.dropped["collective listed again under its id"] += rows.height - whole.height
        if whole.is_empty():
            return pl.DataFrame()
        return self._times(whole, "COMMUNICATION_OP").select(
            "start",
            "dur",
            "table",
            pl.col("opName").fill_null("").alias("kernel"),
            pl.lit("comm").alias("kind"),
            *placed(pl.lit("communication"), "link"),
            pl.col("connectionId"),
            "opId",
            *[c for c in ("groupName", "algType", "opType", "count", "dataType") if c in whole.columns],
        )

    def _samples(self) -> pl.DataFrame:
        """Samples of all counters."""
        parts = []
        for table in sorted(SAMPLED.keys() & self.tables):
            if missing := set(TABLES[table][0]) - set(self.file.columns(table)):
                self.ledger.count_unknown(f"form of the table {table}, which lacks", min(missing))
            else:
                parts.append(samples_of(table, self._rows(table)))
        return sound_samples(pl.concat(parts), self.ledger) if parts else NO_SAMPLES

    def _calls(self, table: str, process: str) -> pl.DataFrame:
        calls = self._rows(table)
        if calls.is_empty():
            return pl.DataFrame()
        calls = self._times(calls, table)
        return calls.with_columns(
            pl.col("name").fill_null("").alias("kernel"),
            pl.lit("host").alias("kind"),
            # globalTid is pid << 32 | tid
            *placed(numbered(f"{process} thread", pl.col("globalTid") % 2**32), "host"),
        ).drop("name")

    def _with_steps(self, slices: pl.DataFrame) -> pl.DataFrame:
        steps = self._rows("STEP_TIME").drop_nulls()
        if steps.is_empty():
            return slices
        steps = steps.select(
            pl.col("startNs").alias("start"), pl.col("id").alias("step"), pl.col("endNs").alias("step end")
        )
        met = slices.sort("start").join_asof(steps.sort("start"), on="start").sort("task")
        inside = pl.col("start") < pl.col("step end")
        return met.with_columns(pl.when(inside).then(pl.col("step")).alias("step")).drop("step end")

    def _mark_parts(self, slices: pl.DataFrame) -> pl.DataFrame:
        """A collective is there whole and in its parts; the parts are duplicates."""
        if "opId" not in slices.columns:
            return slices
        whole = slices.filter(pl.col("table") == "COMMUNICATION_OP").select(
            "opId", pl.col("task").alias("duplicate_of")
        )
        slices = slices.join(whole.drop_nulls(), on="opId", how="left", maintain_order="left")
        is_part = (pl.col("table") == "TASK") & pl.col("duplicate_of").is_not_null()
        slices = slices.with_columns(pl.when(is_part).then(pl.col("duplicate_of")).alias("duplicate_of"))
        self.ledger.marked["part of a collective that is listed whole"] = (
            slices.height - slices["duplicate_of"].null_count()
        )
        return slices

    def _mark_schedulers(self, slices: pl.DataFrame) -> pl.DataFrame:
        """AI CPU tasks with the name of a kernel that runs at the same time are that kernel's scheduling (PyPTO)."""
        if "deviceTaskType" not in slices.columns:
            return slices
        tasks = slices.filter(pl.col("kind") == "task").select("task", "start", "dur", "kernel", "deviceTaskType")
        on_ai_cpu = pl.col("deviceTaskType").is_in(AI_CPUS).fill_null(False)
        pairs = scheduling(tasks.filter(on_ai_cpu), tasks.filter(~on_ai_cpu))
        self.ledger.marked[SAME_NAME] += pairs.height
        if "duplicate_of" not in slices.columns:
            slices = slices.with_columns(pl.lit(None, dtype=pl.Int64).alias("duplicate_of"))
        return slices.with_columns(slices["duplicate_of"].scatter(pairs["task"], pairs["duplicate_of"]))

    def _edges(self, slices: pl.DataFrame) -> pl.DataFrame | None:
        """CANN call -> task by connectionId; PyTorch call -> task through CONNECTION_IDS."""
        if "connectionId" not in slices.columns:
            return None
        device = (
            slices.filter(pl.col("table") == "TASK").select("connectionId", pl.col("task").alias("dst")).drop_nulls()
        )
        cann = slices.filter(pl.col("table") == "CANN_API").select("connectionId", pl.col("task").alias("src"))
        cann = cann.unique("connectionId", keep="first", maintain_order=True)  # a connection is one call's
        edges = [cann.join(device, on="connectionId").with_columns(pl.lit("HostToDevice").alias("name"))]
        if "CONNECTION_IDS" in self.tables:
            links = self._rows("CONNECTION_IDS").unique("connectionId", keep="first", maintain_order=True)
            calls = slices.filter(pl.col("table") == "PYTORCH_API").select(
                pl.col("connectionId").alias("id"), pl.col("task").alias("src")
            )
            calls = calls.unique("id", keep="first", maintain_order=True)
            torch = calls.join(links, on="id").join(device, on="connectionId")
            edges.append(torch.select("connectionId", "src", "dst").with_columns(pl.lit("torch_to_npu").alias("name")))
        return pl.concat(edges).select("src", "dst", pl.lit("flow").alias("source"), "name")

    def _count_tables_not_read(self) -> None:
        """Tables that are no part of a trace, with their numbers of rows, and those that nobody here knows."""
        others = sorted(t for t in self.tables - TABLES.keys() if not t.startswith(("ENUM_", "sqlite_", "_old_")))
        counts = {}
        for table in others:
            counts[table] = self.file.count(table)
            if table not in NOT_READ:
                self.ledger.count_unknown("table", table, max(counts[table], 1))
        self.ledger.notes["tables_not_read"] = counts

    def _rank(self) -> pl.Expr:
        ranks = self._rows("RANK_DEVICE_MAP")["rankId"].drop_nulls()
        number = int(ranks[0]) if len(ranks) and 0 <= ranks[0] < 2**31 else None
        return pl.lit(number, dtype=pl.Int32)


def samples_of(table: str, rows: pl.DataFrame) -> pl.DataFrame:
    """place, device, name, time and value of every number; null where the database has none that fits."""
    sampled = SAMPLED[table]
    parts = []
    for column, unit in sampled.values.items():
        words = [pl.lit(sampled.of), *(pl.col(c).cast(pl.String).fill_null("") for c in sampled.which), pl.lit(unit)]
        time = pl.col(sampled.time)
        parts.append(
            rows.select(
                pl.lit(table).alias("place"),
                pl.col("deviceId").cast(pl.Int32, strict=False).alias("device"),
                pl.concat_str(words, separator=" ").str.strip_chars().alias("name"),
                pl.when(time.is_between(0, LARGEST_US * 1000)).then(time).alias("time"),
                pl.col(column).cast(pl.Float64, strict=False).alias("value"),
            )
        )
    return pl.concat(parts)


READER = Reader(
    "ascend-db",
    "Ascend's profiler database",
    lambda sample: bool(sample.tables & EVIDENCE),
    lambda path: read_sqlite(path, lambda file: _Database(file).trace()),
    files=("ascend_pytorch_profiler*.db", "msprof_*.db"),
    tells=(
        "kernels",
        "streams",
        "communication",
        "launches",
        "ranks",
        "steps: where marked",
        "shapes: profiler level 1 and up",
        "counters",
    ),
)
