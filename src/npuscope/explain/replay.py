"""Replaying a measured task graph: jobs with durations, delays and predecessors on the cores of their unit.

A job is one block on one core. It starts when every task it waits for was seen to finish and a core of its unit is
free, plus the delay measured for it; jobs are handed out in their measured order as far as the graph allows.

Waits of single tasks do not tell what a faster scheduler buys: of tasks that become ready together the last waits for
all hand-outs before its own, and what it waits shrinks once more where the line has gone before the next tasks come.
So, where the capture has the stamps, the scheduler hands out one task after another: the times of single hand-outs are
taken out of the stamps (`served_jobs`), and the line forms anew in the replay.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.explain.waits import Readiness
from npuscope.explain.work import NEVER, NONE, Work
from npuscope.trace.intervals import Ints, largest


class Cycle(NpuscopeError):
    """A graph that cannot run."""


@dataclass(frozen=True, repr=False)
class Jobs:
    """Columns per job, nanoseconds from the window's start; edges between tasks."""

    kernel: Ints
    task: Ints
    unit: Ints  # the unit it needs
    pool: Ints  # the cores that may take it: all of the unit, or the one it ran on
    dur: Ints
    delay: Ints  # from "could start" to start, as measured; below zero for one that began before its turn
    late: Ints  # from end to the scheduler's seeing it
    not_before: Ints  # an outside event: the host's launch, and on cores the submission after it
    launched: Ints  # of that the host's launch of its dispatch, which no scheduler moves
    order: Ints  # measured order of hand-out
    src: Ints
    dst: Ints
    cores: Mapping[int, int]  # cores per pool
    pools: Mapping[str, Sequence[int]] = field(default_factory=dict)  # of each unit, where its cores are shared
    hand_out: Ints | None = None  # the scheduler's time for each, where it hands out one after another (`served`)
    behind: Ints | None = None  # 1 for one that was handed out behind a task that still ran
    first_come: bool = False  # whoever was ready first is handed out first, else whoever was first in the capture

    @property
    def tasks(self) -> int:
        return len(np.unique(self.task))

    @property
    def numbers(self) -> int:
        """Task numbers in use, those of barriers included."""
        return max(largest(self.task), largest(self.src), largest(self.dst)) + 1


def jobs_with_edges(work: Work, ready: Readiness, *, keep_core: bool) -> Jobs:
    """Jobs of a trace with edges: each keeps the core it ran on, or takes the first free core of its unit."""
    places = list(zip(work.units.tolist(), work.lanes["device"].to_list(), work.lanes["rank"].to_list(), strict=True))
    numbers = {place: number for number, place in enumerate(dict.fromkeys(places))}
    unit_of_lane = np.array([numbers[place] for place in places], dtype=np.int64)
    pool_of_lane = np.arange(len(places)) if keep_core else unit_of_lane
    named: dict[str, list[int]] = {}
    for (unit, _, _), number in numbers.items():
        named.setdefault(unit, []).append(number)
    free = np.where(work.previous == NONE, work.window[0], work.end[work.previous])
    launched = _launched(work, ready)
    could = np.maximum(np.maximum(ready.ready, launched), free)
    return Jobs(
        kernel=work.kernel,
        task=ready.task,
        unit=unit_of_lane[work.lane],
        pool=pool_of_lane[work.lane],
        dur=work.end - work.start,
        delay=work.start - could,
        late=np.maximum(np.where(work.finish != NEVER, work.finish - work.end, 0), 0),
        not_before=np.maximum(ready.submitted, launched) - work.window[0],
        launched=launched - work.window[0],
        order=work.start,
        src=ready.src,
        dst=ready.dst,
        cores=dict(enumerate(np.bincount(pool_of_lane).tolist())),
        pools={} if keep_core else named,
    )


def jobs_in_order(work: Work, ready: Readiness, *, across: bool) -> Jobs:
    """Jobs of a trace without edges: each keeps its lane and follows the one before it there; with `across`, also
    the one that had ended last on any lane when it began."""
    rows = np.arange(len(work.lane))
    followers = rows[work.previous != NONE]
    src, dst = work.previous[followers], followers
    ended = np.where(work.previous == NONE, work.window[0], work.end[work.previous])
    if across:
        by_end = np.argsort(work.end, kind="stable")
        place = np.searchsorted(work.end[by_end], work.start, side="right") - 1
        last = np.where(place >= 0, by_end[np.maximum(place, 0)], NONE)
        last = np.where((last == rows) | (work.start[last] >= work.start), NONE, last)
        met = rows[last != NONE]
        src, dst = np.append(src, last[met]), np.append(dst, met)
        ended = np.maximum(ended, np.where(last == NONE, work.window[0], work.end[last]))
    # a host's launch comes from outside; a scheduler's hand-out follows from the work itself
    launched = _launched(work, ready)
    if not work.on_cores:
        launched = np.maximum(ready.dispatch, launched)
    could = np.maximum(ended, launched)
    return Jobs(
        kernel=work.kernel,
        task=rows,
        unit=work.lane,
        pool=work.lane,
        dur=work.end - work.start,
        delay=work.start - could,
        late=np.zeros_like(rows),
        not_before=launched - work.window[0],
        launched=_launched(work, ready) - work.window[0],
        order=work.start,
        src=src,
        dst=dst,
        cores=dict.fromkeys(range(work.lanes.height), 1),
    )


def _launched(work: Work, ready: Readiness) -> Ints:
    """When the host launched the dispatch of each slice, where the card had paused for it; else the window's start."""
    begins = np.sort(np.concatenate([[work.window[0]], ready.between.end, ready.apart.end]))
    found: Ints = begins[np.maximum(np.searchsorted(begins, work.start, "right") - 1, 0)]
    return found


class WaitingTasks:
    """Tasks that wait for one another, as a replay goes on: which jobs may start at first, and after each end."""

    def __init__(self, jobs: Jobs) -> None:
        self._tasks = tasks = jobs.numbers
        self._task: list[int] = jobs.task.tolist()
        self._waits = np.bincount(jobs.dst, minlength=tasks).tolist()
        self._consumers = _grouped(jobs.src, jobs.dst, tasks)
        self._blocks = _grouped(jobs.task, np.arange(len(jobs.task)), tasks)
        self._left = [len(rows) for rows in self._blocks]
        self._ready, self._seen = [0] * tasks, [0] * tasks
        self._done = 0

    def at_first(self) -> list[int]:
        """The jobs that wait for nothing."""
        free = [number for number in range(self._tasks) if self._waits[number] == 0]
        barriers = [number for number in free if self._left[number] == 0]
        return [job for number in free for job in self._blocks[number]] + self._passed_on(barriers)

    def ready(self, job: int) -> int:
        """When all that a job waited for was seen to finish."""
        return self._ready[self._task[job]]

    def ended(self, job: int, seen: int) -> list[int]:
        """The jobs that may start now that the end of this one is seen."""
        number = self._task[job]
        self._seen[number] = max(self._seen[number], seen)
        self._left[number] -= 1
        return [] if self._left[number] else self._passed_on([number])

    def _passed_on(self, finished: list[int]) -> list[int]:
        freed: list[int] = []
        while finished:
            number = finished.pop()
            self._done += 1
            for consumer in self._consumers[number]:
                self._ready[consumer] = max(self._ready[consumer], self._seen[number])
                self._waits[consumer] -= 1
                if self._waits[consumer] == 0:
                    self._seen[consumer] = self._ready[consumer]
                    freed += self._blocks[consumer]
                    if self._left[consumer] == 0:  # a barrier passes on at once what it waited for
                        finished.append(consumer)
        return freed

    def refuse_rest(self) -> None:
        """An error where tasks are left that nothing lets start."""
        if self._done < self._tasks:
            raise Cycle("the task graph has a cycle: a task would wait for itself")


def replay(jobs: Jobs) -> int:
    """The wall time of the jobs, in nanoseconds."""
    pool, dur, delay, late, floor, order = (
        column.tolist() for column in (jobs.pool, jobs.dur, jobs.delay, jobs.late, jobs.not_before, jobs.order)
    )
    cores = {number: [0] * count for number, count in jobs.cores.items()}
    waiting = WaitingTasks(jobs)
    queue = [(order[job], job) for job in waiting.at_first()]  # jobs that may start, by measured order
    heapq.heapify(queue)
    wall = 0
    while queue:
        job = heapq.heappop(queue)[1]
        free = cores[pool[job]]
        end = max(waiting.ready(job), free[0], floor[job]) + delay[job] + dur[job]
        heapq.heapreplace(free, max(end, free[0]))
        wall = max(wall, end)
        for freed in waiting.ended(job, end + late[job]):
            heapq.heappush(queue, (order[freed], freed))
    waiting.refuse_rest()
    return wall


def _grouped(keys: Ints, values: Ints, groups: int) -> list[list[int]]:
    lists: list[list[int]] = [[] for _ in range(groups)]
    for key, value in zip(keys.tolist(), values.tolist(), strict=True):
        lists[key].append(value)
    return lists


def wall_of(jobs: Jobs) -> int:
    """The wall time of the jobs, by the reading that they are made for."""
    return replay(jobs) if jobs.hand_out is None else _replay_served(jobs)


def served_jobs(work: Work, ready: Readiness) -> Jobs | None:
    """Jobs with the time of each hand-out, on the first free core of their unit; None where stamps are missing.

    The time of a hand-out is from when the task before was handed out, or this one could be, if that was later.
    """
    if (ready.dispatch == NEVER).any() or (ready.dispatch > work.start).any():
        return None
    jobs = jobs_with_edges(work, ready, keep_core=False)
    first = work.window[0]
    order = np.argsort(ready.dispatch, kind="stable")
    cores = {pool: [(0, 0)] * count for pool, count in jobs.cores.items()}  # when seen free, when free
    hand_out, pickup, behind = (np.zeros(len(order), dtype=np.int64) for _ in range(3))
    turn = 0
    finish = work.end + jobs.late - first
    dispatch, start, end = (times - first for times in (ready.dispatch, work.start, work.end))
    could = np.maximum(ready.ready, jobs.launched + first) - first
    for row in order.tolist():
        free = cores[int(jobs.pool[row])]
        seen, idle = free[0]
        begins = max(int(could[row]), turn)
        if int(dispatch[row]) < seen:  # handed out behind a task that still ran
            behind[row] = 1
        else:
            begins = max(begins, seen)
        turn = int(dispatch[row])
        hand_out[row] = turn - begins
        pickup[row] = int(start[row]) - max(turn, idle)
        heapq.heapreplace(free, (int(finish[row]), int(end[row])))
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return replace(jobs, delay=pickup, order=places, hand_out=hand_out, behind=behind)


def _replay_served(jobs: Jobs) -> int:
    assert jobs.hand_out is not None
    assert jobs.behind is not None
    pool, dur, delay, late, floor, order, hand_out, behind = (
        column.tolist()
        for column in (
            jobs.pool, jobs.dur, jobs.delay, jobs.late, jobs.not_before, jobs.order, jobs.hand_out, jobs.behind
        )
    )  # fmt: skip
    cores = {number: [(0, 0)] * count for number, count in jobs.cores.items()}
    waiting = WaitingTasks(jobs)
    coming = [(floor[job], order[job], job) for job in waiting.at_first()]  # when, place in the measured order, job
    heapq.heapify(coming)
    # of each pool, and of those that need no free core there: place in line, place in the capture, job
    lines: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    wall = turn = 0

    def opens(line: tuple[int, int]) -> int:
        return 0 if line[1] else cores[line[0]][0][0]

    while True:
        while coming and coming[0][0] <= turn:
            when, place, job = heapq.heappop(coming)
            in_line = (when if jobs.first_come else place, place, job)
            heapq.heappush(lines.setdefault((pool[job], behind[job]), []), in_line)
        open_now = [line for line, those in lines.items() if those and opens(line) <= turn]
        if not open_now:
            later = [opens(line) for line, those in lines.items() if those]
            later += [coming[0][0]] if coming else []
            if not later:
                break
            turn = max(turn, min(later))
            continue
        job = heapq.heappop(lines[min(open_now, key=lambda line: lines[line][0][1])])[2]
        turn += hand_out[job]
        free = cores[pool[job]]
        end = max(turn, free[0][1]) + delay[job] + dur[job]
        heapq.heapreplace(free, (end + late[job], end))
        wall = max(wall, end)
        for freed in waiting.ended(job, end + late[job]):
            heapq.heappush(coming, (max(waiting.ready(freed), floor[freed]), order[freed], freed))
    waiting.refuse_rest()
    return wall
