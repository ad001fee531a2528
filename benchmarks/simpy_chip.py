"""The chip and its scheduler as SimPy processes: the peer that `simulate.py` measures against.

The same rules as npuscope's engine, without early staging and places behind running blocks. Blocks, scheduler threads
and the orchestrator are processes; when a block starts or ends, those whose speed the shared memory changes are
interrupted and go on at their new speed.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import simpy

from npuscope.time.chip.engine import slow_down
from npuscope.time.chip.job import AIV, MIX, NONE, Job, Machine


class Chip:
    def __init__(self, job: Job, machine: Machine) -> None:
        self.env = simpy.Environment()
        self.job, self.machine = job, machine
        clusters = machine.clusters
        self.owner = [c % machine.threads for c in range(clusters)]
        self.owner += [c % machine.threads for c in range(clusters) for _ in range(2)]
        self.busy = [False] * (3 * clusters)
        self.over: list[tuple[int, float] | None] = [None] * (3 * clusters)
        self.ready: list[deque[int]] = [deque() for _ in range(4)]
        self.missing = job.producers.tolist()
        self.handed = [0] * len(job.shape)
        self.done = [0] * len(job.shape)
        self.submitted = [False] * len(job.shape)
        self.finished = 0
        self.end = 0.0
        self.running: dict[int, tuple[Any, int]] = {}
        self.slow = (0, 0.0, 1.0)

    def run(self) -> float:
        self.env.process(self.orchestrator())
        for n in range(self.machine.threads):
            self.env.process(self.thread(n))
        self.env.run()
        return self.end

    def orchestrator(self) -> Any:
        for task, cost in enumerate(self.job.submit):
            yield self.env.timeout(cost)
            self.submitted[task] = True
            if self.missing[task] == 0:
                self.ready[self.job.shape[task]].append(task)

    def finish(self, task: int) -> Any:
        self.finished += 1
        self.end = self.env.now
        for consumer in self.job.out[self.job.first_out[task] : self.job.first_out[task + 1]]:
            yield self.env.timeout(self.machine.resolve)
            self.missing[consumer] -= 1
            if self.missing[consumer] == 0 and self.submitted[consumer]:
                self.ready[self.job.shape[consumer]].append(consumer)

    def block(self, core: int, row: int) -> Any:
        kind = int(self.job.block_class[row])
        yield self.env.timeout(self.machine.pickup)
        self.running[core] = (self.env.active_process, kind)
        self.share(core)
        left = 1.0
        while left > 1e-9:
            span, begin = self.span(kind), self.env.now
            try:
                yield self.env.timeout(left * span)
                left = 0.0
            except simpy.Interrupt:
                left -= (self.env.now - begin) / span
        del self.running[core]
        self.over[core] = (row, self.env.now)
        self.share(core)

    def span(self, kind: int) -> float:
        g, part, factor = self.slow
        run = self.job.run[kind]
        return float((run[g] + part * (run[g + 1] - run[g])) * factor)

    def share(self, core: int) -> None:
        """The memory's slow-down for the blocks that run now; the others hear of it where it changed."""
        rates = sum((self.job.draws[kind] for _, kind in self.running.values()), np.zeros(self.job.draws.shape[1]))
        before, self.slow = self.slow, slow_down(rates, self.machine.limit)
        if self.slow != before:
            for other, (process, _) in list(self.running.items()):
                if other != core:
                    process.interrupt()

    def cores_of(self, core: int, shape: int) -> list[int]:
        first = self.machine.clusters + 2 * core
        return [core, first, first + 1] if shape == MIX else [core]

    def thread(self, number: int) -> Any:
        machine, job, env = self.machine, self.job, self.env
        own = [core for core, owner in enumerate(self.owner) if owner == number]
        while self.finished < len(job.shape):
            acted = False
            while number == 0 and self.ready[NONE]:
                yield env.timeout(machine.dummy)
                yield from self.finish(self.ready[NONE].popleft())
                acted = True
            for core in own:
                if not self.busy[core]:
                    continue
                yield env.timeout(machine.poll)
                over = self.over[core]
                if over is None or over[1] + machine.fin > env.now:
                    continue
                yield env.timeout(machine.complete)
                task = int(job.task_of[over[0]])
                self.over[core] = None
                for one in self.cores_of(core, int(job.shape[task])):
                    self.busy[one] = False
                self.done[task] += 1
                acted = True
                if self.done[task] == job.blocks[task]:
                    yield from self.finish(task)
            for shape in (MIX, 1, AIV):
                for core in own:
                    if (core >= machine.clusters) != (shape == AIV) or not self.ready[shape]:
                        continue
                    held = self.cores_of(core, shape)
                    if any(self.busy[one] for one in held):
                        continue
                    task = self.ready[shape][0]
                    row = int(job.first_block[task]) + self.handed[task]
                    self.handed[task] += 1
                    if self.handed[task] == job.blocks[task]:
                        self.ready[shape].popleft()
                    for one in held:
                        self.busy[one] = True
                    yield env.timeout(machine.dispatch)
                    env.process(self.block(core, row))
                    acted = True
            if not acted:
                yield env.timeout(machine.loop)
