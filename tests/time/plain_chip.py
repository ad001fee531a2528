"""The chip in plain Python objects: what `engine.py` must agree with to the nanosecond.

Slow and short on purpose: this is where to read how the machine behaves. The rules are those of the runtime's
documentation (howto/simulate.md names them); where two things happen at once, blocks come before the orchestrator and
the orchestrator before the scheduler threads, each in order of number.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from npuscope.time.chip.job import (
    AIC,
    AIV,
    BYTES,
    CLOSES,
    LEAVES,
    MIX,
    NONE,
    PLAIN,
    RING,
    SLICE,
    Job,
    Machine,
    Rings,
    Times,
    new_times,
)
from npuscope.time.chip.scheduler import EMPTY_AT_MOST
from npuscope.time.chip.state import BELOW

FAR = float("inf")


@dataclass
class Core:
    number: int
    thread: int
    state: str = "idle"  # waiting for its start, running, gated by a bell, held by a mixed block,
    # stopped until another rank lets it go on
    row: int = -1
    task: int = -1
    due: float = FAR
    span: float = 0.0
    behind: tuple[int, int, bool] | None = None  # task, row, gated
    unseen: list[int] = field(default_factory=list)
    used: bool = False
    passed: int = 0  # stops that its block is past


@dataclass
class Thread:
    number: int
    period: float
    at: float = FAR
    last: float = 0.0
    asleep: bool = True


class Chip:
    """One run of one job."""

    def __init__(self, job: Job, machine: Machine) -> None:
        self.job, self.machine = job, machine
        clusters = machine.clusters
        owner = [c % machine.threads for c in range(clusters)]
        owner += [c % machine.threads for c in range(clusters) for _ in range(2)]
        self.cores = [Core(n, thread) for n, thread in enumerate(owner)]
        self.threads = [Thread(n, machine.loop) for n in range(machine.threads)]
        self.times: Times = new_times(job)
        self.missing = job.producers.tolist()
        self.unready = job.producers.tolist()
        self.handed = [0] * len(job.shape)
        self.done = [0] * len(job.shape)
        self.seen = [0.0] * len(job.shape)
        self.complete = [False] * len(job.shape)
        self.submitted = [False] * len(job.shape)
        self.staged = [False] * len(job.shape)
        self.ready: list[deque[int]] = [deque() for _ in range(4)]
        self.early: list[deque[int]] = [deque() for _ in range(4)]
        self.together = [bool(flag) for flag in job.together]
        self.draining = -1
        self.next = 0
        self.submitting = False
        self.orchestrator = 0.0
        self.now = 0.0
        self.last = 0.0
        self.slow = (0, 0.0, 1.0)
        self.rings = PlainRings(job.rings)
        if machine.resolver:
            self.threads.append(Thread(machine.threads, machine.loop))
        self.waiters: list[list[int]] = [[] for _ in job.shape]
        self.seen_done: list[deque[tuple[int, float]]] = [deque() for _ in range(machine.threads)]
        self.expanding: deque[tuple[list[int], int]] = deque()  # nodes of recorded graphs, how many are expanded
        if machine.hosted:
            self.scan()

    # --- a graph that the host has built

    def scan(self) -> None:
        """Each thread looks at a stretch of the tasks: step by step, thread by thread."""
        kinds = self.job.graph.tolist() or [PLAIN] * len(self.job.shape)
        plain = [task for task, kind in enumerate(kinds) if kind == PLAIN]
        lanes = len(self.threads)
        parts = [plain[n * len(plain) // lanes : (n + 1) * len(plain) // lanes] for n in range(lanes)]
        longest = ceil(len(plain) / lanes)
        begin = self.machine.attach + self.machine.scan * longest
        for step in range(longest):
            for part in parts:
                if step < len(part):
                    self.hang(part[step], begin)
        for task, kind in enumerate(kinds):
            if kind == LEAVES:
                self.hang(task, begin)
        for number in range(max(kinds, default=-1) + 1):
            if number in kinds:
                self.expanding.append(([task for task, kind in enumerate(kinds) if kind == number], 0))
        self.next, self.orchestrator = len(self.job.shape), FAR
        for thread in self.threads:
            thread.at, thread.last, thread.asleep = begin, begin, False

    def hang(self, task: int, clock: float) -> None:
        """Ready, or on the list of the latest producer that is not done."""
        source = np.repeat(np.arange(len(self.job.shape)), np.diff(self.job.first_out))
        unmet = [producer for producer in source[self.job.out == task].tolist() if not self.complete[producer]]
        if unmet:
            self.waiters[max(unmet)].append(task)
        else:
            self.times.ready[task] = clock
            self.ready[self.job.shape[task]].append(task)

    def settle(self, task: int, clock: float) -> float:
        """A task is done, and who waited for it moves on, the last to come first."""
        self.complete[task] = True
        clock += self.machine.settle
        for waiter in reversed(self.waiters[task]):
            clock += self.machine.resolve
            self.hang(waiter, clock)
        return clock

    def resolve(self, thread: Thread) -> None:
        """A turn of the thread that owns no core."""
        clock, found = self.now, False
        for queue in self.seen_done:
            while queue and queue[0][1] <= clock:
                task = queue.popleft()[0]
                self.last = max(self.last, clock + self.machine.settle)
                clock, found = self.settle(task, clock), True
        while self.ready[NONE]:
            task = self.ready[NONE].popleft()
            clock = max(clock, float(self.times.ready[task])) + self.machine.dummy
            self.last = max(self.last, clock + self.machine.settle)
            clock, found = self.settle(task, clock), True
        thread.last = self.now
        if not found:
            thread.asleep, thread.at = True, FAR
            for queue in self.seen_done:
                if queue:
                    self.wake(thread, max(queue[0][1], self.now + self.machine.loop))
            return
        thread.asleep, thread.at = False, max(clock, self.now + self.machine.loop)
        for peer in self.threads[:-1]:
            self.wake(peer, clock)

    def expand(self, clock: float) -> float:
        """A few nodes of the recorded graph that is next, which then goes to the end, or runs where those were all."""
        if self.expanding:
            nodes, done = self.expanding.popleft()
            visited = min(SLICE, len(nodes) - done)
            clock += self.machine.expand * visited
            if done + visited < len(nodes):
                self.expanding.append((nodes, done + visited))
            else:
                for node in nodes:
                    self.hang(node, clock)
        return clock

    # --- time

    def run(self) -> float:
        """Until all is done: when the last was seen done; -1 where nobody can go on."""
        while not all(self.complete):
            due = min(core.due for core in self.cores)
            when = min([due, *(thread.at for thread in self.threads)])
            if self.next < len(self.job.shape):
                when = min(when, self.orchestrator)
            if when == FAR:
                return -1.0
            self.now = when
            if due <= when:
                self.turn_blocks()
                self.share_memory()
            if self.next < len(self.job.shape) and self.orchestrator <= when:
                self.orchestrate()
            for thread in self.threads:
                if thread.at <= when:
                    self.resolve(thread) if thread.number == self.machine.threads else self.turn(thread)
        return self.last

    def share_memory(self) -> None:
        """All running blocks are slowed down alike until they take no more than the memory gives."""
        running = [core for core in self.cores if core.state == "running"]
        kinds = [self.job.block_class[core.row] for core in running]
        rates = sum((self.job.draws[kind] for kind in kinds), np.zeros(self.job.draws.shape[1]))
        limit = self.machine.limit
        g, share, factor = 0, 0.0, 1.0
        if rates[0] > limit:
            below = [n for n in range(1, len(rates)) if rates[n] <= limit]
            if below:
                g = below[0] - 1
                share = (rates[g] / limit - 1) / (rates[g] / rates[g + 1] - 1)
            else:
                g, share, factor = len(rates) - 2, 1.0, rates[-1] / limit
        if (g, share, factor) == self.slow == (0, 0.0, 1.0):
            return
        self.slow = (g, share, factor)
        for core in running:
            if core.span == 0:
                continue
            fast, slower = self.spans(core)[g : g + 2]
            span = (fast + share * (slower - fast)) * factor
            core.due = self.now + (core.due - self.now) / core.span * span
            core.span = span

    # --- blocks

    def vectors(self, core: Core) -> list[Core]:
        first = self.machine.clusters + 2 * core.number
        return self.cores[first : first + 2]

    def stops(self, core: Core) -> range:
        """The stops of the core's block."""
        first = self.job.stops.first
        return range(first[core.row], first[core.row + 1]) if len(first) else range(0)

    def spans(self, core: Core) -> list[float]:
        """How long the part of its block that the core is in takes at each slow-down."""
        stops, shares = self.stops(core), self.job.stops.share
        zeros, ones = np.zeros(self.job.run.shape[1]), np.ones(self.job.run.shape[1])
        edges = [zeros, *(shares[stop] for stop in stops), ones]
        width = edges[core.passed + 1] - edges[core.passed]
        found: list[float] = (self.job.run[self.job.block_class[core.row]] * width).tolist()
        return found

    def begin_part(self, core: Core) -> None:
        core.state, core.span = "running", self.spans(core)[0]
        core.due = self.now + core.span

    def turn_blocks(self) -> None:
        ended = False
        for core in self.cores:
            if core.due > self.now:
                continue
            if core.state == "waiting":
                core.passed = 0
                self.times.start[core.row] = self.now
                self.begin_part(core)
                continue
            if core.state == "stopped":
                self.begin_part(core)
                continue
            if core.passed < len(self.stops(core)):
                stop = self.stops(core)[core.passed]
                self.times.reached[stop] = self.now
                core.passed += 1
                core.state, core.due = "stopped", float(self.job.stops.release[stop])
                if core.due <= self.now:
                    self.begin_part(core)
                continue
            ended = True
            self.times.end[core.row] = self.now
            core.unseen.append(core.row)
            mixed = self.job.shape[core.task] == MIX
            for one in (core, *(self.vectors(core) if mixed else ())):
                one.state, one.task, one.due = "idle", -1, FAR
            self.wake(self.threads[core.thread], self.now + self.machine.fin)
        if ended:
            self.promote()

    def promote(self) -> None:
        for core in self.cores:
            if core.behind is None or core.state != "idle":
                continue
            task, row, gated = core.behind
            if self.job.shape[task] == MIX:
                if core.number >= self.machine.clusters or any(v.state != "idle" for v in self.vectors(core)):
                    continue
                for vector in self.vectors(core):
                    vector.behind, vector.task, vector.state = None, task, "held"
            core.behind, core.task, core.row = None, task, row
            if gated and self.missing[task] > 0:
                core.state, core.due = "gated", FAR
            else:
                # A thread's turn takes time: what it hands out or makes ready may be on its way still.
                sent = float(max(self.times.dispatch[row], self.times.ready[task]))
                core.state, core.due = "waiting", max(self.now + self.machine.switch, sent + self.machine.visible)

    # --- the orchestrator

    def may_submit(self) -> bool:
        host = self.job.waits_host[self.next]
        return bool((host < 0 or self.complete[host]) and self.rings.have_room(self.next))

    def orchestrate(self) -> None:
        if self.submitting:
            task = self.next
            self.times.submitted[task] = self.now
            self.submitted[task] = True
            self.submitting = False
            self.next += 1
            if self.missing[task] == 0:
                self.times.ready[task] = max(self.now, self.times.ready[task])
                self.ready[self.job.shape[task]].append(task)
            else:
                self.stage(task)
            for thread in self.threads:
                self.wake(thread, self.now)
        if self.next < len(self.job.shape):
            if self.may_submit():
                self.rings.take(self.next)
                host = int(self.job.waits_host[self.next])  # it may be done only later in a turn that is under way
                begin = max(self.now, self.seen[host] if host >= 0 else 0.0)
                self.times.began[self.next] = begin
                self.submitting = True
                self.orchestrator = begin + float(self.job.submit[self.next])
            else:
                self.orchestrator = FAR

    def go_on(self, clock: float) -> None:
        """The orchestrator goes on if it waited for what has happened."""
        if self.next < len(self.job.shape) and self.orchestrator == FAR and self.may_submit():
            self.orchestrator = clock

    # --- the scheduler

    def wake(self, thread: Thread, when: float) -> None:
        if thread.asleep:
            turns = ceil((when - thread.last) / thread.period - BELOW)
            at = thread.last + max(turns, 0) * thread.period
            if at < thread.at:
                thread.at = max(at, when)

    def stage(self, task: int) -> None:
        waits = self.missing[task] > 0 and self.unready[task] == 0
        fresh = self.submitted[task] and not self.staged[task]
        if fresh and waits and self.job.shape[task] != NONE and not self.together[task]:
            self.staged[task] = True
            self.early[self.job.shape[task]].append(task)

    def consumers(self, task: int) -> list[int]:
        found: list[int] = self.job.out[self.job.first_out[task] : self.job.first_out[task + 1]].tolist()
        return found

    def finish(self, task: int, clock: float) -> float:
        self.last = max(self.last, clock)
        if self.machine.hosted:
            return self.settle(task, clock)
        self.complete[task] = True
        self.rings.drop(task, clock)
        for consumer in self.consumers(task):
            clock += self.machine.resolve
            self.times.ready[consumer] = max(self.times.ready[consumer], clock)
            self.missing[consumer] -= 1
            if not self.job.early[task]:
                self.unready[consumer] -= 1
            if self.missing[consumer] > 0:
                self.stage(consumer)
            elif self.submitted[consumer]:
                for core in self.cores:
                    if core.task == consumer and core.state == "gated":
                        sent = float(max(self.times.ready[consumer], self.times.dispatch[core.row]))
                        core.state, core.due = "waiting", sent + self.machine.visible
                self.ready[self.job.shape[consumer]].append(consumer)
        return clock

    def publish(self, task: int) -> None:
        if self.job.early[task] and self.handed[task] >= self.job.blocks[task]:
            for consumer in self.consumers(task):
                self.unready[consumer] -= 1
                self.stage(consumer)

    def turn(self, thread: Thread) -> None:
        polled, seen, machine = 0.0, 0, self.machine
        released = self.rings.release(self.next, self.now)
        clock = self.now + machine.release * released
        self.go_on(clock)
        for core in self.cores:
            front = core.state != "idle" and not self.gated(core)
            if core.thread != thread.number or not (front or core.unseen or core.behind):
                continue
            clock += machine.poll
            polled += machine.poll
            while core.unseen and self.times.end[core.unseen[0]] + machine.fin <= clock:
                row = core.unseen.pop(0)
                clock += machine.complete + (machine.complete_turn if seen == 0 else 0.0)
                seen += 1
                self.times.finish[row] = clock
                task = int(self.job.task_of[row])
                self.done[task] += 1
                self.seen[task] = max(self.seen[task], clock)
                if self.done[task] == self.job.blocks[task] and machine.resolver:
                    self.seen_done[thread.number].append((task, self.seen[task]))
                    self.wake(self.threads[-1], self.seen[task])
                elif self.done[task] == self.job.blocks[task]:
                    clock = self.finish(task, self.seen[task])  # a peer in its turn may see its block later
        if not machine.resolver:
            for _ in range(min(EMPTY_AT_MOST, len(self.ready[NONE]))):
                if self.times.ready[self.ready[NONE][0]] > clock:
                    break  # a peer's turn makes it ready only then
                seen += 1
                task = self.ready[NONE].popleft()
                self.seen[task] = clock + machine.dummy
                clock = self.finish(task, self.seen[task])
        self.go_on(clock)
        preparing = clock
        handing = clock = self.expand(clock)
        for shape in (MIX, AIC, AIV):
            first = self.next_of(self.ready[shape])
            if self.draining < 0 and first >= 0 and self.together[first]:
                self.draining = first
        clock = self.start_together(clock) if self.draining >= 0 else self.hand_out(thread, clock)
        thread.last, thread.period = self.now, polled + machine.loop
        if not released and not seen and clock == preparing:
            thread.asleep, thread.at = True, FAR
            for core in self.cores:
                if core.thread == thread.number and core.unseen:
                    seen_at = float(self.times.end[core.unseen[0]]) + machine.fin
                    self.wake(thread, max(seen_at, self.now + thread.period))
            return
        thread.asleep, thread.at = False, clock if clock > handing else clock + machine.loop
        for peer in self.threads[: machine.threads]:
            if peer is not thread:
                self.wake(peer, clock)

    # --- handing out

    def next_of(self, queue: deque[int], early: bool = False) -> int:
        while queue:
            task = queue[0]
            if self.handed[task] < self.job.blocks[task] and not (early and self.missing[task] == 0):
                return task
            queue.popleft()
        return -1

    def places(self, shape: int) -> list[Core]:
        clusters = self.machine.clusters
        return self.cores[clusters:] if shape == AIV else self.cores[:clusters]

    def cores_of(self, core: Core, shape: int) -> list[Core]:
        return [core, *self.vectors(core)] if shape == MIX else [core]

    def gated(self, core: Core) -> bool:
        """Whether the block at its front waits for its bell."""
        clusters = self.machine.clusters
        cube = core if core.number < clusters else self.cores[(core.number - clusters) // 2]
        return core.state == "gated" or (core.state == "held" and cube.state == "gated")

    def idle(self, core: Core, shape: int) -> bool:
        """Whether a block could start there at once; a slot is free when its block was seen done."""
        cores = self.cores_of(core, shape)
        return all(one.state == "idle" and one.behind is None and len(one.unseen) < 2 for one in cores)

    def place(self, task: int, core: Core, when: float, begin: float | None) -> None:
        row = int(self.job.first_block[task]) + self.handed[task]
        self.handed[task] += 1
        self.times.core[row], self.times.dispatch[row] = core.number, when
        for one in self.cores_of(core, int(self.job.shape[task])):
            one.task, one.state, one.used = task, "held", True
        core.row = row
        core.state, core.due = ("gated", FAR) if begin is None else ("waiting", begin)

    def hand_out(self, thread: Thread, clock: float) -> float:
        handed, mixed = 0, False
        for kind in ("idle", "behind", "early"):
            if kind == "early" and any(self.next_of(self.ready[shape]) >= 0 for shape in (MIX, AIC, AIV)):
                break
            for shape in (MIX, AIC, AIV) if thread.number % 2 == 0 else (MIX, AIV, AIC):
                if shape != MIX and mixed:
                    break  # mixed work remained: single tasks leave cores to it
                queue = self.early[shape] if kind == "early" else self.ready[shape]
                peers = (core for core in self.places(shape) if core.thread != thread.number)
                if kind == "behind" and any(self.idle(core, shape) for core in peers):
                    mixed = mixed or (shape == MIX and self.next_of(queue) >= 0)
                    continue
                prepared: list[
                    tuple[Core, int, float | None]
                ] = []  # with its block and when it starts after it is sent
                for core in self.places(shape):
                    if core.thread != thread.number:
                        continue
                    task = self.next_of(queue, kind == "early")
                    if task < 0 or self.together[task]:
                        break
                    now = self.idle(core, shape)
                    taken = any(c.behind or c.unseen for c in self.cores_of(core, shape)) or self.gated(core)
                    if not now and (kind == "idle" or taken):
                        continue
                    clock = max(clock, float(self.times.ready[task]))  # a peer's turn may make it ready only then
                    if kind != "early":
                        clock += self.machine.dispatch + (self.machine.dispatch_turn if handed == 0 else 0.0)
                        handed += 1
                    elif self.handed[task] == 0:  # staging costs once per task
                        clock += self.machine.stage
                    row = int(self.job.first_block[task]) + self.handed[task]
                    if now:
                        pickup = self.machine.pickup if core.used else self.machine.pickup_first
                        prepared.append((core, row, None if kind == "early" else pickup))
                        self.place(task, core, clock, None)
                    else:
                        self.handed[task] += 1
                        prepared.append((core, row, None))
                        for one in self.cores_of(core, shape):
                            one.behind = (task, row, kind == "early")
                    self.publish(task)
                for core, row, starts in prepared:  # sent together
                    self.times.core[row], self.times.dispatch[row] = core.number, clock
                    if starts is not None:
                        core.state, core.due = "waiting", clock + starts
                mixed = mixed or (kind != "early" and shape == MIX and self.next_of(queue) >= 0)
        return clock

    def start_together(self, clock: float) -> float:
        task = self.draining
        shape = int(self.job.shape[task])
        free = [core for core in self.places(shape) if self.idle(core, shape)]
        wanted = min(int(self.job.blocks[task]), len(self.places(shape)))
        if len(free) < wanted:
            return clock
        turns = -(-wanted // self.machine.threads)
        clock = max(clock, float(self.times.ready[task]))
        begin = clock + turns * self.machine.dispatch + self.machine.pickup
        for n, core in enumerate(free[:wanted]):
            self.place(task, core, clock + (n // self.machine.threads + 1) * self.machine.dispatch, begin)
        self.together[task] = False
        self.draining = -1
        self.publish(task)
        return clock + turns * self.machine.dispatch


@dataclass
class Ring:
    slots: int
    heap: int
    taken: deque[int] = field(default_factory=deque)  # entries, the oldest first


class PlainRings:
    def __init__(self, rings: Rings) -> None:
        self.entry = rings.entry.tolist()
        self.first, self.first_use, self.use = (
            rows.tolist() for rows in (rings.first_entry, rings.first_use, rings.use)
        )
        self.rings = [Ring(slots, heap) for slots, heap in rings.room.T.tolist()]
        self.kept = [0] * len(self.entry[RING])
        self.free = [0.0] * len(self.entry[RING])

    def entries(self, task: int) -> range:
        """What submitting a task takes: tensors allocated before it, then the task itself."""
        return range(self.first[task], self.first[task + 1]) if self.first else range(0)

    def uses(self, task: int) -> list[int]:
        """Entries that a task keeps until it is done: its own and what it uses."""
        if not self.first:
            return []
        return [self.entries(task)[-1], *self.use[self.first_use[task] : self.first_use[task + 1]]]

    def have_room(self, task: int) -> bool:
        for number, ring in enumerate(self.rings):
            wanted = [e for e in self.entries(task) if self.entry[RING][e] == number]
            held = [*ring.taken, *wanted]
            if wanted and (len(held) >= ring.slots or sum(self.entry[BYTES][e] for e in held) > ring.heap):
                return False
        return True

    def take(self, task: int) -> None:
        for e in self.entries(task):
            self.rings[self.entry[RING][e]].taken.append(e)
        for e in self.uses(task):
            self.kept[e] += 1

    def drop(self, task: int, clock: float) -> None:
        for e in self.uses(task):
            self.kept[e] -= 1
            self.free[e] = max(self.free[e], clock)

    def release(self, next: int, now: float) -> int:
        """First in, first out: what nobody keeps and whose scope has closed before task `next`; how many."""
        released = 0
        for ring in self.rings:
            while ring.taken:
                oldest = ring.taken[0]
                if self.kept[oldest] or self.free[oldest] > now or self.entry[CLOSES][oldest] > next:
                    break
                ring.taken.popleft()
                released += 1
        return released
