"""A block of a task while it executes."""

from __future__ import annotations

from typing import Protocol

from npuscope.ops.numeric.arrays import Array
from npuscope.tile.record import sites
from npuscope.tile.record.model import Half, RegionLoopKind
from npuscope.tile.record.recorder import BlockDraft, Frame, Recorder, TaskDraft
from npuscope.tile.values.buffers import LiveBuffer
from npuscope.tile.values.lanes import Lane
from npuscope.tile.values.tensors import Tensor, Tile

Version = tuple[int, int, int]


class Rendezvous(Protocol):
    """Where the blocks of a launch meet."""

    def wait(self, block: Block) -> None: ...


class VectorCores:
    """Which of its two vector cores a block is on: `pl.split_aiv` runs its body on one after the other."""

    def __init__(self) -> None:
        self.used = False  # a split_aiv region was opened
        self.inside = False  # and is open
        self.core = 0
        self.half: Half | None = None  # the axis that each core has half of
        self._gathered: list[Array | None] = []  # what core 0 gave to aic_gather, for core 1 to join

    def enter(self, core: int, half: Half | None) -> None:
        self.used = self.inside = True
        self.core, self.half = core, half

    def leave(self) -> None:
        self.inside, self.core, self.half = False, 0, None
        self._gathered.clear()

    def gather(self, array: Array | None) -> list[Array | None] | None:
        """Both halves where this core's is the second; the first half waits."""
        if self.core == 0:
            self._gathered.append(array)
            return None
        return [self._gathered.pop(0) if self._gathered else None, array]


class Block(BlockDraft):
    """A block that is executing: its index (one for each lane in `shapes` mode) and the tensors it loaded whole."""

    def __init__(self, task: TaskDraft, first: int, index: int | Lane, blocks: int) -> None:
        super().__init__(task, first)
        self.index, self.blocks = index, blocks
        self.vector = VectorCores()
        self.rendezvous: Rendezvous | None = None
        self.barriers = 0  # met so far
        self.starts_region = False  # a pl.at region has just opened it
        self.closed = False  # all that it does is recorded
        self.whole_changes = 0  # how often an op loaded a tensor whole, or made such a load out of date
        self._whole: dict[int, tuple[Tensor, Version, Tile]] = {}
        self._stores: dict[int, int] = {}  # buffer -> how often this block stored to it

    def open_loop(self, kind: RegionLoopKind, stage: int) -> Frame:
        """A loop that the block enters."""
        self.frame = Frame(self.frame, (kind, stage, sites.here()))
        return self.frame

    def close_loop(self, recorder: Recorder, frame: Frame) -> None:
        """Ends a loop, after its last turn or by `break`."""
        if frame.items:  # left by break
            frame.turn(1)
        recorder.close_loop(frame, self)

    def _version(self, buffer: LiveBuffer) -> Version:
        """Changes whenever a load of the buffer may give something else: by own stores, others', past a barrier."""
        return (self._stores.get(buffer.id, 0), buffer.changes, self.barriers)

    def stored(self, buffer: LiveBuffer) -> None:
        """This block stores to a buffer."""
        if self._whole:
            version = self._version(buffer)
            if any(held.buffer is buffer and made == version for held, made, _ in self._whole.values()):
                self.whole_changes += 1
        self._stores[buffer.id] = self._stores.get(buffer.id, 0) + 1

    def held_whole(self, tensor: Tensor) -> Tile | None:
        """The tile that a tensor was loaded into whole, where it still holds what the tensor does."""
        kept = self._whole.get(id(tensor))
        return kept[2] if kept is not None and kept[1] == self._version(tensor.buffer) else None

    def may_load_early(self, tensor: Tensor) -> bool:
        """Whether a tensor's whole load may stand before all else: it is the first, and nothing can have changed it."""
        fresh = id(tensor) not in self._whole and not self.barriers
        return fresh and tensor.captured is tensor and not self.written_buffer(tensor.buffer.id)

    def hold_whole(self, tensor: Tensor, tile: Tile, early: bool) -> None:
        if not early:
            self.whole_changes += 1
        self._whole[id(tensor)] = (tensor, self._version(tensor.buffer), tile)

    def whole_tiles(self) -> list[Tile]:
        return [tile for _, _, tile in self._whole.values()]

    def meet(self) -> bool:
        """Comes to a barrier and waits there; False where nobody runs beside it."""
        self.barriers += 1
        if self.rendezvous is None:
            return False
        self.rendezvous.wait(self)
        return True
