"""Every kernel and every wait for the scheduler of a trace at half its cost and at none, replayed one by one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from npuscope.base import progress
from npuscope.explain.changes import Change, WhatIf, changed_jobs, models_of, whatif
from npuscope.explain.gains import Gains, OneChange, ranked
from npuscope.explain.readiness import Readiness, no_dependencies, readiness
from npuscope.explain.replay import Jobs
from npuscope.explain.served import wall_of
from npuscope.explain.work import NEVER, Work
from npuscope.table.formats import percent, sentence_start
from npuscope.trace.core import Trace
from npuscope.trace.intervals import Ints

MOST_KERNELS = 40  # replayed, those with the most core time
WAITS = "every wait for the scheduler"
PRODUCERS = "every wait for a producer"


def whatif_each(trace: Trace) -> tuple[WhatIf, Gains]:
    """How well the replay does without a change, and what each change would buy, by the likeliest replay."""
    unchanged = whatif(trace, Change())
    work = Work.of(trace)
    ready = readiness(work)
    models, named, _ = models_of(work, ready, Change())
    model, units = models[0], named[0]
    base = wall_of(model)

    def wall(jobs: Jobs) -> int:
        return max(work.wall + wall_of(jobs) - base, 0)

    def changed(change: Change) -> int:
        return wall(changed_jobs(work, model, change, units))

    gains = []
    names = _by_core_time(work)
    for done, name in enumerate(names[:MOST_KERNELS]):
        progress.report("replaying kernels", done, min(len(names), MOST_KERNELS))
        half, nothing = (changed(Change(scale={re.escape(name): factor})) for factor in (0.5, 0.0))
        gains.append(OneChange("kernel", name, "its slices take no time; tasks are still handed out", half, nothing))
    half, nothing = (changed(Change(dispatch_cost=factor)) for factor in (0.5, 0.0))
    gains.append(OneChange("dispatch", WAITS, "delays before starts and after ends", half, nothing))
    for what, how, jobs in _waits(work, ready, model):
        gains.append(OneChange("dispatch", what, how, wall(jobs[0]), wall(jobs[1])))
    if unchanged.has_edges:
        none = replace(model, src=model.src[:0], dst=model.dst[:0])
        gains.append(
            OneChange("dependency", PRODUCERS, "a bound: tasks start in order on free cores", None, wall(none))
        )
    order = (
        "Tasks keep their cores."
        if unchanged.has_edges
        else f"{sentence_start(no_dependencies(trace))}: work keeps its order with what had ended before."
    )
    notes = [f"{order} Replay error {percent(unchanged.replay_error)}; options give bounds (docs/howto/whatif.md)."]
    if len(names) > MOST_KERNELS:
        notes.append(f"{len(names) - MOST_KERNELS:,} kernels with the least core time were not tried.")
    return unchanged, Gains(work.wall, ranked(gains), notes=tuple(notes))


def _by_core_time(work: Work) -> list[str]:
    spent = np.bincount(work.kernel, work.end - work.start, minlength=len(work.kernels))
    present = np.bincount(work.kernel, minlength=len(work.kernels)) > 0
    return [work.kernels[n] for n in np.argsort(-spent, kind="stable").tolist() if present[n]]


def _waits(work: Work, ready: Readiness, model: Jobs) -> Iterator[tuple[str, str, tuple[Jobs, Jobs]]]:
    """The waits apart, where the trace has the stamps: each with the jobs at half of it and without it."""
    if not work.on_cores:
        return
    if (model.late > 0).any():
        yield "FIN", "from a task's end to the scheduler's seeing it", (_less(model, "late", 0.5), _less(model, "late"))
    if (ready.submitted > work.window[0]).any():
        jobs = (_less(model, "not_before", 0.5), _less(model, "not_before"))
        yield "submit", "from the beginning to the orchestrator's having submitted the task", jobs
    stamped = ready.dispatch != NEVER
    if stamped.any():
        could = work.start - model.delay
        pickup = np.where(stamped, work.start - np.maximum(ready.dispatch, could), 0)
        for what, how, part in (
            ("dispatch", "from ready, with a free core, to handed out", np.where(stamped, model.delay - pickup, 0)),
            ("pickup", "from handed out to started", pickup),
        ):
            part = np.maximum(part, 0)
            yield what, how, (_less(model, "delay", 0.5, part), _less(model, "delay", 1.0, part))


def _less(model: Jobs, column: str, share: float = 1.0, part: Ints | None = None) -> Jobs:
    """The jobs with a share of a wait, or of a part of it, taken away."""
    values: Ints = getattr(model, column)
    taken = np.rint(share * (values if part is None else part)).astype(np.int64)
    return replace(model, **{column: values - taken})
