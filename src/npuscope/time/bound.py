"""What limits each moment of a simulated run. The limit with most time is the run's regime: predictions of runs of one
regime miss by as much as others of it did (`uncertainty.py`). Why a run takes so long says its diagnosis, which goes by
the critical path: at many a moment some block waits for the scheduler on whom nothing depends.

At a moment the first of these that holds is the limit:
  memory        the running blocks ask for more than HBM gives
  cube, vector  nearly all cores of a kind run (FULL of them)
  scheduler     a block could run, its producers have ended, and it has not started
  orchestrator  a task could run, its producers have ended, and it has not been submitted
  tail          none of these, and no block is left to start: the last ones do not fill the cores
  dependency    none of these: what is left to do waits for the blocks that run, which do not fill the cores
A regime (`KIND_OF`) has the word of the kind of cause that the limit would be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from npuscope.time.chip.job import AIC, AIV, MIX, POLLED, Floats, Ints, Job, Machine, Times

Bools = npt.NDArray[np.bool_]
FULL = 0.9  # of the cores of a kind
KIND_OF = {  # a limit -> the kind of cause that it is (analysis/diagnosis)
    "memory": "bandwidth", "cube": "core", "vector": "core", "scheduler": "dispatch", "orchestrator": "dispatch",
    "tail": "tail", "dependency": "dependency",
}  # fmt: skip
LIMITS = tuple(KIND_OF)
UNKNOWN = "unknown"  # the kind of a run in which nothing ran


@dataclass(frozen=True)
class LimitSpans:
    """The run cut where its limit may change: between `edges[n]` and `edges[n + 1]` it is `LIMITS[which[n]]`."""

    edges: Floats
    which: Ints

    @property
    def spans(self) -> Floats:
        length: Floats = np.diff(self.edges)
        return length

    def joined(self, limit: str) -> list[tuple[float, float]]:
        """The stretches of one limit, neighbours as one."""
        mine = np.concatenate([[False], self.which == LIMITS.index(limit), [False]])
        turns = np.flatnonzero(mine[1:] != mine[:-1])
        return [(float(self.edges[a]), float(self.edges[b])) for a, b in turns.reshape(-1, 2).tolist()]


@dataclass(frozen=True)
class Bound:
    """`regime` is that of the limit with most time; `shares` of the wall time, by limit, add up to one; each `busy` is
    of all such units' time."""

    regime: str
    stretches: LimitSpans
    shares: dict[str, float]
    cube_busy: float
    vector_busy: float
    scheduler_busy: float  # of the scheduler's threads
    orchestrator_busy: float
    ring_wait_ns: float  # that the orchestrator waited for room in a ring


def stretches_of(job: Job, machine: Machine, times: Times, wall: float) -> LimitSpans:
    """The limit of every moment from 0 to `wall`."""
    cube, vector, each = _cores(job)
    draws = job.draws[job.block_class, 0] if len(job.block_class) else np.zeros(0)
    ended = _last_end_of_producers(job, times)
    could = np.maximum(ended, times.submitted)[job.task_of]  # of each block
    edges = np.unique(
        np.concatenate([[0.0, wall], times.start, times.end, np.minimum(could, wall), ended, times.submitted])
    )
    edges = edges[(edges >= 0) & (edges <= wall)]

    def level(begin: Floats, end: Floats, weight: Floats) -> Floats:
        """How much is there in each stretch between two edges."""
        change = np.zeros(len(edges) + 1)
        np.add.at(change, np.searchsorted(edges, np.minimum(begin, wall)), weight)
        np.add.at(change, np.searchsorted(edges, np.minimum(np.maximum(end, begin), wall)), -weight)
        total: Floats = np.cumsum(change)[: len(edges) - 1]
        return total

    ones = np.ones(len(ended))
    holds = (
        level(times.start, times.end, draws) > machine.limit * (1 + 1e-9),
        level(times.start[cube], times.end[cube], np.ones(int(np.sum(cube)))) >= FULL * machine.clusters,
        level(times.start[vector], times.end[vector], each[vector]) >= FULL * 2 * machine.clusters,
        level(could, times.start, np.ones(len(could))) > 0.5,
        level(ended, times.submitted, ones) > 0.5,
        edges[:-1] >= np.max(times.start, initial=0.0),
    )
    return LimitSpans(edges, np.select(holds, range(len(holds)), len(holds)).astype(np.int64))


def _cores(job: Job) -> tuple[Bools, Bools, Floats]:
    """Of each block whether it holds a cube core, whether vector cores, and how many of them."""
    shape = job.shape[job.task_of]
    return (shape == AIC) | (shape == MIX), (shape == AIV) | (shape == MIX), np.where(shape == MIX, 2.0, 1.0)


def bound_of(job: Job, machine: Machine, times: Times, wall: float) -> Bound:
    """The limits of all moments added up."""
    cube, vector, each = _cores(job)
    found = stretches_of(job, machine, times, wall)
    sums = np.bincount(found.which, found.spans, minlength=len(LIMITS)) / wall if wall > 0 else np.zeros(len(LIMITS))
    shares = {name: float(share) for name, share in zip(LIMITS, sums, strict=True)}
    run = times.end - times.start
    whole = max(wall, 1e-9)
    ran = wall > 0 and len(job.block_class) > 0
    return Bound(
        KIND_OF[max(shares, key=lambda name: shares[name])] if ran else UNKNOWN,
        found,
        shares,
        float(np.sum(run[cube])) / (machine.clusters * whole),
        float(np.sum((run * each)[vector])) / (2 * machine.clusters * whole),
        float(np.sum(times.loops[:, POLLED:])) / ((machine.threads + machine.resolver) * whole),
        float(np.sum(times.submitted - times.began)) / whole,
        _waited_for_room(job, times),
    )


def after_each_other(told: Bound, runs: Sequence[tuple[Bound, float]], wall: float) -> Bound:
    """The limits of one run, with how busy units are over all runs, each with its own wall, within another wall."""

    def busy(of: Callable[[Bound], float]) -> float:
        return sum(of(one) * own for one, own in runs) / max(wall, 1e-9)

    return replace(
        told,
        cube_busy=busy(lambda one: one.cube_busy),
        vector_busy=busy(lambda one: one.vector_busy),
        scheduler_busy=busy(lambda one: one.scheduler_busy),
        orchestrator_busy=busy(lambda one: one.orchestrator_busy),
        ring_wait_ns=sum(one.ring_wait_ns for one, _ in runs),
    )


def _waited_for_room(job: Job, times: Times) -> float:
    """The orchestrator goes from task to task without a pause, but for room, or where it reads what a task writes.

    A pause before such a read counts as the read's, also where room was short too.
    """
    pauses = times.began[1:] - times.submitted[:-1]
    return float(np.sum(pauses[job.waits_host[1:] < 0]))


def _last_end_of_producers(job: Job, times: Times) -> Floats:
    """Per task when its last producer had ended; a producer without blocks ends when its own producers have."""
    last = np.zeros(len(job.shape))
    if len(job.task_of):
        np.maximum.at(last, job.task_of, times.end)
    ended = np.zeros(len(job.shape))
    # producers come first: they were submitted before, but for the ends of recorded graphs, which come after all tasks
    order = np.argsort(times.ready, kind="stable").tolist() if len(job.graph) else range(len(job.shape))
    for task in order:
        if job.blocks[task] == 0:
            last[task] = max(ended[task], times.submitted[task])
        consumers: Ints = job.out[job.first_out[task] : job.first_out[task + 1]]
        ended[consumers] = np.maximum(ended[consumers], last[task])
    return ended
