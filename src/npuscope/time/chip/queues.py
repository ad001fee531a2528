"""Queues of tasks that are ready, by shape, and of those that may be put on a core before they are."""

from __future__ import annotations

from npuscope.time.chip.job import NONE, Job
from npuscope.time.chip.state import EARLY, HANDED, MISSING, STAGED, SUBMITTED, UNREADY, State
from npuscope.time.compiled import compiled_part


@compiled_part
def push(s: State, line: int, task: int) -> None:
    """A task at the end of a queue."""
    s.queue[line, s.ends[line, 1]] = task
    s.ends[line, 1] += 1


@compiled_part
def stage(job: Job, s: State, task: int) -> None:
    """A task all of whose missing producers are early and handed out may be put on a core before they are done."""
    todo = s.todo
    if todo[UNREADY, task] > 0 or todo[MISSING, task] == 0 or todo[SUBMITTED, task] == 0 or todo[STAGED, task] == 1:
        return
    shape = job.shape[task]
    if shape != NONE and job.together[task] == 0:
        todo[STAGED, task] = 1
        push(s, EARLY + shape, task)


@compiled_part
def next_task(job: Job, s: State, line: int) -> int:
    """The first task of a queue that still has blocks to hand out; -1 where there is none. EARLY ones are unready."""
    queue, ends, todo, blocks = s.queue, s.ends, s.todo, job.blocks
    while ends[line, 0] < ends[line, 1]:
        task = queue[line, ends[line, 0]]
        if todo[HANDED, task] < blocks[task] and (line < EARLY or todo[MISSING, task] > 0):
            return int(task)
        ends[line, 0] += 1
    return -1
