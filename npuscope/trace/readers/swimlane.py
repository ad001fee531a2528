"""simpler's chip_swimlane_records.json (older: l2_swimlane_records.json), joined with deps.json and a name map.

All stamps are raw counter cycles. Level 1 has each task's start and end on its core; level 2 adds the
scheduler's dispatch and finish; levels 3 and 4 add what the AICPU threads did in between.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from npuscope.errors import BadInput
from npuscope.trace.core import Trace
from npuscope.trace.decimal_time import LARGEST_US
from npuscope.trace.intervals import depths
from npuscope.trace.json_file import WHOLE, read_json
from npuscope.trace.meta import Ledger
from npuscope.trace.phases import phase_of
from npuscope.trace.readers.deps import Deps, read_deps
from npuscope.trace.readers.name_map import find_name_map

FILE_NAMES = ("chip_swimlane_records.json", "l2_swimlane_records.json")
_UNITS = {"aic": "AIC", "aiv": "AIV"}
FASTEST_CLOCK = 4_000_000_000  # hertz; more would overflow the exact conversion, and no counter runs so fast
COUNTERS = ("loop_iter", "tasks_processed", "pop_hit", "pop_miss", "submit_idx")  # of phases, as columns


class Metadata(msgspec.Struct):
    clock_freq_hz: int
    core_types: list[str]
    num_cores: int | None = None
    clock_anchors: dict[str, Any] | None = None
    host_capture: dict[str, Any] | None = None


class Records(msgspec.Struct):
    """The file. Phases are kept as dictionaries, because every build adds counters of its own."""

    metadata: Metadata
    aicore_tasks: list[list[int]]
    aicpu_tasks: list[list[int]] = []
    aicpu_scheduler_phases: list[list[dict[str, Any]]] = []
    aicpu_orchestrator_phases: list[list[dict[str, Any]]] = []
    host_orchestrator_phases: list[list[dict[str, Any]]] = []
    host_device_uploads: list[dict[str, Any]] = []
    chip_swimlane_level: int | None = None
    l2_swimlane_level: int | None = None


def recognises(head: bytes) -> bool:
    """True when the level or the task list is among the first keys."""
    return any(key in head[:4096] for key in (b'"chip_swimlane_level"', b'"l2_swimlane_level"', b'"aicore_tasks"'))


def records_in(folder: Path) -> Path | None:
    """The swimlane file of a run's folder."""
    return next((folder / name for name in FILE_NAMES if (folder / name).is_file()), None)


def read(path: Path) -> Trace:
    """The run: one slice per row of a core, plus the AICPU's phases, with the dependencies that lie beside."""
    return _Swimlane(path, read_json(path, Records, "readable as swimlane records")).trace()


class _Swimlane:
    def __init__(self, path: Path, records: Records) -> None:
        self.path, self.records, self.ledger = path, records, Ledger()
        self.files = [str(path)]
        if not 0 < records.metadata.clock_freq_hz <= FASTEST_CLOCK:
            raise BadInput(f"clock_freq_hz must be positive and at most {FASTEST_CLOCK}", path=path)
        # beyond this stamp nanoseconds would not fit
        self.latest = LARGEST_US * 1000 * records.metadata.clock_freq_hz // 1_000_000_000
        self.cores = records.metadata.core_types
        self.lanes: list[dict[str, Any]] = [
            {"name": f"{_UNITS.get(kind, 'AIC')}_{core}", "unit": _UNITS.get(kind, "AIC"), "core": core}
            for core, kind in enumerate(self.cores)
        ]

    def trace(self) -> Trace:
        tasks = self._tasks()
        deps = self._deps(set(tasks["task"].to_list()))
        tasks = tasks.with_columns(self._kernels(tasks, deps).alias("kernel"), pl.lit("task").alias("kind"))
        parts = [tasks, *self._scheduler_parts(), *self._orchestrator_parts(), *self._host_parts()]
        slices = pl.concat([p for p in parts if p.height] or [tasks], how="diagonal_relaxed")
        lane, start, dur = (slices[c].cast(pl.Int64).to_numpy() for c in ("lane", "start", "dur"))
        slices = slices.with_columns(pl.Series("depth", depths(lane, start, dur), dtype=pl.UInt32))
        level = self.records.chip_swimlane_level or self.records.l2_swimlane_level or 1
        metadata = self.records.metadata
        self.ledger.notes |= {
            "level": level,
            "clock_freq_hz": metadata.clock_freq_hz,
            "num_cores": metadata.num_cores,
        }
        if metadata.host_capture:
            self.ledger.notes["host_capture"] = metadata.host_capture
        lanes = pl.DataFrame(
            self.lanes, schema={"name": pl.String, "unit": pl.String, "core": pl.Int32, "role": pl.String}
        )
        meta = self.ledger.close("swimlane", tuple(self.files), clock="device counter")
        edges = deps.edge_table() if deps else None
        return Trace.of(slices, lanes.with_row_index("lane"), meta, edges)

    def _ns(self, cycles: pl.Expr) -> pl.Expr:
        """Exact: seconds and the remainder apart, so that no product overflows."""
        hertz = self.records.metadata.clock_freq_hz
        return (cycles // hertz) * 1_000_000_000 + (cycles % hertz) * 1_000_000_000 // hertz

    def _tasks(self) -> pl.DataFrame:
        rows, seen = self.records.aicore_tasks, self.records.aicpu_tasks
        self.ledger.records += len(rows) + len(seen)
        ran = self._frame(rows, ["core", "task", "reg_task_id", "start", "end", "receive_to_start"], 5, "aicore_tasks")
        sound = (pl.col("start") > 0) & (pl.col("end") > 0)
        self.ledger.dropped["task without start or end"] += ran.height - ran.filter(sound).height
        ran = ran.filter(sound)
        backwards = pl.col("end") < pl.col("start")
        self.ledger.repaired["end before start, duration set to zero"] += ran.filter(backwards).height
        ran = ran.with_columns(pl.max_horizontal("start", "end").alias("end"))
        # the key may repeat on one core when the register wraps: the nth row meets the nth row
        nth = pl.int_range(pl.len()).over("core", "reg_task_id").alias("nth")
        key = ["core", "reg_task_id", "nth"]
        scheduled = self._frame(seen, ["core", "reg_task_id", "dispatch", "finish"], 4, "aicpu_tasks").with_columns(nth)
        joined = ran.with_columns(nth).join(scheduled, on=key, how="left", maintain_order="left")
        matched = joined.filter(pl.col("dispatch").is_not_null()).height
        self.ledger.merged["dispatch and finish joined to a task"] = matched
        self.ledger.dropped["dispatch and finish of a task no core recorded"] = len(seen) - matched
        if seen:
            self.ledger.marked["task without dispatch and finish"] = joined.height - matched
        known = pl.col("dispatch", "finish").replace(0, None)  # 0 is a stamp never taken
        return joined.with_columns(known).select(
            pl.col("core").cast(pl.UInt32).alias("lane"),
            self._ns(pl.col("start")).alias("start"),
            (self._ns(pl.col("end")) - self._ns(pl.col("start"))).alias("dur"),
            "task",
            (pl.col("start").rank("ordinal").over("task") - 1).cast(pl.Int32).alias("block"),
            self._ns(pl.col("dispatch")).alias("dispatch"),
            self._ns(pl.col("finish")).alias("finish"),
            self._ns(pl.col("start") - pl.col("receive_to_start")).alias("receive"),
            (pl.col("task") // 2**32).alias("ring"),
            "reg_task_id",
        )

    def _frame(self, rows: list[list[int]], names: list[str], at_least: int, key: str) -> pl.DataFrame:
        for number, row in enumerate(rows):
            if not at_least <= len(row) <= len(names):
                what = f"row {number} of {key} has {len(row)} numbers, expected {at_least} to {len(names)}"
                raise BadInput(what, path=self.path)
            if not 0 <= row[0] < len(self.cores):
                raise BadInput(f"row {number} of {key} names core {row[0]} of {len(self.cores)}", path=self.path)
            if min(row) < 0 or max(row) >= WHOLE or max(row[-3:]) > self.latest:
                raise BadInput(
                    f"row {number} of {key} has a number outside 0 to 2^63, or too late a time", path=self.path
                )
        full = [row + [0] * (len(names) - len(row)) for row in rows]
        return pl.DataFrame(full, schema=dict.fromkeys(names, pl.Int64), orient="row")

    def _deps(self, seen: set[int]) -> Deps | None:
        path = self.path.parent / "deps.json"
        if not path.is_file():
            return None
        deps = read_deps(path)
        unknown = len(seen - {int(task.task_id) for task in deps.tasks})
        if unknown:
            self.ledger.notes["deps_refused"] = (
                f"{unknown} tasks of the swimlane are not in deps.json: it is of another program"
            )
            return None
        self.files.append(str(path))
        self.ledger.notes["deps_edges_repeated"] = len(deps.edges) - deps.edge_table().height
        return deps

    def _kernels(self, tasks: pl.DataFrame, deps: Deps | None) -> pl.Series:
        """Names by the task's function for this core: cube, vector 0 or vector 1."""
        if deps is None:
            return pl.Series(["task"]).new_from_index(0, tasks.height)
        names = find_name_map(self.path.parent) or {}
        functions = {int(task.task_id): task.kernel_ids for task in deps.tasks}
        first_vector = self.cores.index("aiv") if "aiv" in self.cores else len(self.cores)
        kernels = []
        for task, lane in tasks.select("task", "lane").iter_rows():
            ids = [*functions[task], -1, -1, -1][:3]
            if self.cores[lane] == "aic":
                number = ids[0]
            else:  # a cluster is one cube and two vector cores, side by side
                number = ids[1 + (lane - first_vector) % 2] if min(ids[1:]) >= 0 else max(ids[1:])
            kernels.append("task" if number < 0 else names.get(number, f"func_{number}"))
        return pl.Series(kernels, dtype=pl.String)

    def _scheduler_parts(self) -> list[pl.DataFrame]:
        return [
            self._phases(rows, f"Sched_{thread}", "scheduler", "kind")
            for thread, rows in enumerate(self.records.aicpu_scheduler_phases)
        ]

    def _orchestrator_parts(self) -> list[pl.DataFrame]:
        return [
            self._phases(rows, f"Orch_{thread}", "orchestrator", None)
            for thread, rows in enumerate(self.records.aicpu_orchestrator_phases)
        ]

    def _phases(self, rows: list[dict[str, Any]], lane: str, role: str, kind: str | None) -> pl.DataFrame:
        """Slices of one AICPU thread; what the rows hold beside their times is kept as columns or as text."""
        number = len(self.lanes)
        self.lanes.append({"name": lane, "unit": "AICPU", "role": role})
        self.ledger.records += len(rows)
        if not rows:
            return pl.DataFrame()
        frame = self._phase_frame(rows, "start_cycles", "end_cycles", self.latest, lane)
        label = pl.col("kind") if kind else pl.lit("submit")
        return frame.select(
            pl.lit(number, dtype=pl.UInt32).alias("lane"),
            self._ns(pl.col("begin")).alias("start"),
            (self._ns(pl.col("end")) - self._ns(pl.col("begin"))).alias("dur"),
            label.alias("kernel"),
            pl.lit("schedule").alias("kind"),
            phase_of(label).alias("phase"),
            pl.col("task_id").alias("task"),
            *COUNTERS,
            "other",
        )

    def _phase_frame(self, rows: list[dict[str, Any]], start: str, end: str, latest: int, where: str) -> pl.DataFrame:
        """begin, end, kind, task_id and the counters as columns; whatever else a build writes as JSON in `other`."""
        plain = []
        for number, row in enumerate(rows):
            for key in (start, end):
                if not isinstance(row.get(key), int) or not 0 <= row[key] <= latest:
                    raise BadInput(f"phase {number} of {where} has no usable {key}", path=self.path)
            self.ledger.repaired["end before start, duration set to zero"] += row[end] < row[start]
            known = {
                "begin": row[start],
                "end": max(row[start], row[end]),
                "kind": str(row.get("kind", row.get("phase", ""))),
            }
            for key in ("task_id", *COUNTERS):
                value = row.get(key)
                known[key] = value if isinstance(value, int) and abs(value) < WHOLE else None
            rest = {k: v for k, v in row.items() if k not in (start, end, "kind", "task_id", *COUNTERS)}
            plain.append({**known, "other": msgspec.json.encode(rest).decode() if rest else None})
        numbers = dict.fromkeys(("begin", "end", "task_id", *COUNTERS), pl.Int64)
        return pl.DataFrame(plain, schema={**numbers, "kind": pl.String, "other": pl.String})

    def _host_parts(self) -> list[pl.DataFrame]:
        """Host-built graphs: the host's submits and uploads, brought onto the device's clock by the anchors."""
        parts = []
        threads = [(f"Host_{n}", "submit", rows) for n, rows in enumerate(self.records.host_orchestrator_phases)]
        if self.records.host_device_uploads:
            threads.append(("H2D", "upload", self.records.host_device_uploads))
        for name, label, rows in threads:
            number = len(self.lanes)
            self.lanes.append({"name": name, "unit": "host", "role": "orchestrator" if label == "submit" else None})
            self.ledger.records += len(rows)
            if not rows:
                continue
            frame = self._phase_frame(rows, "start_host_ns", "end_host_ns", LARGEST_US * 1000, name)
            told = pl.when(pl.col("kind") != "").then(pl.col("kind")).otherwise(pl.lit(label))
            parts.append(
                frame.select(
                    pl.lit(number, dtype=pl.UInt32).alias("lane"),
                    (pl.col("begin") + self._host_offset()).alias("start"),
                    (pl.col("end") - pl.col("begin")).alias("dur"),
                    told.alias("kernel"),
                    pl.lit("host").alias("kind"),
                    pl.col("task_id").alias("task"),
                    "other",
                )
            )
        return parts

    def _host_offset(self) -> int:
        """Device ns - host ns, from the anchor taken with the shortest round trip."""
        anchors = (self.records.metadata.clock_anchors or {}).get("samples")
        stamps = ("device_cycles", "rtt_ns", "host_before_ns", "host_after_ns")
        usable = [
            anchor
            for anchor in (anchors if isinstance(anchors, list) else [])
            if isinstance(anchor, dict)
            and not anchor.get("error")
            and all(isinstance(anchor.get(stamp), int) and 0 <= anchor[stamp] < WHOLE // 4 for stamp in stamps)
        ]
        if not usable:
            self.ledger.notes["host_clock"] = "no clock anchor: host lanes keep the host's own clock"
            return 0
        best = min(usable, key=lambda a: a["rtt_ns"])
        hertz = self.records.metadata.clock_freq_hz
        device = best["device_cycles"] * 1_000_000_000 // hertz
        self.ledger.notes["host_clock"] = f"aligned by a clock anchor, within {best['rtt_ns']} ns"
        return int(device - (best["host_before_ns"] + best["host_after_ns"]) // 2)
