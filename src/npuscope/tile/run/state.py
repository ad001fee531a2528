"""One run of one program, and which is under way. Everything else that belongs to a run hangs off `TileRun`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from npuscope.ops import storage
from npuscope.tile.fault import fault
from npuscope.tile.record.model import Mode
from npuscope.tile.record.recorder import Recorder, TaskDraft
from npuscope.tile.run.block import Block, in_stepped_thread
from npuscope.tile.run.memory import Allocations, OrderPhase, Slice
from npuscope.tile.run.op_recorder import OpRecorder, load_box
from npuscope.tile.run.orchestration import OneRank, Orchestration
from npuscope.tile.shapes import Shapes
from npuscope.tile.shapes.reuse import Code, Execute, Names
from npuscope.tile.values.checks import describe, tensor_or_tile
from npuscope.tile.values.signature import DynVar
from npuscope.tile.values.tensors import Tensor, Tile


class TileRun(OpRecorder):
    """One execution of one program.

    It has four parts: the record, GM (`gm`), what the orchestration is in (`orchestration`) and what `shapes` mode owns
    (`shapes`); what belongs to a block is the block's.
    """

    def __init__(
        self,
        program: str,
        mode: Mode,
        *,
        lanes: bool = True,
        reuses: bool = True,
        keeps: bool = False,
        rank: OneRank | None = None,
        phase: OrderPhase | None = None,
        slice: Slice | None = None,
    ) -> None:
        recorder, computes = Recorder(program, mode), mode == "values"
        gm = Allocations(recorder, computes, keeps and computes and phase is None, phase, slice or Slice())
        super().__init__(
            recorder, gm, Orchestration(recorder, rank), Shapes(lanes and not computes, reuses, recorder), computes
        )
        self.thread = threading.get_ident()
        self.extents: dict[DynVar, int] = {}  # of the dimensions that its arguments gave

    # --- tasks and blocks

    def enter(self, block: Block) -> None:
        """The block is the one under way."""
        self._block = block
        self.shapes.on = self.shapes.lanes and not block.task.computes
        self.gm.use(block.task.id)

    def leave(self) -> None:
        """Back in the orchestration."""
        self._block = None
        self.shapes.on = self.shapes.lanes
        self.gm.use(None)

    def perform(
        self, task: TaskDraft, code: Code, values: list[object], left: tuple[str, ...], execute: Execute
    ) -> tuple[bool, Names]:
        """Runs the body of a task on these values, or takes the record of one like it: whether it did, and the names
        that the task leaves.
        """
        reuse = self.shapes.reuse
        if reuse is None or task.computes or not self.orchestration.tasks_are_self_contained or self._shares(values):
            return False, execute(values)
        return reuse.perform(task, code, values, left, self._marks, bool(self.orchestration.carries), execute)

    def _shares(self, values: list[object]) -> bool:
        """Whether other ranks may see what a task does, or change what it finds."""
        rank = self.orchestration.rank
        shared = () if rank is None else rank.windows
        return any(isinstance(value, Tensor) and value.buffer.id in shared for value in values)

    def _marks(self) -> tuple[int, ...]:
        return (len(self.gm.buffers), *self.orchestration.marks())

    def meet(self, block: Block) -> None:
        """A block comes to a barrier: it waits for the others, or by lanes they come as one."""
        self.orchestration.barriers += 1
        block.barriers += 1
        if block.barrier is not None:
            block.barrier.wait(block)
            self._block = block  # others of its task had their turn
        elif self.shapes.on:
            self.shapes.meet(block)

    # --- values

    def tile(self, value: object, op: str) -> Tile:
        """A value as a tile of this block: tensors are loaded whole, once; tiles of other tasks come through GM."""
        if type(value) is Tile:
            if value.block is self._block:
                if value.overwritten:
                    about = f"pl.{op} reads {describe(value)} after it is gone: {value.overwritten}"
                    self.recorder.notice("overwritten", about)
                return value
            value = self.promoted(value)
        if not isinstance(value, Tensor):
            raise fault(f"pl.{op} takes a tensor or a tile, not {describe(value)}")
        block = self._block or self.region(op)
        tile = block.held_whole(value)
        if tile is None:
            early = block.may_load_early(value)
            tile = load_box(self, value, value.offset, value.shape, value.valid, early=early)
            block.hold_whole(value, tile, early)
        return tile

    def operand(self, value: object, op: str) -> Tensor | Tile:
        """A tensor, or a tile of this block; one of another block as the tensor that it left its region as."""
        x = tensor_or_tile(value, op)
        return self.promoted(x) if isinstance(x, Tile) and x.block is not self._block else x

    def promoted(self, tile: Tile) -> Tensor:
        """A tile that left its region: stored to GM by the task that made it."""
        if tile.promoted is None:
            home = tile.block
            if home is None or home.task not in self.recorder.tasks[home.task.id : home.task.id + 1]:
                raise fault(f"a tile {list(tile.shape)} {tile.dtype} of another run")
            name = f"value_{len(self.gm.buffers)}"
            tensor = self.gm.create(name, tile.shape, tile.dtype, origin="promoted")
            if tile.array is not None and tensor.buffer.data is not None:
                for counts in self.gm.memories_of(tensor.buffer, home.task.id):
                    storage.store(tensor.view(), tile.array, tile.dtype)
                    if counts:
                        tensor.buffer.written = None
            else:
                tensor.buffer.known = False
                tensor.buffer.written = None
            tensor.valid = tile.valid
            self.emit_late(home, tile, tensor)
            tile.promoted = tensor
        return tile.promoted


# --- the run under way


class _UnderWay:
    """The one place that knows it. Runs of several threads take turns."""

    run: TileRun | None = None
    turn = threading.RLock()


def current() -> TileRun:
    """The run under way."""
    if _UnderWay.run is None:
        raise fault("tile ops run inside a @pl.jit function", "Call the function; it executes and records.")
    return _UnderWay.run


def under_way() -> TileRun | None:
    """The run that this thread is part of; another thread's is none of its business."""
    run = _UnderWay.run
    return run if run is not None and (run.thread == threading.get_ident() or in_stepped_thread()) else None


@contextmanager
def running(run: TileRun | None) -> Iterator[None]:
    """The run is the one under way inside the block; None: none is."""
    before, _UnderWay.run = _UnderWay.run, run
    try:
        yield
    finally:
        _UnderWay.run = before


def switch(run: TileRun | None) -> None:
    """Another run goes on: ranks take turns, each in a thread of its own."""
    _UnderWay.run = run


@contextmanager
def turn() -> Iterator[None]:
    """Waits until no other thread runs a program."""
    with _UnderWay.turn:
        yield
