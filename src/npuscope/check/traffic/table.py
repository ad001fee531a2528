"""What tasks move from and to GM, and under which loops: one table that all rules over the graph read.

Exact, and taken from bodies: every task of a launch moves the same bytes through the same arguments, only buffers and
offsets differ. Buffers that were assembled into another count as that one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from npuscope.check.once import once
from npuscope.lower.program import Program
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile.graph.boxes import Placement
from npuscope.tile.graph.exact import ExactEdge, exact_edges
from npuscope.tile.record.model import BlockGroup, Recording, Task
from npuscope.tile.record.summary import BodyWork, work_of

BLOCK = 1 << 32
Ints = npt.NDArray[np.int64]


class Use(NamedTuple):
    """What a task moves through one of its arguments; bytes of all its blocks."""

    task: int
    argument: int
    buffer: int
    read: int
    written: int


@dataclass(frozen=True)
class Moved:
    """What one task of a launch moves: bytes per argument it touches, and cube work; all blocks together."""

    read: dict[int, int]
    written: dict[int, int]  # atomic adds included
    added: frozenset[int]  # arguments written by atomic adds only
    flops: int

    @cached_property
    def columns(self) -> list[tuple[int, int, int]]:
        """Argument, bytes read, bytes written."""
        return [
            (n, self.read.get(n, 0), self.written.get(n, 0)) for n in sorted(self.read.keys() | self.written.keys())
        ]

    @property
    def bytes(self) -> int:
        return sum(self.read.values()) + sum(self.written.values())


@dataclass(frozen=True, eq=False)
class Traffic:
    """`launch` has the number of each task's launch, `placement` where assembled buffers lie."""

    recording: Recording
    moved: tuple[Moved, ...]  # per launch
    launch: tuple[int, ...]
    placement: Placement

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """For each buffer the one it was assembled into."""
        return tuple(self.placement.root(buffer.id) for buffer in self.recording.buffers)

    def uses(self, task: int) -> list[Use]:
        """The arguments that a task touches."""
        arguments, roots = self.recording.tasks[task].arguments, self.roots
        columns = self.moved[self.launch[task]].columns
        return [Use(task, n, roots[arguments[n].buffer], read, written) for n, read, written in columns]

    @cached_property
    def touching(self) -> dict[int, list[int]]:
        """Per buffer the tasks that read or write it, in the order of submission, each once."""
        found: dict[int, list[int]] = defaultdict(list)
        roots = self.roots
        for task, launch in zip(self.recording.tasks, self.launch, strict=True):
            for n, _, _ in self.moved[launch].columns:
                tasks = found[roots[task.arguments[n].buffer]]
                if not tasks or tasks[-1] != task.id:
                    tasks.append(task.id)
        return found

    @cached_property
    def turns(self) -> tuple[Ints, Ints]:
        """Per task the orchestration loops around it from the outermost in, and which turn of each; -1 beyond."""
        return turns_of(self.recording.tasks)

    @cached_property
    def by_turn(self) -> tuple[tuple[int, ...], ...]:
        """Tasks that stand in the same turn of the same loops, together; in the order of their first task."""
        together: dict[bytes, list[int]] = {}
        for task, place in enumerate(np.concatenate(self.turns, axis=1)):
            together.setdefault(place.tobytes(), []).append(task)
        return tuple(map(tuple, together.values()))

    def conflicts(self, tasks: Iterable[int]) -> tuple[ExactEdge, ...]:
        """Which of these tasks, in order of submission, depend on which, by the elements they touch."""
        chosen = tuple(self.recording.tasks[task] for task in tasks)
        return exact_edges(replace(self.recording, tasks=chosen))

    def block_conflicts(self, *tasks: int) -> tuple[ExactEdge, ...]:
        """The same between blocks: block b of the n-th of the tasks given is called n * BLOCK + b."""
        blocks = [block for n, task in enumerate(tasks) for block in _blocks(self.recording.tasks[task], n * BLOCK)]
        return exact_edges(replace(self.recording, tasks=tuple(blocks)))


def turns_of(tasks: Sequence[Task]) -> tuple[Ints, Ints]:
    """See `Traffic.turns`."""
    depth = max((len(task.turns) for task in tasks), default=0)
    loops = np.full((len(tasks), depth), -1, np.int64)
    turns = loops.copy()
    for n, task in enumerate(tasks):
        for k, turn in enumerate(task.turns):
            loops[n, k], turns[n, k] = turn.loop, turn.turn
    return loops, turns


@once
def traffic_of(program: Program) -> Traffic:
    """The table of a program."""
    recording, launches = program.recording, program.launches
    bodies = [work_of(body) for body in recording.bodies]
    moved = tuple(_moved(recording, recording.tasks[launch.tasks[0]], bodies) for launch in launches)
    launch_of = [0] * len(recording.tasks)
    for n, launch in enumerate(launches):
        for task in launch.tasks:
            launch_of[task] = n
    return Traffic(recording, moved, tuple(launch_of), Placement(recording))


def _moved(recording: Recording, task: Task, bodies: list[BodyWork]) -> Moved:
    sizes = [BY_NAME[recording.buffers[argument.buffer].dtype].bytes for argument in task.arguments]
    sums: dict[str, dict[int, int]] = {"read": {}, "written": {}}
    plain: set[int] = set()
    flops = 0
    for group in task.groups:
        work, blocks = bodies[group.body], len(group.blocks)
        flops += work.flops * blocks
        plain |= {argument for argument, elements in work.written.items() if elements > work.added.get(argument, 0)}
        for into, elements_of in (("read", work.read), ("written", work.written)):
            for argument, elements in elements_of.items():
                sums[into][argument] = sums[into].get(argument, 0) + elements * blocks * sizes[argument]
    return Moved(sums["read"], sums["written"], frozenset(sums["written"].keys() - plain), flops)


def _blocks(task: Task, first: int) -> Iterator[Task]:
    """A task's blocks as tasks of their own."""
    for group in task.groups:
        for n, block in enumerate(group.blocks.tolist()):
            offsets = tuple(o[..., n : n + 1] if o.shape[-1] > 1 else o for o in group.offsets)
            yield replace(task, id=first + block, groups=(BlockGroup(group.body, np.array([block]), offsets),))
