"""What a program takes of the runtime's rings: scopes, task slots and heap, in order of submission.

A ring belongs to a depth of scopes: the runtime's scope around everything has ring 0, the function's ring 1, and so
on; the deepest share the last. An allocation of tensors is a task without a kernel: it takes a slot as well. The
compiler puts a scope around the function and around each turn of a loop (not of `unroll`), unless the entry says
`auto_scope=False` or a manual scope is open; `pl.scope` and `pl.manual_scope` are scopes where they stand. The arms of
an `if` are scopes too, which a run does not show; they would only make scopes smaller.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from math import prod

from npuscope.lower.program import Program
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile.record.model import Buffer, Recording, Task


@dataclass(frozen=True)
class RingEntry:
    """A task, or an allocation made before one is submitted."""

    path: ScopePath
    ring: int
    bytes: int
    site: int
    task: int  # itself, or the one it is made before
    buffers: tuple[int, ...] = ()  # of an allocation

    @property
    def is_task(self) -> bool:
        return not self.buffers


def limits_of(program: Program, name: str) -> tuple[int, ...]:
    """Per ring its `task_window`, `heap` or `dep_pool`; empty where the device does not say."""
    runtime = program.device.runtime
    if "rings" not in runtime or name not in runtime:
        return ()
    rings, size = int(runtime["rings"].value), int(runtime[name].value)
    return tuple(program.recording.rings.of(name, ring, size) for ring in range(rings))


def entries_of(program: Program) -> Iterator[RingEntry]:
    """Tasks and allocations as the orchestrator submits them."""
    recording = program.recording
    deepest = int(program.device.runtime["rings"].value) - 1

    def ring(made: Task | Buffer) -> int:
        return min(depth_of(recording, made), deepest)

    made: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for allocation in program.graph.allocations:
        made[allocation.before_task].append(allocation.buffers)
    for task in recording.tasks:
        for ids in made.get(task.id, ()):
            buffers = [recording.buffers[id] for id in ids]
            size = sum(BY_NAME[buffer.dtype].size(prod(buffer.shape)) for buffer in buffers)
            first = buffers[0]
            yield RingEntry(path_of(recording, first), ring(first), size, first.site, task.id, ids)
        yield RingEntry(path_of(recording, task), ring(task), 0, task.site, task.id)


def graph_calls(program: Program) -> dict[str, list[Task]]:
    """The tasks of each call of a recorded graph, in order. Only so many graphs are recorded as the runtime has room
    for; tasks of others are submitted one by one."""
    found: dict[str, list[Task]] = defaultdict(list)
    for task in program.recording.tasks:
        if task.graph:
            found[task.graph].append(task)
    most = program.device.runtime.get("graph_definitions")
    recorded = list(dict.fromkeys(map(graph_of, found)))[: None if most is None else int(most.value)]
    return {name: nodes for name, nodes in found.items() if graph_of(name) in recorded}


def graph_of(call: str) -> str:
    """The graph that a call is of."""
    return call.rpartition("#")[0]


ScopePath = tuple[Hashable, ...]  # scopes open around something, outermost first: never empty
FUNCTION: ScopePath = ("function",)  # without `auto_scope` the runtime's own scope, which is no scope of the program


def path_of(recording: Recording, made: Task | Buffer) -> ScopePath:
    """The scopes that a task was submitted in, or a tensor created in."""
    return _opened(recording, made) or FUNCTION


def depth_of(recording: Recording, made: Task | Buffer) -> int:
    """How many scopes the program has open there; the runtime has one more of its own around everything."""
    return len(_opened(recording, made))


def _opened(recording: Recording, made: Task | Buffer) -> ScopePath:
    found: list[Hashable] = list(FUNCTION) if recording.auto_scope else []
    manual, done = not recording.auto_scope, 0
    for scope in made.scopes:
        if not manual:
            found += [(turn.loop, turn.turn) for turn in made.turns[done : scope.turns] if turn.kind != "unroll"]
        found.append(scope.number)
        manual, done = manual or scope.manual, scope.turns
    if not manual:
        found += [(turn.loop, turn.turn) for turn in made.turns[done:] if turn.kind != "unroll"]
    return tuple(found)
