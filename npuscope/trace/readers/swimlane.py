"""simpler's chip_swimlane_records.json (older: l2_swimlane_records.json), joined with deps.json and a name map.

All stamps are raw counter cycles. Level 1 has each task's start and end on its core; level 2 adds the
scheduler's dispatch and finish; levels 3 and 4 add what the AICPU threads did in between.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.errors import BadInput
from npuscope.trace.core import Trace, with_depth
from npuscope.trace.decimal_time import LARGEST_US
from npuscope.trace.json_file import WHOLE, read_json
from npuscope.trace.meta import BACKWARDS, UNRECORDED, UNSCHEDULED, Ledger
from npuscope.trace.phases import phase_of
from npuscope.trace.readers.deps import Deps, read_deps
from npuscope.trace.readers.name_map import find_name_map

FILE_NAMES = ("chip_swimlane_records.json", "l2_swimlane_records.json")
_UNITS = {"aic": "AIC", "aiv": "AIV"}
STAMPS = ("start", "end", "dispatch", "finish")
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
        self.edges: pl.DataFrame | None = None
        if not 0 < records.metadata.clock_freq_hz <= FASTEST_CLOCK:
            raise BadInput(f"clock_freq_hz must be positive and at most {FASTEST_CLOCK}", path=path)
        # beyond this stamp nanoseconds would not fit
        self.latest = LARGEST_US * 1000 * records.metadata.clock_freq_hz // 1_000_000_000
        self.cores = records.metadata.core_types
        strange = next((kind for kind in self.cores if kind not in _UNITS), None)
        if strange is not None:
            raise BadInput(f"core type '{strange}', expected one of {', '.join(_UNITS)}", path=path)
        self.lanes: list[dict[str, Any]] = [
            {"name": f"{_UNITS[kind]}_{core}", "unit": _UNITS[kind], "core": core}
            for core, kind in enumerate(self.cores)
        ]

    def trace(self) -> Trace:
        tasks = self._tasks()
        deps = self._deps(tasks["task"].unique())
        tasks = tasks.with_columns(self._kernels(tasks, deps).alias("kernel"), pl.lit("task").alias("kind"))
        parts = [tasks, *self._control_parts()]
        slices = pl.concat([p for p in parts if p.height] or [tasks], how="diagonal_relaxed")
        slices = with_depth(slices)
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
        return Trace.of(slices, lanes.with_row_index("lane"), meta, self.edges)

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
        self.ledger.repaired[BACKWARDS] += ran.filter(backwards).height
        ran = ran.with_columns(pl.max_horizontal("start", "end").alias("end"))
        # the key may repeat on one core when the register wraps: the nth row meets the nth row
        nth = pl.int_range(pl.len()).over("core", "reg_task_id").alias("nth")
        key = ["core", "reg_task_id", "nth"]
        scheduled = self._frame(seen, ["core", "reg_task_id", "dispatch", "finish"], 4, "aicpu_tasks").with_columns(nth)
        joined = ran.with_columns(nth).join(scheduled, on=key, how="left", maintain_order="left")
        matched = joined.filter(pl.col("dispatch").is_not_null()).height
        self.ledger.merged["dispatch and finish joined to a task"] = matched
        self.ledger.dropped[UNRECORDED] = len(seen) - matched
        if seen:
            self.ledger.marked[UNSCHEDULED] = joined.height - matched
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
        full = self._array(rows, names, at_least)
        if full is None:
            self._find_fault(rows, names, at_least, key)
            full = np.array([row + [0] * (len(names) - len(row)) for row in rows], dtype=np.int64)
        return pl.DataFrame(full.reshape(-1, len(names)), schema=dict.fromkeys(names, pl.Int64), orient="row")

    def _array(self, rows: list[list[int]], names: list[str], at_least: int) -> NDArray[np.int64] | None:
        """The rows at once, where all have one length and nothing is wrong with them."""
        lengths = set(map(len, rows)) or {len(names)}
        if len(lengths) > 1 or not at_least <= min(lengths) <= len(names):
            return None
        try:
            array = np.array(rows, dtype=np.int64).reshape(len(rows), min(lengths))
        except OverflowError:
            return None
        stamps = [place for place, name in enumerate(names[: array.shape[1]]) if name in STAMPS]
        wrong = (array < 0).any() or (array[:, 0] >= len(self.cores)).any() or (array[:, stamps] > self.latest).any()
        return None if wrong else np.pad(array, ((0, 0), (0, len(names) - array.shape[1])))

    def _find_fault(self, rows: list[list[int]], names: list[str], at_least: int, key: str) -> None:
        """Raise for the first row that is wrong; rows of several lengths may all be right."""
        for number, row in enumerate(rows):
            if not at_least <= len(row) <= len(names):
                what = f"row {number} of {key} has {len(row)} numbers, expected {at_least} to {len(names)}"
                raise BadInput(what, path=self.path)
            if not 0 <= row[0] < len(self.cores):
                raise BadInput(f"row {number} of {key} names core {row[0]} of {len(self.cores)}", path=self.path)
            stamps = [value for name, value in zip(names, row, strict=False) if name in STAMPS]
            if min(row) < 0 or max(row) >= WHOLE or max(stamps) > self.latest:
                raise BadInput(
                    f"row {number} of {key} has a number outside 0 to 2^63, or too late a time", path=self.path
                )

    def _deps(self, seen: pl.Series) -> Deps | None:
        path = self.path.parent / "deps.json"
        if not path.is_file():
            return None
        deps = read_deps(path)
        unknown = len(seen) - int(seen.is_in(deps.functions()["task"].implode()).sum())
        if unknown:
            self.ledger.notes["deps_refused"] = (
                f"{unknown} tasks of the swimlane are not in deps.json: it is of another program"
            )
            return None
        self.files.append(str(path))
        self.edges = deps.edge_table()
        self.ledger.notes["deps_edges_repeated"] = len(deps.edges) - self.edges.height
        return deps

    def _kernels(self, tasks: pl.DataFrame, deps: Deps | None) -> pl.Series:
        """Names by the task's function for this core: cube, vector 0 or vector 1."""
        if deps is None:
            return pl.Series(["task"]).new_from_index(0, tasks.height)
        names = find_name_map(self.path.parent) or {}
        on_cube = pl.Series([kind == "aic" for kind in self.cores], dtype=pl.Boolean)
        first_vector = self.cores.index("aiv") if "aiv" in self.cores else len(self.cores)
        # a cluster is one cube and two vector cores, side by side; a task with one vector function runs it on either
        second = (pl.col("lane").cast(pl.Int64) - first_vector) % 2 == 1
        both = pl.min_horizontal("vector_0", "vector_1") >= 0
        only = pl.max_horizontal("vector_0", "vector_1")
        vector = pl.when(~both).then(only).when(second).then("vector_1").otherwise("vector_0")
        rows = tasks.select("task", "lane").join(deps.functions(), on="task", how="left", maintain_order="left")
        cube = on_cube.gather(rows["lane"])
        number = rows.select(pl.when(cube).then("cube").otherwise(vector).alias("number")).to_series()
        known = {n: "task" if n < 0 else names.get(n, f"func_{n}") for n in number.unique().to_list()}
        return number.replace_strict(known, return_dtype=pl.String) if known else pl.Series([], dtype=pl.String)

    def _control_parts(self) -> list[pl.DataFrame]:
        """What the AICPU's threads and the host did, a lane each; the host's clock is brought onto the device's."""
        records = self.records
        cycles, host = ("start_cycles", "end_cycles"), ("start_host_ns", "end_host_ns")
        parts = []
        for thread, rows in enumerate(records.aicpu_scheduler_phases):
            parts.append(self._thread(rows, f"Sched_{thread}", "AICPU", "scheduler", "phase", cycles))
        for thread, rows in enumerate(records.aicpu_orchestrator_phases):
            parts.append(self._thread(rows, f"Orch_{thread}", "AICPU", "orchestrator", "submit", cycles))
        for thread, rows in enumerate(records.host_orchestrator_phases):
            parts.append(self._thread(rows, f"Host_{thread}", "host", "orchestrator", "submit", host))
        if records.host_device_uploads:
            parts.append(self._thread(records.host_device_uploads, "H2D", "host", None, "upload", host))
        return parts

    def _thread(
        self, rows: list[dict[str, Any]], name: str, unit: str, role: str | None, label: str, stamps: tuple[str, str]
    ) -> pl.DataFrame:
        """Slices of one thread on a lane of its own; rows without a kind are called `label`."""
        number = len(self.lanes)
        self.lanes.append({"name": name, "unit": unit, "role": role})
        self.ledger.records += len(rows)
        on_host = unit == "host"
        frame = self._phase_frame(rows, *stamps, LARGEST_US * 1000 if on_host else self.latest, name)
        offset = self._host_offset() if on_host and rows else 0
        begin, end = (pl.col(c) + offset if on_host else self._ns(pl.col(c)) for c in ("begin", "end"))
        told = pl.when(pl.col("kind") != "").then(pl.col("kind")).otherwise(pl.lit(label))
        return frame.select(
            pl.lit(number, dtype=pl.UInt32).alias("lane"),
            begin.alias("start"),
            (end - begin).alias("dur"),
            told.alias("kernel"),
            pl.lit("host" if on_host else "schedule").alias("kind"),
            phase_of(told).alias("phase"),
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
            self.ledger.repaired[BACKWARDS] += row[end] < row[start]
            known = {
                "begin": row[start],
                "end": max(row[start], row[end]),
                "kind": str(row.get("kind") or row.get("phase") or ""),
            }
            for key in ("task_id", *COUNTERS):
                value = row.get(key)
                known[key] = value if isinstance(value, int) and abs(value) < WHOLE else None
            rest = {k: v for k, v in row.items() if k not in (start, end, "kind") and known.get(k) is None}
            plain.append({**known, "other": msgspec.json.encode(rest).decode() if rest else None})
        numbers = dict.fromkeys(("begin", "end", "task_id", *COUNTERS), pl.Int64)
        return pl.DataFrame(plain, schema={**numbers, "kind": pl.String, "other": pl.String})

    def _host_offset(self) -> int:
        """Device ns - host ns, from the anchor taken with the shortest round trip."""
        anchors = (self.records.metadata.clock_anchors or {}).get("samples")
        stamps = ("device_cycles", "rtt_ns", "host_before_ns", "host_after_ns")
        usable = [
            anchor
            for anchor in (anchors if isinstance(anchors, list) else [])
            if isinstance(anchor, dict)
            and not anchor.get("error")
            and all(isinstance(anchor.get(stamp), int) and 0 <= anchor[stamp] <= LARGEST_US * 1000 for stamp in stamps)
            and anchor["device_cycles"] <= self.latest
        ]
        if not usable:
            self.ledger.notes["host_clock"] = "no clock anchor: host lanes keep the host's own clock"
            return 0
        best = min(usable, key=lambda a: a["rtt_ns"])
        hertz = self.records.metadata.clock_freq_hz
        device = best["device_cycles"] * 1_000_000_000 // hertz
        self.ledger.notes["host_clock"] = f"aligned by a clock anchor, within {best['rtt_ns']} ns"
        return int(device - (best["host_before_ns"] + best["host_after_ns"]) // 2)
