"""What-if on a measured trace: change its task graph, replay it, and say how far to trust the answer.

The interval has five sources, all stated: how well the replay reproduces the measured wall without a change; whether
the scheduler hands out one task after another or each task's waits are its own; whether tasks keep their cores or go to
the first free one; whether waits shorten with the number of tasks; whether a faster scheduler also sees ends earlier
and cores start sooner; and, without edges, whether lanes depended on one another at all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from npuscope.base import progress
from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.explain.replay import Cycle, Jobs, jobs_in_order, jobs_with_edges, served_jobs, wall_of
from npuscope.explain.waits import Readiness, no_dependencies, readiness
from npuscope.explain.work import LONGEST, NEVER, Work
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import SHARE, TEXT, TIME, duration, many, percent, sentence_start, worded
from npuscope.trace.core import Trace
from npuscope.trace.intervals import Ints

ROUGH = 0.05  # of the scheduler's cost: what chance in its line makes of the wall
DOUBTFUL = 0.1  # replay error from which a result carries a warning
RUNS = Columns(
    "whatif.runs",
    "The wall time as it was, with the change, and between which bounds.",
    Column("run", TEXT, "which"),
    Column("wall_ns", TIME, "its wall"),
)
MOST_KERNELS = 40  # replayed, those with the most core time
AS_LAUNCHED = "Dispatches begin when they did: what the change does to the host's launches is not known."
EVERY_WAIT = "every wait for the scheduler"
EVERY_PRODUCER = "every wait for a producer"
Kind = Literal["kernel", "dependency", "dispatch", "bandwidth", "finding"]
WAITS = {  # what people read of a scheduler's waits
    "FIN": "until the scheduler notices an end",
    "dispatch": "until a ready task is handed out",
    "pickup": "until a handed-out task starts",
    "submit": "until a task is submitted",
}
GAINS = Columns(
    "whatif.gains",
    "A change alone, the one that buys most first; gains do not add up.",
    
        Column("kind", TEXT, "kernel, finding, or the kind of cause: dependency, dispatch, bandwidth"),
        Column("what", worded(WAITS), "what is changed"),
        Column("how", TEXT, "how it is changed, in words", only="too long for a row; findings' stand below the table"),
        Column("half_ns", TIME, "the wall with half of it; null where half means nothing", scale="wall",
               title="with half"),
        Column("nothing_ns", TIME, "the wall without it", scale="wall", title="without it"),
        Column("gain_ns", TIME, "what of the wall it takes away", title="saves", more_is="better"),
        Column("gain", SHARE, "the same as a share of the wall", title="share"),
)  # fmt: skip


@dataclass(frozen=True)
class Change:
    """What to change. Kernels are named by regular expressions that match the whole name."""

    scale: Mapping[str, float] = field(default_factory=dict)  # kernel -> factor on its duration
    merge: Sequence[tuple[str, ...]] = ()  # kernels whose nth tasks become one task that runs them one after another
    halve: Sequence[str] = ()  # half as many tasks, each with the work of two
    remove: Sequence[str] = ()
    cores: Mapping[str, int] = field(default_factory=dict)  # unit -> number of cores
    dispatch_cost: float = 1.0  # factor on every wait for the scheduler


@dataclass(frozen=True, repr=False)
class WhatIf(Tabular):
    """Wall times in nanoseconds; `low_ns` to `high_ns` is where the changed run should end up."""

    measured_ns: int
    replayed_ns: int  # without a change, by the replay that misses the measured wall most
    new_ns: int
    low_ns: int
    high_ns: int
    tasks: tuple[int, int]  # before and after
    has_edges: bool  # without, `new_ns` is one end of the interval and not the likeliest place in it
    notes: tuple[str, ...]

    in_json = (
        "measured_ns", "replayed_ns", "new_ns", "low_ns", "high_ns", "tasks", "has_edges", "notes", "replay_error",
        "change",
    )  # fmt: skip

    @property
    def replay_error(self) -> float:
        """The replay without a change over the measured wall, minus one."""
        return self.replayed_ns / self.measured_ns - 1 if self.measured_ns else 0.0

    @property
    def change(self) -> float:
        return self.new_ns / self.measured_ns - 1 if self.measured_ns else 0.0

    def tables(self) -> dict[str, Table]:
        walls = (self.measured_ns, self.new_ns, self.low_ns, self.high_ns)
        return {"runs": RUNS.table(zip(("as it was", "with the change", "at least", "at most"), walls, strict=True))}

    def title(self) -> str:
        between = f"between {duration(self.low_ns)} and {duration(self.high_ns)}"
        most_likely = f"{duration(self.new_ns)} ({self.change:+.1%}), " if self.has_edges else ""
        answer = (
            f"what if: {duration(self.measured_ns)} → {most_likely}{between}; "
            f"{self.tasks[0]:,} → {self.tasks[1]:,} tasks; replay error {percent(self.replay_error)}"
        )
        return "\n".join([answer, *self.notes])


def whatif(trace: Trace, change: Change) -> WhatIf:
    """The wall time the trace would have had."""
    work = Work.of(trace)
    if len(work.lane) == 0:
        raise NpuscopeError("nothing ran in this trace, so there is nothing to replay")
    _check(change, work)
    ready = readiness(work)
    models, notes = models_of(work, ready, change)
    before = [wall_of(model) for model in models]
    busy_until = int(np.max(work.end)) - work.window[0]  # a window may be cut beyond the last end
    worst = max(before, key=lambda wall: abs(wall - busy_until))
    if abs(worst - busy_until) > DOUBTFUL * busy_until:
        notes.append("The replay misses the run it came from by more than a tenth: trust the interval, not the number.")
    if ready.between.length:
        notes.append(AS_LAUNCHED)
    outcomes: list[tuple[int, int, int]] = []  # wall, error of that replay without a change, tasks
    try:
        for model, base in zip(models, before, strict=True):
            for one, how in _ways(model, change):
                progress.report("replaying", len(outcomes), 6 * len(models))
                changed = changed_jobs(work, model, one, **how)
                outcomes.append((work.wall + wall_of(changed) - base, abs(base - busy_until), changed.tasks))
    except Cycle as error:
        merged = ", ".join(["+".join(names) for names in change.merge] + [f"{name}+{name}" for name in change.halve])
        what = f"merging {merged} would make a task wait for itself"
        raise NpuscopeError(what, remedy="One depends on the other through a third task.") from error
    has_edges = work.on_cores and ready.has_dependencies
    if not has_edges and change.dispatch_cost != 1:
        outcomes.append((work.wall, 0, outcomes[0][2]))  # its waits may have been for something else
    return WhatIf(
        measured_ns=work.wall,
        replayed_ns=worst + work.wall - busy_until,
        new_ns=outcomes[0][0],
        low_ns=max(min(wall - error for wall, error, _ in outcomes), 0),
        high_ns=max(wall + error for wall, error, _ in outcomes),
        tasks=(models[0].tasks, outcomes[0][2]),
        has_edges=has_edges,
        notes=tuple(notes),
    )


def _check(change: Change, work: Work) -> None:
    for names in change.merge:
        if len(names) < 2 or not all(names):
            raise NpuscopeError(f"merging takes two kernels and more, not '{'+'.join(names)}'")
    units = list(dict.fromkeys(work.units.tolist()))
    for what, factor in {**change.scale, "dispatch-cost": change.dispatch_cost}.items():
        if not 0 <= factor < 1e6:
            raise NpuscopeError(f"the factor of '{what}' is {factor}; it must be between 0 and a million")
    for unit, count in change.cores.items():
        if unit not in units:
            raise NpuscopeError(f"no unit '{unit}' in this trace", remedy=f"It has {', '.join(units)}.")
        if not 0 < count <= 1_000_000:
            raise NpuscopeError(f"{count} cores of {unit} cannot run anything; ask for 1 to a million")


def models_of(work: Work, ready: Readiness, change: Change) -> tuple[list[Jobs], list[str]]:
    """The readings of the run that an answer lies between, the likeliest first, and what they leave open."""
    if work.on_cores and ready.has_dependencies:
        free = jobs_with_edges(work, ready, keep_core=False)
        models = [free] if change.cores else [jobs_with_edges(work, ready, keep_core=True), free]
        line = served_jobs(work, ready) if change.dispatch_cost != 1 else None
        if line is not None:
            note = (
                "The scheduler hands out one task after another; the interval also covers tasks that wait on their own."
            )
            return [line, replace(line, first_come=True), *models], [note]
        if change.cores:
            return models, ["Tasks go to the first free core of their unit."]
        note = "Tasks keep their cores; the interval also covers tasks that go to the first free core of their unit."
        return models, [note]
    if change.cores or change.merge or change.halve:
        what = "merging, halving and other numbers of cores need dependencies"
        raise NpuscopeError(f"{what}, and this trace has {no_dependencies(work.trace)}")
    notes = [
        f"{sentence_start(no_dependencies(work.trace))}: one end of the interval keeps work in order with what had "
        "ended before it on any lane, the other only with its own lane."
    ]
    if not work.on_cores and (ready.dispatch != NEVER).any():
        notes.append("The host's launches keep their times, though a host that waits for the device would not.")
    return [jobs_in_order(work, ready, across=across) for across in (True, False)], notes


def without_scheduler(work: Work, ready: Readiness, cost: float = 0.0, submitting: float | None = None) -> list[int]:
    """What a scheduler at a share of its cost, and an orchestrator at another, save of what not every run pays, by each
    reading of the run: the likeliest first."""
    change = Change(dispatch_cost=cost)
    models, _ = models_of(work, ready, change)
    once = round(work.once_ns * (1 - cost))
    changed = [changed_jobs(work, model, change) for model in models]
    if submitting is not None:
        floors = [_sooner(model, submitting) for model in models]
        changed = [replace(jobs, not_before=floor) for jobs, floor in zip(changed, floors, strict=True)]
    return [max(wall_of(model) - wall_of(jobs) - once, 0) for model, jobs in zip(models, changed, strict=True)]


@dataclass(frozen=True)
class Fewest:
    """As few tasks as the work of a run could be handed out in, which no scheduler that is given less to do can go
    below: tasks of one block each that follow one another alone as one task; those of a kernel that do not wait for one
    another as one launch, with no more blocks than there are cores for it."""

    tasks: int
    launches: int
    blocks: int
    left: int  # of the blocks

    @classmethod
    def of(cls, kernel: Ints, blocks: Ints, cores: Ints, src: Ints, dst: Ints) -> Fewest:
        """Of tasks with their blocks, the cores that they could run on, and who waits for whom."""
        depth, head = _chains(blocks, src, dst)
        bodies: dict[int, list[int]] = {}
        for task, first in sorted(enumerate(head), key=lambda one: depth[one[0]]):
            bodies.setdefault(first, []).append(int(kernel[task]))
        launches: dict[tuple[object, ...], tuple[int, int]] = {}
        for first, body in bodies.items():
            before, room = launches.get(key := (*body, depth[first]), (0, 0))
            launches[key] = before + int(blocks[first]), max(room, int(cores[first]))
        return cls(len(kernel), len(launches), int(blocks.sum()), sum(map(min, launches.values())))

    @property
    def submitting(self) -> float:
        """The share of the orchestrator's work that is left."""
        return self.launches / max(self.tasks, 1)

    @property
    def handing_out(self) -> float:
        """The share of the scheduler's."""
        return self.left / max(self.blocks, 1)

    def __str__(self) -> str:
        launches = f"{many(self.launches, 'launch', 'launches')} instead of {many(self.tasks, 'task')}"
        return f"{launches}, {many(self.left, 'block')} instead of {self.blocks:,}"


def fewest_tasks(work: Work, ready: Readiness) -> Fewest:
    """Of a capture that says who waits for whom."""
    jobs = jobs_with_edges(work, ready, keep_core=False)
    task, first = np.unique(jobs.task, return_index=True)
    number = np.zeros(jobs.numbers, np.int64)
    number[task] = np.arange(len(task))
    known = np.isin(jobs.src, task) & np.isin(jobs.dst, task)
    cores = np.array([jobs.cores[pool] for pool in jobs.pool[first].tolist()], np.int64)
    blocks = np.bincount(number[jobs.task], minlength=len(task))
    return Fewest.of(jobs.kernel[first], blocks, cores, number[jobs.src[known]], number[jobs.dst[known]])


def _chains(blocks: Ints, src: Ints, dst: Ints) -> tuple[list[int], list[int]]:
    """Of each task the longest chain of tasks before it, and the first of those that could be one task with it."""
    count = len(blocks)
    after: list[set[int]] = [set() for _ in range(count)]
    for a, b in zip(src.tolist(), dst.tolist(), strict=True):
        after[a].add(b)
    waits = Counter(consumer for consumers in after for consumer in consumers)
    one_producer = {task for task, producers in waits.items() if producers == 1}
    depth, head = [0] * count, list(range(count))
    free = [task for task in range(count) if not waits[task]]
    for task in free:  # grows while it is gone through
        for consumer in after[task]:
            depth[consumer] = max(depth[consumer], depth[task] + 1)
            if len(after[task]) == 1 and consumer in one_producer and blocks[task] == blocks[consumer] == 1:
                head[consumer] = head[task]
            waits[consumer] -= 1
            if waits[consumer] == 0:
                free.append(consumer)
    return depth, head


def _ways(model: Jobs, change: Change) -> list[tuple[Change, dict[str, bool]]]:
    """How a change may act on waits, the likeliest first.

    In a line of tasks it is chance who comes first, and with it the wall jumps by some per cent: so a change of the
    scheduler's cost is also tried a little smaller and a little larger.
    """
    if model.hand_out is None:
        return [(change, {}), (change, {"queueing": True})]
    near = [replace(change, dispatch_cost=change.dispatch_cost * (1 + step)) for step in (0.0, -ROUGH, ROUGH)]
    return [(one, how) for how in ({}, {"hand_out_only": True}) for one in near]


def changed_jobs(
    work: Work, jobs: Jobs, change: Change, *, queueing: bool = False, hand_out_only: bool = False
) -> Jobs:
    """The jobs after a change; `queueing` shortens the scheduler's waits with the number of tasks, `hand_out_only`
    leaves the waits after ends and before starts as they are."""
    before = jobs.tasks
    for pattern, factor in change.scale.items():
        here = _named(work, jobs, pattern)
        if float(jobs.dur.sum()) * max(factor, 1.0) >= LONGEST:
            raise NpuscopeError(f"'{pattern}' times {factor} is longer than can be added up")
        jobs = replace(jobs, dur=np.where(here, np.rint(jobs.dur * factor).astype(np.int64), jobs.dur))
    for names in change.merge:
        jobs = _merge(work, jobs, names)
    for pattern in change.halve:
        tasks = _tasks_in_order(jobs, _named(work, jobs, pattern))
        pairs = len(tasks) // 2
        if pairs == 0:
            raise NpuscopeError("halving needs two tasks of the kernel, and there is one")
        jobs = _contract(jobs, tasks[0 : 2 * pairs : 2], tasks[1 : 2 * pairs : 2])
    for pattern in change.remove:
        jobs = _only(jobs, ~_named(work, jobs, pattern))
    cores = dict(jobs.cores)
    for unit, count in change.cores.items():
        cores |= dict.fromkeys(jobs.pools[unit], count)
    factor = change.dispatch_cost * (jobs.tasks / before if queueing and before else 1.0)
    waits = [] if hand_out_only else ["delay", "late"]
    waits += [] if jobs.hand_out is None else ["hand_out"]
    scaled = {name: np.rint(getattr(jobs, name) * factor).astype(np.int64) for name in waits}
    launches = factor if work.on_cores else change.dispatch_cost  # an orchestrator's queue shortens, a host's does not
    return replace(jobs, cores=cores, not_before=_sooner(jobs, launches), **scaled)


def _sooner(jobs: Jobs, factor: float) -> Ints:
    """When tasks are submitted at a share of that cost; the host's launches stay where they are."""
    found: Ints = jobs.launched + np.rint((jobs.not_before - jobs.launched) * factor).astype(np.int64)
    return found


def _named(work: Work, jobs: Jobs, pattern: str) -> NDArray[np.bool_]:
    return work.kernels_named(pattern, whole=True)[jobs.kernel]


def _only(jobs: Jobs, kept: NDArray[np.bool_]) -> Jobs:
    """Some jobs. Tasks that lose all their blocks stay in the graph as barriers, so that order is kept."""
    columns = ["kernel", "task", "unit", "pool", "dur", "delay", "late", "not_before", "launched", "order"]
    columns += [] if jobs.hand_out is None else ["hand_out", "behind"]
    return replace(jobs, **{name: getattr(jobs, name)[kept] for name in columns})


def _merge(work: Work, jobs: Jobs, names: Sequence[str]) -> Jobs:
    """The nth task of every further kernel becomes part of the nth task of the first."""
    first = _named(work, jobs, names[0])
    for name in names[1:]:
        second = _named(work, jobs, name)
        if (first & second).any():
            raise NpuscopeError(f"'{names[0]}' and '{name}' name the same kernel; to merge it with itself use halve")
        if set(jobs.unit[first].tolist()) != set(jobs.unit[second].tolist()):
            raise NpuscopeError(f"'{names[0]}' and '{name}' run on different units, so one task cannot hold both")
        a, b = _tasks_in_order(jobs, first), _tasks_in_order(jobs, second)
        pairs = min(len(a), len(b))
        jobs = _contract(jobs, a[:pairs], b[:pairs])
        first = _named(work, jobs, names[0])
    return jobs


def _tasks_in_order(jobs: Jobs, here: NDArray[np.bool_]) -> Ints:
    """The distinct tasks of some jobs, by first hand-out."""
    rows = np.flatnonzero(here)
    rows = rows[np.argsort(jobs.order[rows], kind="stable")]
    tasks = jobs.task[rows]
    _, first = np.unique(tasks, return_index=True)
    return tasks[np.sort(first)]


def _contract(jobs: Jobs, into: Ints, gone: Ints) -> Jobs:
    """Make each task of `gone` part of its partner: nth block onto nth block, edges of both."""
    partner = np.arange(jobs.numbers)
    partner[gone] = into
    # nth block of each task and unit, so that a block meets its like
    order = np.lexsort((jobs.order, jobs.unit, jobs.task))
    key = np.stack([jobs.task[order], jobs.unit[order]])
    begins = np.flatnonzero(np.append(True, (key[:, 1:] != key[:, :-1]).any(axis=0)))
    nth = np.empty(len(order), dtype=np.int64)
    nth[order] = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
    home = {k: row for row, k in enumerate(zip(jobs.task.tolist(), jobs.unit.tolist(), nth.tolist(), strict=True))}
    dur, kept = jobs.dur.copy(), np.ones(len(order), dtype=bool)
    for row in np.flatnonzero(np.isin(jobs.task, gone)).tolist():
        target = home.get((int(partner[jobs.task[row]]), int(jobs.unit[row]), int(nth[row])))
        if target is not None:
            dur[target] += dur[row]
            kept[row] = False
    src, dst = partner[jobs.src], partner[jobs.dst]
    distinct = src != dst
    both = np.unique(np.stack([src[distinct], dst[distinct]]), axis=1)
    merged = replace(jobs, dur=dur, task=partner[jobs.task], src=both[0], dst=both[1])
    return _only(merged, kept)


@dataclass(frozen=True)
class OneChange:
    """Wall times in nanoseconds with one change. `half_ns` is None where half of it means nothing."""

    kind: Kind
    what: str
    how: str  # what was changed, in words
    half_ns: int | None
    nothing_ns: int


@dataclass(frozen=True, repr=False)
class Gains(Tabular):
    """Each change alone, the one that buys most first: gains do not add up."""

    wall_ns: int  # without a change
    gains: tuple[OneChange, ...]
    not_expressed: tuple[tuple[str, str], ...] = ()  # what, and why it cannot be tried
    notes: tuple[str, ...] = ()
    regime: str = ""  # of a simulated run: by which its intervals are learnt (time/bound.py)

    def tables(self) -> dict[str, Table]:
        rows = (
            (g.kind, g.what, g.how, g.half_ns, g.nothing_ns, self.wall_ns - g.nothing_ns, self.share(g))
            for g in self.gains
        )
        return {"gains": GAINS.table(rows)}

    def share(self, gain: OneChange) -> float:
        """What of the wall time it takes away."""
        return 1 - gain.nothing_ns / self.wall_ns if self.wall_ns else 0.0

    def title(self) -> str:
        if not self.gains or self.gains[0].nothing_ns >= self.wall_ns:
            return f"no single change would shorten the {duration(self.wall_ns)}"
        best = self.gains[0]
        what = f"the wait {WAITS[best.what]}" if best.what in WAITS else best.what
        walls = f"{duration(best.nothing_ns)} instead of {duration(self.wall_ns)} ({percent(self.share(best))} less)"
        return f"most to gain from {what}: without it {walls}"

    def as_dict(self) -> dict[str, object]:
        cannot = [{"what": what, "why": why} for what, why in self.not_expressed]
        return {"wall_ns": self.wall_ns, **super().as_dict(), "not_expressed": cannot, "notes": list(self.notes)}


def ranked(gains: Iterable[OneChange]) -> tuple[OneChange, ...]:
    """The one that buys most first."""
    return tuple(sorted(gains, key=lambda gain: (gain.nothing_ns, gain.kind, gain.what)))


def whatif_each(trace: Trace) -> tuple[WhatIf, Gains]:
    """How well the replay does without a change, and what every kernel and every wait for the scheduler at half its
    cost and at none would buy, by the likeliest replay."""
    unchanged = whatif(trace, Change())
    work = Work.of(trace)
    ready = readiness(work)
    model = models_of(work, ready, Change())[0][0]
    base = wall_of(model)

    def wall(jobs: Jobs) -> int:
        return max(work.wall + wall_of(jobs) - base, 0)

    def gain(kind: Kind, what: str, how: str, half: Jobs, nothing: Jobs) -> OneChange:
        return OneChange(kind, what, how, wall(half), wall(nothing))

    def less(column: str, part: Ints | None = None) -> list[Jobs]:
        """The jobs with half of a wait, or of a part of it, taken away, and with all of it."""
        values: Ints = getattr(model, column)
        taken = values if part is None else part
        return [replace(model, **{column: values - np.rint(s * taken).astype(np.int64)}) for s in (0.5, 1.0)]

    gains = []
    spent = np.bincount(work.kernel, work.end - work.start, minlength=len(work.kernels))
    present = np.bincount(work.kernel, minlength=len(work.kernels)) > 0
    names = [work.kernels[n] for n in np.argsort(-spent, kind="stable").tolist() if present[n]]
    for done, name in enumerate(names[:MOST_KERNELS]):
        progress.report("replaying kernels", done, min(len(names), MOST_KERNELS))
        both = [changed_jobs(work, model, Change(scale={re.escape(name): factor})) for factor in (0.5, 0.0)]
        gains.append(gain("kernel", name, "its slices take no time; tasks are still handed out", *both))
    saved = [without_scheduler(work, ready, factor)[0] for factor in (0.5, 0.0)]
    half, nothing = (max(work.wall - one, 0) for one in saved)
    gains.append(OneChange("dispatch", EVERY_WAIT, "delays before starts and after ends", half, nothing))
    if work.on_cores and (model.late > 0).any():
        gains.append(gain("dispatch", "FIN", "from a task's end to the scheduler's seeing it", *less("late")))
    if work.on_cores and (ready.submitted > work.window[0]).any():
        how = "from the launch to the orchestrator's having submitted the task"
        gains.append(gain("dispatch", "submit", how, *less("not_before", model.not_before - model.launched)))
    stamped = ready.dispatch != NEVER
    if work.on_cores and stamped.any():
        pickup = np.where(stamped, work.start - np.maximum(ready.dispatch, work.start - model.delay), 0)
        hand_out = np.maximum(np.where(stamped, model.delay - pickup, 0), 0)
        how = "from ready, with a free core, to handed out"
        gains.append(gain("dispatch", "dispatch", how, *less("delay", hand_out)))
        gains.append(gain("dispatch", "pickup", "from handed out to started", *less("delay", np.maximum(pickup, 0))))
    if unchanged.has_edges:
        none = wall(replace(model, src=model.src[:0], dst=model.dst[:0]))
        how = "a bound: tasks start in order on free cores"
        gains.append(OneChange("dependency", EVERY_PRODUCER, how, None, none))
        order = "Tasks keep their cores."
    else:
        order = f"{sentence_start(no_dependencies(trace))}: work keeps its order with what had ended before."
    notes = [f"{order} Replay error {percent(unchanged.replay_error)}; options give bounds (docs/howto/whatif.md)."]
    notes += [AS_LAUNCHED] if ready.between.length else []
    if len(names) > MOST_KERNELS:
        notes.append(f"{len(names) - MOST_KERNELS:,} kernels with the least core time were not tried.")
    return unchanged, Gains(work.wall, ranked(gains), notes=tuple(notes))
