"""simpler's chip_swimlane_records.json (older: l2_swimlane_records.json), joined with deps.json and a name map.

All stamps are raw counter cycles. Level 1 has each task's start and end on its core; level 2 adds the
scheduler's dispatch and finish; levels 3 and 4 add what the schedulers and orchestrators did in between.
`swimlane_file` knows the layouts, `swimlane_control` what steered the run.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base.errors import BadInput
from npuscope.trace.core import Trace, with_depth
from npuscope.trace.intervals import largest
from npuscope.trace.json_file import WHOLE
from npuscope.trace.meta import BACKWARDS, UNRECORDED, UNSCHEDULED, Ledger
from npuscope.trace.readers.deps import Deps, read_deps
from npuscope.trace.readers.name_map import find_name_map
from npuscope.trace.readers.swimlane_clock import Clock
from npuscope.trace.readers.swimlane_control import Control, Lane
from npuscope.trace.readers.swimlane_file import SwimlaneFile

FILE_NAMES = ("chip_swimlane_records.json", "l2_swimlane_records.json")
_UNITS = {"aic": "AIC", "aiv": "AIV"}
RAN = ["core", "task", "reg_task_id", "start", "end", "receive_to_start", "run_epoch"]  # columns of aicore_tasks
SCHEDULED = ["core", "reg_task_id", "dispatch", "finish", "run_epoch"]
STAMPS = ("start", "end", "dispatch", "finish")
TASKS_PER_RUN = 1 << 44  # task ids of one run stay below this: simpler's need 40 bits
_LANES = {
    "name": pl.String(), "unit": pl.String(), "core": pl.Int32(), "role": pl.String(), "producer": pl.String(),
    "physical_core": pl.Int32(),
}  # fmt: skip


def recognises(head: bytes) -> bool:
    """True when the level or the task list is among the first keys."""
    return any(key in head[:4096] for key in (b'"chip_swimlane_level"', b'"l2_swimlane_level"', b'"aicore_tasks"'))


def records_in(folder: Path) -> Path | None:
    """The swimlane file of a run's folder."""
    return next((folder / name for name in FILE_NAMES if (folder / name).is_file()), None)


def read(path: Path) -> Trace:
    """The run: one slice per row of a core, plus what steered it, with the dependencies that lie beside."""
    return _Swimlane(SwimlaneFile(path)).trace()


class _Swimlane:
    def __init__(self, file: SwimlaneFile) -> None:
        self.file, self.path, self.ledger = file, file.path, Ledger()
        self.files = [str(file.path)]
        self.clock = Clock(file.metadata, file.path)
        self.cores = file.metadata.core_types
        strange = next((kind for kind in self.cores if kind not in _UNITS), None)
        if strange is not None:
            raise BadInput(f"core type '{strange}', expected one of {', '.join(_UNITS)}", path=self.path)
        self.lanes: list[Lane] = [
            {"name": f"{_UNITS[kind]}_{core}", "unit": _UNITS[kind], "core": core}
            for core, kind in enumerate(self.cores)
        ]

    def trace(self) -> Trace:
        tasks = self._tasks()
        deps = self._deps(tasks["task"].unique())
        tasks = tasks.with_columns(self._kernels(tasks, deps).alias("kernel"), pl.lit("task").alias("kind"))
        control = Control(self.file, self.clock, self.lanes, self.ledger)
        parts = [tasks, *control.slices()]
        slices = pl.concat([p for p in parts if p.height] or [tasks], how="diagonal_relaxed")
        slices, edges = self._runs(with_depth(slices), None if deps is None else deps.edge_table())
        self._note(deps)
        lanes = pl.DataFrame(self.lanes, schema=_LANES)
        lanes = lanes.select(c for c in lanes if c.name in ("name", "unit", "core", "role") or c.null_count() < len(c))
        meta = self.ledger.close("swimlane", tuple(self.files), clock="device counter")
        return Trace.of(slices, lanes.with_row_index("lane"), meta, edges, control.counters())

    def _note(self, deps: Deps | None) -> None:
        """What the capture says of itself."""
        metadata, notes = self.file.metadata, self.ledger.notes
        notes |= {"level": self.file.level, "clock_freq_hz": metadata.clock_freq_hz, "num_cores": metadata.num_cores}
        told = {"runtime": metadata.runtime, "orchestrator": metadata.orchestrator_source}
        notes |= {key: value for key, value in told.items() if value is not None}
        if metadata.host_capture:
            notes["host_capture"] = metadata.host_capture
        self.ledger.unknown += self.file.unknown
        if deps is not None:
            self.ledger.unknown += deps.unknown

    def _tasks(self) -> pl.DataFrame:
        rows, seen = self.file.records.aicore_tasks, self.file.scheduled
        self.ledger.records += len(rows) + len(seen)
        ran = self._frame(rows, RAN, 5, "aicore_tasks")
        sound = (pl.col("start") > 0) & (pl.col("end") > 0)
        self.ledger.dropped["task without start or end"] += ran.height - ran.filter(sound).height
        ran = ran.filter(sound)
        backwards = pl.col("end") < pl.col("start")
        self.ledger.repaired[BACKWARDS] += ran.filter(backwards).height
        ran = ran.with_columns(pl.max_horizontal("start", "end").alias("end"))
        scheduled = self._frame(seen, SCHEDULED, 4, self.file.scheduled_key)
        joined = _joined(ran, scheduled)
        matched = joined.filter(pl.col("dispatch").is_not_null()).height
        self.ledger.merged["dispatch and finish joined to a task"] = matched
        self.ledger.dropped[UNRECORDED] = len(seen) - matched
        if seen:
            self.ledger.marked[UNSCHEDULED] = joined.height - matched
        known = pl.col("dispatch", "finish").replace(0, None)  # 0 is a stamp never taken
        ns = self.clock.ns
        return joined.with_columns(known).select(
            pl.col("core").cast(pl.UInt32).alias("lane"),
            ns(pl.col("start")).alias("start"),
            (ns(pl.col("end")) - ns(pl.col("start"))).alias("dur"),
            "task",
            (pl.col("start").rank("ordinal").over("task", "run_epoch") - 1).cast(pl.Int32).alias("block"),
            ns(pl.col("dispatch")).alias("dispatch"),
            ns(pl.col("finish")).alias("finish"),
            ns(pl.col("start") - pl.col("receive_to_start")).alias("receive"),
            (pl.col("task") // 2**32 % 256).alias("ring"),
            "reg_task_id",
            "run_epoch",
        )

    def _frame(self, rows: list[list[int]], names: list[str], at_least: int, key: str) -> pl.DataFrame:
        """The rows as columns. A row may be shorter, and what is missing is 0, or null for the run it belongs to."""
        wide = max(map(len, rows), default=0)
        if wide > len(names):  # of a layout still to come: what is known here is read
            for column in range(len(names), wide):
                self.ledger.unknown[f"column {column + 1} of {key}"] += sum(len(row) > column for row in rows)
            rows = [row[: len(names)] for row in rows]
        full = self._array(rows, names, at_least)
        if full is None:
            self._find_fault(rows, names, at_least, key)
            full = np.array([row + [0] * (len(names) - len(row)) for row in rows], dtype=np.int64)
        frame = pl.DataFrame(full.reshape(-1, len(names)), schema=dict.fromkeys(names, pl.Int64), orient="row")
        whole = bool(rows) and min(map(len, rows)) == len(names)
        return frame if whole else frame.with_columns(pl.lit(None, dtype=pl.Int64).alias("run_epoch"))

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
        latest = self.clock.latest
        wrong = (array < 0).any() or (array[:, 0] >= len(self.cores)).any() or (array[:, stamps] > latest).any()
        return None if wrong else np.pad(array, ((0, 0), (0, len(names) - array.shape[1])))

    def _find_fault(self, rows: list[list[int]], names: list[str], at_least: int, key: str) -> None:
        """Raise for the first row that is wrong; rows of several lengths may all be right."""
        for number, row in enumerate(rows):
            if len(row) < at_least:
                what = f"row {number} of {key} has {len(row)} numbers, expected {at_least} to {len(names)}"
                raise BadInput(what, path=self.path)
            if not 0 <= row[0] < len(self.cores):
                raise BadInput(f"row {number} of {key} names core {row[0]} of {len(self.cores)}", path=self.path)
            stamps = [value for name, value in zip(names, row, strict=False) if name in STAMPS]
            if min(row) < 0 or max(row) >= WHOLE or max(stamps) > self.clock.latest:
                raise BadInput(
                    f"row {number} of {key} has a number outside 0 to 2^63, or too late a time", path=self.path
                )

    def _runs(self, slices: pl.DataFrame, edges: pl.DataFrame | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Where a file holds several runs, each is a step, with tasks and dependencies of its own."""
        if "run_epoch" not in slices.columns or slices["run_epoch"].null_count() == slices.height:
            return slices.drop("run_epoch", strict=False), edges
        runs = slices["run_epoch"].drop_nulls().unique().sort()
        if len(runs) == 1:
            return slices, edges
        stride = max(TASKS_PER_RUN, 1 << largest(slices["task"].fill_null(0).to_numpy()).bit_length())
        if stride * len(runs) >= WHOLE:
            raise BadInput(f"the tasks of {len(runs)} runs cannot be kept apart in 63 bits", path=self.path)
        first = pl.DataFrame({"run_epoch": runs, "first": pl.Series(range(len(runs)), dtype=pl.Int64) * stride})
        slices = slices.join(first, on="run_epoch", how="left", maintain_order="left")
        slices = slices.with_columns(
            (pl.col("task") + pl.col("first").fill_null(0)).alias("task"), pl.col("run_epoch").alias("step")
        ).drop("first")
        if edges is not None:
            edges = edges.join(first.select("first"), how="cross", maintain_order="right_left")
            edges = edges.with_columns(pl.col("src", "dst") + pl.col("first")).drop("first")
        return slices, edges

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
        self.ledger.notes["deps_edges_repeated"] = len(deps.edges) - deps.edge_table().height
        return deps

    def _kernels(self, tasks: pl.DataFrame, deps: Deps | None) -> pl.Series:
        """Names by the task's function for this core: cube, vector 0 or vector 1."""
        if deps is None:
            return pl.Series(["task"]).new_from_index(0, tasks.height)
        names = find_name_map(self.path.parent, self.ledger.unknown) or {}
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


def _joined(ran: pl.DataFrame, scheduled: pl.DataFrame) -> pl.DataFrame:
    """Tasks with their dispatch and finish, met by core and register, and by run where both sides tell it."""
    runs = all(frame["run_epoch"].null_count() == 0 for frame in (ran, scheduled)) and not ran.is_empty()
    key = ["core", "reg_task_id", *(["run_epoch"] if runs else [])]
    # the key may repeat on one core when the register wraps: the nth row meets the nth row
    nth = pl.int_range(pl.len()).over(key).alias("nth")
    stamps = scheduled.with_columns(nth).select(*key, "nth", "dispatch", "finish")
    return ran.with_columns(nth).join(stamps, on=[*key, "nth"], how="left", maintain_order="left")
