"""A run once more with the same choices, written without the engine: every block on its core, in its turn there.

A block starts as long after the last of what it waited for (its producers seen done, its task submitted, the block
before it on its cores ended) as it did in the run, and is seen done as long after its end. Only the memory may differ.
"""

from __future__ import annotations

import numpy as np

from npuscope.time.chip.job import NONE, Floats, Job, Machine, Times
from tests.time.rules import held, producers, speeds


def end_with_the_same_choices(job: Job, machine: Machine, times: Times, limit: float) -> float:
    """When the last block is seen done if the memory gives `limit`. Jobs in which the host waits are not for this."""
    before = _before(job, machine, times)
    waits = [producers(job, task) for task in range(len(job.shape))]
    start, end = np.full(len(times.core), np.inf), np.full(len(times.core), np.inf)
    left = np.ones(len(times.core))  # of each block's work
    then = _enabled(job, times, times.start, times.end, before, waits)
    lag, seen = times.start - then, times.finish - times.end
    now = 0.0
    while not np.all(np.isfinite(end)):
        starts = np.where(
            np.isfinite(start),
            np.inf,
            _enabled(job, times._replace(finish=end + seen), start, end, before, waits) + lag,
        )
        rows = np.flatnonzero(np.isfinite(start) & ~np.isfinite(end))
        spans = speeds(job, limit, rows) if len(rows) else np.zeros(0)
        ends = now + left[rows] * spans
        when = min([np.min(starts), *ends])
        left[rows] -= (when - now) / np.maximum(spans, 1e-12)
        now = when
        end[rows[ends <= now]] = now
        start[starts <= now] = now
    return float(np.max(end + seen))


def _before(job: Job, machine: Machine, times: Times) -> list[set[int]]:
    """Per block those right before it on its cores."""
    last: dict[int, int] = {}
    found: list[set[int]] = [set() for _ in times.core]
    for row in np.argsort(times.start, kind="stable").tolist():
        for core in held(job, machine, times, row):
            if core in last:
                found[row].add(last[core])
            last[core] = row
    return found


def _enabled(
    job: Job, times: Times, start: Floats, end: Floats, before: list[set[int]], waits: list[np.ndarray]
) -> Floats:
    """Per block when the last of what it waits for has happened."""
    done = np.zeros(len(job.shape))
    np.maximum.at(done, job.task_of, times.finish)
    ready = times.submitted.copy()
    for task in range(len(job.shape)):
        ready[task] = max([times.submitted[task], *done[waits[task]]])
        if job.shape[task] == NONE:
            done[task] = ready[task]
    return np.array([max([ready[job.task_of[row]], *(end[other] for other in before[row])]) for row in range(len(end))])
