"""A simulated run as a Trace: the lanes, markers, times and edges that a capture of the runtime has.

Lanes: three scheduler threads and the orchestrator (AICPU), then cube and vector cores. A mixed block has a slice on
its cube core and on both vector cores, as the runtime records it, each as long as that core works. Markers:
Running_Task_Single for a block handed to an idle core, Running_Task_Pair for one put behind another; of the
scheduler's turns Drain (room of rings given back, left over from the turn before), Phase1 (seeing ends and what they
make ready), Phase3b (tasks that do nothing), Phase2 (blocks that start together) and Phase4 (handing out). There is
no Phase3: the runtime that is modelled wires a task when the orchestrator submits it. Counters: `counters_of`.

Where the host builds the graph there is no orchestrator on the device: the fourth thread resolves, and the phases have
the names of such captures (graph_prepare, complete, resolve_standalone, dummy, drain, dispatch).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import polars as pl

from npuscope.chip.runtimes import runtime_named
from npuscope.explain.diagnosis.on_cores import HBM, HBM_LIMIT
from npuscope.tile.graph.outputs import timeless_trace
from npuscope.time.chip.blocks import slow_down
from npuscope.time.chip.job import (
    AIC,
    AIV,
    BEGIN,
    COMPLETED,
    DISPATCHED,
    MIX,
    POLLED,
    PREPARED,
    RELEASED,
    RETIRED,
    THREAD,
    Floats,
    Ints,
    Job,
    Machine,
    Times,
)
from npuscope.time.chip.prepare import Prepared
from npuscope.trace import schema
from npuscope.trace.core import READY_QUEUES, Meta, Trace
from npuscope.trace.names import phase_of

FORMAT = "simulated"
Kernels: TypeAlias = tuple[pl.Series, Ints]  # of each task its kernel's name and number


def trace_of(prepared: Prepared, times: Times, wall_ns: int) -> Trace:
    """The run from the first submission until the last end was seen, so that its window is the wall time."""
    machine, job = prepared.machine, prepared.job
    recording = prepared.program.recording
    slices = slices_of(prepared, times)
    notes: dict[str, object] = {
        "program": recording.program,
        "num_cores": 3 * machine.clusters,
        "window_ns": [0, wall_ns],
        "whole_graph": True,  # where there are no edges, nobody waits for anybody
        HBM_LIMIT: machine.limit,  # bytes per nanosecond, as the counter
    }
    if prepared.program.device.scheduled_by:
        notes["runtime"] = runtime_named(prepared.program.device.scheduled_by).title
    counters = counters_of(job, machine, times)
    records = slices.height + counters.height
    meta = Meta(FORMAT, device=prepared.program.device.name, clock="simulated", records=records, notes=notes)
    edges = timeless_trace(recording, prepared.program.graph).edges.filter(pl.col("src") >= 0)
    return Trace.of(slices.sort("start", maintain_order=True), lanes_of(prepared), meta, edges, counters)


def slices_of(prepared: Prepared, times: Times) -> pl.DataFrame:
    """Blocks on their cores, the scheduler's turns and the orchestrator's submissions."""
    machine, job = prepared.machine, prepared.job
    recording = prepared.program.recording
    first_core = machine.threads + 1
    names = [task.kernel for task in recording.tasks] or [""]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    kernels = pl.Series(names, dtype=pl.String), np.array([numbers[name] for name in names], np.int64)
    ran = np.flatnonzero(times.core >= 0)
    is_mixed = job.shape[job.task_of[ran]] == MIX if len(ran) else np.zeros(0, bool)
    mixed = ran[is_mixed]
    parts = _parts(prepared)[job.block_class[mixed]] if len(mixed) else np.ones((0, 3))
    share = np.ones(len(ran))
    share[is_mixed] = parts[:, 0]
    cube = _slices(ran, times.core[ran] + first_core, prepared, times, kernels, share)
    vector = first_core + machine.clusters + 2 * times.core[mixed]
    vectors = [_slices(mixed, vector + n, prepared, times, kernels, parts[:, n + 1]) for n in range(2)]
    cores = _with_slots(pl.concat([cube, *vectors]))
    threads = [_scheduler(prepared, times)]
    if not machine.hosted:
        threads.append(_orchestrator(prepared, times))
    slices = pl.concat([cores, *threads], how="diagonal")
    return slices.with_columns(phase=phase_of(pl.col("marker")))


def _parts(prepared: Prepared) -> Floats:
    """Of each class of the job; where noise made several classes of each, they are neighbours."""
    parts = prepared.classes.parts()
    found: Floats = np.repeat(parts, len(prepared.job.run) // len(parts), axis=0)
    return found


def _ns(values: Floats) -> Ints:
    found: Ints = np.round(values).astype(np.int64)
    return found


def _slices(rows: Ints, lanes: Ints, prepared: Prepared, times: Times, kernels: Kernels, share: Floats) -> pl.DataFrame:
    """`share`: of each block's run, how much this core works; it leaves when it has done its part."""
    tasks = prepared.job.task_of[rows]
    start = _ns(times.start[rows])
    end = _ns(times.start[rows] + (times.end[rows] - times.start[rows]) * share)
    names, numbers = kernels
    return pl.DataFrame(
        {
            "lane": lanes.astype(np.uint32),
            "start": start,
            "dur": end - start,
            "kernel": names.gather(tasks),
            "kind": np.where(prepared.communicates[tasks], "comm", "task"),
            "task": tasks,
            "block": (rows - prepared.job.first_block[tasks]).astype(np.int32),
            "dispatch": _ns(times.dispatch[rows]),
            "finish": _ns(times.finish[rows]),
            "extra": numbers[tasks].astype(np.uint32),
        }
    )


def _with_slots(slices: pl.DataFrame) -> pl.DataFrame:
    """Which of a core's two slots each block was put into."""
    slices = slices.sort("lane", "start", maintain_order=True)
    before = (pl.col("start") + pl.col("dur")).shift(1).over("lane")
    behind = pl.col("dispatch") < before
    marker = pl.when(behind).then(pl.lit("Running_Task_Pair")).otherwise(pl.lit("Running_Task_Single"))
    return slices.with_columns(marker=marker)


def _phases(prepared: Prepared, times: Times) -> list[tuple[str, Floats, Floats]]:
    """Label, begin and end of what the turns of the scheduler's loops did."""
    parts = [BEGIN, RELEASED, POLLED, COMPLETED, RETIRED, PREPARED, DISPATCHED]
    begin, released, _, seen, retired, prepared_at, handed = np.cumsum(times.loops[:, parts].T, axis=0)
    together = np.sort(times.dispatch[prepared.job.together[prepared.job.task_of] == 1])
    synced = np.searchsorted(together, handed, "right") > np.searchsorted(together, retired, "left")
    if prepared.machine.hosted:
        scheduler = times.loops[:, THREAD] < prepared.machine.threads
        return [
            ("complete", released, np.where(scheduler, seen, released)),
            ("resolve_standalone", released, np.where(scheduler, released, seen)),
            ("dummy", seen, retired),
            ("graph_prepare", retired, prepared_at),
            ("drain", prepared_at, np.where(synced, handed, prepared_at)),
            ("dispatch", prepared_at, np.where(synced, prepared_at, handed)),
        ]
    return [
        ("Drain", begin, released),
        ("Phase1", released, seen),
        ("Phase3b", seen, retired),
        ("Phase2", retired, np.where(synced, handed, retired)),
        ("Phase4", retired, np.where(synced, retired, handed)),
    ]


def _scheduler(prepared: Prepared, times: Times) -> pl.DataFrame:
    """Each thread from the first moment: waiting for its first turn, then one slice per phase that took time."""
    thread = times.loops[:, THREAD].astype(np.int64)
    threads = prepared.machine.threads + prepared.machine.resolver
    first = np.full(threads, np.max(times.finish, initial=0.0))
    np.minimum.at(first, thread, times.loops[:, BEGIN])
    everyone = np.arange(threads)
    frames = [_marked("Scheduling", everyone, np.zeros(len(first)), first, everyone)]
    for label, begin, end in _phases(prepared, times):
        took = end > begin
        frames.append(_marked(label, thread[took], begin[took], end[took]))
    return pl.concat(frames, how="diagonal")


def _orchestrator(prepared: Prepared, times: Times) -> pl.DataFrame:
    lanes = np.full(len(times.began), prepared.machine.threads)
    slices = _marked("Orchestrating", lanes, times.began, times.submitted, lanes)
    return slices.with_columns(task=pl.Series(np.arange(len(lanes)), dtype=pl.Int64))


def _marked(label: str, lanes: Ints, begin: Floats, end: Floats, extra: Ints | None = None) -> pl.DataFrame:
    """Slices of AICPU threads with one marker."""
    frame = pl.DataFrame(
        {"lane": lanes.astype(np.uint32), "start": _ns(begin), "dur": _ns(end) - _ns(begin)},
    )
    columns = {} if extra is None else {"extra": pl.Series(extra.astype(np.uint32))}
    return frame.with_columns(kernel=pl.lit(label), kind=pl.lit("schedule"), marker=pl.lit(label), **columns)


def lanes_of(prepared: Prepared) -> pl.DataFrame:
    """Named as the runtime's own traces name them."""
    machine = prepared.machine
    last = "resolver" if machine.resolver else "idle" if machine.hosted else "orchestrator"
    roles = [*(f"scheduler {n}" for n in range(machine.threads)), last]
    rows: list[tuple[str, str, int, str | None]] = [(f"AICPU_{n}", "AICPU", n, role) for n, role in enumerate(roles)]
    rows += [(f"AICube_{n}", "AIC", n, None) for n in range(machine.clusters)]
    rows += [(f"AIVector_{n}", "AIV", n, None) for n in range(2 * machine.clusters)]
    lanes = pl.DataFrame(
        rows, schema={"name": pl.String, "unit": pl.String, "core": pl.Int32, "role": pl.String}, orient="row"
    )
    return lanes.with_row_index("lane").with_columns(device=pl.lit(0, dtype=pl.Int32), rank=pl.lit(0, dtype=pl.Int32))


IN_FLIGHT = "blocks in flight"
RING_ENTRIES = "ring entries"
TOGETHER = 1 << 12  # blocks looked at together


def counters_of(job: Job, machine: Machine, times: Times) -> pl.DataFrame:
    """Counters of the whole device, sorted by name and time."""
    parts = [_frame(HBM, *bandwidth(job, machine, times)), _frame(IN_FLIGHT, *in_flight(times))]
    for name, shape in zip(READY_QUEUES, (AIC, AIV, MIX), strict=True):
        if np.any(job.shape == shape):
            parts.append(_frame(name, *ready(job, times, shape)))
    if len(job.rings.first_entry) and machine.release > 0:
        parts.append(_frame(RING_ENTRIES, *ring_entries(job, machine, times)))
    return pl.concat(parts)


def _frame(name: str, time: Ints, value: Floats) -> pl.DataFrame:
    """The samples that change the value."""
    new = np.concatenate([[True], value[1:] != value[:-1]])
    frame = pl.DataFrame({"time": time[new], "value": value[new]}).with_columns(name=pl.lit(name))
    return schema.conform(frame, schema.COUNTERS)


def in_flight(times: Times) -> tuple[Ints, Floats]:
    """Blocks handed out and not yet seen done."""
    ran = times.core >= 0
    return _from_to(times.dispatch[ran], times.finish[ran])


def ready(job: Job, times: Times, shape: int) -> tuple[Ints, Floats]:
    """Tasks of a shape whose producers were seen done and of which blocks are still to be handed out."""
    last = np.zeros(len(job.shape))
    np.maximum.at(last, job.task_of, times.dispatch)
    waited = (job.shape == shape) & (job.blocks > 0) & (last > times.ready)  # one staged early never waits
    return _from_to(times.ready[waited], last[waited])


def ring_entries(job: Job, machine: Machine, times: Times) -> tuple[Ints, Floats]:
    """Entries of all rings together: taken when the orchestrator begins with a task, given back in scheduler turns."""
    released = np.rint(times.loops[:, RELEASED] / machine.release)
    taken = np.diff(job.rings.first_entry).astype(np.float64)
    return _level((_ns(times.began), taken), (_ns(times.loops[:, BEGIN]), -released))


def bandwidth(job: Job, machine: Machine, times: Times) -> tuple[Ints, Floats]:
    """Bytes per nanosecond from HBM, as the engine shares it: between two events every block gets on at a speed of
    its own. Means over whole nanoseconds, so that the sum over the run is the bytes that its blocks move."""
    reads = job.draws[job.block_class, 0] > 0 if len(job.draws) else np.zeros(0, bool)
    ran = np.flatnonzero((times.core >= 0) & reads)
    if len(ran) == 0:
        return np.zeros(1, np.int64), np.zeros(1)
    edges = np.unique(np.concatenate([times.start[ran], times.end[ran]]))
    begin, end = (np.searchsorted(edges, moments[ran]) for moments in (times.start, times.end))
    kind = job.block_class[ran]
    moved = np.concatenate([[0.0], np.cumsum(_rates(job, machine, begin, end, kind, len(edges)) * np.diff(edges))])
    whole = np.unique(np.concatenate([[0, np.floor(edges[0])], np.round(edges), [np.ceil(edges[-1])]]).astype(np.int64))
    passed = np.interp(whole, edges, moved)
    return whole, np.append(np.diff(passed) / np.diff(whole), 0.0)


def _rates(job: Job, machine: Machine, begin: Ints, end: Ints, kind: Ints, edges: int) -> Floats:
    """Bytes per nanosecond in every stretch between two edges; a block runs from edge `begin` to edge `end`."""
    change = np.zeros((edges, job.draws.shape[1]))
    np.add.at(change, begin, job.draws[kind])
    np.add.at(change, end, -job.draws[kind])
    wanted = np.cumsum(change, axis=0)[:-1]
    slow = [slow_down(rates, machine.limit) for rates in wanted]
    place = np.array([one[0] for one in slow], np.int64)
    share, factor = (np.array([one[n] for one in slow]) for n in (1, 2))
    size = job.draws[:, 0] * job.run[:, 0]  # bytes of a block of each kind
    total = np.zeros(edges - 1)
    for first in range(0, len(kind), TOGETHER):
        some = slice(first, first + TOGETHER)
        count = (end - begin)[some]
        at = np.repeat(begin[some] - np.cumsum(count) + count, count) + np.arange(count.sum())
        which = np.repeat(kind[some], count)
        fast, slower = job.run[which, place[at]], job.run[which, place[at] + 1]
        span = (fast + share[at] * (slower - fast)) * factor[at]
        total += np.bincount(at, size[which] / span, minlength=edges - 1)
    return total


def _level(*changes: tuple[Ints, Floats]) -> tuple[Ints, Floats]:
    """What is there from each moment on, of moments and by how much it changes then; nothing at the beginning."""
    moments = np.concatenate([[0], *(at for at, _ in changes)]).astype(np.int64)
    time, place = np.unique(moments, return_inverse=True)
    level: Floats = np.cumsum(np.bincount(place, np.concatenate([[0.0], *(by for _, by in changes)])))
    return time, level


def _from_to(begin: Floats, end: Floats) -> tuple[Ints, Floats]:
    """How many of some intervals a moment is in."""
    ones = np.ones(len(begin))
    return _level((_ns(begin), ones), (_ns(end), -ones))
