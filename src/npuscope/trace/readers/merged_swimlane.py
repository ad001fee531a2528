"""Swimlane JSON of PyPTO and simpler, merged for Perfetto: four dialects, recognised by process names.

A task shows up in up to three places: on its core (Worker View or AICore View), as the scheduler saw it
(Scheduler View or AICPU View: dispatch to finish), and in the orchestrator's submit. All are kept; the
scheduler's two times are copied onto the core's slice as `dispatch` and `finish`.
"""

from __future__ import annotations

import re

import numpy as np
import polars as pl

from npuscope.trace.build import build_trace, count_unknown_header, count_unknown_processes, kind_numbers, plain_lanes
from npuscope.trace.core import Trace, with_depth
from npuscope.trace.event_table import EventTable
from npuscope.trace.formats import EventReader
from npuscope.trace.names import LaneUnit, phase_of, unit_of_lane
from npuscope.trace.schema import LONGEST_US
from npuscope.trace.source import json_microseconds, json_whole_number

CORE_VIEWS = {"Worker View", "AICore View"}
SCHEDULER_VIEWS = {"Scheduler View", "AICPU View"}
CONTROL_VIEWS = {"AICPU Scheduler", "AICPU Orchestrator", "Orchestrator"}
HOST_VIEWS = {"Host Orchestrator"}
ROLES = {
    "AICPU Scheduler": "scheduler",
    "AICPU Orchestrator": "orchestrator",
    "Orchestrator": "orchestrator",
    "Host Orchestrator": "orchestrator",
    **dict.fromkeys(SCHEDULER_VIEWS, "view of a core"),
}
BLOCK = re.compile(r"^block\d+$")  # the distributed dialect has one process per block
TASK_LABEL = r"^(.*?)(?:\((?:r\d+)?t?\d*\)|#\d+)$"  # qk(r1t2), qk(t2), GEMM#24


def recognises(table: EventTable) -> bool:
    """True when a process is one of the swimlane's views, or a block with cube and vector threads."""
    processes = set(table.process_names.values())
    if processes & (CORE_VIEWS | SCHEDULER_VIEWS):
        return True
    blocks = any(BLOCK.match(name) for name in processes)
    return blocks and any(unit_of_lane(name).unit in ("AIC", "AIV") for name in table.thread_names.values())


def build(table: EventTable) -> Trace:
    """Core slices are tasks with dispatch and finish where a scheduler view has them."""
    count_unknown_header(table)
    views = CORE_VIEWS | SCHEDULER_VIEWS | CONTROL_VIEWS | HOST_VIEWS
    count_unknown_processes(table, views | {name for name in table.process_names.values() if BLOCK.match(name)})
    units = [_lane_unit(p, n) for p, n in zip(table.lane_processes(), table.lane_names(), strict=True)]
    in_view = [p in SCHEDULER_VIEWS for p in table.lane_processes()]
    lanes = plain_lanes(table).with_columns(
        pl.Series("unit", [u.unit for u in units], dtype=pl.String),
        pl.Series("core", [u.core for u in units], dtype=pl.Int32),
        # a core's lane in a scheduler's view is not the core
        pl.when(pl.Series(in_view, dtype=pl.Boolean))
        .then(pl.concat_str("process", pl.lit(" "), "name"))
        .otherwise("name")
        .alias("name"),
        pl.col("name").alias("thread"),
        pl.col("process").replace_strict(ROLES, default=None, return_dtype=pl.String).alias("role"),
    )
    events = table.slices
    args = events["args"]
    # every view but the core's prints times of its own into names, such as idle(0) or dispatch(3)
    label = pl.Series(table.names, dtype=pl.String).gather(events["name"])
    task = json_whole_number(args, "taskId")
    task = task.zip_with(task.is_not_null(), json_whole_number(args, "task_id"))
    kinds = kind_numbers([u.kind for u in units])[events["lane"].to_numpy()]
    trace = build_trace(
        table,
        "merged-swimlane",
        kind=kinds,
        lanes=lanes,
        task=task.alias("task"),
        kernel=label.str.extract(TASK_LABEL).fill_null(label).alias("kernel"),
        clock="relative",
    )
    phase = pl.when(pl.col("kind") == "schedule").then(phase_of(pl.col("kernel")))
    slices = trace.slices.with_columns(label.alias("label"), phase.alias("phase"))
    slices, moved = _from_start_not_receive(slices)
    slices = _with_scheduler_times(slices, trace.lanes)
    dialect = sorted(set(table.process_names.values()) & views)
    repaired = {"bar began at receive, moved to the kernel's start": moved}
    meta = trace.meta.plus(repaired=repaired, notes={"views": dialect or ["blocks"]})
    # the views repeat each dependency; one edge per pair of tasks and name is enough
    edges = trace.edges.unique(["src", "dst", "source", "name"], keep="first", maintain_order=True)
    return Trace.of(slices, trace.lanes, meta, edges, trace.counters)


def _lane_unit(process: str, name: str) -> LaneUnit:
    unit = unit_of_lane(name)
    if process in SCHEDULER_VIEWS or process in CONTROL_VIEWS:
        return LaneUnit("AICPU", unit.core, "schedule")
    if process in HOST_VIEWS:
        return LaneUnit("host", None, "host")
    return unit._replace(kind="task") if unit.unit in ("AIC", "AIV", "AICPU") else unit


def _from_start_not_receive(slices: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """In the current dialect a core's bar begins when the core received the task; the kernel begins later.

    The slices with their kernels' times and `receive`, and how many were moved.
    """
    setup = json_microseconds(slices["args"], "local_setup_us")
    kernel = json_microseconds(slices["args"], "kernel-duration-us")
    if setup.null_count() == slices.height:
        return slices, 0
    sound = setup.is_between(0, LONGEST_US * 1000) & kernel.is_between(0, LONGEST_US * 1000)
    known = (slices["kind"] == "task") & sound.fill_null(False)
    moved = slices.with_columns(
        pl.when(known).then(pl.col("start")).alias("receive"),
        pl.when(known).then(pl.col("start") + setup).otherwise("start").alias("start"),
        pl.when(known).then(kernel).otherwise("dur").alias("dur"),
    )
    return with_depth(moved), int((known & (setup > 0)).sum())


def _with_scheduler_times(slices: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """dispatch and finish of each core slice: the nth of its task in its core's lane of the scheduler's view."""
    places = lanes.select("lane", "process", "thread")  # a core has two threads there when tasks are pipelined
    rows = (
        slices.select("lane", "start", "dur", "task")
        .with_row_index("row")
        .join(places, on="lane", maintain_order="left")
    )
    rows = rows.filter(pl.col("task").is_not_null())
    key = ["thread", "task", "nth"]
    nth = pl.int_range(pl.len()).over("thread", "task", order_by="start").alias("nth")
    seen = rows.filter(pl.col("process").is_in(SCHEDULER_VIEWS)).with_columns(nth)
    ran = rows.filter(pl.col("process").is_in(CORE_VIEWS)).with_columns(nth)
    if seen.is_empty() or ran.is_empty():
        return slices
    met = ran.select("row", *key).join(
        seen.select(*key, pl.col("start").alias("dispatch"), (pl.col("start") + pl.col("dur")).alias("finish")),
        on=key,
    )
    at = np.asarray(met["row"])
    empty = pl.Series([None], dtype=pl.Int64).new_from_index(0, slices.height)
    return slices.with_columns(
        empty.scatter(at, met["dispatch"]).alias("dispatch"),
        empty.clone().scatter(at, met["finish"]).alias("finish"),
    )


READER = EventReader(
    "merged-swimlane",
    "PyPTO and simpler swimlane JSON for Perfetto, all dialects",
    recognises,
    build,
    tells=("kernels", "cores", "dependencies: where it has flows", "scheduling: where it has a scheduler's view"),
)
