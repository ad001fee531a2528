"""simpler's chip_swimlane_records.json (older: l2_swimlane_records.json), joined with deps.json and a name map.

All stamps are raw counter cycles. Level 1 has each task's start and end on its core; level 2 adds the
scheduler's dispatch and finish; levels 3 and 4 add what the schedulers and orchestrators did in between.
`swimlane_file` knows the layouts; `Control` reads what steered the run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import polars as pl

from npuscope.base.errors import BadInput
from npuscope.trace.core import BACKWARDS, READY_QUEUES, UNRECORDED, UNSCHEDULED, Ledger, Trace, with_depth
from npuscope.trace.formats import Reader, Sample
from npuscope.trace.intervals import counting, largest
from npuscope.trace.names import phase_of
from npuscope.trace.readers import tracr
from npuscope.trace.readers.run_files import attach
from npuscope.trace.readers.swimlane_file import (
    FILE_NAMES,
    CycleClock,
    Deps,
    Record,
    SchedulerStream,
    SwimlaneFile,
    find_name_map,
    read_deps,
    records_in,
)
from npuscope.trace.readers.tracr import bundle_root, join
from npuscope.trace.schema import LARGEST_US
from npuscope.trace.source import WHOLE

KEYS = (b'"chip_swimlane_level"', b'"l2_swimlane_level"', b'"aicore_tasks"')
_UNITS = {"aic": "AIC", "aiv": "AIV"}
RAN = ["core", "task", "reg_task_id", "start", "end", "receive_to_start", "run_epoch"]  # columns of aicore_tasks
SCHEDULED = ["core", "reg_task_id", "dispatch", "finish", "run_epoch"]
OLDER_RUN = "record of an older run, left in a reused buffer"
LONG_PAUSE_S, MUCH_LONGER = 0.1, 20  # between runs: seconds, and times the newest run, which takes microseconds
SHORT_PAUSE_S = 0.001  # between runs of one card, where the folder of a dispatch says that there is one run
STAMPS = ("start", "end", "dispatch", "finish")
TASKS_PER_RUN = 1 << 44  # task ids of one run stay below this: simpler's need 40 bits
_LANES = {
    "name": pl.String(), "unit": pl.String(), "core": pl.Int32(), "role": pl.String(), "producer": pl.String(),
    "physical_core": pl.Int32(),
}  # fmt: skip


def recognises(sample: Sample) -> bool:
    """True when the level or the task list is among the first keys; and for a run's folder without a bundle."""
    if sample.is_folder:
        return records_in(sample.path) is not None and bundle_root(sample.path) is None
    return sample.text.startswith(b"{") and any(key in sample.text[:4096] for key in KEYS)


def read(path: Path) -> Trace:
    """The run: one slice per row of a core, plus what steered it, with the dependencies that lie beside."""
    return read_with_older(path)[0]


def read_with_older(path: Path, one_dispatch: bool = False) -> tuple[Trace, pl.DataFrame]:
    """The run, and what its file still holds of runs before: `task`, `start` and `end` in nanoseconds, and how many
    runs before it was (`older`). `one_dispatch`: the file is known to hold a single run, so strays are none of it."""
    found = _Swimlane(SwimlaneFile(records_in(path) or path), one_dispatch)
    trace, ns = attach(found.path.parent, found.trace()), found.clock.ns
    start, end = ns(pl.col("start")).alias("start"), ns(pl.col("end")).alias("end")
    return trace, found.older.select("task", start, end, "older")


class _Swimlane:
    def __init__(self, file: SwimlaneFile, one_dispatch: bool = False) -> None:
        self.one_dispatch, self._cut, self._epoch = one_dispatch, 0, -1
        self.file, self.path, self.ledger = file, file.path, Ledger()
        self.files = [str(file.path)]
        self.clock = CycleClock(file.metadata, file.path)
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
        parts = [tasks, *self._of_this_run(control.slices())]
        slices = pl.concat([p for p in parts if p.height] or [tasks], how="diagonal_relaxed")
        slices, edges = self._runs(with_depth(slices), None if deps is None else deps.edge_table())
        self._note(deps)
        lanes = pl.DataFrame(self.lanes, schema=_LANES)
        lanes = lanes.select(c for c in lanes if c.name in ("name", "unit", "core", "role") or c.null_count() < len(c))
        meta = self.ledger.close("swimlane", tuple(self.files), clock="device counter")
        return Trace.of(slices, lanes.with_row_index("lane"), meta, edges, control.counters())

    def _of_this_run(self, parts: list[pl.DataFrame]) -> list[pl.DataFrame]:
        """What steered the run, without what is left of runs before where tasks of such were found."""
        if not self.one_dispatch or self.older.is_empty():
            return parts
        cut = self.clock.ns(pl.lit(self._cut))
        kept = []
        for part in parts:
            epoch = pl.col("run_epoch") if "run_epoch" in part.columns else pl.lit(None, dtype=pl.Int64)
            of_run = (
                pl.when(epoch.is_null()).then(pl.col("start") + pl.col("dur") >= cut).otherwise(epoch == self._epoch)
            )
            kept.append(part.filter(of_run.fill_null(True)))
            self.ledger.dropped[OLDER_RUN] += part.height - kept[-1].height
        return kept

    def _note(self, deps: Deps | None) -> None:
        """What the capture says of itself."""
        metadata, notes = self.file.metadata, self.ledger.notes
        notes |= {"level": self.file.level, "clock_freq_hz": metadata.clock_freq_hz, "num_cores": metadata.num_cores}
        known = {"runtime": metadata.runtime, "orchestrator": metadata.orchestrator_source}
        notes |= {key: value for key, value in known.items() if value is not None}
        if metadata.host_capture:
            notes["host_capture"] = metadata.host_capture
        self.ledger.unknown += self.file.unknown
        if deps is not None:
            self.ledger.unknown += deps.unknown

    def _tasks(self) -> pl.DataFrame:
        rows, stamps = self.file.records.aicore_tasks, self.file.scheduled
        self.ledger.records += len(rows) + len(stamps)
        ran = self._frame(rows, RAN, 5, "aicore_tasks")
        sound = (pl.col("start") > 0) & (pl.col("end") > 0)
        self.ledger.dropped["task without start or end"] += ran.height - ran.filter(sound).height
        ran = ran.filter(sound)
        backwards = pl.col("end") < pl.col("start")
        self.ledger.repaired[BACKWARDS] += ran.filter(backwards).height
        ran = self._without_older_run(ran.with_columns(pl.max_horizontal("start", "end").alias("end")))
        scheduled = self._frame(stamps, SCHEDULED, 4, self.file.scheduled_key)
        joined = _joined(ran, scheduled)
        matched = joined.filter(pl.col("dispatch").is_not_null()).height
        self.ledger.merged["dispatch and finish joined to a task"] = matched
        self.ledger.dropped[UNRECORDED] = len(stamps) - matched
        if stamps:
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

    def _without_older_run(self, ran: pl.DataFrame) -> pl.DataFrame:
        """Record buffers are reused, so a file may hold rows of runs before: long before, and of the same tasks.

        What is left of them is kept in `older`, for clocks of ranks can be compared by it. Newer files say the run.
        """
        self.older = ran.clear().with_columns(older=pl.lit(0, dtype=pl.Int64))
        if ran.height < 2:
            return ran
        if ran["run_epoch"].null_count() < ran.height:
            return self._newest_epoch(ran)
        ordered = ran.sort("start", maintain_order=True)
        gaps = (ordered["start"] - ordered["end"].cum_max().shift(1)).fill_null(0).to_numpy()
        pause = SHORT_PAUSE_S if self.one_dispatch else LONG_PAUSE_S
        long = np.flatnonzero(gaps > self.clock.hertz * pause)
        if not long.size:
            return ran
        first = int(long[-1])
        older, newest = ordered[:first], ordered[first:]
        span = largest(newest["end"].to_numpy()) - int(newest["start"][0])
        again = bool(older["task"].is_in(newest["task"].implode()).all())
        strays = self.one_dispatch and gaps[first] > self.clock.hertz * LONG_PAUSE_S  # of another program, perhaps
        if gaps[first] < MUCH_LONGER * span or not (again or strays):
            return ran
        self._cut = int(newest["start"][0]) - int(gaps[first]) // 2
        before = (len(long) - np.searchsorted(long, np.arange(first), side="right")).astype(np.int64)
        self.older = older.with_columns(older=pl.Series(before))
        self.ledger.dropped[OLDER_RUN] += older.height
        return ran.filter(pl.col("start") >= newest["start"][0])

    def _newest_epoch(self, ran: pl.DataFrame) -> pl.DataFrame:
        """A dispatch is one run: rows of other epochs are left of earlier ones. Elsewhere each is a step of its own."""
        epochs = ran["run_epoch"].drop_nulls().unique().sort(descending=True)
        if not self.one_dispatch or len(epochs) < 2:
            return ran
        newest = ran.sort("start")["run_epoch"].drop_nulls()[-1]
        ages = {epoch: age for age, epoch in enumerate([newest, *(one for one in epochs if one != newest)])}
        age = pl.col("run_epoch").replace_strict(ages, default=0, return_dtype=pl.Int64)
        marked = ran.with_columns(older=age)
        self._cut, self._epoch = 0, int(newest)
        self.older = marked.filter(pl.col("older") > 0)
        self.ledger.dropped[OLDER_RUN] += self.older.height
        return marked.filter(pl.col("older") == 0).drop("older")

    def _frame(self, rows: list[list[int]], names: list[str], at_least: int, key: str) -> pl.DataFrame:
        """The rows as columns. A row may be shorter, and what is missing is 0, or null for the run it belongs to."""
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        for column in range(len(names), largest(lengths)):  # of a layout still to come: what is known here is read
            self.ledger.unknown[f"column {column + 1} of {key}"] += int((lengths > column).sum())
        try:
            numbers = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(lengths.sum()))
        except OverflowError:
            numbers = np.array([n if 0 <= n < WHOLE else -1 for row in rows for n in row], dtype=np.int64)
        full = np.zeros((len(rows), max(len(names), largest(lengths))), dtype=np.int64)
        full[np.repeat(np.arange(len(rows)), lengths), counting(lengths)] = numbers
        full = full[:, : len(names)]
        stamps = [place for place, name in enumerate(names) if name in STAMPS]
        short, core = lengths < at_least, (full[:, 0] < 0) | (full[:, 0] >= len(self.cores))
        outside = (full < 0).any(axis=1) | (full[:, stamps] > self.clock.latest).any(axis=1)
        for number in np.flatnonzero(short | core | outside):
            what = "has a number outside 0 to 2^63, or too late a time"
            if short[number]:
                what = f"has {lengths[number]} numbers, expected {at_least} to {len(names)}"
            elif core[number]:
                what = f"names core {rows[number][0]} of {len(self.cores)}"
            raise BadInput(f"row {number} of {key} {what}", path=self.path)
        frame = pl.DataFrame(full, schema=dict.fromkeys(names, pl.Int64), orient="row")
        whole = len(rows) > 0 and int(lengths.min()) >= len(names)
        return frame if whole else frame.with_columns(pl.lit(None, dtype=pl.Int64).alias("run_epoch"))

    def _runs(self, slices: pl.DataFrame, edges: pl.DataFrame | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Where a file holds several runs, each is a step, with tasks and dependencies of its own."""
        if "run_epoch" not in slices.columns or slices["run_epoch"].null_count() == slices.height:
            return slices.drop("run_epoch", strict=False), edges
        runs = slices["run_epoch"].drop_nulls().unique().sort()
        if len(runs) == 1:
            return slices, edges
        stride = max(TASKS_PER_RUN, 1 << largest(slices["task"].fill_null(0).to_numpy()).bit_length())
        if stride * len(runs) >= WHOLE:
            raise BadInput(f"the tasks of {len(runs)} runs do not fit 63 bits", path=self.path)
        first = pl.DataFrame({"run_epoch": runs, "first": pl.Series(range(len(runs)), dtype=pl.Int64) * stride})
        slices = slices.join(first, on="run_epoch", how="left", maintain_order="left")
        slices = slices.with_columns(
            (pl.col("task") + pl.col("first").fill_null(0)).alias("task"), pl.col("run_epoch").alias("step")
        ).drop("first")
        if edges is not None:
            edges = edges.join(first.select("first"), how="cross", maintain_order="right_left")
            edges = edges.with_columns(pl.col("src", "dst") + pl.col("first")).drop("first")
        return slices, edges

    def _deps(self, tasks: pl.Series) -> Deps | None:
        path = self.path.parent / "deps.json"
        if not path.is_file():
            return None
        deps = read_deps(path)
        unknown = len(tasks) - int(tasks.is_in(deps.functions()["task"].implode()).sum())
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
    """Tasks with their dispatch and finish, met by core and register, and by run where both sides have it."""
    runs = all(frame["run_epoch"].null_count() == 0 for frame in (ran, scheduled)) and not ran.is_empty()
    key = ["core", "reg_task_id", *(["run_epoch"] if runs else [])]
    # the key may repeat on one core when the register wraps: the nth row meets the nth row
    nth = pl.int_range(pl.len()).over(key).alias("nth")
    stamps = scheduled.with_columns(nth).select(*key, "nth", "dispatch", "finish")
    return ran.with_columns(nth).join(stamps, on=[*key, "nth"], how="left", maintain_order="left")


CYCLES, HOST_NS = ("start_cycles", "end_cycles"), ("start_host_ns", "end_host_ns")
COLUMNS = ("loop_iter", "tasks_processed", "submit_idx", "run_epoch")  # numbers of phases that are kept as columns
QUEUES = {"shared_at_start": "start_cycles", "shared_at_end": "end_cycles"}  # depths, and when they were
NAMES = ("kind", "phase")  # where a record says what it is
# what an AICPU thread does around a run that AICores schedule: the stamps where each part begins and ends
LIFECYCLE = {
    "handshake": ("handshake_start", "handshake_complete"),
    "config": ("config_start", "topology_complete"),
    "context_publish": ("context_publish_start", "context_publish_complete"),
    "bootstrap_wait": ("bootstrap_wait_start", "bootstrap_complete"),
    "register_release": ("register_release_start", "register_release_end"),
    "exit_signal": ("exit_signal_start", "exit_signal_end"),
    "exit_wait": ("exit_wait_start", "exit_wait_end"),
}
Lane = dict[str, object]
_SAMPLES = {"lane": pl.UInt32, "name": pl.String, "time": pl.Int64, "value": pl.Float64}


class Control:
    """Reads the control records of a file onto lanes of their own, behind those of the cores."""

    def __init__(self, file: SwimlaneFile, clock: CycleClock, lanes: list[Lane], ledger: Ledger) -> None:
        self.file, self.clock, self.lanes, self.ledger = file, clock, lanes, ledger
        self._samples: list[pl.DataFrame] = []

    def slices(self) -> list[pl.DataFrame]:
        """A table per thread. The host's clock is moved onto the device's."""
        records = self.file.records
        parts = [self._stream(stream) for stream in self.file.streams]
        for thread, rows in enumerate(records.aicpu_orchestrator_phases):
            parts.append(self._thread(rows, f"Orch_{thread}", "orchestrator", "submit"))
        for thread, rows in enumerate(records.host_orchestrator_phases):
            parts.append(self._thread(rows, f"Host_{thread}", "orchestrator", "submit", on_host=True))
        if records.host_device_uploads:
            parts.append(self._thread(records.host_device_uploads, "H2D", None, "upload", on_host=True))
        for record in records.aicpu_lifecycle_records:
            parts.append(self._thread(self._lifecycle(record), f"AICPU_{record.get('aicpu_thread_id')}", None, ""))
        return parts

    def counters(self) -> pl.DataFrame:
        """What schedulers counted, by time: depths of the queues that all share, hits and misses of each."""
        if not self._samples:
            return pl.DataFrame(schema=_SAMPLES)
        return pl.concat(self._samples).sort("time", maintain_order=True)

    def _stream(self, stream: SchedulerStream) -> pl.DataFrame:
        """A scheduler's phases. It counts as one of the AICPU's threads, also where an AICore does their work."""
        name = f"Sched_{stream.scheduler_id}"
        slices = self._thread(stream.records, name, "scheduler", "phase")
        self.lanes[-1]["producer"] = stream.producer
        if stream.physical_core_id is not None and 0 <= stream.physical_core_id < 2**31:
            self.lanes[-1]["physical_core"] = stream.physical_core_id
        strange = slices.filter(pl.col("phase").is_null())["kernel"]
        for kind, count in strange.value_counts().iter_rows():
            self.ledger.count_unknown("kind of scheduler record", kind, count)
        if stream.capture is not None:
            numbers = {key: value for key, value in stream.capture.items() if isinstance(value, int) or value is None}
            self.ledger.notes.setdefault("capture", {})[name] = {**numbers, "records": len(stream.records)}
        self._samples.append(self._counted(stream, len(self.lanes) - 1))
        return slices

    def _counted(self, stream: SchedulerStream, lane: int) -> pl.DataFrame:
        """Samples of the queues at the start and end of a record, and of its hits and misses when it ended."""
        rows: list[tuple[int | None, str, Any, Any]] = []
        for metric in stream.metrics:
            at = metric.get("record_index")
            record: Record = stream.records[at] if isinstance(at, int) and 0 <= at < len(stream.records) else {}
            for key, value in metric.items():
                if key in QUEUES and isinstance(value, list):
                    time = record.get(QUEUES[key])
                    rows += [(None, name, time, depth) for name, depth in zip(_queues(len(value)), value, strict=True)]
                elif key in ("pop_hit", "pop_miss"):
                    rows.append((lane, key, record.get("end_cycles"), value))
                elif key != "record_index":
                    self.ledger.count_unknown("metric", key)
        sound = [row for row in rows if _fits(row[2]) and _fits(row[3]) and 0 <= row[2] <= self.clock.latest]
        self.ledger.records += len(rows)
        self.ledger.dropped["metric without a number or a record"] += len(rows) - len(sound)
        columns = list(zip(*sound, strict=True)) or [()] * len(_SAMPLES)
        frame = pl.DataFrame(dict(zip(_SAMPLES, columns, strict=True)), schema={**_SAMPLES, "value": pl.Int64})
        return frame.with_columns(self.clock.ns(pl.col("time")).alias("time"), pl.col("value").cast(pl.Float64))

    def _lifecycle(self, record: Record) -> list[Record]:
        """The parts of an AICPU thread's life as records of their own."""
        known = {f"{stamp}_cycles" for stamps in LIFECYCLE.values() for stamp in stamps} | {"aicpu_thread_id"}
        for key in record.keys() - known:
            self.ledger.count_unknown("key of aicpu_lifecycle_records", key)
        parts: list[Record] = []
        for name, (start, end) in LIFECYCLE.items():
            begin, stop = record.get(f"{start}_cycles"), record.get(f"{end}_cycles")
            if begin and stop:  # 0 is a stamp never taken
                parts.append({"kind": name, "start_cycles": begin, "end_cycles": stop})
            elif begin or stop:
                self.ledger.records += 1
                self.ledger.dropped["part of an AICPU thread's life without both stamps"] += 1
        return parts

    def _thread(
        self, rows: Sequence[Record], name: str, role: str | None, label: str, on_host: bool = False
    ) -> pl.DataFrame:
        """Slices of one thread on a lane of its own; rows that do not say what they are are called `label`."""
        number = len(self.lanes)
        self.lanes.append({"name": name, "unit": "host" if on_host else "AICPU", "role": role})
        self.ledger.records += len(rows)
        latest = LARGEST_US * 1000 if on_host else self.clock.latest
        frame = self._phases(rows, HOST_NS if on_host else CYCLES, latest, name)
        offset = self.clock.host_offset(self.ledger) if on_host and rows else 0
        begin, end = (pl.col(c) + offset if on_host else self.clock.ns(pl.col(c)) for c in ("begin", "end"))
        called = pl.when(pl.col("kind") != "").then(pl.col("kind")).otherwise(pl.lit(label))
        return frame.select(
            pl.lit(number, dtype=pl.UInt32).alias("lane"),
            begin.alias("start"),
            (end - begin).alias("dur"),
            called.alias("kernel"),
            pl.lit("host" if on_host else "schedule").alias("kind"),
            phase_of(called).alias("phase"),
            pl.col("task_id").alias("task"),
            *COLUMNS,
            "other",
        )

    def _phases(self, rows: Sequence[Record], stamps: tuple[str, str], latest: int, where: str) -> pl.DataFrame:
        """begin, end, kind, task_id and numbers as columns; whatever else a build writes as JSON in `other`."""
        plain = [self._phase(row, number, stamps, latest, where) for number, row in enumerate(rows)]
        numbers = dict.fromkeys(("begin", "end", "task_id", *COLUMNS), pl.Int64)
        return pl.DataFrame(plain, schema={**numbers, "kind": pl.String, "other": pl.String}, orient="row")

    def _phase(self, row: Record, number: int, stamps: tuple[str, str], latest: int, where: str) -> Lane:
        times = []
        for stamp in stamps:
            value = row.get(stamp)
            if not isinstance(value, int) or not 0 <= value <= latest:
                raise BadInput(f"phase {number} of {where} has no usable {stamp}", path=self.file.path)
            times.append(value)
        begin, end = times
        self.ledger.repaired[BACKWARDS] += end < begin
        name = next((str(row[key]) for key in NAMES if row.get(key)), "")
        columns: Lane = {"begin": begin, "end": max(begin, end), "kind": name}
        for key in ("task_id", *COLUMNS):
            value = row.get(key)
            columns[key] = value if _fits(value) else None
        rest = {k: v for k, v in row.items() if k not in (*stamps, *NAMES) and v is not None and columns.get(k) is None}
        for key in rest.keys() - {"detail", "task_id", *COLUMNS}:
            self.ledger.count_unknown(f"key of records of {where.rstrip('0123456789')}*", key)
        # the standard encoder: a number may have more than 64 bits
        return {**columns, "other": json.dumps(rest, separators=(",", ":"), ensure_ascii=False) if rest else None}


def _queues(count: int) -> list[str]:
    """Names of the queues whose depths a list has."""
    return [*READY_QUEUES[:count], *(f"shared_ready_queue {n}" for n in range(len(READY_QUEUES), count))]


def _fits(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < WHOLE


READER = Reader(
    "swimlane",
    "records of the simpler runtime with deps.json and name_map, or their folder",
    recognises,
    read,
    files=FILE_NAMES,
    tells=(
        "kernels: with deps.json and a name map",
        "cores",
        "dependencies: with deps.json",
        "scheduling: from level 2 on",
        "ranks",
        "counters: from level 3 on",
    ),
)
WITH_BUNDLE = Reader(
    "swimlane+tracr",
    "a folder with a bundle and the swimlane of the same run",
    lambda sample: records_in(sample.path) is not None and bundle_root(sample.path) is not None,
    lambda path: join(tracr.read(path), read(path)),
    tells=READER.tells,
)
