"""What a simulated run would have counted: HBM's bandwidth, queues of ready tasks, blocks in flight, entries of rings.

All of it follows from the run's own arrays. Times are whole nanoseconds, as in its slices.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from npuscope.time.chip.hbm import slow_down
from npuscope.time.chip.job import (
    AIC,
    AIV,
    BEGIN,
    MIX,
    RELEASED,
    Floats,
    Ints,
    Job,
    Machine,
    Times,
)
from npuscope.trace import schema
from npuscope.trace.counters import READY_QUEUES

HBM = "HBM GB/s"
IN_FLIGHT = "blocks in flight"
RING = "ring entries"
TOGETHER = 1 << 12  # blocks looked at together


def counters_of(job: Job, machine: Machine, times: Times) -> pl.DataFrame:
    """Counters of the whole device, sorted by name and time."""
    parts = [_frame(HBM, *bandwidth(job, machine, times)), _frame(IN_FLIGHT, *in_flight(times))]
    for name, shape in zip(READY_QUEUES, (AIC, AIV, MIX), strict=True):
        if np.any(job.shape == shape):
            parts.append(_frame(name, *ready(job, times, shape)))
    if len(job.rings.first_entry) and machine.release > 0:
        parts.append(_frame(RING, *ring_entries(job, machine, times)))
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


def _ns(values: Floats) -> Ints:
    return np.round(values).astype(np.int64)
