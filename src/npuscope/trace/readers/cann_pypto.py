"""The official PyPTO of CANN: the output folder of a run, simulated or measured, is one trace; so is each of its files.

A kernel is a leaf: its label, else its function's name. Nodes of the graph that only join and fork (HUB, Fake Core) run
nowhere; their dependencies stay. The simulator's files count cycles at 1.8 GHz, a device's counter 50 or 1,000 ticks
per microsecond. What lies beside a file is used with it: dyn_topo.txt for dependencies, program.json for names, lines,
operations and bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import polars as pl

from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.trace.core import BACKWARDS, Ledger, Trace, with_depth
from npuscope.trace.event_table import EventTable, collect
from npuscope.trace.formats import EventReader, Reader, Sample
from npuscope.trace.intervals import Ints
from npuscope.trace.readers.cann_program import GraphTask, LeafProgram, read_graph, task_id
from npuscope.trace.schema import LARGEST_US
from npuscope.trace.source import json_field, json_whole_number, read_json

FORMAT = "cann-pypto"
SIMULATED = "CostModelSimulationOutput"
SIMULATOR_MHZ = 1800.0
PERF_SIM_MHZ = 1850.0  # of pto-isa's perf_sim
DEVICE_TICKS = (50.0, 1000.0)  # per microsecond: A2 and A3, 950
GRAPH, PROGRAM, MEASURED, MERGED = "dyn_topo.txt", "program.json", "tilefwk_L1_prof_data.json", "merged_swimlane.json"
MACHINE = "machine_trace_perf_data*.json"
SWIM, PIPES, EVENTS, STATISTICS = "*swim.json", "*pipe.swim.json", "*.pefetto.trace.json", "*stat.report.txt"
VIEW, OVERVIEW, CONTROL = "Machine View", "Top_Machine", "AICPU View"
NO_WORK_NODE = "node of the graph that runs nowhere"
REPEATED = "event that repeats a task or shows a part of one"
GRAPH_ROW = "dependencies and leaf of a task"
_CORE = re.compile(r"^(AIC|AIV|Fake Core|HUB|AI-?CPU|MIX\w*)[_ ]?([0-9]{1,6})$")
_NAME = re.compile(r"^[0-9]+-[0-9]+-[0-9]+-(-?[0-9]+)-(-?[0-9]+) ?\((.*)\)$", re.DOTALL)
_CONTROL_THREAD = re.compile(r"^(AICPU(-CTRL|-SCHED)?|SCHED[0-9]+-AI[CV])-[0-9]+$")
_PIPE_THREAD = re.compile(r"^\[(AIC-[0-9]+(?:/AIV-[01])?)\] ([A-Z][A-Za-z0-9]*)$")
_HINT = {name: rf"\b{name}:\s*([0-9]+)" for name in ("TaskId", "leafHash", "hash", "SeqNo")}
_AICPU_WORK = {"Dispatch_Task": "dispatch", "Resolving": "resolve", "PollingCore": "complete"}
_COPIES = ("MTE", "FIX")  # pipes that move bytes


_Whole = Annotated[int, msgspec.Meta(ge=-(2**60), le=2**60)]  # sums of such still fit a column
_Small = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class _Task(msgspec.Struct):
    taskId: _Whole = -1
    seqNo: _Whole = 0
    execStart: _Whole = 0
    execEnd: _Whole = 0
    completeSeq: _Whole | None = None
    name: str = ""  # of a mark that a machine left, and its time
    end: _Whole | None = None


class _TileOp(msgspec.Struct):
    tileOp: str = ""
    execStart: _Whole = 0
    execEnd: _Whole = 0


class _Core(msgspec.Struct):
    blockIdx: _Small = 0
    coreType: str = "Core"
    freq: float = 0
    tasks: list[_Task] | None = None
    pipeLogs: dict[str, list[_TileOp]] | None = None


class _Ran(NamedTuple):
    """A task on its core."""

    lane: int
    start: int
    end: int
    task: int
    label: str = ""
    leaf: str = ""  # its hash


def _ns(ticks: Any, per_us: float) -> Any:
    """Nanoseconds of ticks: a number or an array of them, rounded to the nearest."""
    return np.rint(np.asarray(ticks, dtype=np.float64) * (1000 / per_us)).astype(np.int64)


class _Run:
    """Gathers lanes, tasks and slices of control, then joins them with the program."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = folders
        self.ledger, self.files = Ledger(), list[str]()
        self.lanes: list[dict[str, object]] = []
        self.tasks: list[_Ran] = []
        self.control: list[dict[str, object]] = []
        self.counters: list[pl.DataFrame] = []
        self.flows: list[tuple[int, int]] = []

    def lane(self, name: str, unit: str, core: int | None = None, role: str | None = None) -> int:
        self.lanes.append({"name": name, "unit": unit, "core": core, "role": role})
        return len(self.lanes) - 1

    def beside(self, name: str) -> Path | None:
        return next((folder / name for folder in self.folders if (folder / name).is_file()), None)

    def not_read(self, path: Path, error: NpuscopeError) -> None:
        self.ledger.notes.setdefault("files_not_read", {})[str(path)] = error.what

    @cached_property
    def program(self) -> LeafProgram | None:
        path = self.beside(PROGRAM)
        if path is None:
            return None
        try:
            program = LeafProgram(path)
        except BadInput as error:
            self.not_read(path, error)
            return None
        self.files.append(str(path))
        return program

    @cached_property
    def graph(self) -> dict[int, GraphTask]:
        path = self.beside(GRAPH)
        if path is None:
            return {}
        try:
            rows = read_graph(path)
        except BadInput as error:
            self.not_read(path, error)
            return {}
        graph = {row.task: row for row in rows}
        ran = {one.task for one in self.tasks}
        if lost := len(ran - graph.keys()):
            if 2 * lost > len(ran):  # a graph of another run says nothing of this one
                self.ledger.notes["graph_refused"] = f"{lost} tasks are not in {GRAPH}: it is of another run"
                return {}
            self.ledger.marked[f"task that {GRAPH} does not have"] += lost
        self.files.append(str(path))
        self.ledger.records += len(rows)
        self.ledger.merged[GRAPH_ROW] += len(rows)
        return graph

    def add_task(self, one: _Ran) -> None:
        if one.end < one.start:
            self.ledger.repaired[BACKWARDS] += 1
            one = one._replace(end=one.start)
        self.tasks.append(one)

    def trace(self, *, clock: str) -> Trace:
        graph = self.graph
        tasks = pl.DataFrame([self._row(one) for one in self.tasks], schema=_TASKS, orient="row")
        control = pl.DataFrame(self.control, schema=_CONTROL)
        tasks = _with_stamps(tasks, control)
        slices = with_depth(pl.concat([tasks, control], how="diagonal").sort("lane", "start", maintain_order=True))
        lanes = pl.DataFrame(self.lanes, schema=_LANES).with_row_index("lane")
        self._note_cores(lanes)
        if self.program is not None:
            self.ledger.notes |= {"leaves": self._leaves(tasks), "tiles": self.program.tiles}
        meta = self.ledger.close(FORMAT, tuple(dict.fromkeys(self.files)), clock=clock)
        counters = pl.concat(self.counters) if self.counters else None
        return Trace.of(slices, lanes, meta, self._edges(graph), counters)

    def _row(self, one: _Ran) -> tuple[object, ...]:
        """A slice of `_TASKS`."""
        node = self.graph.get(one.task)
        leaf_hash = node.leaf if node is not None else one.leaf
        program = self.program
        leaf = program.leaf(leaf_hash) if program is not None else None
        name = leaf.name if leaf is not None else ""
        label = one.label
        if not label and node is not None and program is not None:
            label = program.labels.get((node.root, node.opmagic), "")
        kernel = label or name or (f"leaf {leaf_hash}" if leaf_hash not in ("", "0") else "task")
        return (one.lane, one.start, one.end - one.start, kernel, "task", one.task, label or None, name or None)

    def _leaves(self, tasks: pl.DataFrame) -> dict[str, dict[str, object]]:
        """What the program says of every leaf that ran, by its name."""
        assert self.program is not None
        hashes = {node.leaf for node in self.graph.values()} | {one.leaf for one in self.tasks}
        ran, found = set(tasks["leaf"].drop_nulls()), (self.program.leaf(hash) for hash in hashes)
        return {
            leaf.name: {
                "place": leaf.place, "ops": dict(leaf.ops), "cube_flops": leaf.cube_flops, "bytes": leaf.bytes,
                "vector_elements": leaf.vector_elements, "memory": dict(leaf.memory), "dtype": leaf.dtype,
            }
            for leaf in found
            if leaf is not None and leaf.name in ran
        }  # fmt: skip

    def _note_cores(self, lanes: pl.DataFrame) -> None:
        cores = lanes.filter(pl.col("unit").is_in(["AIC", "AIV"])).height
        if cores and "cores_left_out" not in self.ledger.notes:
            self.ledger.notes["num_cores"] = cores

    def _edges(self, graph: dict[int, GraphTask]) -> pl.DataFrame:
        pairs = [(row.task, to) for row in graph.values() for to in row.successors] or self.flows
        src, dst = (pl.Series([pair[n] for pair in pairs], dtype=pl.Int64) for n in (0, 1))
        edges = pl.DataFrame({"src": src, "dst": dst}).unique(maintain_order=True)
        return edges.with_columns(source=pl.lit("explicit"), name=pl.lit("dependency"))


_TASKS = {
    "lane": pl.UInt32, "start": pl.Int64, "dur": pl.Int64, "kernel": pl.String, "kind": pl.String, "task": pl.Int64,
    "label": pl.String, "leaf": pl.String,
}  # fmt: skip
_CONTROL = {
    "lane": pl.UInt32, "start": pl.Int64, "dur": pl.Int64, "kernel": pl.String, "kind": pl.String, "phase": pl.String,
    "of_task": pl.Int64, "step": pl.Int64,
}  # fmt: skip
_LANES = {"name": pl.String, "unit": pl.String, "core": pl.Int32, "role": pl.String}


def _with_stamps(tasks: pl.DataFrame, control: pl.DataFrame) -> pl.DataFrame:
    """Dispatch and finish: the ends of handing a task out, the begin of resolving it; the nth meets the nth."""
    number = pl.col("task") % 2**32  # the simulator's AICPU does not say of which stitched graph
    nth = pl.int_range(pl.len()).over("of_task", order_by="start").alias("nth")
    rows = tasks.with_columns(number.alias("of_task")).with_columns(nth)
    for phase, stamp, time in (
        ("dispatch", "dispatch", pl.col("start") + pl.col("dur")),
        ("resolve", "finish", pl.col("start")),
    ):
        seen = control.filter(pl.col("phase") == phase, pl.col("of_task").is_not_null()).with_columns(nth)
        rows = rows.join(
            seen.select("of_task", "nth", time.alias(stamp)), on=["of_task", "nth"], how="left", maintain_order="left"
        )
    return rows.drop("of_task", "nth")


def _unit(core_type: str) -> str | None:
    """AIC, AIV or AICPU; None for a place where nothing runs."""
    if core_type.startswith(("AICPU", "AI-CPU")):
        return "AICPU"
    if "AIV" in core_type:
        return "AIV"
    return "AIC" if "AIC" in core_type or core_type in ("Core", "MIX") else None


def _cores(path: Path) -> list[_Core]:
    cores = read_json(path, list[_Core], "a list of cores with their tasks, as PyPTO writes")
    latest = LARGEST_US * 1000
    for number, core in enumerate(cores):
        for one in (*(core.tasks or ()), *(op for ops in (core.pipeLogs or {}).values() for op in ops)):
            if not (0 <= one.execStart < latest and 0 <= one.execEnd < latest):
                raise BadInput(f"core {number} has a time that no clock shows", path=path)
            if isinstance(one, _Task) and not (-1 <= one.taskId < 2**62 and 0 <= one.seqNo < 2**30):
                raise BadInput(f"core {number} has a task number that fits no 62 bits", path=path)
    return cores


def _companions(path: Path) -> tuple[Path, ...]:
    """Where the files of a run lie: beside this one, and one further up for what the simulator wrote."""
    return (path.parent, path.parent.parent) if path.parent.name == SIMULATED else (path.parent,)


def read_file(path: Path) -> Trace:
    """One list of cores: swim.json, pipe.swim.json, tilefwk_L1_prof_data.json or machine_trace_perf_data_N.json."""
    cores = _cores(path)
    run = _Run(_companions(path))
    if any(core.pipeLogs is not None for core in cores):
        return _pipes(path, cores)
    if any(one.end is not None for core in cores for one in core.tasks or ()):
        _add_marks(run, path, cores)
        return run.trace(clock="device counter")
    return run.trace(clock=_add_cores(run, path, cores))


def _add_cores(run: _Run, path: Path, cores: list[_Core]) -> str:
    """The tasks of swim.json or of a device's counter; which clock it is."""
    run.files.append(str(path))
    per_us, clock = _clock(run, path, cores)
    for core in cores:
        unit, tasks = _unit(core.coreType), core.tasks or []
        run.ledger.records += len(tasks)
        if unit is None:
            if core.coreType != "HUB" and not core.coreType.startswith("Fake"):
                run.ledger.count_unknown("core type", core.coreType, max(len(tasks), 1))
            run.ledger.merged[NO_WORK_NODE] += len(tasks)
            continue
        lane = run.lane(f"{unit}_{core.blockIdx}", unit, core.blockIdx)
        times = _ns([(one.execStart, one.execEnd) for one in tasks] or np.zeros((0, 2)), per_us)
        for one, (start, end) in zip(tasks, times.tolist(), strict=True):
            run.add_task(_Ran(lane, start, end, task_id(one.seqNo, max(one.taskId, 0))))
    if all(core.tasks for core in cores) and not path.name.endswith("swim.json"):
        run.ledger.notes["cores_left_out"] = "cores without a task are not in this file"
    return clock


def _clock(run: _Run, path: Path, cores: list[_Core]) -> tuple[float, str]:
    """Ticks per microsecond: the simulator's, or of a device by what else of its run says them."""
    simulated = path.name.endswith("swim.json") or any(
        one.completeSeq is not None for core in cores for one in core.tasks or ()
    )
    if simulated and not path.name.startswith("tilefwk"):
        return SIMULATOR_MHZ, "cycles of a simulator at 1.8 GHz"
    for other in (file for folder in run.folders for file in sorted(folder.glob(MACHINE))):
        for core in _cores(other):
            if core.freq > 0:
                return core.freq, "device counter"
    merged = run.beside(MERGED)
    if merged is not None and (found := _ticks_by(merged, cores)) is not None:
        return found, "device counter"
    run.ledger.notes["unit_assumed"] = f"{DEVICE_TICKS[0]:g} ticks of its counter per microsecond, as on A2 and A3"
    return DEVICE_TICKS[0], "device counter"


def _ticks_by(merged: Path, cores: list[_Core]) -> float | None:
    """The known rate that makes the tasks of a merged swimlane last as long as they say, in ticks."""
    table = collect(merged)
    us = dict(zip(json_whole_number(table.slices["args"], "taskId"), table.slices["dur"] / 1000, strict=True))
    ticks = [(one.execEnd - one.execStart, us.get(one.taskId)) for core in cores for one in core.tasks or ()]
    ratios = [tick / time for tick, time in ticks if time]
    nearest = min(DEVICE_TICKS, key=lambda rate: abs(float(np.median(ratios)) - rate)) if ratios else None
    return nearest if nearest is not None and abs(float(np.median(ratios)) / nearest - 1) < 0.1 else None


def _add_marks(run: _Run, path: Path, cores: list[_Core]) -> None:
    """What machines marked: each mark ends the phase that it names, which began with the mark before."""
    run.files.append(str(path))
    for core in cores:
        per_us = core.freq if core.freq > 0 else DEVICE_TICKS[0]
        lane = run.lane(f"{core.coreType}-{core.blockIdx}", "AICPU", None, _role(core.coreType))
        marks = sorted((one for one in core.tasks or () if one.end), key=lambda one: one.end or 0)
        run.ledger.records += len(core.tasks or ())
        run.ledger.dropped["mark without a time"] += len(core.tasks or ()) - len(marks)
        run.ledger.merged["mark that begins the first phase"] += min(len(marks), 1)
        for before, one in pairwise(marks):
            found = re.match(r"^(.*?)(?:_([0-9]{1,9}))?(?:\([0-9]+\))?$", one.name)
            name, turn = found.groups() if found else (one.name, None)
            start, end = _ns([before.end or 0, one.end or 0], per_us).tolist()
            run.control.append(
                {
                    "lane": lane, "start": start, "dur": end - start, "kernel": name, "kind": "schedule",
                    "phase": None, "of_task": None, "step": None if turn is None else int(turn),
                }
            )  # fmt: skip


def _role(core_type: str) -> str:
    if core_type.startswith("SCHED"):
        return "view of a core"
    return "orchestrator" if core_type.endswith("CTRL") else "scheduler"


def _pipes(path: Path, cores: list[_Core]) -> Trace:
    """Every pipe of every core as a queue of its own."""
    ledger, lanes = Ledger(), list[dict[str, object]]()
    rows: list[tuple[object, ...]] = []
    for core in cores:
        for pipe, ops in (core.pipeLogs or {}).items():
            name = f"{_unit(core.coreType) or core.coreType}_{core.blockIdx} {pipe}"
            lanes.append({"name": name, "unit": "stream", "core": core.blockIdx, "role": pipe})
            ledger.records += len(ops)
            times = _ns([(op.execStart, op.execEnd) for op in ops] or np.zeros((0, 2)), SIMULATOR_MHZ).tolist()
            for op, (start, end) in zip(ops, times, strict=True):
                words = op.tileOp.split(" ", 2)
                kernel = words[1] if len(words) > 1 else op.tileOp
                kind = "copy" if pipe.startswith(_COPIES) else "task"
                rows.append((len(lanes) - 1, start, max(end - start, 0), kernel, kind, op.tileOp))
    schema = {**{name: _TASKS[name] for name in ("lane", "start", "dur", "kernel", "kind")}, "label": pl.String}
    slices = with_depth(pl.DataFrame(rows, schema=schema, orient="row")).with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("task")
    )
    meta = ledger.close(FORMAT, (str(path),), clock="cycles of a simulator at 1.8 GHz")
    return Trace.of(slices, pl.DataFrame(lanes, schema=_LANES).with_row_index("lane"), meta)


def _in_time(table: EventTable, mhz: float) -> None:
    """Turns a table whose times are cycles, which were read as microseconds, into nanoseconds."""

    def turned(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
        if frame.is_empty():
            return frame
        return frame.with_columns(pl.Series(name, _ns(frame[name].to_numpy() / 1000, mhz)) for name in columns)

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
    run = _Run(_companions(table.path))
    return run.trace(clock=_add_view(run, table))


def _adopt(run: _Run, table: EventTable) -> None:
    """The account of a table's reading becomes part of the run's."""
    run.files.append(str(table.path))
    for name in ("merged", "dropped", "marked", "repaired", "unknown"):
        getattr(run.ledger, name).update(getattr(table.ledger, name))
    run.ledger.records += table.ledger.records


def _add_view(run: _Run, table: EventTable) -> str:
    """The tasks of a merged swimlane; which clock it shows."""
    clock = "microseconds"
    core = [process == VIEW for process in table.lane_processes()]
    own = table.slices.filter(pl.Series(core, dtype=pl.Boolean).gather(table.slices["lane"]))
    if own.height and (own.select((pl.col("start", "dur") % 1000 == 0).all()).row(0) == (True, True)):
        _in_time(table, SIMULATOR_MHZ)  # the converter was not given the clock: whole cycles
        clock = "cycles of a simulator at 1.8 GHz"
    named = {key: name for key, name in table.thread_names.items() if table.process_names.get(key[0]) == VIEW}
    kinds = {key: found.groups() for key, name in named.items() if (found := _CORE.match(name))}
    real = any(_unit(kind) is not None for kind, _ in kinds.values())
    lanes: dict[tuple[int | str, int | str], int] = {}
    by_name: dict[str, int] = {}  # a core whose tasks overlap has a second thread of its name
    for key, (kind, number) in kinds.items():
        unit = _unit(kind) if real or not kind.startswith("Fake") else "AIC"
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
            used += _add_mark(run, lanes, table, key, text, start, dur)
            continue
        found = _NAME.match(text)
        task = task_id(sequence, number) if number is not None and 0 <= number < 2**62 else -1 - len(tasks)
        tasks.append(task)
        if key in lanes:
            used += 1
            label = found[3] if found else text
            leaf_name = leaf or (f"{found[1]}-{found[2]}" if found else "")
            run.add_task(_Ran(lanes[key], start, start + dur, task, "" if label == "fake" else label, leaf_name))
    run.flows = [(a, b) for s, d in _flow_pairs(table) if (a := tasks[s]) is not None and (b := tasks[d]) is not None]
    _take_counters(run, table)
    _adopt(run, table)
    run.ledger.merged[NO_WORK_NODE] += table.slices.height - used
    return clock


def _add_mark(
    run: _Run, lanes: dict[Any, int], table: EventTable, key: Any, name: str, start: int, dur: int
) -> int:  # 1 where it became a slice
    thread = table.thread_names.get(key, str(key[1]))
    if key not in lanes:
        lanes[key] = run.lane(thread, "AICPU", None, _role(thread.rpartition("-")[0]))
    run.control.append(
        {"lane": lanes[key], "start": start, "dur": dur, "kernel": name, "kind": "schedule", "phase": None,
         "of_task": None, "step": None}
    )  # fmt: skip
    return 1


def _take_counters(run: _Run, table: EventTable) -> None:
    if table.counters.height:
        run.counters.append(table.counters.select(pl.lit(None, dtype=pl.UInt32).alias("lane"), "name", "time", "value"))


def _is_simulator(table: EventTable) -> bool:
    """True for the simulator's whole trace: an overview of the machine, and a process per core."""
    return OVERVIEW in table.process_names.values()


def _build_simulator(table: EventTable) -> Trace:
    run = _Run(_companions(table.path))
    _add_simulator(run, table, tasks=True)
    return run.trace(clock="cycles of a simulator at 1.8 GHz")


def _add_simulator(run: _Run, table: EventTable, *, tasks: bool) -> None:
    """What the AICPUs did, and, where no other file has them, the tasks. Pipes and the overview repeat these."""
    _in_time(table, SIMULATOR_MHZ)
    processes, threads = table.lane_processes(), table.lane_names()
    lanes: dict[int, int] = {}
    cores = {name: found.groups() for name in table.process_names.values() if (found := _CORE.match(name))}
    if tasks:
        for name, (kind, number) in cores.items():
            if _unit(kind) in ("AIC", "AIV"):
                place = run.lane(name, _unit(kind) or "", int(number))
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
            of_task = int(number) if phase in ("dispatch", "resolve") and number.isdecimal() else None
            run.control.append(
                {"lane": place, "start": start, "dur": dur, "kernel": what or text, "kind": "schedule", "phase": phase,
                 "of_task": of_task, "step": None}
            )  # fmt: skip
        elif task is not None:
            run.add_task(_Ran(place, start, start + dur, task_id(int(sequence or 0), int(task)), "", leaf or ""))
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
    moves = pl.Series([bool(one and one[2].startswith(_COPIES)) for one in found], dtype=pl.Boolean)
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


def is_run(sample: Sample) -> bool:
    """True for the output folder of a run, for the simulator's folder in it, and for a list of cores with tasks."""
    if sample.is_folder:
        path = sample.path
        if path.name == SIMULATED or any((path / name).exists() for name in (SIMULATED, MEASURED, GRAPH)):
            return True
        return ((path / PROGRAM).is_file() and (path / MERGED).is_file()) or any(path.glob(MACHINE))
    head = sample.text
    return head.startswith(b"[") and b'"blockIdx"' in head and (b'"tasks"' in head or b'"pipeLogs"' in head)


def read(path: Path) -> Trace:
    """The run of a folder, or one of its files."""
    return _read_folder(path) if path.is_dir() else read_file(path)


def _read_folder(path: Path) -> Trace:
    """Measured tasks if there are any, else simulated ones; with what the schedulers did."""
    inner = path if path.name == SIMULATED else path / SIMULATED
    outer = path.parent if path.name == SIMULATED else path
    run = _Run((inner, outer))
    clock, simulated = "", False
    if (outer / MEASURED).is_file():
        clock = _add_cores(run, outer / MEASURED, _cores(outer / MEASURED))
    elif swims := [file for file in sorted(inner.glob(SWIM)) if not file.match(PIPES)]:
        clock, simulated = _add_cores(run, swims[0], _cores(swims[0])), True
        for other in swims[1:]:
            run.not_read(other, BadInput("another simulation of this folder: name it to read it"))
    elif merged := run.beside(MERGED):
        clock, simulated = _add_view(run, collect(merged)), merged.parent == inner
    for marks in sorted(outer.glob(MACHINE)):
        _add_marks(run, marks, _cores(marks))
        clock = clock or "device counter"
    events = next(iter(sorted(inner.glob(EVENTS))), None)
    if events is not None and (simulated or not clock):
        _add_simulator(run, collect(events), tasks=not run.tasks)
        clock, simulated = clock or "cycles of a simulator at 1.8 GHz", True
    if not clock:
        raise BadInput(
            "a run of PyPTO without times", path=path,
            remedy="Simulate it (run_mode sim), or run it with runtime_debug_mode 1, which writes a swimlane.",
        )  # fmt: skip
    if simulated:
        _note_simulator(run, inner)
        _note_pipes(run, inner)
    elif inner.is_dir() and inner != outer:
        run.ledger.notes["simulation_not_read"] = (
            f"{SIMULATED} has simulated times of this program; name it to see them"
        )
    return run.trace(clock=clock)


def _note_simulator(run: _Run, folder: Path) -> None:
    """The simulator's own figure of the whole: with its dispatch before the first task and after the last."""
    for path in sorted(folder.glob(STATISTICS))[:1]:
        if found := re.search(r"Total Cycles[. ]*:\s*([0-9]{1,15})", path.read_text(errors="replace")):
            run.files.append(str(path))
            run.ledger.notes["simulator_cycles"] = int(found[1])
            run.ledger.notes["simulator_ns"] = int(_ns(int(found[1]), SIMULATOR_MHZ))


def _note_pipes(run: _Run, folder: Path) -> None:
    """How long each pipe of a core worked for each task, by the task that ran there at that moment."""
    for path in sorted(folder.glob(PIPES))[:1]:
        starts = {run.lanes[lane]["core"]: lane for lane in {one.lane for one in run.tasks}}
        busy: dict[str, dict[str, int]] = {}
        kernels = {one.task: str(run._row(one)[3]) for one in run.tasks}
        for core in _cores(path):
            ran = sorted((one for one in run.tasks if one.lane == starts.get(core.blockIdx)), key=lambda o: o.start)
            begin = np.array([one.start for one in ran], dtype=np.int64)
            for pipe, ops in (core.pipeLogs or {}).items():
                times = _ns([(op.execStart, op.execEnd) for op in ops] or np.zeros((0, 2)), SIMULATOR_MHZ)
                at = np.maximum(np.searchsorted(begin, times[:, 0], side="right") - 1, 0)
                for place, (start, end) in zip(at.tolist() if ran else (), times.tolist(), strict=False):
                    of_kernel = busy.setdefault(kernels[ran[place].task], {})
                    of_kernel[pipe] = of_kernel.get(pipe, 0) + end - start
        run.files.append(str(path))
        run.ledger.notes["pipes_ns"] = busy


READER = Reader(
    FORMAT,
    "a run of CANN's own PyPTO, simulated or measured: its output folder, or a file of it",
    is_run,
    read,
    files=(SWIM, PIPES, MEASURED, MACHINE),
    tells=(
        "kernels",
        "cores",
        "dependencies: with dyn_topo.txt",
        "scheduling: of simulated runs",
        "shapes: with program.json",
        "counters: of simulated runs",
        "lines: with program.json",
        "pipes: of simulated runs",
    ),
)
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
