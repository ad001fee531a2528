"""The GM buffers of one run, and in which memory they are used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from npuscope.ops import storage
from npuscope.ops.dtypes import Array, DataType
from npuscope.tile.record import model, sites
from npuscope.tile.record.recorder import Recorder
from npuscope.tile.values.lanes import Plain
from npuscope.tile.values.tensors import LiveBuffer, Shape, Tensor, contiguous

_ONE = (True,)


class Allocations:
    """`keeps`: what parameters held at the start stays known, for runs in another order."""

    def __init__(self, recorder: Recorder, computes: bool, keeps: bool, phase: OrderPhase | None) -> None:
        self.buffers: list[LiveBuffer] = []
        self.initial: dict[int, Array] | None = {} if keeps else None  # of parameters that may be written
        self.phase = phase
        self._recorder, self._computes = recorder, computes
        self._memories = None if phase is None else Memories(phase)

    def add(
        self,
        name: str,
        shape: Shape,
        dtype: DataType,
        data: Array | None,
        *,
        origin: model.Origin = "created",
        direction: model.Direction | None = None,
        manual_dep: bool = False,
        written: bool = False,
    ) -> LiveBuffer:
        """A new buffer that holds this data; `written`: all of it counts as written."""
        id, recorder = len(self.buffers), self._recorder
        mask = None
        if not written and self._computes:
            mask = np.zeros(int(np.prod(shape, dtype=np.int64)), np.bool_)
        buffer = LiveBuffer(id, name or f"tensor_{id}", shape, dtype, data, mask, manual_dep)
        buffer.read_only = origin == "parameter" and direction == "In"
        if self._memories is not None or self.initial is not None:
            self._keep(buffer, origin == "parameter")
        self.buffers.append(buffer)
        recorder.buffers.append(
            model.Buffer(
                id=id,
                name=buffer.name,
                shape=shape,
                dtype=dtype.name,
                origin=origin,
                site=sites.here(),
                direction=direction,
                manual_dep=manual_dep,
                before_task=len(recorder.tasks),
                turns=() if origin == "parameter" else tuple(recorder.turns),
                scopes=tuple(recorder.scopes),
                filled=origin == "created" and written,
            )
        )
        return buffer

    def create(
        self,
        name: str,
        shape: Shape,
        dtype: DataType,
        fill: Plain | None = None,
        *,
        origin: model.Origin = "created",
        manual_dep: bool = False,
    ) -> Tensor:
        """A new GM tensor; without a fill it holds poison."""
        data = None
        if (self._computes or dtype.steers) and dtype.storage is not None:
            data = storage.storage_full(shape, dtype, storage.poison(dtype) if fill is None else fill).reshape(-1)
        written = fill is not None
        buffer = self.add(name, shape, dtype, data, origin=origin, manual_dep=manual_dep, written=written)
        return Tensor(buffer, 0, shape, contiguous(shape))

    def has(self, buffer: LiveBuffer) -> bool:
        """Whether it is one of this run's."""
        return buffer.id < len(self.buffers) and self.buffers[buffer.id] is buffer

    def _keep(self, buffer: LiveBuffer, parameter: bool) -> None:
        """For runs in another order: what the caller's arrays held stays known."""
        if buffer.read_only and buffer.data is not None:
            buffer.data = buffer.data.view()
            buffer.data.flags.writeable = False
        elif self.initial is not None and parameter and buffer.data is not None:
            self.initial[buffer.id] = buffer.data.copy()
        if self._memories is not None:
            self._memories.add(buffer)

    # --- two memories, in a run of which only some tasks count (order_phase.py)

    @property
    def has_order(self) -> bool:
        return self._memories is not None

    def use(self, task: int | None) -> None:
        """What runs next: a task, or the orchestration."""
        if self._memories is not None:
            self._memories.use(task, self.buffers)

    def memories_of(self, buffer: LiveBuffer, task: int | None) -> Iterable[bool]:
        """The memories that a write of a task goes to, each in use for a turn: whether it is the one that counts."""
        return _ONE if self._memories is None else self._memories.of_write(buffer, task)

    def each_memory(self, task: int) -> Iterable[bool]:
        """The same for all buffers at once."""
        return _ONE if self._memories is None else self._memories.each(task, self.buffers)


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
