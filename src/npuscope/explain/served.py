"""A scheduler that hands out one task after another: each hand-out takes its time, and whoever is ready waits in line.

Waits of single tasks do not tell what a faster scheduler buys: of tasks that become ready together the last waits for
all hand-outs before its own, and what it waits shrinks once more where the line has gone before the next tasks come.
So the times of single hand-outs are taken out of the capture's stamps, and the line forms anew in the replay.
"""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np

from npuscope.explain.readiness import Readiness
from npuscope.explain.replay import Jobs, WaitingTasks, jobs_with_edges, replay
from npuscope.explain.work import NEVER, Work


def wall_of(jobs: Jobs) -> int:
    """The wall time of the jobs, by the reading that they are made for."""
    return replay(jobs) if jobs.hand_out is None else _replay_served(jobs)


def served_jobs(work: Work, ready: Readiness) -> tuple[Jobs, dict[str, list[int]]] | None:
    """Jobs with the time of each hand-out, on the first free core of their unit; None where stamps are missing.

    The time of a hand-out is from when the task before was handed out, or this one could be, if that was later.
    """
    if (ready.dispatch == NEVER).any() or (ready.dispatch > work.start).any():
        return None
    jobs, pools = jobs_with_edges(work, ready, keep_core=False)
    first = work.window[0]
    order = np.argsort(ready.dispatch, kind="stable")
    cores = {pool: [(0, 0)] * count for pool, count in jobs.cores.items()}  # when seen free, when free
    hand_out, pickup, behind = (np.zeros(len(order), dtype=np.int64) for _ in range(3))
    turn = 0
    finish = work.end + jobs.late - first
    dispatch, start, end = (times - first for times in (ready.dispatch, work.start, work.end))
    could = np.maximum(ready.ready, first) - first
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
    return replace(jobs, delay=pickup, order=places, hand_out=hand_out, behind=behind), pools


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
