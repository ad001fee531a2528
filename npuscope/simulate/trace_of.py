"""A simulated run as a Trace: the lanes, labels, times and edges that a capture of the runtime has.

Lanes: three scheduler threads and the orchestrator (AICPU), then cube and vector cores. A mixed block has a slice on
its cube core and on both vector cores, as the runtime records it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from npuscope.simulate.chip.job import MIX, Times
from npuscope.simulate.chip.prepare import Prepared
from npuscope.tile.graph.timeless import timeless_trace
from npuscope.trace.core import Trace
from npuscope.trace.meta import Meta

FORMAT = "simulated"
PHASES = ("Phase1", "Phase3", "Phase4")  # polling, completing and resolving, handing out


def trace_of(prepared: Prepared, times: Times) -> Trace:
    machine, job = prepared.machine, prepared.job
    recording = prepared.program.recording
    first_core = machine.threads + 1
    kernels = np.array([task.kernel for task in recording.tasks] or [""], dtype=object)
    ran = np.flatnonzero(times.core >= 0)
    cube = _slices(ran, times.core[ran] + first_core, prepared, times, kernels)
    mixed = ran[job.shape[job.task_of[ran]] == MIX] if len(ran) else ran
    vectors = [
        _slices(mixed, first_core + machine.clusters + 2 * times.core[mixed] + n, prepared, times, kernels)
        for n in range(2)
    ]
    slices = pl.concat([cube, *vectors, _scheduler(times), _orchestrator(prepared, times)], how="diagonal")
    notes: dict[str, Any] = {"program": recording.program, "device": prepared.program.device.name}
    edges = timeless_trace(recording, prepared.program.graph).edges.filter(pl.col("src") >= 0)
    return Trace.of(slices.sort("start", maintain_order=True), _lanes(prepared), Meta(FORMAT, notes=notes), edges)


def _ns(values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.round(values).astype(np.int64)


def _slices(rows: Any, lanes: Any, prepared: Prepared, times: Times, kernels: Any) -> pl.DataFrame:
    tasks = prepared.job.task_of[rows]
    start, end = _ns(times.start[rows]), _ns(times.end[rows])
    return pl.DataFrame(
        {
            "lane": lanes.astype(np.uint32),
            "start": start,
            "dur": end - start,
            "kernel": pl.Series(kernels[tasks].tolist(), dtype=pl.String),
            "kind": pl.Series(["task"] * len(rows), dtype=pl.String),
            "task": tasks,
            "block": (rows - prepared.job.first_block[tasks]).astype(np.int32),
            "dispatch": _ns(times.dispatch[rows]),
            "finish": _ns(times.finish[rows]),
        }
    )


def _scheduler(times: Times) -> pl.DataFrame:
    """What each turn of a scheduler's loop did, one slice per phase that took time."""
    frames = []
    begin = times.loops[:, 1].copy()
    for n, label in enumerate(PHASES):
        span = times.loops[:, 2 + n]
        took = span > 0
        frames.append(
            pl.DataFrame(
                {
                    "lane": times.loops[took, 0].astype(np.uint32),
                    "start": _ns(begin[took]),
                    "dur": _ns((begin + span)[took]) - _ns(begin[took]),
                    "kernel": pl.Series([label] * int(np.sum(took)), dtype=pl.String),
                    "kind": pl.Series(["schedule"] * int(np.sum(took)), dtype=pl.String),
                }
            )
        )
        begin += span
    return pl.concat(frames)


def _orchestrator(prepared: Prepared, times: Times) -> pl.DataFrame:
    began, done = _ns(times.began), _ns(times.submitted)
    count = len(began)
    return pl.DataFrame(
        {
            "lane": np.full(count, prepared.machine.threads, np.uint32),
            "start": began,
            "dur": done - began,
            "kernel": pl.Series(["Orchestrating"] * count, dtype=pl.String),
            "kind": pl.Series(["schedule"] * count, dtype=pl.String),
        }
    )


def _lanes(prepared: Prepared) -> pl.DataFrame:
    machine = prepared.machine
    names = [f"Scheduler {n}" for n in range(machine.threads)] + ["Orchestrator"]
    units = ["AICPU"] * len(names)
    cores: list[int | None] = list(range(len(names)))
    for unit, count in (("AIC", machine.clusters), ("AIV", 2 * machine.clusters)):
        names += [f"{unit} {n}" for n in range(count)]
        units += [unit] * count
        cores += list(range(count))
    return pl.DataFrame(
        {
            "lane": np.arange(len(names), dtype=np.uint32),
            "name": names,
            "unit": units,
            "core": pl.Series(cores, dtype=pl.Int32),
            "device": pl.Series([0] * len(names), dtype=pl.Int32),
            "rank": pl.Series([0] * len(names), dtype=pl.Int32),
        }
    )
