"""A folder as the simpler runtime leaves it: swimlane records, deps.json, a name map, and the two critical paths.

simpler's own converter, its reports and its editor extension open it. Every row names its run, as checkouts since
September 2026 have it. Stamps count nanoseconds: a clock of 1 GHz.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from npuscope.base.errors import CannotWrite
from npuscope.trace.core import Counts, Trace, note_of
from npuscope.trace.formats import Writer
from npuscope.trace.schema import counts_once
from npuscope.trace.writers.atomic import whole_folder

RECORDS, DEPS, NAMES = "chip_swimlane_records.json", "deps.json", "name_map_npuscope.json"
STATIC, OBSERVED = "CPM_static.json", "CPM_observed.json"
HERTZ = 1_000_000_000
TASKS_PER_RUN = 1 << 44
RUNTIME = "tensormap_and_ringbuffer"
UNITS = {"AIC": "aic", "AIV": "aiv"}
# what the runtime calls phases; its tools know no other words
PHASES = {
    "complete": "complete", "async_poll": "async_poll", "dispatch": "dispatch", "release": "release", "dummy": "dummy",
    "early_dispatch": "early_dispatch", "drain_sync": "drain", "resolve": "resolve", "drain_prepare": "drain_prepare",
    "drain_publish": "drain_publish", "dummy_task": "dummy_task", "predicated_skip": "predicated_skip",
}  # fmt: skip
KEPT = {
    "lane", "start", "dur", "kernel", "kind", "depth", "task", "block", "dispatch", "finish", "receive", "run_epoch",
    "reg_task_id", "ring", "phase", "marker", "loop_iter", "tasks_processed", "submit_idx",
}  # fmt: skip


def write(trace: Trace, path: Path) -> Counts:
    """The folder."""
    run = _Written(trace, path)
    files = {
        RECORDS: run.records(),
        DEPS: run.deps(),
        NAMES: {"level": 2, "orchestrator_name": "npuscope", "callable_id_to_name": run.names()},
        **run.critical_paths(),
    }
    with whole_folder(path, _is_ours) as folder:
        for name, content in files.items():
            (folder / name).write_bytes(orjson.dumps(content) + b"\n")
    return run.left_out()


def _is_ours(folder: Path) -> bool:
    return {child.name for child in folder.iterdir()} <= {RECORDS, DEPS, NAMES, STATIC, OBSERVED}


class _Written:
    def __init__(self, trace: Trace, path: Path) -> None:
        self.trace = trace
        cores = trace.lanes.filter(pl.col("unit").is_in(list(UNITS))).sort(
            pl.col("unit").cast(pl.String), "core", "lane", nulls_last=True
        )
        if trace.lanes["rank"].drop_nulls().n_unique() > 1:
            raise CannotWrite("several ranks, where a swimlane is of one", path=path, remedy="Cut one out first.")
        tasks = trace.slices.filter(counts_once()).join(
            cores.select("lane", "unit").with_row_index("core_id"), on="lane", maintain_order="left"
        )
        if tasks.is_empty():
            raise CannotWrite("no task on a core, which is what a swimlane has", path=path)
        self.cores, self.shift = cores, max(0, 1 - min(trace.first_time, self._first_stamp(tasks)))
        number = -1 - pl.int_range(pl.len(), dtype=pl.Int64)  # a task without an id is one of its own
        highest = int(tasks["task"].max() or 0)  # type: ignore[arg-type]
        self.tasks = tasks.with_columns(
            pl.coalesce("task", highest - number).alias("task"),
            (pl.col("run_epoch") if "run_epoch" in tasks.columns else pl.lit(0)).fill_null(0).alias("run"),
        ).sort("core_id", "start", maintain_order=True)
        self.several = self.tasks["run"].n_unique() > 1
        self.kernels = {
            name: n for n, name in enumerate(self.tasks["kernel"].fill_null("task").unique(maintain_order=True))
        }

    @staticmethod
    def _first_stamp(tasks: pl.DataFrame) -> int:
        stamps = [tasks[name].min() for name in ("start", "dispatch", "receive") if name in tasks.columns]
        return min((int(one) for one in stamps if isinstance(one, int)), default=0)

    def _token(self, task: int) -> int:
        """A reader gives the tasks of each of several runs ids of their own; the file has the runtime's."""
        return task % TASKS_PER_RUN if self.several else task

    def records(self) -> dict[str, Any]:
        """The layout since September."""
        ran, stamps = self._rows()
        scheduled, orchestrated = (list(self._threads(role)) for role in ("scheduler", "orchestrator"))
        level = 4 if orchestrated else 3 if scheduled else 2 if stamps else 1
        metadata = {"clock_freq_hz": HERTZ, "num_cores": self.cores.height, "runtime": RUNTIME}
        units = [UNITS[unit] for unit in self.cores["unit"].cast(pl.String)]
        file: dict[str, Any] = {
            "chip_swimlane_level": level,
            "metadata": {**metadata, "core_types": units},
            "aicore_tasks": ran,
            "scheduler_tasks": {"producer": "aicpu", "records": stamps},
            "scheduler_records": {"streams": [_stream(n, rows) for n, rows in enumerate(scheduled)]},
        }
        if level >= 3:
            file["metadata"]["core_to_thread"] = [core % max(len(scheduled), 1) for core in range(len(units))]
        return file | ({"aicpu_orchestrator_phases": orchestrated} if orchestrated else {})

    def _rows(self) -> tuple[list[list[int]], list[list[int]]]:
        """Rows of tasks, and of their stamps where they have any; 0 is a stamp never taken."""
        receive = pl.col("receive") if "receive" in self.tasks.columns else pl.lit(None, dtype=pl.Int64)
        columns = self.tasks.select(
            "core_id", "task", pl.int_range(pl.len()).over("core_id").alias("register"),
            pl.col("start") + self.shift, (pl.col("start") + pl.col("dur") + self.shift).alias("end"),
            (pl.col("start") - receive).fill_null(0).clip(lower_bound=0).alias("setup"),
            (pl.col("dispatch") + self.shift).fill_null(0), (pl.col("finish") + self.shift).fill_null(0), "run",
        )  # fmt: skip
        ran, stamps = [], []
        for core, task, register, start, end, setup, dispatch, finish, epoch in columns.iter_rows():
            ran.append([core, self._token(task), register, start, end, setup, epoch])
            if dispatch or finish:
                stamps.append([core, register, dispatch, finish, epoch])
        return ran, stamps

    def _threads(self, role: str) -> Iterator[list[dict[str, Any]]]:
        """The phases of every thread with a role."""
        if "role" not in self.trace.lanes.columns:
            return
        lanes = self.trace.lanes.filter(pl.col("role").str.starts_with(role) & (pl.col("unit") == "AICPU"))
        for lane in lanes["lane"]:
            rows = self.trace.slices.filter((pl.col("lane") == lane) & (pl.col("kind") == "schedule")).sort("start")
            yield [self._phase(row, role) for row in rows.iter_rows(named=True)]

    def _phase(self, row: dict[str, Any], role: str) -> dict[str, Any]:
        begin = row["start"] + self.shift
        record: dict[str, Any] = {"start_cycles": begin, "end_cycles": begin + row["dur"]}
        record["run_epoch"] = row.get("run_epoch") or 0
        if role == "scheduler":
            record |= {"loop_iter": row.get("loop_iter") or 0, "kind": _kind(row)}
            record["tasks_processed"] = row.get("tasks_processed") or 0
        else:
            record["submit_idx"] = row.get("submit_idx") or 0
            record |= {} if row["kernel"] == "submit" else {"kind": row["kernel"]}
        return {**record, "task_id": None if row["task"] is None else self._token(row["task"])}

    def deps(self) -> dict[str, Any]:
        """Every task with its functions, those that never ran too, and every dependency."""
        found = (
            self.tasks.with_columns(pl.col("unit").cast(pl.String), pl.col("kernel").fill_null("task"))
            .group_by("task", maintain_order=True)
            .agg(
                *(
                    pl.col("kernel").filter(pl.col("unit") == unit).unique(maintain_order=True).alias(unit)
                    for unit in UNITS
                ),
                pl.len().alias("blocks"),
            )
        )
        tasks: dict[int, dict[str, Any]] = {}
        for task, cube, vector, blocks in found.iter_rows():
            ids = [self.kernels[name] for name in (*cube[:1], *vector[:2])]
            places = [*([ids.pop(0)] if cube else [-1]), *ids, -1, -1][:3]
            tasks[self._token(task)] = _task(self._token(task), places, blocks)
        edges = self._edges()
        ends = pl.concat([edges["src"], edges["dst"]]).unique(maintain_order=True)
        for one in (self._token(task) for task in ends):
            tasks.setdefault(one, _task(one, [-1, -1, -1], 1))
        rows = [
            {"pred": str(self._token(src)), "succ": str(self._token(dst)), "arg": -1, "source": source,
             "flags": ["wait"], "overlap": "other"}
            for src, dst, source in edges.iter_rows()
        ]  # fmt: skip
        return {"runtime": RUNTIME, "tasks": list(tasks.values()), "tensors": [], "edges": rows}

    def _edges(self) -> pl.DataFrame:
        known = pl.col("source").is_in(["creator", "tensormap", "explicit"])
        named = pl.col("name") == "dependency" if "name" in self.trace.edges.columns else pl.lit(False)
        edges = self.trace.edges.filter((known | named).fill_null(False)).drop_nulls(["src", "dst"])
        source = pl.when(known).then("source").otherwise(pl.lit("explicit")).alias("source")
        edges = edges.select("src", "dst", source)
        if self.several:  # a file has one graph, which all its runs share
            edges = edges.with_columns(pl.col("src", "dst") % TASKS_PER_RUN)
        return edges.unique(maintain_order=True)

    def names(self) -> dict[str, str]:
        return {str(number): name for name, number in self.kernels.items()}

    def critical_paths(self) -> dict[str, Any]:
        """Their two traces: every task on its core, those off the path without a name."""
        spans = self.tasks.group_by("task", maintain_order=True).agg(
            pl.col("start").min(), (pl.col("start") + pl.col("dur")).max().alias("end")
        )
        span = {task: (start, end) for task, start, end in spans.iter_rows()}
        waits: dict[int, list[int]] = {}
        for src, dst, _ in self._edges().iter_rows():
            # as simpler has it: producers that ran, and were over before
            if src in span and dst in span and span[src][1] <= span[dst][0] and span[src][0] < span[dst][0]:
                waits.setdefault(dst, []).append(src)
        on_static, on_observed = set(_longest(span, waits)), set(self._observed(span, waits))
        return {STATIC: self._worker_view(on_static), OBSERVED: self._worker_view(on_observed)}

    def _observed(self, span: dict[int, tuple[int, int]], waits: dict[int, list[int]]) -> Iterator[int]:
        """Back from the task that ended last, each time to what was over last: a producer or its core's last."""
        before: dict[int, int] = {}
        for _, rows in self.tasks.select("core_id", "start", "dur", "task").group_by("core_id", maintain_order=True):
            last, until = None, -1
            for _, start, dur, here in rows.iter_rows():
                if last is not None and last != here and until <= start and start == span[here][0]:
                    other = before.get(here)
                    if other is None or span[other][1] < until:
                        before[here] = last
                if start + dur > until:
                    last, until = here, start + dur
        task: int | None = max(span, key=lambda one: span[one][1])
        seen: set[int] = set()
        while task is not None and task not in seen:
            seen.add(task)
            yield task
            ways = [*waits.get(task, ()), *([before[task]] if task in before else [])]
            task = max(ways, key=lambda one: span[one][1], default=None)

    def _worker_view(self, critical: set[int]) -> dict[str, Any]:
        first = int(self.tasks["start"].min() or 0)  # type: ignore[arg-type]
        head = {"ph": "M", "pid": 4, "cat": "__metadata"}
        events: list[dict[str, Any]] = [{**head, "name": "process_name", "args": {"name": "Worker View"}}]
        for core, unit in enumerate(self.cores["unit"].cast(pl.String)):
            shown = {"name": f"{unit}_{core}"}
            events.append({**head, "name": "thread_name", "tid": 10_000 + 10 * core, "args": shown})
        for core, start, dur, kernel, task in self.tasks.select(
            "core_id", "start", "dur", "kernel", "task"
        ).iter_rows():
            token = self._token(task)
            ring, local = token >> 32 & 255, token & (1 << 32) - 1
            name = f"{kernel if task in critical else '·'}(r{ring}t{local})"
            event = {"ph": "X", "pid": 4, "tid": 10_000 + 10 * core, "cat": "event", "name": name}
            events.append({**event, "ts": (start - first) / 1000, "dur": dur / 1000, "args": {"taskId": token}})
        return {"traceEvents": events}

    def _renamed(self) -> int:
        phases = self.trace.slices.filter(pl.col("kind") == "schedule")
        columns = ["kernel", *(["phase"] if "phase" in phases.columns else [])]
        return sum(_kind(row) != row["kernel"] for row in phases.select(columns).iter_rows(named=True))

    def left_out(self) -> Counts:
        trace = self.trace
        written = self.tasks.height + sum(
            len(rows) for role in ("scheduler", "orchestrator") for rows in self._threads(role)
        )
        columns = [
            c for c in trace.slices.columns if c not in KEPT and trace.slices[c].null_count() < trace.slices.height
        ]
        counts = {
            "slice that is no task of a core and no phase of a scheduler": trace.slices.height - written,
            "name of a phase, for which the runtime has another": self._renamed(),
            "note of the window": len(note_of(trace)),
            "name of the device": int(trace.meta.device is not None),
            "sample of a counter": trace.counters.height,
            "edge that is no dependency": trace.edges.height - self._edges().height,
            "time moved, since a stamp is above zero": self.tasks.height if self.shift else 0,
            **{f"column {name}": trace.slices[name].count() for name in columns},
        }
        return {reason: count for reason, count in counts.items() if count > 0}


def _kind(row: dict[str, Any]) -> str:
    """The runtime's word for a scheduler's phase, else the capture's own."""
    name = row["kernel"] or "phase"
    return name if name in PHASES.values() else PHASES.get(row.get("phase") or "", name)


def _stream(number: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "platform": "a2a3", "producer": "aicpu", "scheduler_id": number, "worker_id": number, "core_type": "aicpu",
        "physical_core_id": None, "capture": {"committed": len(rows), "dropped": 0, "truncated": False},
        "records": rows, "metrics": [],
    }  # fmt: skip


def _task(task: int, functions: list[int], blocks: int) -> dict[str, Any]:
    return {"task_id": str(task), "scope": 0, "kernel_ids": functions, "block_num": blocks, "args": []}


def _longest(span: dict[int, tuple[int, int]], waits: dict[int, list[int]]) -> Iterator[int]:
    """The chain of tasks with the most time in it; a task starts after its producers, so starts are an order."""
    reach: dict[int, tuple[int, int | None]] = {}
    for here in sorted(span, key=lambda one: span[one][0]):
        through = max(waits.get(here, ()), key=lambda one: reach[one][0], default=None)
        reach[here] = ((0 if through is None else reach[through][0]) + span[here][1] - span[here][0], through)
    task: int | None = max(reach, key=lambda one: reach[one][0])
    while task is not None:
        yield task
        task = reach[task][1]


WRITER = Writer("simpler", "a run's folder as simpler writes it (.simpler)", write, (".simpler",))
