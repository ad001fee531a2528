"""One run of CANN's own PyPTO while its files are read: its lanes, its tasks, what its schedulers did, its program."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.trace.core import BACKWARDS, Ledger, Trace, with_depth
from npuscope.trace.readers.cann_program import GraphTask, LeafProgram, read_graph
from npuscope.trace.source import WHOLE

FORMAT = "cann-pypto"
SIMULATED = "CostModelSimulationOutput"
SIMULATOR_MHZ = 1800.0
GRAPH, PROGRAM, MEASURED, MERGED = "dyn_topo.txt", "program.json", "tilefwk_L1_prof_data.json", "merged_swimlane.json"
NO_WORK_NODE = "node of the graph that runs nowhere"
GRAPH_ROW = "dependencies and leaf of a task"


class CannTask(NamedTuple):
    """A task on its core."""

    lane: int
    start: int
    end: int
    task: int
    label: str = ""
    leaf: str = ""  # its hash


def ns_of(ticks: Any, per_us: float) -> Any:
    """Nanoseconds of ticks: a number or an array of them, rounded to the nearest."""
    return np.rint(np.asarray(ticks, dtype=np.float64) * (1000 / per_us)).astype(np.int64)


class CannRun:
    """Gathers lanes, tasks and slices of control, then joins them with the program."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = folders
        self.ledger, self.files = Ledger(), list[str]()
        self.lanes: list[dict[str, object]] = []
        self.tasks: list[CannTask] = []
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

    def add_task(self, one: CannTask, path: Path) -> None:
        """A task that the file says."""
        if not -WHOLE <= one.task < WHOLE:
            raise BadInput("a task number that fits no 63 bits", path=path)
        if one.end < one.start:
            self.ledger.repaired[BACKWARDS] += 1
            one = one._replace(end=one.start)
        self.tasks.append(one)

    def add_control(
        self, lane: int, start: int, dur: int, name: str, phase: str | None = None, **more: int | None
    ) -> None:
        """What a scheduler or an orchestrator did; `of_task` and `step` where it says them."""
        self.control.append({"lane": lane, "start": start, "dur": dur, "kernel": name, "phase": phase, **more})

    def trace(self, *, clock: str) -> Trace:
        graph = self.graph
        tasks = pl.DataFrame([self._row(one) for one in self.tasks], schema=TASKS, orient="row")
        control = pl.DataFrame(self.control, schema=_CONTROL).with_columns(kind=pl.lit("schedule"))
        tasks = _with_stamps(tasks, control)
        slices = with_depth(pl.concat([tasks, control], how="diagonal").sort("lane", "start", maintain_order=True))
        lanes = pl.DataFrame(self.lanes, schema=LANES).with_row_index("lane")
        self._note_cores(lanes)
        if self.program is not None:
            self.ledger.notes |= {"leaves": self._leaves(tasks), "tiles": self.program.tiles}
        meta = self.ledger.close(FORMAT, tuple(dict.fromkeys(self.files)), clock=clock)
        counters = pl.concat(self.counters) if self.counters else None
        return Trace.of(slices, lanes, meta, self._edges(graph), counters)

    def _row(self, one: CannTask) -> tuple[object, ...]:
        """A slice of `TASKS`."""
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
        if not all(-WHOLE <= task < WHOLE for pair in pairs for task in pair):
            raise BadInput("a dependency on a task number that fits no 63 bits", path=Path(self.files[0]))
        src, dst = (pl.Series([pair[n] for pair in pairs], dtype=pl.Int64) for n in (0, 1))
        edges = pl.DataFrame({"src": src, "dst": dst}).unique(maintain_order=True)
        return edges.with_columns(source=pl.lit("explicit"), name=pl.lit("dependency"))


TASKS = {
    "lane": pl.UInt32, "start": pl.Int64, "dur": pl.Int64, "kernel": pl.String, "kind": pl.String, "task": pl.Int64,
    "label": pl.String, "leaf": pl.String,
}  # fmt: skip
_CONTROL = {
    "lane": pl.UInt32, "start": pl.Int64, "dur": pl.Int64, "kernel": pl.String, "phase": pl.String,
    "of_task": pl.Int64, "step": pl.Int64,
}  # fmt: skip
LANES = {"name": pl.String, "unit": pl.String, "core": pl.Int32, "role": pl.String}


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


def unit_of(core_type: str) -> str | None:
    """AIC, AIV or AICPU; None for a place where nothing runs."""
    if core_type.startswith(("AICPU", "AI-CPU")):
        return "AICPU"
    if "AIV" in core_type:
        return "AIV"
    return "AIC" if "AIC" in core_type or core_type in ("Core", "MIX") else None


def companions(path: Path) -> tuple[Path, ...]:
    """Where the files of a run lie: beside this one, and one further up for what the simulator wrote."""
    return (path.parent, path.parent.parent) if path.parent.name == SIMULATED else (path.parent,)


def role_of(core_type: str) -> str:
    if core_type.startswith("SCHED"):
        return "view of a core"
    return "orchestrator" if core_type.endswith("CTRL") else "scheduler"
