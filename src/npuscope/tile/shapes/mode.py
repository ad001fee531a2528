"""What `shapes` mode owns of a run: the lanes it runs with, and the whole numbers in GM that steer the program.

These numbers are kept real: reads see, and writes leave, what one turn after another would. A write of a turn waits
until it is known which turns count as one; a turn that touches what another would have changed goes on alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from npuscope.tile.fault import NeedsValues
from npuscope.tile.record.recorder import Offset, Recorder, TaskDraft
from npuscope.tile.shapes.reuse import Reuse
from npuscope.tile.values import lanes
from npuscope.tile.values.axes import Axes
from npuscope.tile.values.buffers import LiveBuffer
from npuscope.tile.values.lanes import Lane, Number


class OneByOne(BaseException):
    """Lanes cannot say what this program does: it is run again, turn by turn and block by block.

    The only restart there is. Not an Exception, for it is none that a program could handle.
    """


class BlockUnderWay(Protocol):
    """What is asked here of a block."""

    task: TaskDraft
    first: int
    blocks: int
    barriers: int


@dataclass
class _Meeting:
    """Of a task whose blocks meet: barriers that all came to as one, whole numbers that they read and wrote."""

    barriers: int = 0
    read: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)

    @property
    def tells(self) -> bool:
        """Whether blocks may tell each other numbers."""
        return bool(self.read & self.written)


class Shapes:
    """One run's; `on`: whether equal turns and blocks are run as one (else it stays idle)."""

    def __init__(self, on: bool, reuses: bool, recorder: Recorder) -> None:
        self.on = on
        self.axes = Axes()
        self.writes = 0  # of whole numbers that steer the program
        self.reuse = Reuse(recorder, self.axes, lambda: self.writes) if on and reuses else None
        self._lost = False
        self._log: list[tuple[LiveBuffer, npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
        self._touched: set[int] = set()  # buffers that the turn under way read or wrote
        self._meetings: dict[int, _Meeting] = {}

    # --- lanes

    def lane_numbers(self, first: int, count: int, depth: int) -> int | Lane:
        """The numbers first, first + 1, … along the axis of a loop."""
        if count == 1:
            return first
        return Lane(np.arange(first, first + count, dtype=np.int64).reshape(-1, *(1,) * depth), self.axes)

    def only_first(self) -> None:
        """Goes on with the first lane alone, where the next would find something else."""
        self.axes.only_first()

    def one_place(self, start: Number) -> int:
        """Where the lanes that go on find something: the first lane alone where they differ."""
        start = lanes.plain(start)
        if isinstance(start, Lane):
            self.only_first()
        return int(start)

    def end_pass(self) -> int:
        """Ends the innermost pass of a loop; how many lanes were left of it."""
        if self._log:
            self._log = [(buffer, self.axes.trim(at), self.axes.trim(value)) for buffer, at, value in self._log]
        kept = self.axes.close()
        if self._log or self._touched:
            self._flush_if_single()
        return kept

    def trimmed(self, offsets: list[Offset]) -> list[Offset]:
        """Offsets without the lanes that were dropped since."""
        return self.axes.trimmed(offsets)

    def lose(self) -> None:
        """A whole number differs from lane to lane and is not computed."""
        self._lost = True

    @contextmanager
    def computing_what_is_needed(self) -> Iterator[None]:
        """A value that is asked for and was lost to lanes: the program is run again without them."""
        try:
            yield
        except NeedsValues as error:
            if self.on and self._lost:
                raise OneByOne from error
            raise

    # --- whole numbers in GM

    def reads(self, buffer: LiveBuffer, block: BlockUnderWay | None) -> None:
        """Before numbers are read."""
        if any(entry[0] is buffer for entry in self._log):
            self.only_first()
            self._flush()
        self._touched.add(buffer.id)
        self._across_blocks(buffer, block, writes=False)

    def will_write(self, buffer: LiveBuffer, block: BlockUnderWay | None) -> None:
        """Before a write: what this turn read or wrote there already, the next turn would find changed."""
        self.writes += 1
        if buffer.id in self._touched or any(entry[0] is buffer for entry in self._log):
            self.only_first()
            self._flush()
        self._touched.add(buffer.id)
        self._across_blocks(buffer, block, writes=True)

    def write(self, buffer: LiveBuffer, offset: Number, value: Number, block: BlockUnderWay | None) -> None:
        """One element per lane, written when the lanes are known for good."""
        if any(size > 1 for size in self.axes.sizes[:-1]):  # their passes end later than the writes can wait
            self.only_first()
        self.will_write(buffer, block)
        self._log.append((buffer, np.asarray(lanes.of(offset)), np.asarray(lanes.of(value))))
        self._flush_if_single()

    def _flush_if_single(self) -> None:
        if self.axes.is_single():
            self._flush()

    def _flush(self) -> None:
        """Applies the waiting writes in the order the iterations would have made them: outermost loop slowest."""
        for buffer, offset, value in self._log:
            if buffer.data is None:
                continue
            where, what = np.broadcast_arrays(self.axes.trim(offset), self.axes.trim(value))
            buffer.data[where.T.reshape(-1)] = what.T.reshape(-1).astype(buffer.data.dtype)
        self._log.clear()
        self._touched.clear()

    # --- blocks that meet

    def _across_blocks(self, buffer: LiveBuffer, block: BlockUnderWay | None, writes: bool) -> None:
        """Blocks that meet at a barrier and tell each other whole numbers cannot be run one after the other."""
        if block is None or not self.on or block.blocks == 1:
            return
        meeting = self._meetings.setdefault(block.task.id, _Meeting())
        (meeting.written if writes else meeting.read).add(buffer.id)
        if meeting.barriers and meeting.tells:
            raise OneByOne

    def meet(self, block: BlockUnderWay) -> None:
        """A barrier, by lanes: no waiting where all blocks come to it as one and tell each other no numbers."""
        if block.blocks == 1:
            return
        meeting = self._meetings.setdefault(block.task.id, _Meeting())
        if block.first == 0 and self.axes.sizes[0] == block.blocks:
            meeting.barriers = block.barriers
        if block.barriers > meeting.barriers or meeting.tells:
            raise OneByOne
