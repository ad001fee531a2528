"""The official PyPTO of CANN: the output folder of a run, simulated or measured, is one trace; so is each of its files.

A kernel is a leaf: its label, else its function's name. Nodes of the graph that only join and fork (HUB, Fake Core) run
nowhere; their dependencies stay. The simulator's files count cycles at 1.8 GHz, a device's counter 50 or 1,000 ticks
per microsecond. What lies beside a file is used with it: dyn_topo.txt for dependencies, program.json for names, lines,
operations and bytes.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import polars as pl

from npuscope.base.errors import BadInput
from npuscope.trace.core import Ledger, Trace, with_depth
from npuscope.trace.event_table import collect
from npuscope.trace.formats import Reader, Sample
from npuscope.trace.readers.cann_program import task_id
from npuscope.trace.readers.cann_run import (
    FORMAT,
    GRAPH,
    LANES,
    MEASURED,
    MERGED,
    NO_WORK_NODE,
    PROGRAM,
    SIMULATED,
    SIMULATOR_MHZ,
    TASKS,
    CannRun,
    CannTask,
    companions,
    ns_of,
    role_of,
    unit_of,
)
from npuscope.trace.readers.cann_views import COPIES, EVENTS, PIPES, STATISTICS, SWIM, add_simulator, add_view
from npuscope.trace.schema import LARGEST_US
from npuscope.trace.source import json_whole_number, read_json

DEVICE_TICKS = (50.0, 1000.0)  # per microsecond: A2 and A3, 950
MACHINE = "machine_trace_perf_data*.json"


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


def read_file(path: Path) -> Trace:
    """One list of cores: swim.json, pipe.swim.json, tilefwk_L1_prof_data.json or machine_trace_perf_data_N.json."""
    cores = _cores(path)
    run = CannRun(companions(path))
    if any(core.pipeLogs is not None for core in cores):
        return _pipes(path, cores)
    if any(one.end is not None for core in cores for one in core.tasks or ()):
        _add_marks(run, path, cores)
        return run.trace(clock="device counter")
    return run.trace(clock=_add_cores(run, path, cores))


def _add_cores(run: CannRun, path: Path, cores: list[_Core]) -> str:
    """The tasks of swim.json or of a device's counter; which clock it is."""
    run.files.append(str(path))
    per_us, clock = _clock(run, path, cores)
    for core in cores:
        unit, tasks = unit_of(core.coreType), core.tasks or []
        run.ledger.records += len(tasks)
        if unit is None:
            if core.coreType != "HUB" and not core.coreType.startswith("Fake"):
                run.ledger.count_unknown("core type", core.coreType, max(len(tasks), 1))
            run.ledger.merged[NO_WORK_NODE] += len(tasks)
            continue
        lane = run.lane(f"{unit}_{core.blockIdx}", unit, core.blockIdx)
        times = ns_of([(one.execStart, one.execEnd) for one in tasks] or np.zeros((0, 2)), per_us)
        for one, (start, end) in zip(tasks, times.tolist(), strict=True):
            run.add_task(CannTask(lane, start, end, task_id(one.seqNo, max(one.taskId, 0))), path)
    if all(core.tasks for core in cores) and not path.name.endswith("swim.json"):
        run.ledger.notes["cores_left_out"] = "cores without a task are not in this file"
    return clock


def _clock(run: CannRun, path: Path, cores: list[_Core]) -> tuple[float, str]:
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


def _add_marks(run: CannRun, path: Path, cores: list[_Core]) -> None:
    """What machines marked: each mark ends the phase that it names, which began with the mark before."""
    run.files.append(str(path))
    for core in cores:
        per_us = core.freq if core.freq > 0 else DEVICE_TICKS[0]
        lane = run.lane(f"{core.coreType}-{core.blockIdx}", "AICPU", None, role_of(core.coreType))
        marks = sorted((one for one in core.tasks or () if one.end), key=lambda one: one.end or 0)
        run.ledger.records += len(core.tasks or ())
        run.ledger.dropped["mark without a time"] += len(core.tasks or ()) - len(marks)
        run.ledger.merged["mark that begins the first phase"] += min(len(marks), 1)
        for before, one in pairwise(marks):
            found = re.match(r"^(.*?)(?:_([0-9]{1,9}))?(?:\([0-9]+\))?$", one.name)
            name, turn = found.groups() if found else (one.name, None)
            start, end = ns_of([before.end or 0, one.end or 0], per_us).tolist()
            run.add_control(lane, start, end - start, name, step=None if turn is None else int(turn))


def _pipes(path: Path, cores: list[_Core]) -> Trace:
    """Every pipe of every core as a queue of its own."""
    ledger, lanes = Ledger(), list[dict[str, object]]()
    rows: list[tuple[object, ...]] = []
    for core in cores:
        for pipe, ops in (core.pipeLogs or {}).items():
            name = f"{unit_of(core.coreType) or core.coreType}_{core.blockIdx} {pipe}"
            lanes.append({"name": name, "unit": "stream", "core": core.blockIdx, "role": pipe})
            ledger.records += len(ops)
            times = ns_of([(op.execStart, op.execEnd) for op in ops] or np.zeros((0, 2)), SIMULATOR_MHZ).tolist()
            for op, (start, end) in zip(ops, times, strict=True):
                words = op.tileOp.split(" ", 2)
                kernel = words[1] if len(words) > 1 else op.tileOp
                kind = "copy" if pipe.startswith(COPIES) else "task"
                rows.append((len(lanes) - 1, start, max(end - start, 0), kernel, kind, op.tileOp))
    schema = {**{name: TASKS[name] for name in ("lane", "start", "dur", "kernel", "kind")}, "label": pl.String}
    slices = with_depth(pl.DataFrame(rows, schema=schema, orient="row")).with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("task")
    )
    meta = ledger.close(FORMAT, (str(path),), clock="cycles of a simulator at 1.8 GHz")
    return Trace.of(slices, pl.DataFrame(lanes, schema=LANES).with_row_index("lane"), meta)


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
    run = CannRun((inner, outer))
    clock, simulated = "", False
    if (outer / MEASURED).is_file():
        clock = _add_cores(run, outer / MEASURED, _cores(outer / MEASURED))
    elif swims := [file for file in sorted(inner.glob(SWIM)) if not file.match(PIPES)]:
        clock, simulated = _add_cores(run, swims[0], _cores(swims[0])), True
        for other in swims[1:]:
            run.not_read(other, BadInput("another simulation of this folder: name it to read it"))
    elif merged := run.beside(MERGED):
        clock, simulated = add_view(run, collect(merged)), merged.parent == inner
    for marks in sorted(outer.glob(MACHINE)):
        _add_marks(run, marks, _cores(marks))
        clock = clock or "device counter"
    events = next(iter(sorted(inner.glob(EVENTS))), None)
    if events is not None and (simulated or not clock):
        add_simulator(run, collect(events), tasks=not run.tasks)
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


def _note_simulator(run: CannRun, folder: Path) -> None:
    """The simulator's own figure of the whole: with its dispatch before the first task and after the last."""
    for path in sorted(folder.glob(STATISTICS))[:1]:
        if found := re.search(r"Total Cycles[. ]*:\s*([0-9]{1,15})", path.read_text(errors="replace")):
            run.files.append(str(path))
            run.ledger.notes["simulator_cycles"] = int(found[1])
            run.ledger.notes["simulator_ns"] = int(ns_of(int(found[1]), SIMULATOR_MHZ))


def _note_pipes(run: CannRun, folder: Path) -> None:
    """How long each pipe of a core worked for each task, by the task that ran there at that moment."""
    for path in sorted(folder.glob(PIPES))[:1]:
        starts = {run.lanes[lane]["core"]: lane for lane in {one.lane for one in run.tasks}}
        busy: dict[str, dict[str, int]] = {}
        kernels = {one.task: str(run._row(one)[3]) for one in run.tasks}
        for core in _cores(path):
            ran = sorted((one for one in run.tasks if one.lane == starts.get(core.blockIdx)), key=lambda o: o.start)
            begin = np.array([one.start for one in ran], dtype=np.int64)
            for pipe, ops in (core.pipeLogs or {}).items():
                times = ns_of([(op.execStart, op.execEnd) for op in ops] or np.zeros((0, 2)), SIMULATOR_MHZ)
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
