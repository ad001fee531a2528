"""The GM buffers of one run, and in which memory they are used."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from npuscope.ops.dtypes import DataType
from npuscope.ops.numeric import storage
from npuscope.ops.numeric.arrays import Array
from npuscope.tile.record import model, sites
from npuscope.tile.record.recorder import Recorder
from npuscope.tile.run.order_phase import Memories, OrderPhase
from npuscope.tile.values.buffers import LiveBuffer, contiguous
from npuscope.tile.values.lanes import Plain
from npuscope.tile.values.tensors import Shape, Tensor

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
