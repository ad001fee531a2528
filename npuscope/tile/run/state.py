"""The run under way: which task and block the program is in, and the door through which ops are recorded."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from npuscope.ops.dtypes import DataType
from npuscope.ops.numeric import storage
from npuscope.ops.spec import OpSpec, Plane
from npuscope.ops.transfers import STORE
from npuscope.tile.fault import fault
from npuscope.tile.record import model, sites
from npuscope.tile.record.frames import Frame
from npuscope.tile.record.recorder import BlockDraft, Key, Recorder, TaskDraft
from npuscope.tile.run.block import Block
from npuscope.tile.run.phase import Memories, Phase
from npuscope.tile.run.strand import in_strand
from npuscope.tile.shapes.outside import Code
from npuscope.tile.shapes.replay import Execute, Names, Replay
from npuscope.tile.values.buffers import Buffer, contiguous
from npuscope.tile.values.lanes import place
from npuscope.tile.values.tensors import Shape, Tensor, Tile

Access = tuple[int, str, Shape, Shape]
_ONE = (True,)


class Carry:
    """What a loop carries from turn to turn; `in_task`: a loop inside a task, not one of the orchestration."""

    __slots__ = ("in_task", "values")

    def __init__(self, values: tuple[Any, ...], in_task: bool) -> None:
        self.values, self.in_task = values, in_task


class Run:
    """One execution of one program."""

    def __init__(self, program: str, mode: model.Mode, phase: Phase | None = None) -> None:
        self.mode = mode
        self.memories = None if phase is None else Memories(phase)
        self.kept: dict[int, npt.NDArray[Any]] | None = None  # where asked for: what parameters held at the start
        self.computes = mode == "values"
        self.lanes = not self.computes  # whether equal turns and blocks are run as one
        self.lost = False  # whether a whole number was not computed because it differs from lane to lane
        self.recorder = Recorder(program, mode)
        self.block: Block | None = None
        self.buffers: list[Buffer] = []
        self.manual = 0  # open manual scopes
        self.cluster: Any = None  # the open pl.cluster
        self.loops = 0  # orchestration loops entered so far
        self.carries: list[Carry] = []  # open loops with carried values, innermost last
        self.calls: dict[str, int] = {}
        self.unnamed: dict[int, str] = {}  # place of a region without a name -> what it is called
        self.auto: Any = None  # the open auto_incore scope
        self.host: Any = None  # of a host function's run: the ranks it calls
        self.rank: Any = None  # of a run that a host function called: which rank
        self.asks_dispatch = False  # an element is read for a predicate: by the runtime, not by the orchestration
        self.no_dep_next: list[Any] = []  # arguments of the call to come that pl.no_dep named
        self.thread = threading.get_ident()
        self.log: list[tuple[Buffer, Any, Any]] = []  # element writes that wait for their lanes to settle
        self.log_reads: set[int] = set()
        self.writes = 0  # of whole numbers that steer the program
        self.barriers = 0  # that blocks came to
        self.opt_outs = 0  # times pl.no_dep was said
        self.replay: Replay | None = None  # tasks that others are like

    # --- GM

    def new_buffer(
        self,
        name: str,
        shape: Shape,
        dtype: DataType,
        data: npt.NDArray[Any] | None,
        *,
        origin: Any = "created",
        direction: Any = None,
        manual_dep: bool = False,
        written: bool = False,
    ) -> Buffer:
        id = len(self.buffers)
        mask = None
        if not written and self.computes:
            mask = np.zeros(int(np.prod(shape, dtype=np.int64)), np.bool_)
        buffer = Buffer(id, name or f"tensor_{id}", shape, dtype, data, mask, manual_dep)
        buffer.read_only = origin == "parameter" and direction == "In"
        if self.memories is not None or self.kept is not None:
            self._keep(buffer, origin == "parameter")
        self.buffers.append(buffer)
        self.recorder.buffers.append(
            model.Buffer(
                id=id,
                name=buffer.name,
                shape=shape,
                dtype=dtype.name,
                origin=origin,
                site=sites.here(),
                direction=direction,
                manual_dep=manual_dep,
                before_task=len(self.recorder.tasks),
                turns=() if origin == "parameter" else tuple(self.recorder.turns),
                scopes=tuple(self.recorder.scopes),
                filled=origin == "created" and written,
            )
        )
        return buffer

    def create(self, name: str, shape: Shape, dtype: DataType, fill: Any = None, **options: Any) -> Tensor:
        """A new GM tensor; without a fill it holds poison."""
        keeps = self.computes or dtype.steers
        data = None
        if keeps and dtype.storage is not None:
            data = storage.storage_full(shape, dtype, storage.poison(dtype) if fill is None else fill).reshape(-1)
        buffer = self.new_buffer(name, shape, dtype, data, written=fill is not None, **options)
        return Tensor(buffer, 0, shape, contiguous(shape))

    def _keep(self, buffer: Buffer, parameter: bool) -> None:
        """For runs in another order: what the caller's arrays held stays known."""
        if buffer.read_only and buffer.data is not None:
            buffer.data = buffer.data.view()
            buffer.data.flags.writeable = False
        elif self.kept is not None and parameter and buffer.data is not None:
            self.kept[buffer.id] = buffer.data.copy()
        if self.memories is not None:
            self.memories.add(buffer)

    def use(self, task: int | None) -> None:
        """What runs next: a task, or the orchestration."""
        if self.memories is not None:
            self.memories.use(task, self.buffers)

    def memories_of(self, buffer: Buffer, task: int | None) -> Iterable[bool]:
        """The memories that a write of a task goes to, each in use for a turn: whether it is the one that counts."""
        return _ONE if self.memories is None else self.memories.of_write(buffer, task)

    def each_memory(self, task: int) -> Iterable[bool]:
        """The same for all buffers at once."""
        return _ONE if self.memories is None else self.memories.each(task, self.buffers)

    def task(
        self, task: TaskDraft, code: Code, values: list[Any], left: tuple[str, ...], execute: Execute
    ) -> tuple[bool, Names]:
        """Runs the body of a task on these values, or takes the record of one like it."""
        if self.replay is None or self.cluster is not None or self.auto is not None or self.no_dep_next:
            return False, execute(values)
        return self.replay.task(task, code, values, left, self._marks, bool(self.carries), execute)

    def _marks(self) -> Key:
        """Counts of all that a task can leave behind besides its record and whole numbers."""
        recorder = self.recorder
        counted = (self.buffers, recorder.notes, recorder.host_reads, recorder.aliases)
        carried = [id(carry.values) for carry in self.carries]  # what pl.yield_ told the loops around
        return (self.barriers, self.opt_outs, recorder.said, *(len(held) for held in counted), *carried)

    # --- recording

    def region(self, op: str) -> Block:
        """The block under way; ops that compute need one."""
        if self.block is None and self.auto is not None:
            self.auto.start(self)
        if self.block is None:
            raise fault(
                f"misplaced tensor op: pl.{op} outside a task",
                "Put it inside `with pl.at(...)`, `pl.spmd(...)` or an incore function.",
            )
        return self.block

    def emit(
        self,
        spec: OpSpec,
        operands: tuple[Any, ...],
        result: Tile | None,
        accesses: tuple[Access, ...] = (),
        offsets: tuple[Any, ...] = (),
        attributes: tuple[tuple[str, Any], ...] = (),
        flops: int = 0,
        plane: Plane | None = None,
    ) -> None:
        """Writes one op down as the newest item of the innermost open loop; `plane`: where it is not the usual one."""
        block = self.block
        assert block is not None
        plane = plane or spec.plane
        if block.splits:
            from npuscope.tile.run import aiv

            aiv.check_op(spec, plane, operands, block.split, block.half)
        frame = block.frame
        key = (
            "op",
            spec.name,
            plane,
            sites.here(),
            tuple([_ref(x, frame) if type(x) is Tile else None if x is None else "scalar" for x in operands]),
            None if result is None else (result.shape, result.dtype.name, result.valid, result.space),
            accesses,
            attributes,
            flops,
        )
        items = frame.items
        if result is not None:
            result.block = block
            result.frame = frame
            result.iteration = frame.iteration
            result.index = len(items)
        items.append(self.recorder.number(key))
        if offsets:
            frame.offsets.extend([x if type(x) is int else place(x) for x in offsets])

    def touch(self, tensor: Tensor, mode: str, op: str = "store") -> int:
        """Notes that the task reads or writes a captured tensor; its argument number."""
        block = self.block
        assert block is not None
        seen = tensor.captured
        if self.buffers[min(seen.buffer.id, len(self.buffers) - 1)] is not seen.buffer:
            raise fault(f"{seen.buffer.name} {list(seen.shape)} is a tensor of another run")
        number = block.task.argument((seen.buffer.id, seen.offset, seen.shape, seen.strides))
        argument = block.task.arguments[number]
        if mode != "write":
            argument.reads = True
            if number not in block.written:
                argument.read_first = True
        if mode != "read":
            if block.task.declared.get(tensor.buffer.id) == "In" or tensor.buffer.read_only:
                self._check_direction(tensor, op)
            argument.writes = True
            block.written.add(number)
            block.stored(tensor.buffer)
        return number

    def _check_direction(self, tensor: Tensor, op: str) -> None:
        """A kernel may not write to its inputs (windows have no direction). An entry may, on the chip; the host then
        keeps what it had.
        """
        assert self.block is not None
        if self.rank is not None and tensor.buffer.id in self.rank.windows:
            return
        about = f"pl.{op} writes to {tensor.buffer.name} {list(tensor.shape)} {tensor.dtype}, an input of"
        if self.block.task.declared.get(tensor.buffer.id) == "In":
            raise fault(f"{about} the kernel {self.block.task.kernel}", "Declare it pl.Out[…] or pl.InOut[…].")
        self.recorder.finding("direction", f"{about} the entry: nothing is copied back to the host")
        tensor.buffer.read_only = False  # said once
        tensor.buffer.own()

    # --- tiles

    def tile(self, value: Any, op: str) -> Tile:
        """A value as a tile of this block: tensors are loaded whole, once; tiles of other tasks come through GM."""
        if type(value) is Tile:
            if value.block is self.block:
                return value
            value = self.promoted(value)
        if not isinstance(value, Tensor):
            from npuscope.tile.values.checks import describe

            raise fault(f"pl.{op} takes a tensor or a tile, not {describe(value)}")
        block = self.block or self.region(op)
        kept = block.whole.get(id(value))
        version = block.version(value.buffer)
        if kept is not None and kept[1] == version:
            return kept[2]
        from npuscope.tile.calls import gm

        early = (
            kept is None
            and value.captured is value
            and not block.barriers
            and not block.written_buffer(value.buffer.id)
        )
        tile = gm.load_box(self, value, value.offset, value.shape, value.valid, prologue=early)
        if not early:
            block.whole_changes += 1
        block.whole[id(value)] = (value, version, tile)
        return tile

    def promoted(self, tile: Tile) -> Tensor:
        """A tile that left its region: stored to GM by the task that made it."""
        if tile.promoted is None:
            home = tile.block
            if home is None or home.task not in self.recorder.tasks[home.task.id : home.task.id + 1]:
                raise fault(f"a tile {list(tile.shape)} {tile.dtype} of another run")
            name = f"value_{len(self.buffers)}"
            tensor = self.create(name, tile.shape, tile.dtype, origin="promoted")
            if tile.array is not None and tensor.buffer.data is not None:
                for counts in self.memories_of(tensor.buffer, home.task.id):
                    storage.store(tensor.view(), tile.array, tile.dtype)
                    if counts:
                        tensor.buffer.written = None
            else:
                tensor.buffer.known = False
                tensor.buffer.written = None
            tensor.valid = tile.valid
            _store_late(self, home, tile, tensor)
            tile.promoted = tensor
        return tile.promoted


def _store_late(run: Run, home: BlockDraft, tile: Tile, tensor: Tensor) -> None:
    """Appends the store of a promoted tile to the block that made it, closed or still open."""
    task = home.task
    number = task.argument((tensor.buffer.id, 0, tensor.shape, tensor.strides))
    task.arguments[number].writes = True
    access = (number, "write", tile.valid or tile.shape, tensor.strides)
    ref = _ref(tile, home.root)
    key = ("op", STORE.name, STORE.plane, sites.here(), (ref,), None, (access,), (("promoted", True),), 0)
    item = run.recorder.number(key)
    if home.root.open:
        home.root.items.append(item)
        home.root.offsets.append(0)
        return
    for (prologue, items), (blocks, rolled) in list(task.groups.items()):
        if home.first in blocks:
            del task.groups[prologue, items]
            rolled.items = (*items, item)
            rolled.offsets = [[*part, 0] for part in rolled.offsets]
            task.groups[prologue, rolled.items] = (blocks, rolled)
            return


def _ref(tile: Tile, frame: Frame) -> tuple[int, ...]:
    made = tile.frame
    if made is frame:
        back = frame.iteration - tile.iteration
        return (0, back if back < 2 else 2, tile.index)
    if made is None:
        return (-1, 0, tile.index)  # loaded in the prologue
    path: tuple[int, ...] = (tile.index,)
    iteration = tile.iteration
    while not made.open and made.parent is not None:
        path = (made.index, *path)
        iteration = made.parent_iteration
        made = made.parent
    back = made.iteration - iteration
    return (max(frame.depth - made.depth, 0), back if back < 2 else 2, *path)


def is_new(run: Run, tile: Tile) -> bool:
    """Whether a tile was made in this turn of the innermost loop."""
    block = run.block
    made, iteration = tile.frame, tile.iteration
    if block is None or made is None:
        return False
    while made is not block.frame and not made.open and made.parent is not None:
        iteration, made = made.parent_iteration, made.parent
    return made is block.frame and iteration == made.iteration


def current() -> Run:
    """The run under way."""
    if _current is None:
        raise fault("tile ops run inside a @pl.jit function", "Call the function; it executes and records.")
    return _current


def under_way() -> Run | None:
    """The run that this thread is part of; another thread's is none of its business."""
    run = _current
    return run if run is not None and (run.thread == threading.get_ident() or in_strand()) else None


def swap(run: Run | None) -> Run | None:
    """Makes a run the current one; the one before."""
    global _current
    before, _current = _current, run
    return before


_current: Run | None = None
turn = threading.RLock()  # runs of several threads take turns
