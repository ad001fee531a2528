"""One run of one program, and which is under way. Everything else that belongs to a run hangs off `TileRun`: which task
and block it is in, how its ops are recorded, what they touch, and the boxes of GM they load and store.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import prod

import numpy as np

from npuscope.ops import rounding, storage
from npuscope.ops.dtypes import BF16, FP16, FP32, INT8, INT16, INT32, Array, DataType
from npuscope.ops.spec import OpSpec, Plane
from npuscope.ops.transfers import LOAD, STORE
from npuscope.tile.enums import AtomicType
from npuscope.tile.fault import fault
from npuscope.tile.record import sites
from npuscope.tile.record.model import PAST_THE_END, AccessMode, Mode
from npuscope.tile.record.recorder import AccessKey, Attributes, BlockDraft, Frame, OpKey, Recorder, TaskDraft
from npuscope.tile.run.block import Block, check_op, in_stepped_thread
from npuscope.tile.run.memory import Allocations, OrderPhase, Slice
from npuscope.tile.run.orchestration import OneRank, Orchestration
from npuscope.tile.run.value_watch import ValueWatch
from npuscope.tile.shapes.mode import Shapes
from npuscope.tile.shapes.reuse import Code, Execute, Names
from npuscope.tile.values.checks import check_offsets, describe, tensor_or_tile
from npuscope.tile.values.lanes import Lane, Number, Whole, place
from npuscope.tile.values.signature import DynVar
from npuscope.tile.values.tensors import Fractal, Shape, Tensor, Tile, strided, window


class TileRun:
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
        stepwise: frozenset[int] = frozenset(),
        reuses: bool = True,
        keeps: bool = False,
        rank: OneRank | None = None,
        phase: OrderPhase | None = None,
        slice: Slice | None = None,
    ) -> None:
        recorder, computes = Recorder(program, mode), mode == "values"
        gm = Allocations(recorder, computes, keeps and computes and phase is None, phase, slice or Slice())
        self.recorder, self.gm, self.computes = recorder, gm, computes
        self.orchestration = Orchestration(recorder, rank)
        self.shapes = Shapes(lanes and not computes, stepwise, reuses, recorder)
        self.block: Block | None = None  # under way; None in orchestration
        self.specialises = False  # whether the function is compiled for the shapes of its arguments, not its own
        self.watch: ValueWatch | None = None  # where somebody asks where values come from
        self.thread = threading.get_ident()
        self.extents: dict[DynVar, int] = {}  # of the dimensions that its arguments gave

    @property
    def computes_here(self) -> bool:
        """Whether what runs now computes: the whole run does, or the task under way steers the program."""
        return self.computes or (self.block is not None and self.block.task.computes)

    @property
    def exchanges(self) -> bool:
        """Whether ranks wait for each other, for what one computes another may need."""
        return self.computes or bool(self.gm.slice)

    @property
    def task(self) -> int | None:
        """The task under way."""
        return None if self.block is None else self.block.task.id

    def region(self, op: str) -> Block:
        """The block under way; ops that compute need one."""
        if self.block is None and self.orchestration.draws is not None:
            self.orchestration.draws.start()
        if self.block is None:
            raise fault(
                f"misplaced tensor op: pl.{op} outside a task",
                "Put it inside `with pl.at(...)`, `pl.spmd(...)` or an incore function.",
            )
        return self.block

    # --- ops

    def result(
        self,
        spec: OpSpec,
        operands: tuple[object, ...],
        shape: Shape,
        dtype: DataType,
        valid: Shape | None = None,
        space: str | None = None,
        *,
        attributes: Attributes = (),
        flops: int = 0,
        plane: Plane | None = None,
    ) -> Tile:
        """The tile that an op makes of its operands, written down; its array is the caller's to compute."""
        if self.block is None:
            self.region(spec.name)
        tile = Tile(None, shape, dtype, None if valid == shape else valid, space)
        if spec.flops_per_element and plane in (None, "vector"):
            taken = operands[0] if spec.form == "reduction" and type(operands[0]) is Tile else tile
            flops = spec.flops_per_element * prod(taken.valid or taken.shape)
        self.emit(spec, operands, tile, (), (), attributes, flops, plane)
        return tile

    def emit(
        self,
        spec: OpSpec,
        operands: tuple[object, ...],
        result: Tile | None,
        accesses: tuple[AccessKey, ...] = (),
        offsets: tuple[Number, ...] = (),
        attributes: Attributes = (),
        flops: int = 0,
        plane: Plane | None = None,
    ) -> None:
        """Writes one op down as the newest item of the innermost open loop; `plane`: where it is not the usual one."""
        block = self.block
        assert block is not None
        plane = plane or spec.planes[0]
        if block.vector.used:
            check_op(spec, plane, operands, block.vector)
        frame = block.frame
        key: OpKey = (
            "op",
            spec.name,
            plane,
            sites.here(2),
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
        if self.watch is not None:
            self.watch.op(spec, operands, result, key[3], block.task.kernel, block.task.id)
        if offsets:
            frame.offsets.extend([x if type(x) is int else place(x) for x in offsets])

    def emit_early(self, spec: OpSpec, result: Tile, access: AccessKey, offset: Number) -> None:
        """Writes a load down that stands before all else in its block."""
        block = self.block
        assert block is not None
        made = (result.shape, result.dtype.name, result.valid, result.space)
        key: OpKey = ("op", spec.name, "load", sites.here(), (), made, (access,), (), 0)
        result.block, result.index = block, len(block.prologue)
        block.prologue.append(self.recorder.number(key))
        if self.watch is not None:
            self.watch.op(spec, (), result, key[3], block.task.kernel, block.task.id)
        block.prologue_offsets.append(place(offset))

    def emit_late(self, home: BlockDraft, tile: Tile, tensor: Tensor) -> None:
        """Appends the store of a tile that left its region to the block that made it, closed or still open."""
        task = home.task
        number = task.argument((tensor.buffer.id, 0, tensor.shape, tensor.strides))
        task.arguments[number].writes = True
        access: AccessKey = (number, "write", tile.valid or tile.shape, tensor.strides)
        ref = _ref(tile, home.root)
        key: OpKey = ("op", STORE.name, STORE.plane, sites.here(), (ref,), None, (access,), (("promoted", True),), 0)
        item = self.recorder.number(key)
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

    def touch(self, tensor: Tensor, mode: AccessMode, op: str = "store") -> int:
        """Notes that the task reads or writes a captured tensor; its argument number."""
        block = self.block
        assert block is not None
        seen = tensor.captured
        if not self.gm.has(seen.buffer):
            raise fault(f"{seen.buffer.name} {list(seen.shape)} is a tensor of another run")
        number = block.task.argument((seen.buffer.id, seen.offset, seen.shape, seen.strides))
        argument = block.task.arguments[number]
        if mode != "write":
            argument.reads = True
            if number not in block.written:
                argument.read_first = True
        if mode != "read":
            tensor.check_row_by_row("a store")
            if tensor.buffer.read_only:
                self._note_direction(tensor, op)
            argument.writes = True
            block.written.add(number)
            block.stored(tensor.buffer)
        return number

    def _note_direction(self, tensor: Tensor, op: str) -> None:
        """An entry may write to its inputs, on the chip; the host then keeps what it had. Windows have no direction; a
        kernel's is lifted where it writes (pypto docs/en/dev/passes/10-convert_tensor_to_tile_ops.md).
        """
        rank = self.orchestration.rank
        if rank is not None and tensor.buffer.id in rank.windows:
            return
        about = f"pl.{op} writes to {tensor.buffer.name} {list(tensor.shape)} {tensor.dtype}, an input of"
        self.recorder.notice("direction", f"{about} the entry: nothing is copied back to the host")
        tensor.buffer.read_only = False  # said once
        tensor.buffer.copy_on_write()

    # --- tasks and blocks

    def enter(self, block: Block) -> None:
        """The block is the one under way."""
        self.block = block
        self.shapes.enter(block.task)
        self.gm.use(block.task.id)

    def leave(self) -> None:
        """Back in the orchestration."""
        self.block = None
        self.shapes.leave()
        self.gm.use(None)

    def perform(
        self, task: TaskDraft, code: Code, values: list[object], left: tuple[str, ...], execute: Execute
    ) -> tuple[bool, Names]:
        """Runs the body of a task on these values, or takes the record of one like it: whether it did, and the names
        that the task leaves.
        """
        reuse = self.shapes.reuse if self.shapes.has_lanes(task) else None
        if reuse is None or not self.orchestration.tasks_are_self_contained or self._shares(values):
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
            self.block = block  # others of its task had their turn
        elif self.shapes.on:
            self.shapes.meet(block)

    # --- values

    def tile(self, value: object, op: str) -> Tile:
        """A value as a tile of this block: tensors are loaded whole, once; tiles of other tasks come through GM."""
        if type(value) is Tile:
            if value.block is self.block:
                if value.overwritten:
                    about = f"pl.{op} reads {describe(value)} after it is gone: {value.overwritten}"
                    self.recorder.notice("overwritten", about)
                return value
            value = self.promoted(value)
        if not isinstance(value, Tensor):
            raise fault(f"pl.{op} takes a tensor or a tile, not {describe(value)}")
        block = self.block or self.region(op)
        tile = block.held_whole(value)
        if tile is None:
            early = block.may_load_early(value)
            tile = load_box(self, value, value.offset, value.shape, value.valid, early=early)
            block.hold_whole(value, tile, early)
        return tile

    def operand(self, value: object, op: str) -> Tensor | Tile:
        """A tensor, or a tile of this block; one of another block as the tensor that it left its region as."""
        x = tensor_or_tile(value, op)
        return self.promoted(x) if isinstance(x, Tile) and x.block is not self.block else x

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


def turn() -> AbstractContextManager[bool]:
    """Waits until no other thread runs a program."""
    return _UnderWay.turn


_ADDS = (FP32, FP16, BF16, INT32, INT16, INT8)  # what the store unit can add to GM


def _ref(tile: Tile, frame: Frame) -> tuple[int, ...]:
    """The op that made a tile, as an op in this frame sees it (record.model.Ref)."""
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


# --- boxes of GM that a program names: whether they may be touched


def position(tensor: Tensor, offset: Sequence[Number]) -> Number:
    """Where a box at these indices begins in the buffer; per lane where indices are."""
    if len(offset) != len(tensor.shape):
        raise fault(f"{len(offset)} offsets {list(offset)!r} for a tensor of shape {list(tensor.shape)}")
    start: Number = tensor.offset
    if tensor.fractal is not None:
        start = start + _position_in_boxes(tensor, tensor.fractal, *offset[-2:])
        offset, strides = offset[:-2], tensor.strides[:-2]
        return _position(start, offset, strides)
    return _position(start, offset, tensor.strides)


def _position_in_boxes(tensor: Tensor, fractal: Fractal, row: Number, column: Number) -> Number:
    for what, index, step in (("row", row, fractal.rows), ("column", column, fractal.columns)):
        if int(index % step if isinstance(index, Lane) else int(index) % step):
            about = f"{tensor.buffer.name} lies in GM in boxes of {fractal.rows} x {fractal.columns}"
            raise fault(f"{what} {int(index)} of {list(tensor.shape)}: {about}", f"Begin at a multiple of {step}.")
    return row // fractal.rows * fractal.strides[0] + column // fractal.columns * fractal.strides[2]


def _position(start: Number, offset: Sequence[Number], strides: Sequence[int]) -> Number:
    for index, stride in zip(offset, strides, strict=True):
        start = start + (index if type(index) is int or type(index) is Lane else int(index)) * stride
    return start


def check_bounds(op: str, extents: Shape, offset: Sequence[Whole], inside: Sequence[int], what: str) -> None:
    """The accessed region must lie in the source."""
    check_offsets(offset, len(extents), op)
    for axis, (extent, first, count) in enumerate(zip(extents, offset, inside, strict=True)):
        # Lanes outside may never come to this line: go on with those that are where the first one is.
        if type(first) is Lane and first.settled_in(0, extent - count):
            continue
        begin = int(first)
        if begin < 0 or begin + count > extent:
            raise fault(
                f"pl.{op}: rows or columns {begin} to {begin + count} of axis {axis} lie outside "
                f"{what} of shape {list(extents)}",
                "Narrow it with valid_shape or clamp=True, or mend the offset.",
            )


def check_room(op: str, target: Tensor | Tile, offset: Sequence[Whole], box: Shape, what: str) -> None:
    """What is written must lie in the target, and in its valid region where it has one."""
    check_bounds(op, target.shape, offset, box, what)
    if target.valid is not None:
        check_bounds(op, target.valid, offset, box, f"the valid region of {what}, which has")


def _cut_to_end(run: TileRun, op: str, tensor: Tensor, offset: Sequence[Whole], box: Shape) -> Shape:
    """What lies in a tensor of a box that begins in it and runs past its end.

    The chip writes on, over whatever lies there; programs exist that do so and run. Here that part is left out, with a
    notice.
    """
    check_offsets(offset, len(tensor.shape), op)
    kept: list[int] = []
    for axis, (extent, first, count) in enumerate(zip(tensor.shape, offset, box, strict=True)):
        inside = type(first) is Lane and first.settled_in(0, extent - count)
        over = 0 if inside else int(first) + count - extent
        kept.append(count - over if 0 < over < count else count)
        if kept[-1] < count:
            lost = (prod(box) - prod([*kept, *box[axis + 1 :]])) * tensor.dtype.bytes
            about = f"pl.{op} writes past the end of {tensor.buffer.name} {list(tensor.shape)} along axis {axis}"
            message = f"{about}: the chip writes over what lies there; here it is left out"
            run.recorder.notice(PAST_THE_END, message, bytes=lost)
    return tuple(kept)


def last_inside(run: TileRun, op: str, tensor: Tensor, where: Sequence[Whole]) -> list[Whole] | None:
    """Of an element past the end of an axis the last one of it, where nothing is written, with a notice; else None."""
    found, past = list(where), False
    for axis, (extent, index) in enumerate(zip(tensor.shape, where, strict=True)):
        inside = type(index) is Lane and index.settled_in(0, extent - 1)
        if not inside and int(index) >= extent:
            found[axis], past = extent - 1, True
            about = f"pl.{op} of an element past the end of {tensor.buffer.name} {list(tensor.shape)} along axis {axis}"
            message = f"{about}: the chip writes over what lies there; here it is left out"
            run.recorder.notice(PAST_THE_END, message, bytes=tensor.dtype.bytes)
    return found if past else None


# --- loads and stores


def load_box(
    run: TileRun,
    tensor: Tensor,
    start: Number,
    shape: Shape,
    valid: Shape | None,
    *,
    space: str | None = None,
    kept: Shape | None = None,
    op: OpSpec = LOAD,
    early: bool = False,
    reach: Shape | None = None,
    attributes: Attributes = (),
    into: Tile | None = None,
    cache: str | None = None,
) -> Tile:
    """Loads a box that was checked; `kept`: the tile's shape where axes are dropped; `into`: the tile that it becomes a
    part of.

    `early`: the load stands before all else in its block; `reach`: the part that exists of a box that hangs over, the
    rest is poison.
    """
    box = reach or valid or shape
    if kept is not None and valid is not None:
        left = [v for v, n in zip(valid, shape, strict=True) if n != 1]
        valid = (*[1] * (len(kept) - len(left)), *left)
    tile = Tile(None, kept or shape, tensor.dtype, valid, space)
    buffer, view = tensor.buffer, (box, tensor.strides)
    seen = view
    if (fractal := tensor.fractal) is not None:
        if space == "Vec":
            tensor.check_row_by_row("a load into Vec")
        seen, view = fractal.runs_of(*view), fractal.strides_of(*view)
    access: AccessKey = (run.touch(tensor, "read"), "read", *seen)
    if cache is None and run.block is not None:
        cache = run.block.cache_policies.get(buffer.id)
    if cache == "bypass":
        attributes = (*attributes, ("cache", cache))
    if early:
        run.emit_early(op, tile, access, start)
    else:
        whole = tile if into is None else into
        run.emit(op, () if into is None else (into,), whole, (access,), (start,), attributes, plane="load")
    if not buffer.keeps_values or not (run.computes or (buffer.known and (buffer.dtype.steers or run.computes_here))):
        return tile
    first = run.shapes.one_place(start)
    if not run.computes:
        run.shapes.reads(tensor.buffer, run.block)
    mask = buffer.written_mask(first, *view)
    if mask is not None and not mask.all():
        how_much = "some elements were never" if mask.any() else "nothing was ever"
        about = f"pl.{op.name} reads {list(box)} of {buffer.name} {list(buffer.shape)}"
        run.recorder.notice("unwritten", f"{about}, of which {how_much} written")
    array = storage.load(strided(buffer, first, *view, tensor.dtype), tensor.dtype).reshape(box)
    rank = run.orchestration.rank
    if rank is not None and buffer.id in rank.windows:
        rank.read(buffer.name, array)
    if box != shape:
        part, array = array, storage.new(shape, tensor.dtype, 0 if reach is None else storage.poison(tensor.dtype))
        array[window(box)] = part
    tile.array = array if kept is None else array.reshape(kept)
    return tile


def write_box(
    run: TileRun, tensor: Tensor, start: int, box: Shape, array: Array, dtype: DataType, adds: bool = False
) -> None:
    """Writes the elements of a box, in each memory that the task under way works on."""
    buffer = tensor.buffer
    buffer.edits += 1
    if dtype is not tensor.dtype:
        array = rounding.cast(array, dtype, tensor.dtype, "rint")
    for counts in run.gm.memories_of(buffer, run.task):
        view = strided(buffer, start, box, tensor.strides, tensor.dtype)
        value = rounding.round_to(np.add(storage.load(view, tensor.dtype), array), tensor.dtype) if adds else array
        storage.store(view, value, tensor.dtype)
        mask = buffer.written_mask(start, box, tensor.strides) if counts else None
        if mask is not None:
            mask[...] = True


def store_box(
    run: TileRun,
    tile: Tile,
    tensor: Tensor,
    offset: Sequence[Whole],
    atomic: AtomicType = AtomicType.None_,
    op: OpSpec = STORE,
) -> Tensor:
    """Writes the valid part of a tile into a tensor at these indices."""
    name, adds = op.name, atomic is AtomicType.Add
    box, whole = tile.valid or tile.shape, tile.shape
    lead = len(tensor.shape) - len(box)
    if lead > 0:  # tiles are two-dimensional on chip: leading axes of one come and go
        box, whole = (1,) * lead + box, (1,) * lead + whole
    elif lead < 0:
        if any(n != 1 for n in box[:-lead]):
            raise fault(f"pl.{name}: a tile {describe(tile)} does not fit a tensor {describe(tensor)}")
        box, whole = box[-lead:], whole[-lead:]
    box = _cut_to_end(run, name, tensor, offset, box)
    check_room(name, tensor, offset, box, tensor.buffer.name)
    if adds and tensor.dtype not in _ADDS:
        raise fault(
            f"pl.{name}: no atomic add of {describe(tile)} into {tensor.buffer.name} {describe(tensor)}",
            f"The store unit adds {', '.join(d.name for d in _ADDS)}.",
        )
    if tile.dtype is not tensor.dtype:
        _check_narrowing(tile, tensor, name)
    start = position(tensor, offset)
    mode: AccessMode = "add" if adds else "write"
    access: AccessKey = (run.touch(tensor, mode, name), mode, box, tensor.strides)
    run.emit(op, (tile,), None, (access,), (start,), plane="store")
    buffer = tensor.buffer
    if not run.computes and buffer.keeps_values and buffer.known:
        run.shapes.will_write(tensor.buffer, run.block)
        if adds and tile.array is not None:
            run.shapes.only_first()
    if tile.array is None:
        buffer.known = False
    elif buffer.keeps_values:
        at = run.shapes.one_place(start)
        array = tile.array.reshape(whole)
        if box != whole:
            array = array[window(box)]
        write_box(run, tensor, at, box, array, tile.dtype, adds)
    return tensor


def _check_narrowing(tile: Tile, tensor: Tensor, op: str) -> None:
    """Only an accumulator may change its type on the way to GM."""
    allowed = tile.space == "Acc" and tile.dtype is FP32 and tensor.dtype.is_float
    same = tile.dtype.is_int and tensor.dtype.is_int and tile.dtype.bytes == tensor.dtype.bytes
    if not allowed and not same:
        raise fault(
            f"pl.{op}: a tile {describe(tile)} cannot be written to {tensor.buffer.name} {describe(tensor)}",
            "Cast it first with pl.cast.",
        )
