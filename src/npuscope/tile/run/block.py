"""A block of a task while it executes: its vector cores, and the barriers where it meets the others.

Blocks run one after another until the first of them reaches a barrier. Then each of the others is run in a stepped
thread up to its barrier. Of these threads only one ever runs at a time, handing over by semaphores, so the result does
not depend on timing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from npuscope.base.process_memory import on_one_stack
from npuscope.ops.dtypes import Array
from npuscope.ops.spec import OpRole, OpSpec
from npuscope.tile.fault import TileError, fault
from npuscope.tile.record import sites
from npuscope.tile.record.model import Half, RegionLoopKind
from npuscope.tile.record.recorder import BlockDraft, Frame, Recorder, TaskDraft
from npuscope.tile.values.checks import describe
from npuscope.tile.values.lanes import Lane
from npuscope.tile.values.tensors import LiveBuffer, Tensor, Tile

Version = tuple[int, int, int]


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
        self.barrier: Barrier | None = None  # where it meets the others of its launch
        self.barriers = 0  # met so far
        self.handover: Any = None  # of a Group: its functions and the rings between them (run/handover.py)
        self.filled_across: list[Tile] = []  # tiles whose columns rows of GM become
        self.cache_policies: dict[int, str] = {}  # buffer -> how it is read, where the program says
        self.right_operands: list[Tile] = []  # tiles that are laid out for the right side of a product
        self.memrefs: dict[int, str] = {}  # buffers that the author declared, by their object
        self.declared: dict[str, tuple[int, dict[int, Tile]]] = {}  # buffer -> its slots, and the tile in each
        self.starts_region = False  # a pl.at region has just opened it
        self.closed = False  # all that it does is recorded
        self.whole_changes = 0  # how often an op loaded a tensor whole, or made such a load out of date
        self._whole: dict[int, tuple[Tensor, Version, Tile]] = {}
        self._stores: dict[int, int] = {}  # buffer -> how often this block stored to it

    def loop(self, recorder: Recorder, kind: RegionLoopKind, stage: int) -> AbstractContextManager[Frame]:
        """A loop that the block enters; it ends after its last turn or by `break`."""
        self.frame = Frame(self.frame, (kind, stage, sites.here()))
        return self._until_closed(recorder, self.frame)

    @contextmanager
    def _until_closed(self, recorder: Recorder, frame: Frame) -> Iterator[Frame]:
        try:
            yield frame
        finally:
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


# --- the rules of `pl.split_aiv`
# Once a task opens such a region, all its vector work belongs into the regions. No cube op inside one, no vector op
# outside; a reduction may not run along the axis that the lanes share; a value crosses the edge only through
# `pl.aiv_shard` (cube to vector) and `pl.aic_gather` (vector to cube).

_SHARED = {"up_down": "columns", "left_right": "rows"}  # reductions of these collapse the axis that the lanes share


def check_op(spec: OpSpec, plane: str, operands: Sequence[object], vector: VectorCores) -> None:
    """One op of a task that has opened a region."""
    name, half = spec.name, vector.half
    tiles = [x for x in operands if type(x) is Tile]
    if not vector.inside:
        if plane == "cube":
            for tile in tiles:
                if _made_in_region(tile.frame) and tile.space != "Mat":
                    raise fault(
                        f"pl.{name} reads a value of a pl.split_aiv region, {describe(tile)}, on the cube core",
                        "Gather it inside the region with pl.aic_gather.",
                    )
        return
    if plane == "cube":
        shapes = " and ".join(describe(tile) for tile in tiles)
        raise fault(f"pl.{name} of {shapes} inside a pl.split_aiv region", "Move the product out of the region.")
    if half is not None and spec.is_a(OpRole.REDUCTION) and spec.axis == _SHARED[half]:
        raise fault(
            f"pl.{name} of {describe(tiles[0])} reduces the axis that pl.split_aiv halves: each lane has a part",
            "Reduce the other axis, or pl.aic_gather the lanes first.",
        )
    if plane == "vector":
        for tile in tiles:
            if tile.space == "Acc":
                raise fault(
                    f"pl.{name} reads a cube value, {describe(tile)}, inside a pl.split_aiv region",
                    "Let it in with pl.aiv_shard.",
                )


def _made_in_region(frame: Frame | None) -> bool:
    while frame is not None:
        if frame.loop is not None and frame.loop[0] == "split_aiv":
            return True
        frame = frame.parent
    return False


def check_outside_regions(recorder: Recorder, items: Sequence[int]) -> None:
    """Of what a finished block of a task with regions did, no vector op may stand outside them."""
    for number in items:
        key = recorder.key(number)
        if key[0] == "loop":
            if key[1] != "split_aiv":
                for _, inner in key[4]:
                    check_outside_regions(recorder, inner)
        elif key[2] == "vector":
            place = sites.site(key[3])
            shape = "" if key[5] is None else f" (its result is {list(key[5][0])} {key[5][1]})"
            raise TileError(
                f"pl.{key[1]}{shape} stands outside every pl.split_aiv region of its task",
                path=place.file,
                line=place.line,
                remedy="Wrap it in `for _ in pl.split_aiv(2, mode=pl.SplitMode.NONE):`.",
            )


# --- threads that run in turns

_NAME = "npuscope stepped thread"


def in_stepped_thread() -> bool:
    """Whether this thread is part of the run that made it."""
    return threading.current_thread().name == _NAME


class _Abandoned(BaseException):
    """Ends a stepped thread that nobody will advance again."""


def _torch_mode() -> AbstractContextManager[object]:
    """How calls of torch are made where this is asked: lazily or not (script/lazy_torch.py)."""
    torch: Any = sys.modules.get("torch")
    mode = None if torch is None else torch.utils._python_dispatch._get_current_dispatch_mode()
    return nullcontext() if mode is None else mode


class SteppedThread:
    """Work that runs in steps: `advance` lets it run to its next `pause` or its end."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self.ended = False
        self.error: BaseException | None = None
        self._abandoned = False
        self._torch_mode = _torch_mode()
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True, name=_NAME)
        self._thread.start()

    def _run(self, work: Callable[[], object]) -> None:
        self._go.acquire()
        try:
            if not self._abandoned:
                with np.errstate(all="ignore"), self._torch_mode:  # as the run has them; a thread has its own
                    on_one_stack(work)
        except _Abandoned:
            pass
        except BaseException as error:
            self.error = error
        self.ended = True
        self._back.release()

    def advance(self) -> None:
        self._go.release()
        self._back.acquire()
        if self.error is not None:
            raise self.error

    def pause(self) -> None:
        """Called by the work: hands over until the next `advance`."""
        if not self._abandoned:
            self._back.release()
            self._go.acquire()
        if self._abandoned:
            raise _Abandoned

    def abandon(self) -> None:
        """Ends the work where it stands; its own clean-up is done when this returns."""
        self._abandoned = True
        self._go.release()
        self._back.acquire()


MOST = 48  # vector cores of a die (`cores.vector` of its device file); blocks of cube or mixed kernels have 24


class Barrier:
    """The blocks of one launch in the order in which they run; `run_block(k)` executes block k."""

    def __init__(self, blocks: Sequence[int], run_block: Callable[[int], None]) -> None:
        self._blocks, self._run_block = blocks, run_block
        self._threads: dict[int, SteppedThread] = {}

    def run(self) -> None:
        """All blocks to their end."""
        try:
            for k in self._blocks:
                if self._threads:
                    break
                self._run_block(k)
                if self._threads:
                    self._finish()
        finally:
            for thread in self._threads.values():
                if not thread.ended:
                    thread.abandon()

    def wait(self, block: Block) -> None:
        """One block reached a barrier."""
        if block.first in self._threads:
            self._threads[block.first].pause()
            return
        if block.first != self._blocks[0]:
            raise _missed(block.first, self._blocks[0])
        if (count := len(self._blocks)) > MOST:
            raise fault(
                f"pl.system.syncall: {count} blocks cannot be on cores at once: there are {MOST} vector cores",
                "Launch at most as many blocks as there are cores, and let each take several items.",
            )
        if not self._threads:
            self._threads = {k: SteppedThread(lambda k=k: self._run_block(k)) for k in self._blocks[1:]}  # type: ignore[misc]
        self._advance_all()
        late = [k for k, thread in self._threads.items() if thread.ended]
        if late:
            raise _missed(block.first, late[0])

    def _advance_all(self) -> None:
        for thread in self._threads.values():
            thread.advance()

    def _finish(self) -> None:
        self._advance_all()
        stuck = [k for k, thread in self._threads.items() if not thread.ended]
        if stuck:
            raise _missed(stuck[0], self._blocks[0])


def _missed(one: int, other: int) -> TileError:
    what = f"pl.system.syncall: block {one} waits for block {other}, which ended without it"
    return fault(what, "Every block must reach every barrier.")
