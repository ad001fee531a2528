"""Timelines that CANN's own PyPTO writes as JSON: the merged swimlane, the simulator's trace, pto-isa's perf_sim."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import polars as pl

from npuscope.trace.core import Trace, with_depth
from npuscope.trace.event_table import EventTable
from npuscope.trace.formats import EventReader
from npuscope.trace.intervals import Ints
from npuscope.trace.readers.cann_program import task_id
from npuscope.trace.readers.cann_run import (
    MERGED,
    NO_WORK_NODE,
    SIMULATOR_MHZ,
    CannRun,
    CannTask,
    companions,
    ns_of,
    role_of,
    unit_of,
)
from npuscope.trace.source import json_field, json_whole_number, whole_number

PERF_SIM_MHZ = 1850.0  # of pto-isa's perf_sim
SWIM, PIPES, EVENTS, STATISTICS = "*swim.json", "*pipe.swim.json", "*.pefetto.trace.json", "*stat.report.txt"
VIEW, OVERVIEW, CONTROL = "Machine View", "Top_Machine", "AICPU View"
REPEATED = "event that repeats a task or shows a part of one"
_CORE = re.compile(r"^(AIC|AIV|Fake Core|HUB|AI-?CPU|MIX\w*)[_ ]?([0-9]{1,6})$")
_NAME = re.compile(r"^[0-9]+-[0-9]+-[0-9]+-(-?[0-9]+)-(-?[0-9]+) ?\((.*)\)$", re.DOTALL)
_CONTROL_THREAD = re.compile(r"^(AICPU(-CTRL|-SCHED)?|SCHED[0-9]+-AI[CV])-[0-9]+$")
_PIPE_THREAD = re.compile(r"^\[(AIC-[0-9]+(?:/AIV-[01])?)\] ([A-Z][A-Za-z0-9]*)$")
_HINT = {name: rf"\b{name}:\s*([0-9]+)" for name in ("TaskId", "leafHash", "hash", "SeqNo")}
_AICPU_WORK = {"Dispatch_Task": "dispatch", "Resolving": "resolve", "PollingCore": "complete"}
COPIES = ("MTE", "FIX")  # pipes that move bytes


def _in_time(table: EventTable, mhz: float) -> None:
    """Turns a table whose times are cycles, which were read as microseconds, into nanoseconds."""

    def turned(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
        if frame.is_empty():
            return frame
        return frame.with_columns(pl.Series(name, ns_of(frame[name].to_numpy() / 1000, mhz)) for name in columns)

    if table.slices.height:
        ends = table.slices["start"] + table.slices["dur"]
        slices = turned(table.slices.with_columns(ends.alias("end")), "start", "end")
        table.slices = slices.with_columns((pl.col("end") - pl.col("start")).alias("dur")).drop("end")
    table.flows, table.counters = turned(table.flows, "time"), turned(table.counters, "time")


def _flow_pairs(table: EventTable, near: int = 2) -> Iterator[tuple[int, int]]:
    """Rows of slices that flows join: an arrow leaves the slice that ends there, and enters the one that begins."""
    flows, slices = table.flows, table.slices
    if flows.is_empty() or slices.is_empty():
        return
    ends = {}
    for begins, moment in ((True, slices["start"] + slices["dur"]), (False, slices["start"])):
        side = flows.filter(pl.col("begins") == begins)
        rows = _nearest(slices["lane"], moment, side["lane"], side["time"], near)
        ends[begins] = dict(zip(side["flow"].to_list(), rows, strict=True))
    for flow, source in ends[True].items():
        target = ends[False].get(flow, -1)
        if source >= 0 and target >= 0:
            yield source, target
        else:
            table.ledger.marked["flow that meets no slice"] += 1


def _nearest(lane: pl.Series, moment: pl.Series, at_lane: pl.Series, at: pl.Series, near: int) -> list[int]:
    """The row whose moment on a lane is nearest, -1 where none is near."""
    width = int(max(moment.max() or 0, at.max() or 0)) + near + 1  # type: ignore[arg-type]
    keys: Ints = lane.cast(pl.Int64).to_numpy() * width + moment.to_numpy()
    wanted: Ints = at_lane.cast(pl.Int64).to_numpy() * width + at.to_numpy()
    order = np.argsort(keys, kind="stable")
    after = np.clip(np.searchsorted(keys[order], wanted), 0, len(order) - 1)
    before = np.maximum(after - 1, 0)
    closer = np.abs(keys[order[before]] - wanted) < np.abs(keys[order[after]] - wanted)
    rows = order[np.where(closer, before, after)]
    return list(np.where(np.abs(keys[rows] - wanted) <= near, rows, -1).tolist())


def _is_view(table: EventTable) -> bool:
    """True for a merged swimlane, and for what the machines marked alone."""
    processes = set(table.process_names.values())
    marked = CONTROL in processes and any(_CONTROL_THREAD.match(name) for name in table.thread_names.values())
    return VIEW in processes or marked


def _build_view(table: EventTable) -> Trace:
    run = CannRun(companions(table.path))
    return run.trace(clock=add_view(run, table))


def _adopt(run: CannRun, table: EventTable) -> None:
    """The account of a table's reading becomes part of the run's."""
    run.files.append(str(table.path))
    for name in ("merged", "dropped", "marked", "repaired", "unknown"):
        getattr(run.ledger, name).update(getattr(table.ledger, name))
    run.ledger.records += table.ledger.records


def add_view(run: CannRun, table: EventTable) -> str:
    """The tasks of a merged swimlane; which clock it shows."""
    clock = "microseconds"
    core = [process == VIEW for process in table.lane_processes()]
    own = table.slices.filter(pl.Series(core, dtype=pl.Boolean).gather(table.slices["lane"]))
    if own.height and (own.select((pl.col("start", "dur") % 1000 == 0).all()).row(0) == (True, True)):
        _in_time(table, SIMULATOR_MHZ)  # the converter was not given the clock: whole cycles
        clock = "cycles of a simulator at 1.8 GHz"
    named = {key: name for key, name in table.thread_names.items() if table.process_names.get(key[0]) == VIEW}
    kinds = {key: found.groups() for key, name in named.items() if (found := _CORE.match(name))}
    real = any(unit_of(kind) is not None for kind, _ in kinds.values())
    lanes: dict[tuple[int | str, int | str], int] = {}
    by_name: dict[str, int] = {}  # a core whose tasks overlap has a second thread of its name
    for key, (kind, number) in kinds.items():
        unit = unit_of(kind) if real or not kind.startswith("Fake") else "AIC"
        if unit is not None:
            if named[key] not in by_name:
                by_name[named[key]] = run.lane(named[key], unit, int(number))
            lanes[key] = by_name[named[key]]
    rows = table.slices.with_columns(
        json_whole_number(table.slices["args"], "taskId").alias("number"),
        json_whole_number(table.slices["args"], "seqNo").fill_null(0).alias("sequence"),
        json_field(table.slices["args"], "event-hint").str.extract(_HINT["leafHash"]).alias("leaf"),
    )
    tasks: list[int | None] = []
    used = 0
    for lane, start, dur, name, number, sequence, leaf in rows.select(
        "lane", "start", "dur", "name", "number", "sequence", "leaf"
    ).iter_rows():
        key, text = table.lane_keys[lane], table.names[name]
        if key not in named:
            tasks.append(None)
            thread = table.thread_names.get(key, str(key[1]))
            if key not in lanes:
                lanes[key] = run.lane(thread, "AICPU", None, role_of(thread.rpartition("-")[0]))
            run.add_control(lanes[key], start, dur, text)
            used += 1
            continue
        found = _NAME.match(text)
        task = task_id(sequence, number) if number is not None and 0 <= number < 2**62 else -1 - len(tasks)
        tasks.append(task)
        if key in lanes:
            used += 1
            label = found[3] if found else text
            leaf_name = leaf or (f"{found[1]}-{found[2]}" if found else "")
            one = CannTask(lanes[key], start, start + dur, task, "" if label == "fake" else label, leaf_name)
            run.add_task(one, table.path)
    run.flows = [(a, b) for s, d in _flow_pairs(table) if (a := tasks[s]) is not None and (b := tasks[d]) is not None]
    _take_counters(run, table)
    _adopt(run, table)
    run.ledger.merged[NO_WORK_NODE] += table.slices.height - used
    return clock


def _take_counters(run: CannRun, table: EventTable) -> None:
    if table.counters.height:
        run.counters.append(table.counters.select(pl.lit(None, dtype=pl.UInt32).alias("lane"), "name", "time", "value"))


def _is_simulator(table: EventTable) -> bool:
    """True for the simulator's whole trace: an overview of the machine, and a process per core."""
    return OVERVIEW in table.process_names.values()


def _build_simulator(table: EventTable) -> Trace:
    run = CannRun(companions(table.path))
    add_simulator(run, table, tasks=True)
    return run.trace(clock="cycles of a simulator at 1.8 GHz")


def add_simulator(run: CannRun, table: EventTable, *, tasks: bool) -> None:
    """What the AICPUs did, and, where no other file has them, the tasks. Pipes and the overview repeat these."""
    _in_time(table, SIMULATOR_MHZ)
    processes, threads = table.lane_processes(), table.lane_names()
    lanes: dict[int, int] = {}
    cores = {name: found.groups() for name in table.process_names.values() if (found := _CORE.match(name))}
    if tasks:
        for name, (kind, number) in cores.items():
            if unit_of(kind) in ("AIC", "AIV"):
                place = run.lane(name, unit_of(kind) or "", int(number))
                views = [n for n, process in enumerate(processes) if process == name and "View" in threads[n]]
                lanes |= dict.fromkeys(views, place)
    for n, process in enumerate(processes):
        if process.startswith("AICPU_") and "View" not in threads[n]:
            lanes[n] = run.lane(f"{process} {threads[n]}", "AICPU", None, "scheduler")
    hint = json_field(table.slices["args"], "event-hint")
    rows = table.slices.with_columns(*(hint.str.extract(_HINT[name]).alias(name) for name in _HINT))
    used = 0
    for lane, start, dur, name, task, leaf, sequence in rows.select(
        "lane", "start", "dur", "name", "TaskId", "hash", "SeqNo"
    ).iter_rows():
        if lane not in lanes:
            continue
        place, text = lanes[lane], table.names[name]
        if run.lanes[place]["unit"] == "AICPU":
            what, _, number = text.rpartition("_")
            phase = _AICPU_WORK.get(what)
            of_task = whole_number(number) if phase in ("dispatch", "resolve") else None
            run.add_control(place, start, dur, what or text, phase, of_task=of_task)
        elif task is not None:
            one = CannTask(place, start, start + dur, task_id(int(sequence or 0), int(task)), "", leaf or "")
            run.add_task(one, table.path)
        else:
            continue
        used += 1
    _take_counters(run, table)
    _adopt(run, table)
    run.ledger.merged[REPEATED] += table.slices.height - used


def _is_perf_sim(table: EventTable) -> bool:
    """True for pto-isa's perf_sim: threads are pipes of an AIC or of one of its AIVs."""
    names = table.thread_names.values()
    return bool(names) and all(_PIPE_THREAD.match(name) for name in names)


def _build_perf_sim(table: EventTable) -> Trace:
    """Pipes are queues of instructions, in cycles at 1.85 GHz; its arrows are dependencies."""
    _in_time(table, PERF_SIM_MHZ)
    found = [_PIPE_THREAD.match(name) for name in table.lane_names()]
    lanes = pl.DataFrame(
        {
            "lane": pl.Series(range(len(found)), dtype=pl.UInt32),
            "name": table.lane_names(),
            "unit": ["stream"] * len(found),
            "role": pl.Series([one[2] if one else None for one in found], dtype=pl.String),
        }
    )
    names = pl.Series([name.partition("(")[0] or name for name in table.names], dtype=pl.String)
    moves = pl.Series([bool(one and one[2].startswith(COPIES)) for one in found], dtype=pl.Boolean)
    slices = table.slices.select(
        "lane", "start", "dur",
        names.gather(table.slices["name"]).alias("kernel"),
        pl.when(moves.gather(table.slices["lane"])).then(pl.lit("copy")).otherwise(pl.lit("task")).alias("kind"),
        pl.int_range(pl.len(), dtype=pl.Int64).alias("task"),
        pl.Series("label", [table.names[n] for n in table.slices["name"]], dtype=pl.String),
    )  # fmt: skip
    pairs = list(_flow_pairs(table))
    edges = pl.DataFrame(pairs, schema={"src": pl.Int64, "dst": pl.Int64}, orient="row").unique(maintain_order=True)
    edges = edges.with_columns(source=pl.lit("explicit"), name=pl.lit("dependency"))
    meta = table.ledger.close("pto-perf-sim", (str(table.path),), clock="cycles of a simulator at 1.85 GHz")
    return Trace.of(with_depth(slices), lanes, meta, edges)


VIEW_READER = EventReader(
    "cann-swimlane",
    "the merged swimlane of CANN's own PyPTO",
    _is_view,
    _build_view,
    files=(MERGED,),
    tells=("kernels", "cores", "dependencies", "shapes: with program.json", "counters", "lines: with program.json"),
)
SIMULATOR = EventReader(
    "cann-simulator", "the whole trace of CANN's own PyPTO simulator, in cycles", _is_simulator, _build_simulator,
    files=(EVENTS,),
    tells=("kernels", "cores", "dependencies: with dyn_topo.txt", "scheduling", "shapes: with program.json", "counters",
           "lines: with program.json"),
)  # fmt: skip
PERF_SIM = EventReader(
    "pto-perf-sim",
    "the JSON of pto-isa's perf_sim, in cycles",
    _is_perf_sim,
    _build_perf_sim,
    tells=("kernels: instructions", "dependencies", "pipes"),
)
