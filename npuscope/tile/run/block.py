"""A block of a task while it executes."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from npuscope.tile.record.recorder import BlockDraft, TaskDraft
from npuscope.tile.values.buffers import Buffer
from npuscope.tile.values.tensors import Tensor, Tile


class Block(BlockDraft):
    """A block that is executing: its index (one for each lane in `shapes` mode) and the tensors it loaded whole."""

    def __init__(self, task: TaskDraft, first: int, index: Any, blocks: int) -> None:
        super().__init__(task, first)
        self.index = index
        self.blocks = blocks
        self.whole: dict[int, tuple[Tensor, tuple[int, int, int], Tile]] = {}
        self._stores: dict[int, int] = {}  # buffer -> how often this block stored to it
        self.whole_changes = 0  # how often an op loaded a tensor whole, or made such a load out of date
        self.barriers = 0  # met so far
        self.aiv: Any = 0
        self.half: str | None = None  # inside split_aiv: the axis that each lane has half of
        self.splits = False  # a split_aiv region was opened
        self.split = False  # and is open
        self.gathered: list[npt.NDArray[Any] | None] = []  # what lane 0 gave to aic_gather, for lane 1 to join
        self.barrier: Any = None
        self.is_new = False  # a pl.at region has just opened it
        self.closed = False  # all that it does is recorded

    def version(self, buffer: Buffer) -> tuple[int, int, int]:
        """Changes whenever a load of the buffer may give something else: by own stores, others', past a barrier."""
        return (self._stores.get(buffer.id, 0), buffer.changes, self.barriers)

    def stored(self, buffer: Buffer) -> None:
        """This block stores to a buffer."""
        if self.whole:
            version = self.version(buffer)
            if any(held.buffer is buffer and made == version for held, made, _ in self.whole.values()):
                self.whole_changes += 1
        self._stores[buffer.id] = self._stores.get(buffer.id, 0) + 1
        buffer.store_count += 1
