"""A run of which only some tasks count: how tasks are executed in another order than the program's.

Python runs a program in its own order. Another order is a sequence of phases, each an ascending list of tasks; for
each phase the whole program runs once more with two memories. Tasks of the phase read and write the *order's* memory,
which begins as the phase before left it. All others, and the orchestration, keep to the *program's* memory, where
every task writes, so that loops and branches take their usual way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from npuscope.ops.numeric.arrays import Array
from npuscope.tile.values.buffers import LiveBuffer

Contents = Mapping[int, Array]  # flat, by the number of the buffer


@dataclass(frozen=True)
class OrderPhase:
    """`initial`: parameters that may be written, as the first run found them; `contents`: what phases before left."""

    initial: Contents
    contents: Contents = field(default_factory=dict)
    tasks: frozenset[int] | None = None  # None: all
    blocks: Mapping[int, Sequence[int]] = field(default_factory=dict)  # task -> order of its blocks, where not 0, 1, …

    def has(self, task: int | None) -> bool:
        return task is not None and (self.tasks is None or task in self.tasks)


class Memories:
    """The two memories of a run's buffers; `ordered`: whether the order's is in use, which else lies aside."""

    def __init__(self, phase: OrderPhase) -> None:
        self.phase, self.ordered = phase, False

    def add(self, buffer: LiveBuffer) -> None:
        """Gives a new buffer its second memory."""
        if buffer.data is None:
            return
        if buffer.id in self.phase.initial:
            buffer.data = self.phase.initial[buffer.id].copy()
        kept = self.phase.contents.get(buffer.id, buffer.data)
        buffer.aside = kept.copy() if kept.flags.writeable else kept  # what nobody writes is shared
        buffer.written = np.zeros(len(buffer.data), np.bool_)  # in the order's memory, by this phase
        if self.ordered:
            buffer.swap()

    def use(self, task: int | None, buffers: Sequence[LiveBuffer]) -> None:
        """What runs next is this task, or the orchestration."""
        if self.phase.has(task) != self.ordered:
            self.ordered = not self.ordered
            for buffer in buffers:
                buffer.swap()

    def of_write(self, buffer: LiveBuffer, task: int | None) -> Iterator[bool]:
        """The memories that a write of this task goes to, each in use for a turn: whether it is the order's."""
        for ordered in (False, True) if self.phase.has(task) else (False,):
            other = ordered != self.ordered
            if other:
                buffer.swap()
            yield ordered
            if other:
                buffer.swap()

    def each(self, task: int, buffers: Sequence[LiveBuffer]) -> Iterator[bool]:
        """The memories that a task works on, one after the other: whether it is the order's."""
        before = task if self.ordered else None
        for turn in (None, task) if self.phase.has(task) else (None,):
            self.use(turn, buffers)
            yield self.ordered
        self.use(before, buffers)


def left(buffers: Sequence[LiveBuffer]) -> dict[int, Array]:
    """The order's memory after a phase."""
    return {b.id: b.aside for b in buffers if b.aside is not None and b.aside.flags.writeable}
