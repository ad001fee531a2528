"""What a program takes of the runtime's rings: task slots and heap, in order of submission.

A ring belongs to a depth of scopes: the runtime's own scope around everything has ring 0, the function's ring 1, and
so on; the deepest share the last. An allocation of tensors is a task without a kernel: it takes a slot as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from npuscope.lower.program import Program
from npuscope.lower.runtime_scopes import ScopePath, depth_of, path_of
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile.record.model import Buffer, Task


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
            size = sum(prod(buffer.shape) * BY_NAME[buffer.dtype].bytes for buffer in buffers)
            first = buffers[0]
            yield RingEntry(path_of(recording, first), ring(first), size, first.site, task.id, ids)
        yield RingEntry(path_of(recording, task), ring(task), 0, task.site, task.id)
