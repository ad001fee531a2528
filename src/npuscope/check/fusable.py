"""Which tasks could be one: what a task reads, one task of the same turn has written, and nobody else reads it.

Tasks of one turn of the same orchestration loops run equally often. Two of them are joined when the later reads from
a tensor only what the earlier wrote there (block by block where they are SPMD launches of as many blocks), all readers
of that are joined too, a block's part of it fits on chip, and no task outside waits for one and is waited for by the
other. A reduction over blocks or over split-K partial sums is never joined, for it has several writers.

Turns of equal launches on tensors of their own are judged by their first and their last, and counted; where tensors
are shared with other turns, every turn is judged, and all must agree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from npuscope.base.frozen import dataclass
from npuscope.check.gm_traffic import BLOCK, Use, traffic_of
from npuscope.check.rule import once
from npuscope.lower.program import KernelLaunch, Program

MARGIN = 2  # one half of a memory is left to what the tasks need themselves


class Handover(NamedTuple):
    """A tensor between two tasks of a turn; bytes of one turn."""

    writer: int
    reader: int
    buffer: int
    written: int
    read: int


@dataclass(frozen=True)
class Fusable:
    """Tasks of one turn that could be one, in `times` turns; `tasks` and `handovers` are those of the first."""

    tasks: tuple[int, ...]
    launches: tuple[KernelLaunch, ...]
    handovers: tuple[Handover, ...]
    times: int

    @property
    def written(self) -> int:
        """Bytes of one turn; a tensor that two read is written once."""
        return sum({(h.writer, h.buffer): h.written for h in self.handovers}.values())

    @property
    def read(self) -> int:
        return sum(handover.read for handover in self.handovers)

    @property
    def is_chain(self) -> bool:
        """Whether each task needs the one before it: nothing in it runs side by side."""
        steps = {(h.writer, h.reader) for h in self.handovers}
        return all(pair in steps for pair in zip(self.tasks, self.tasks[1:], strict=False))


def room(program: Program, space: str) -> float:
    """Bytes that a tensor may take of a memory on chip."""
    return program.device.space[space].size.value / MARGIN if space in program.device.space else 0.0


@once
def fusable(program: Program) -> tuple[Fusable, ...]:
    """Every set of tasks that could be one, equal turns together."""
    return tuple(_fusable(program))


def _fusable(program: Program) -> Iterator[Fusable]:
    traffic = traffic_of(program)
    alike: dict[tuple[bool, tuple[int, ...]], list[tuple[int, ...]]] = defaultdict(list)
    for tasks in traffic.by_turn:
        if len(tasks) > 1 and (kind := _kind(program, tasks)) is not None:
            alike[kind].append(tasks)
    judge = _TurnJudge(program)
    for (private, _), turns in alike.items():
        counted: dict[tuple[int, ...], int] = defaultdict(int)
        found: dict[tuple[int, ...], tuple[tuple[int, ...], tuple[Handover, ...]]] = {}
        looked_at = [turns[0], turns[-1]] if private else turns
        for turn in looked_at:
            for joined, handovers in judge.joined(turn):
                places = tuple(turn.index(task) for task in joined)
                counted[places] += 1
                found.setdefault(places, (joined, handovers))
        for places, (joined, handovers) in found.items():
            launches = tuple(program.launches[traffic.launch[task]] for task in joined)
            one = Fusable(joined, launches, handovers, len(turns))
            side_by_side = len(turns) >= program.device.cores.cube.value
            if counted[places] == len(looked_at) and (one.is_chain or side_by_side):
                yield one


def _kind(program: Program, tasks: tuple[int, ...]) -> tuple[bool, tuple[int, ...]] | None:
    """What makes turns alike: launches, and which arguments are which tensor; before that whether what passes between
    the tasks is theirs alone. None where no task reads what another wrote.
    """
    traffic, buffers = traffic_of(program), program.recording.buffers
    numbers: dict[int, int] = {}
    wrote: set[int] = set()
    passed: set[int] = set()
    pattern: list[int] = []
    for task in tasks:
        pattern.append(-1 - traffic.launch[task])
        uses = [use for use in traffic.uses(task) if buffers[use.buffer].origin != "parameter"]
        for use in uses:
            pattern += (use.argument, numbers.setdefault(use.buffer, len(numbers)))
        passed.update(use.buffer for use in uses if use.read and use.buffer in wrote)
        wrote.update(use.buffer for use in uses if use.written)
    if not passed:
        return None
    inside = set(tasks)
    return all(inside.issuperset(traffic.touching[buffer]) for buffer in passed), tuple(pattern)


class _TurnJudge:
    """Judges turns one by one; keeps what it learnt of a tensor, for turns may share it."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.traffic = traffic_of(program)
        self.room = room(program, "Vec")
        self.flows: dict[int, dict[int, set[int]]] = {}

    def joined(self, tasks: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[Handover, ...]]]:
        found = self._handovers(tasks)
        parts: dict[int, set[int]] = {task: {task} for task in tasks}
        for handover in found:
            together = parts[handover.writer] | parts[handover.reader]
            if nothing_between(self.program, together):
                parts.update(dict.fromkeys(together, together))
        sets = {id(part): part for part in parts.values() if len(part) > 1}
        return [
            (tuple(sorted(part)), tuple(h for h in found if h.writer in part and h.reader in part))
            for part in sets.values()
        ]

    def _handovers(self, tasks: tuple[int, ...]) -> list[Handover]:
        """Tensors of the turn that one task writes and only others of the turn read, each all from that one."""
        inside = set(tasks)
        found = []
        for use in (use for task in tasks for use in self.traffic.uses(task) if use.written and not use.read):
            if self.program.recording.buffers[use.buffer].origin == "parameter":
                continue
            later = self.traffic.touching[use.buffer]
            later = later[bisect_right(later, use.task) :]
            near = [task for task in later if task in inside]
            kernels = {self.traffic.launch[task] for task in (use.task, *near)}
            if not near or len(kernels) <= len(near) or any(not self._alike(use.task, task) for task in near):
                continue  # nobody, several tasks of one kernel, or of other blocks
            if any(self._writes(task, use.buffer) for task in later[: later.index(near[0])]):
                continue  # tasks in between, of inner loops, add to it
            readers = self._flow(use.buffer).get(use.task, set())
            if not readers or not readers <= inside:
                continue
            sources = {source for source, into in self._flow(use.buffer).items() if not into.isdisjoint(readers)}
            if sources == {use.task} and all(self._by_block(use.task, reader) for reader in readers):
                found += [self._handover(use, reader) for reader in sorted(readers)]
        return [h for h in found if h.read <= self.room * self.program.recording.tasks[h.writer].blocks]

    def _handover(self, use: Use, reader: int) -> Handover:
        read = sum(other.read for other in self.traffic.uses(reader) if other.buffer == use.buffer)
        return Handover(use.task, reader, use.buffer, use.written, read)

    def _writes(self, task: int, buffer: int) -> bool:
        return any(use.buffer == buffer and use.written for use in self.traffic.uses(task))

    def _alike(self, a: int, b: int) -> bool:
        """Whether two tasks have as many blocks, always run, and are written in this language."""
        one, other = self.program.recording.tasks[a], self.program.recording.tasks[b]
        return one.blocks == other.blocks and not any(t.predicated or t.form == "extern" for t in (one, other))

    def _flow(self, buffer: int) -> dict[int, set[int]]:
        """Who reads what whom wrote in a tensor, by its elements."""
        if buffer not in self.flows:
            self.flows[buffer] = defaultdict(set)
            for edge in self.traffic.conflicts(self.traffic.touching[buffer]):
                if edge.hazard == "raw" and edge.buffer == buffer:
                    self.flows[buffer][edge.src].add(edge.dst)
        return self.flows[buffer]

    def _by_block(self, writer: int, reader: int) -> bool:
        """Whether every block reads what the same block of the writer wrote, and nothing of another."""
        if self.program.recording.tasks[writer].blocks == 1:
            return True
        crossing = [e for e in self.traffic.block_conflicts(writer, reader) if e.src < BLOCK <= e.dst]
        return all(e.hazard != "raw" or e.dst - BLOCK == e.src for e in crossing)


def nothing_between(program: Program, joined: set[int]) -> bool:
    """Whether no other task waits for one of these and is waited for by a later one, by tensors and declared waits."""
    tasks, traffic = program.recording.tasks, traffic_of(program)
    ours: set[int] = set()  # tensors that the joined tasks wrote
    theirs: set[int] = set()  # tensors that hold what others made of them
    waiting: set[int] = set()  # those others
    for task in range(min(joined), max(joined) + 1):
        reads = {use.buffer for use in traffic.uses(task) if use.read}
        writes = {use.buffer for use in traffic.uses(task) if use.written}
        if task in joined:
            if not theirs.isdisjoint(reads) or not waiting.isdisjoint(tasks[task].deps):
                return False
            ours |= writes
        elif not (ours | theirs).isdisjoint(reads) or not (waiting | joined).isdisjoint(tasks[task].deps):
            theirs |= writes
            waiting.add(task)
    return True
