"""The orchestrator submits tasks one after the other."""

from __future__ import annotations

from npuscope.time.chip.job import Job, Machine, Times
from npuscope.time.chip.queues import push, stage
from npuscope.time.chip.ring_room import has_room, take_room
from npuscope.time.chip.state import COMPLETE, FAR, MISSING, NEXT, ORCHESTRATING, SUBMITTED, State, wake
from npuscope.time.compiled import compiled_part


@compiled_part
def orchestrate(job: Job, machine: Machine, times: Times, s: State, now: float) -> None:
    """The orchestrator submits one task after the other; it waits where it reads what a task writes, or for room."""
    if s.number[ORCHESTRATING] == 1:
        task = s.number[NEXT]
        times.submitted[task] = now
        s.todo[SUBMITTED, task] = 1
        s.number[ORCHESTRATING] = 0
        s.number[NEXT] += 1
        if s.todo[MISSING, task] == 0:
            times.ready[task] = max(now, times.ready[task])
            push(s, job.shape[task], task)
        else:
            stage(job, s, task)
        for thread in range(machine.threads):
            wake(s.thread, thread, now)
    if s.number[NEXT] < len(job.shape):
        if may_submit(job, s):
            task = s.number[NEXT]
            take_room(job.rings, s, task)
            host = job.waits_host[task]  # it may be done only later in a thread's turn that is under way
            times.began[task] = max(now, s.seen[host] if host >= 0 else 0.0)
            s.number[ORCHESTRATING] = 1
            s.orchestrator[0] = times.began[task] + job.submit[task]
        else:
            s.orchestrator[0] = FAR  # the scheduler wakes it


@compiled_part
def may_submit(job: Job, s: State) -> bool:
    task = s.number[NEXT]
    host = job.waits_host[task]
    return bool((host < 0 or s.todo[COMPLETE, host] == 1) and has_room(job.rings, s, task))


@compiled_part
def go_on(job: Job, s: State, clock: float) -> None:
    """The orchestrator goes on if it waited for what has happened."""
    if s.number[NEXT] < len(job.shape) and s.orchestrator[0] >= FAR and may_submit(job, s):
        s.orchestrator[0] = clock
