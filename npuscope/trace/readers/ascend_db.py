"""The Ascend profiler's SQLite database: ascend_pytorch_profiler_*.db and msprof_*.db.

TASK has every device task with exact integer nanoseconds; names, types and shapes are ids into
STRING_IDS. Which other tables exist depends on the profiler's level.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import polars as pl

from npuscope.errors import BadInput
from npuscope.trace.core import Trace
from npuscope.trace.intervals import depths
from npuscope.trace.meta import Ledger

MAGIC = b"SQLite format 3\x00"
# columns that are ids into STRING_IDS
_TEXT_IDS = {
    "COMPUTE_TASK_INFO": [
        *("name", "taskType", "opType", "attrInfo"),
        *("inputFormats", "inputDataTypes", "inputShapes"),
        *("outputFormats", "outputDataTypes", "outputShapes"),
    ],
    "COMMUNICATION_TASK_INFO": ["name", "taskType", "groupName"],
    "COMMUNICATION_OP": ["opName", "groupName", "algType", "opType"],
    "PYTORCH_API": ["name", "inputDtypes", "inputShapes"],
    "CANN_API": ["name"],
    "TASK": ["taskType"],
    "TASK_PMU_INFO": ["name"],
}
_PRIVATE = {"callchainId"}  # leads to call stacks, which hold home folders


def read(path: Path) -> Trace:
    """Device tasks on streams, collectives on link lanes, PyTorch and CANN calls on host lanes."""
    try:
        # immutable: the file is only looked at, and a read-only folder is no obstacle
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        with connection:
            return _Database(path, connection).trace()
    except sqlite3.Error as error:
        raise BadInput(f"not readable as a profiler database ({error})", path=path) from error
    finally:
        if "connection" in locals():
            connection.close()


class _Database:
    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self.connection, self.ledger = path, connection, Ledger()
        self.tables = {row[0] for row in connection.execute("select name from sqlite_master where type = 'table'")}
        if not self.tables & {"TASK", "CANN_API", "PYTORCH_API"}:
            raise BadInput("this SQLite file has no TASK, CANN_API or PYTORCH_API table", path=path)
        strings = self._rows("STRING_IDS", ["id", "value"])
        self.strings = strings.select(pl.col("id").cast(pl.Int64), "value")

    def trace(self) -> Trace:
        parts = [
            self._tasks(),
            self._collectives(),
            self._calls("PYTORCH_API", "Python"),
            self._calls("CANN_API", "CANN"),
        ]
        slices = pl.concat([part for part in parts if part.height] or [parts[0]], how="diagonal_relaxed")
        slices = slices.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("task"))
        slices = self._mark_parts(self._with_steps(slices))
        place = ["place", "unit", "device"]
        lanes = slices.select(place).unique(maintain_order=True).with_row_index("lane")
        slices = slices.join(lanes, on=place, nulls_equal=True, maintain_order="left").drop(place)
        edges = self._edges(slices)
        lane, start, dur = (slices[c].cast(pl.Int64).to_numpy() for c in ("lane", "start", "dur"))
        slices = slices.with_columns(pl.Series("depth", depths(lane, start, dur), dtype=pl.UInt32))
        slices = slices.drop("table", "opId", strict=False)
        lanes = lanes.rename({"place": "name"}).with_columns(self._rank().alias("rank"))
        device = self._one("select name from NPU_INFO limit 1") if "NPU_INFO" in self.tables else None
        self.ledger.notes["tables_not_read"] = self._tables_not_read()
        meta = self.ledger.close("ascend-db", (str(self.path),), device=device, clock="epoch")
        return Trace.of(slices, lanes, meta, edges)

    def _rows(self, table: str, wanted: list[str] | None = None) -> pl.DataFrame:
        """A table with its text ids resolved; empty if the level did not record it."""
        if table not in self.tables:
            return pl.DataFrame(schema=dict.fromkeys(wanted or [], pl.Int64))
        columns = [row[1] for row in self.connection.execute(f'pragma table_info("{table}")')]
        missing = sorted(set(wanted or []) - set(columns))
        if missing:
            raise BadInput(f"table {table} lacks the column {missing[0]}", path=self.path)
        columns = [c for c in columns if c not in _PRIVATE]
        picked = ", ".join(f'"{c}"' for c in columns)
        rows = self.connection.execute(f'select {picked} from "{table}"').fetchall()
        frame = pl.DataFrame(rows, schema=columns, orient="row", infer_schema_length=None, strict=False)
        for column in _TEXT_IDS.get(table, []):
            if column in frame.columns and hasattr(self, "strings"):
                ids = pl.col(column).cast(pl.Int64, strict=False)
                frame = frame.with_columns(ids).join(
                    self.strings.rename({"id": column, "value": "text"}),
                    on=column,
                    how="left",
                    maintain_order="left",
                )
                frame = frame.with_columns(pl.col("text").alias(column)).drop("text")
        return frame

    def _times(self, frame: pl.DataFrame, table: str) -> pl.DataFrame:
        """start and dur from startNs and endNs, which PYTORCH_API has as text."""
        self.ledger.records += frame.height
        frame = frame.with_columns(pl.col("startNs", "endNs").cast(pl.Int64, strict=False))
        sound = frame.filter(pl.col("startNs").is_not_null() & pl.col("endNs").is_not_null())
        self.ledger.dropped["row without a usable time"] += frame.height - sound.height
        self.ledger.repaired["negative duration set to zero"] += sound.filter(
            pl.col("endNs") < pl.col("startNs")
        ).height
        return sound.with_columns(
            pl.col("startNs").alias("start"),
            (pl.col("endNs") - pl.col("startNs")).clip(lower_bound=0).alias("dur"),
            pl.lit(table).alias("table"),
        ).drop("startNs", "endNs")

    def _tasks(self) -> pl.DataFrame:
        tasks = self._rows("TASK", ["startNs", "endNs", "deviceId", "globalTaskId", "streamId"])
        if tasks.is_empty():
            return pl.DataFrame()
        tasks = self._times(tasks, "TASK").rename({"taskType": "deviceTaskType"}, strict=False)
        compute = self._rows("COMPUTE_TASK_INFO").rename({"name": "computeName"}, strict=False)
        comm = self._rows("COMMUNICATION_TASK_INFO")
        if comm.height:
            comm = comm.rename({"taskType": "commName", "name": "commOpName"}).unique("globalTaskId", keep="first")
        for info in (compute, comm, self._counters()):
            if info.height:
                tasks = tasks.join(info, on="globalTaskId", how="left", maintain_order="left")
        for column in ("computeName", "commName", "deviceTaskType"):
            if column not in tasks.columns:
                tasks = tasks.with_columns(pl.lit(None, dtype=pl.String).alias(column))
        is_compute, is_comm = (pl.col(c).is_not_null() for c in ("computeName", "commName"))
        kind = pl.when(is_compute).then(pl.lit("task")).when(is_comm).then(pl.lit("comm")).otherwise(pl.lit("schedule"))
        return tasks.with_columns(
            pl.coalesce("computeName", "commName", "deviceTaskType", pl.lit("task")).alias("kernel"),
            kind.alias("kind"),
            pl.format("stream {}", pl.col("streamId")).alias("place"),
            pl.lit("stream").alias("unit"),
            pl.col("deviceId").cast(pl.Int32).alias("device"),
        ).drop("computeName", "commName", "deviceId")

    def _counters(self) -> pl.DataFrame:
        """The hardware counters, one column each."""
        long = self._rows("TASK_PMU_INFO", ["globalTaskId", "name", "value"])
        if long.is_empty():
            return long
        return long.with_columns(pl.col("value").cast(pl.Float64, strict=False)).pivot(
            on="name", index="globalTaskId", values="value", aggregate_function="first"
        )

    def _collectives(self) -> pl.DataFrame:
        whole = self._rows("COMMUNICATION_OP")
        if whole.is_empty():
            return pl.DataFrame()
        return self._times(whole, "COMMUNICATION_OP").select(
            "start",
            "dur",
            "table",
            pl.col("opName").alias("kernel"),
            pl.lit("comm").alias("kind"),
            pl.lit("communication").alias("place"),
            pl.lit("link").alias("unit"),
            pl.lit(None, dtype=pl.Int32).alias("device"),
            pl.col("connectionId"),
            "opId",
            *[c for c in ("groupName", "algType", "opType", "count", "dataType") if c in whole.columns],
        )

    def _calls(self, table: str, process: str) -> pl.DataFrame:
        calls = self._rows(table)
        if calls.is_empty():
            return pl.DataFrame()
        calls = self._times(calls, table)
        return calls.with_columns(
            pl.col("name").fill_null("").alias("kernel"),
            pl.lit("host").alias("kind"),
            # globalTid is pid << 32 | tid
            pl.format("{} thread {}", pl.lit(process), pl.col("globalTid") % 2**32).alias("place"),
            pl.lit("host").alias("unit"),
            pl.lit(None, dtype=pl.Int32).alias("device"),
        ).drop("name")

    def _with_steps(self, slices: pl.DataFrame) -> pl.DataFrame:
        steps = self._rows("STEP_TIME", ["id", "startNs", "endNs"]) if "STEP_TIME" in self.tables else pl.DataFrame()
        if steps.is_empty():
            return slices
        steps = steps.select(
            pl.col("startNs").alias("start"), pl.col("id").alias("step"), pl.col("endNs").alias("step end")
        )
        met = slices.sort("start").join_asof(steps.sort("start"), on="start").sort("task")
        inside = pl.col("start") < pl.col("step end")
        return met.with_columns(pl.when(inside).then(pl.col("step")).alias("step")).drop("step end")

    def _mark_parts(self, slices: pl.DataFrame) -> pl.DataFrame:
        """A collective is there whole and in its parts; the parts tell it a second time."""
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

    def _edges(self, slices: pl.DataFrame) -> pl.DataFrame | None:
        """CANN call -> task by connectionId; PyTorch call -> task through CONNECTION_IDS."""
        if "connectionId" not in slices.columns:
            return None
        device = (
            slices.filter(pl.col("table") == "TASK").select("connectionId", pl.col("task").alias("dst")).drop_nulls()
        )
        cann = slices.filter(pl.col("table") == "CANN_API").select("connectionId", pl.col("task").alias("src"))
        edges = [cann.join(device, on="connectionId").with_columns(pl.lit("HostToDevice").alias("name"))]
        if "CONNECTION_IDS" in self.tables:
            links = self._rows("CONNECTION_IDS", ["id", "connectionId"])
            calls = slices.filter(pl.col("table") == "PYTORCH_API").select(
                pl.col("connectionId").alias("id"), pl.col("task").alias("src")
            )
            torch = calls.join(links, on="id").join(device, on="connectionId")
            edges.append(torch.select("connectionId", "src", "dst").with_columns(pl.lit("torch_to_npu").alias("name")))
        return pl.concat(edges).select("src", "dst", pl.lit("flow").alias("source"), "name")

    def _tables_not_read(self) -> dict[str, int]:
        """Counter samples and memory records, which are no slices, with their numbers of rows."""
        read = {*_TEXT_IDS, "STRING_IDS", "CONNECTION_IDS", "STEP_TIME", "RANK_DEVICE_MAP", "NPU_INFO"}
        others = sorted(t for t in self.tables - read if not t.startswith("ENUM_"))
        return {t: int(self._one(f'select count(*) from "{t}"') or 0) for t in others}

    def _rank(self) -> pl.Expr:
        rank = self._one("select rankId from RANK_DEVICE_MAP limit 1") if "RANK_DEVICE_MAP" in self.tables else None
        number = int(rank) if rank is not None and int(rank) >= 0 else None
        return pl.lit(number, dtype=pl.Int32)

    def _one(self, query: str) -> str | None:
        row = self.connection.execute(query).fetchone()
        return None if row is None or row[0] is None else str(row[0])
