"""Shares of a run in which cores were idle although work for them was ready, as the runtime's own tool counts them.

A task is ready when its producers have ended and it was submitted, until its last block has started. An engine (cube
or vector cores) idles with ready work while a core of it runs nothing and a task of its kind is ready; the whole chip,
while no core at all runs anything. A mixed task is of both kinds.
"""

from __future__ import annotations

import numpy as np

from npuscope.time.chip.job import AIC, AIV, MIX, NONE
from npuscope.time.run import Simulated


def idle_with_ready(simulated: Simulated) -> dict[str, float]:
    """Percent of the makespan by AIC, AIV, chip and any."""
    job, times, machine = simulated.prepared.job, simulated.times, simulated.prepared.machine
    tasks = len(job.shape)
    ended, last_start = np.zeros(tasks), np.zeros(tasks)
    np.maximum.at(ended, job.task_of, times.end)
    np.maximum.at(last_start, job.task_of, times.start)
    ready = times.submitted.copy()
    for task in range(tasks):  # in order of submission: what does no work passes on when its own producers ended
        ended[task] = max(ended[task], ready[task]) if job.shape[task] == NONE else ended[task]
        for n in range(job.first_out[task], job.first_out[task + 1]):
            ready[job.out[n]] = max(ready[job.out[n]], ended[task])
    shape = job.shape[job.task_of]
    changes: list[tuple[float, int, int]] = []  # time, what, by how much
    for begin, end, kind in zip(times.start, times.end, shape, strict=True):
        for what, count in ((0, int(kind != AIV)), (1, 2 if kind == MIX else int(kind == AIV))):
            changes += [(begin, what, count), (end, what, -count)] if count else []
    for task in range(tasks):
        kinds = {MIX: (2, 3), AIC: (2,), AIV: (3,)}.get(int(job.shape[task]), ())
        if last_start[task] > ready[task]:
            changes += [(t, what, by) for what in kinds for t, by in ((ready[task], 1), (last_start[task], -1))]
    first, last = float(np.min(times.start)), float(np.max(times.end))
    now, state = first, [0, 0, 0, 0]
    spent = dict.fromkeys(("AIC", "AIV", "chip", "any"), 0.0)
    for when, what, by in sorted(changes):
        if when > now:
            cube = state[0] < machine.clusters and state[2] > 0
            vector = state[1] < 2 * machine.clusters and state[3] > 0
            whole = state[0] == 0 and state[1] == 0 and state[2] + state[3] > 0
            for name, holds in (("AIC", cube), ("AIV", vector), ("chip", whole), ("any", cube or vector)):
                spent[name] += (when - now) * holds
            now = when
        state[what] += by
    return {name: 100 * span / (last - first) for name, span in spent.items()}
