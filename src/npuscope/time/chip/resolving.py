"""What the device does where the host has built the graph (`Machine.hosted`): nobody submits.

All threads scan the tasks side by side, ready ones go to their queue, each other one hangs on the wake list of its
latest unfinished producer. A finished task's waiters move on to their queue or to the next unfinished producer: with a
resolver a thread of its own does that, which owns no core. Nodes of recorded graphs are expanded by the scheduler
threads, a few at each visit, graph by graph; a graph's first tasks run when all of it is expanded and what it needs
from outside is there.
"""

from __future__ import annotations

from npuscope.time.chip.finishing import finish, finish_deferred, hang, wake_for_deferred
from npuscope.time.chip.job import BEGIN, COMPLETED, LEAVES, NONE, PLAIN, RETIRED, SLICE, THREAD, Job, Machine, Times
from npuscope.time.chip.state import (
    ASLEEP,
    AT,
    DEFERRED,
    EARLY,
    FAR,
    LAST,
    NEXT,
    NODE,
    NODES,
    ROWS,
    SUBMITTED,
    State,
    wake,
)
from npuscope.time.compiled import compiled_part


@compiled_part
def scan(job: Job, machine: Machine, times: Times, s: State) -> None:
    """All threads look at the tasks that the host has submitted, each at a stretch of its own; then they begin."""
    tasks, lanes = len(job.shape), machine.threads + machine.resolver
    submitted = 0  # what is looked at: nodes of recorded graphs and their ends are not
    for task in range(tasks):
        s.todo[SUBMITTED, task] = 1
        if len(job.graph) == 0 or job.graph[task] == PLAIN:
            s.queue[EARLY, submitted] = task  # nobody is early here: the queue is free
            submitted += 1
    longest = (submitted + lanes - 1) // lanes
    begin = machine.attach + machine.scan * longest
    for step in range(longest):
        for lane in range(lanes):
            at = lane * submitted // lanes + step
            if at < (lane + 1) * submitted // lanes:
                hang(job, times, s, s.queue[EARLY, at], begin)
    for task in range(tasks if len(job.graph) > 0 else 0):
        if job.graph[task] == LEAVES:
            hang(job, times, s, task, begin)
    ends = s.ahead[machine.threads]
    for graph in range(s.graph.shape[1]):
        if s.graph[NODE, graph] < s.graph[NODES, graph]:
            s.expanding[ends[1]] = graph
            ends[1] += 1
    s.number[NEXT] = tasks
    s.orchestrator[0] = FAR
    for lane in range(lanes):
        s.thread[AT, lane], s.thread[LAST, lane], s.thread[ASLEEP, lane] = begin, begin, 0


@compiled_part
def expand(job: Job, machine: Machine, times: Times, s: State, clock: float) -> float:
    """A visit to the recorded graph that is next: a few of its nodes become tasks. With the last of them those may run
    that nothing holds back."""
    ends, size = s.ahead[machine.threads], len(s.expanding)
    if ends[0] == ends[1]:
        return clock
    graph = s.expanding[ends[0] % size]
    ends[0] += 1
    visited = min(SLICE, s.graph[NODES, graph] - s.graph[NODE, graph])
    clock += machine.expand * visited
    s.graph[NODE, graph] += visited
    if s.graph[NODE, graph] < s.graph[NODES, graph]:
        s.expanding[ends[1] % size] = graph
        ends[1] += 1
        return clock
    first = s.graph[NODES, graph - 1] if graph > 0 else 0
    for n in range(first, s.graph[NODES, graph]):
        hang(job, times, s, s.nodes[n], clock)
    return clock


@compiled_part
def resolve(job: Job, machine: Machine, times: Times, s: State, now: float) -> float:
    """A turn of the thread that owns no core: finished tasks of each scheduler thread, then tasks that do nothing."""
    own, clock, done, seen = machine.threads, now, 0.0, 0
    for thread in range(own):
        ends = s.ahead[thread]
        while ends[0] < ends[1] and s.done_at[thread, ends[0]] <= clock:
            done = clock + machine.settle
            clock = finish(job, machine, times, s, s.done[thread, ends[0]], clock)
            ends[0] += 1
            seen += 1
    retiring = clock
    while s.ends[NONE, 0] < s.ends[NONE, 1]:
        task = s.queue[NONE, s.ends[NONE, 0]]
        s.ends[NONE, 0] += 1
        clock = max(clock, times.ready[task]) + machine.dummy
        s.seen[task] = clock
        done = clock + machine.settle
        clock = finish(job, machine, times, s, task, clock)
        seen += 1
    before = s.number[DEFERRED]
    clock = finish_deferred(job, machine, times, s, clock)
    if s.number[DEFERRED] < before:
        seen, done = seen + 1, clock
    s.thread[LAST, own] = now
    if seen == 0:
        s.thread[ASLEEP, own] = 1
        s.thread[AT, own] = FAR
        for thread in range(own):
            if s.ahead[thread, 0] < s.ahead[thread, 1]:
                wake(s.thread, own, max(s.done_at[thread, s.ahead[thread, 0]], now + machine.loop))
        wake_for_deferred(job, machine, s, now + machine.loop)
        return 0.0
    if s.number[ROWS] < len(times.loops):
        row = times.loops[s.number[ROWS]]
        row[THREAD], row[BEGIN], row[COMPLETED], row[RETIRED] = own, now, retiring - now, clock - retiring
    s.number[ROWS] += 1
    s.thread[ASLEEP, own] = 0
    s.thread[AT, own] = max(clock, now + machine.loop)
    for thread in range(own):
        wake(s.thread, thread, clock)
    return done
