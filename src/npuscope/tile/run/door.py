"""The door through which ops are recorded: which task and block a run is in, what they touch."""

from __future__ import annotations

from npuscope.ops.spec import OpSpec, Plane
from npuscope.ops.transfers import STORE
from npuscope.tile.fault import fault
from npuscope.tile.record import sites
from npuscope.tile.record.model import AccessMode
from npuscope.tile.record.recorder import AccessKey, Attributes, BlockDraft, Frame, OpKey, Recorder
from npuscope.tile.run import aiv
from npuscope.tile.run.allocations import Allocations
from npuscope.tile.run.block import Block
from npuscope.tile.run.orchestration import Orchestration
from npuscope.tile.shapes import Shapes
from npuscope.tile.values.lanes import Number, place
from npuscope.tile.values.tensors import Tensor, Tile


class Door:
    """A run as its ops see it."""

    def __init__(
        self, recorder: Recorder, gm: Allocations, orchestration: Orchestration, shapes: Shapes, computes: bool
    ) -> None:
        self.recorder, self.gm, self.orchestration, self.shapes = recorder, gm, orchestration, shapes
        self.computes = computes
        self._block: Block | None = None

    @property
    def block(self) -> Block | None:
        """The block under way; None in orchestration."""
        return self._block

    @property
    def task(self) -> int | None:
        """The task under way."""
        return None if self._block is None else self._block.task.id

    # --- ops

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
        block = self._block
        assert block is not None
        plane = plane or spec.plane
        if block.vector.used:
            aiv.check_op(spec, plane, operands, block.vector)
        frame = block.frame
        key: OpKey = (
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

    def emit_early(self, spec: OpSpec, result: Tile, access: AccessKey, offset: Number) -> None:
        """Writes a load down that stands before all else in its block."""
        block = self._block
        assert block is not None
        made = (result.shape, result.dtype.name, result.valid, result.space)
        key: OpKey = ("op", spec.name, "load", sites.here(), (), made, (access,), (), 0)
        result.block, result.index = block, len(block.prologue)
        block.prologue.append(self.recorder.number(key))
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
        block = self._block
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
            if block.task.declared.get(tensor.buffer.id) == "In" or tensor.buffer.read_only:
                self._check_direction(block, tensor, op)
            argument.writes = True
            block.written.add(number)
            block.stored(tensor.buffer)
        return number

    def _check_direction(self, block: Block, tensor: Tensor, op: str) -> None:
        """A kernel may not write to its inputs (windows have no direction). An entry may, on the chip; the host then
        keeps what it had.
        """
        rank = self.orchestration.rank
        if rank is not None and tensor.buffer.id in rank.windows:
            return
        about = f"pl.{op} writes to {tensor.buffer.name} {list(tensor.shape)} {tensor.dtype}, an input of"
        if block.task.declared.get(tensor.buffer.id) == "In":
            raise fault(f"{about} the kernel {block.task.kernel}", "Declare it pl.Out[…] or pl.InOut[…].")
        self.recorder.finding("direction", f"{about} the entry: nothing is copied back to the host")
        tensor.buffer.read_only = False  # said once
        tensor.buffer.own()

    def is_new(self, tile: Tile) -> bool:
        """Whether a tile was made in this turn of the innermost loop."""
        block = self._block
        made, iteration = tile.frame, tile.iteration
        if block is None or made is None:
            return False
        while made is not block.frame and not made.open and made.parent is not None:
            iteration, made = made.parent_iteration, made.parent
        return made is block.frame and iteration == made.iteration


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
