"""Windows: buffers that every rank has one of, at the same place, so that peers can write into each other's.

`alloc_window_buffer` names a buffer, `window` says what it holds. Which rank's copy that is follows from the device of
the call it is handed to. Ranks are the devices that use the buffer, in order. Signals, puts, loads and stores reach a
peer's copy. The runtime of a rank sees its own window as the argument of such an op, and so does the record; the exact
region touched is the peer's, so the op has no access of its own rank's memory, but says the peer.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from npuscope.ops import storage
from npuscope.ops.dtypes import Array, DataType
from npuscope.ops.spec import OpSpec
from npuscope.ops.transfers import DEFER_WAIT, GET, NOTIFY, PUT, REMOTE_LOAD, REMOTE_STORE, WAIT
from npuscope.tile.calls.functions import implements
from npuscope.tile.calls.shaping import inside
from npuscope.tile.enums import AtomicType, NotifyOp, WaitCmp
from npuscope.tile.fault import fault
from npuscope.tile.graph.boxes import row_major
from npuscope.tile.record.recorder import AccessKey
from npuscope.tile.run.arguments import Elsewhere, Parameter
from npuscope.tile.run.orchestration import OneRank
from npuscope.tile.run.state import TileRun, check_bounds, current, load_box, position, store_box, write_box
from npuscope.tile.values import lanes
from npuscope.tile.values.checks import describe, dtype_of, shape_of, shown
from npuscope.tile.values.lanes import Lane, Number, Unknown
from npuscope.tile.values.signature import DynExpr, DynVar, extent_of
from npuscope.tile.values.tensors import LiveBuffer, Shape, Tensor, Tile, strided

Whole = int | Lane
Offsets = Sequence[Whole]


class WindowBuffer:
    """So many bytes on every rank, zero at first."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.bytes = name, size
        self.number = -1  # among the windows of the host function's call
        self.signals = False  # whether ranks signal each other with it
        self.devices: set[int] = set()
        self._memory: dict[int, npt.NDArray[np.uint8]] = {}
        self._unknown: set[int] = set()  # devices whose copy holds what nobody computed
        self._seen: dict[int, list[LiveBuffer]] = {}  # what programs on a device hold of it

    def memory(self, device: int, dtype: DataType, elements: int) -> Array:
        """A device's copy as flat elements of a type."""
        if device not in self._memory:
            self._memory[device] = np.zeros(self.bytes, np.uint8)
        assert dtype.storage is not None
        return self._memory[device][: elements * dtype.bytes].view(dtype.storage)

    def device_of(self, rank: int) -> int:
        ranks = sorted(self.devices)
        if not 0 <= rank < len(ranks):
            raise fault(f"no rank {rank} has the window {self.name}", f"Its ranks are 0 to {len(ranks) - 1}.")
        return ranks[rank]

    def rank_of(self, device: int) -> int:
        return sorted(self.devices).index(device)

    def hold(self, device: int, buffer: LiveBuffer) -> None:
        self._seen.setdefault(device, []).append(buffer)

    def is_known(self, device: int) -> bool:
        """Whether all that was written to a device's copy was computed."""
        return device not in self._unknown and all(buffer.known for buffer in self._seen.get(device, ()))

    def lose(self, device: int) -> None:
        """Something that nobody computed is written to a device's copy."""
        self._unknown.add(device)
        for buffer in self._seen.get(device, ()):
            buffer.known = False

    def changed(self, device: int) -> None:
        """A peer wrote: tiles that a program loaded before are not what memory holds now."""
        for buffer in self._seen.get(device, ()):
            buffer.changed()


class Window(Elsewhere):
    """A window buffer as a tensor; a tensor of GM once a call on a device has it."""

    def __init__(self, buffer: WindowBuffer, shape: tuple[int, ...], dtype: DataType) -> None:
        self.buffer, self.shape, self.dtype = buffer, shape, dtype

    @property
    def elements(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def shaped_as(self, declared: tuple[int, ...] | None) -> Window:
        """A window is memory without gaps: one of [64] may be declared [1, 64]."""
        same = declared is not None and math.prod(declared) == self.elements
        return Window(self.buffer, declared, self.dtype) if declared is not None and same else self

    def enter(self, run: TileRun, parameter: Parameter) -> Tensor:
        rank = run.orchestration.rank
        if rank is None:
            raise fault(f"the window {self.buffer.name} outside a rank", "Call the function with device=.")
        for known, window in rank.windows.items():
            held = run.gm.buffers[known]
            same = isinstance(window, Window) and window.buffer is self.buffer
            if same and held.dtype is self.dtype and held.shape == self.shape:
                return Tensor(held, 0, self.shape, row_major(self.shape))
        steers = self.dtype.steers or run.gm.slice.has("parameter", parameter.name, 0)
        keeps = run.computes or (run.exchanges and steers)
        data = self.buffer.memory(rank.device, self.dtype, self.elements) if keeps else None
        way = parameter.direction or "InOut"
        buffer = run.gm.add(
            parameter.name, self.shape, self.dtype, data, origin="parameter", direction=way, written=True
        )
        buffer.known = keeps and self.buffer.is_known(rank.device)  # without values nobody knows what a peer wrote
        rank.hold(buffer.id, self)
        self.buffer.hold(rank.device, buffer)
        return Tensor(buffer, 0, self.shape, row_major(self.shape))


def held_window(run: TileRun, value: object) -> tuple[OneRank, Window] | None:
    """The rank of a run and the window that a tensor of it is, or is a view of."""
    rank = run.orchestration.rank
    window = rank.windows.get(value.buffer.id) if rank is not None and isinstance(value, Tensor) else None
    return (rank, window) if rank is not None and isinstance(window, Window) else None


Extent = int | Lane | DynVar | DynExpr


def _known(extent: Extent) -> int | Lane:
    """A dimension of the signature, or what is computed with some, is what the host's arguments gave."""
    if not isinstance(extent, DynVar | DynExpr):
        return extent
    if (found := extent_of(extent, current().extents)) is None:
        raise fault(
            f"nothing says how large {extent.name} is", "Name the dimension in the signature of the host function."
        )
    return found


def alloc_window_buffer(size: Extent | Sequence[Extent], *, dtype: object = None, name: str = "") -> WindowBuffer:
    """A buffer on every rank: its size in bytes, or a shape with a dtype."""
    if isinstance(size, Sequence):
        kind = dtype_of(dtype, "alloc_window_buffer")
        count = int(np.prod(shape_of([_known(n) for n in size]), dtype=np.int64)) * kind.bytes
    else:
        count = int(_known(size))
    if count <= 0:
        raise fault(f"pld.alloc_window_buffer of {count} bytes")
    return WindowBuffer(name or "window", count)


def window(buf: object, shape: Sequence[Extent], *, dtype: object) -> Window:
    """This rank's part of a window buffer as a tensor."""
    if not isinstance(buf, WindowBuffer):
        raise fault("pld.window takes what pld.alloc_window_buffer made")
    made = Window(buf, shape_of([_known(n) for n in shape]), dtype_of(dtype, "window"))
    if made.elements * made.dtype.bytes > buf.bytes:
        raise fault(
            f"pld.window {list(made.shape)} of {made.dtype} takes {made.elements * made.dtype.bytes} bytes; "
            f"{buf.name} has {buf.bytes}"
        )
    return made


_COMPARE: dict[WaitCmp, Callable[[int, int], bool]] = {WaitCmp.Eq: operator.eq, WaitCmp.Ge: operator.ge}
_SIGN = {WaitCmp.Eq: "==", WaitCmp.Ge: ">="}


def _window(run: TileRun, value: object, op: str) -> tuple[Tensor, Window]:
    """What was given, if it is a window that this rank holds."""
    run.region(op)
    held = held_window(run, value)
    if held is not None and isinstance(value, Tensor):
        run.shapes.others_see()
        if run.computes:
            held[0].may_change()
        return value, held[1]
    raise fault(f"pld.{op} takes a window, not {describe(value)}", "Make it with pld.window in the host function.")


def _rank(run: TileRun) -> OneRank:
    """The rank that a run with windows is for."""
    rank = run.orchestration.rank
    assert rank is not None
    return rank


def _peer(run: TileRun, target: Tensor, window: Window, peer: Whole) -> tuple[int, Tensor]:
    """A peer's number, and its copy of a tensor that is a window or a view of one."""
    rank = lanes.whole(peer)
    device = window.buffer.device_of(rank)
    if device == _rank(run).device:
        return rank, target
    keeps = run.computes or (run.exchanges and target.buffer.keeps_values)
    data = window.buffer.memory(device, window.dtype, window.elements) if keeps else None
    theirs = LiveBuffer(-1, f"{target.buffer.name} of rank {rank}", window.shape, window.dtype, data, None)
    return rank, Tensor(theirs, target.offset, target.shape, target.strides, target.dtype)


def _seen(run: TileRun, window: Window, peer: int) -> None:
    """A peer sees a change, perhaps before what this rank does next."""
    window.buffer.changed(window.buffer.device_of(peer))
    if run.computes:
        _rank(run).may_change()


# --- signals


@implements(NOTIFY)
def notify(target: object, peer: Whole, offsets: Offsets, value: Whole, *, op: NotifyOp = NotifyOp.AtomicAdd) -> None:
    """Adds to a peer's counter, or sets it."""
    run = current()
    mine, window = _window(run, target, "system.notify")
    rank, theirs = _peer(run, mine, window, peer)
    check_bounds("system.notify", mine.shape, offsets, (1,) * len(offsets), mine.buffer.name)
    start = position(mine, offsets)
    run.touch(mine, "add" if op is NotifyOp.AtomicAdd else "write")
    window.buffer.signals = True
    attributes = (*_cell(window, start), ("peer", rank), ("op", op.value), ("value", _number(value)))
    run.emit(NOTIFY, (), None, attributes=attributes)
    data = theirs.buffer.data
    if data is None or not run.exchanges:
        return
    data[int(start)] = int(value) + (int(data[int(start)]) if op is NotifyOp.AtomicAdd else 0)
    _seen(run, window, rank)


def _cell(window: Window, start: Number) -> tuple[tuple[str, object], ...]:
    """Which counter of which window: what a simulation of all ranks must know."""
    return ("window", window.buffer.number), ("cell", lanes.whole(start) * window.dtype.bytes)


def _number(value: object) -> int | None:
    return None if isinstance(value, Unknown) else lanes.whole(value)


@implements(WAIT)
def wait(signal: object, offsets: Offsets, expected: Whole, *, cmp: WaitCmp = WaitCmp.Ge) -> None:
    """Goes on when a counter of this rank is what it should be."""
    _wait(WAIT, signal, offsets, expected, cmp)


@implements(DEFER_WAIT)
def defer_wait(signal: object, offsets: Offsets, expected: Whole, *, cmp: WaitCmp = WaitCmp.Ge) -> None:
    """The task is done when a counter of this rank has come so far; its core is free meanwhile."""
    if cmp is not WaitCmp.Ge:
        raise fault(f"pld.system.defer_wait: cmp={shown(cmp)}", "It waits for a counter to come so far: WaitCmp.Ge.")
    _wait(DEFER_WAIT, signal, offsets, expected, cmp)


def _wait(op: OpSpec, signal: object, offsets: Offsets, expected: Whole, cmp: WaitCmp, takes: int = 0) -> None:
    """`takes`: what a barrier takes off the counter when it goes on."""
    run = current()
    mine, window = _window(run, signal, "system.wait")
    ones = (1,) * len(offsets)
    check_bounds("system.wait", mine.shape, offsets, ones, mine.buffer.name)
    start = position(mine, offsets)
    number = run.touch(mine, "read")
    access: AccessKey = (number, "read", ones, mine.strides)
    window.buffer.signals = True
    attributes = (*_cell(window, start), ("cmp", cmp.value), ("value", _number(expected)), ("takes", takes))
    run.emit(op, (), None, (access,), (start,), attributes=attributes)
    data = mine.buffer.data
    if data is None or not run.exchanges:
        return
    at, wanted, where = int(start), int(expected), [int(o) for o in offsets]
    assert run.block is not None
    _rank(run).wait(
        lambda: _COMPARE[cmp](int(data[at]), wanted),
        lambda: f"{mine.buffer.name}{where} {_SIGN[cmp]} {wanted}, which is {int(data[at])}",
        run.block.task.id if op is DEFER_WAIT and not takes else None,
    )


def barrier(signal: object, core: int = 0, op: OpSpec = WAIT) -> Tensor:
    """Every rank that has this window reaches this before any goes on; the counters are zero again after.

    Where several cores of a rank meet their like, each has a column of the signals.
    """
    run = current()
    mine, window = _window(run, signal, "tensor.barrier")
    own_rank, count = window.buffer.rank_of(_rank(run).device), len(window.buffer.devices)
    if mine.size < count or (core and (len(mine.shape) != 2 or core >= mine.shape[1])):
        raise fault(f"a barrier of {count} ranks with the signals {describe(mine)}", "Each rank needs one, per core.")
    slots = [[k, core] if core else [int(i) for i in np.unravel_index(k, mine.shape)] for k in range(count)]
    for peer in range(count):
        notify(mine, peer, slots[own_rank], 1)
    for slot in slots:
        _wait(op, mine, slot, 1, WaitCmp.Ge, takes=1)
        if run.exchanges and mine.buffer.data is not None:
            mine.buffer.data[int(position(mine, slot))] -= 1
    return mine


# --- data


@implements(REMOTE_LOAD)
def remote_load(
    target: object,
    peer: Whole,
    offsets: Offsets,
    shape: Offsets,
    valid_shape: Offsets | None = None,
) -> Tile:
    """A box of a peer's window as a tile."""
    return _load(target, peer, offsets, shape, valid_shape, ())


def _load(
    target: object, peer: Whole, offsets: Offsets, shape: Offsets, valid_shape: Offsets | None,
    attributes: tuple[tuple[str, object], ...],
) -> Tile:  # fmt: skip
    run = current()
    mine, window = _window(run, target, "tile.remote_load")
    box = shape_of(shape)
    valid = inside(mine, box, offsets, None if valid_shape is None else shape_of(valid_shape), False)
    rank, theirs = _peer(run, mine, window, peer)
    start = position(mine, offsets)
    if theirs is mine:
        return load_box(run, mine, start, box, valid, op=REMOTE_LOAD, attributes=attributes)
    run.touch(mine, "read")
    tile = Tile(None, box, mine.dtype, valid)
    run.emit(REMOTE_LOAD, (), tile, attributes=(("peer", rank), *attributes))
    known = theirs.buffer.keeps_values and window.buffer.is_known(window.buffer.device_of(rank))
    if run.computes or (run.computes_here and known):
        tile.array = storage.new(box, mine.dtype, 0)
        part = strided(theirs.buffer, int(start), valid or box, mine.strides, mine.dtype)
        tile.array[tuple([slice(n) for n in valid or box])] = storage.load(part, mine.dtype)
        _rank(run).read(theirs.buffer.name, part)
    return tile


@implements(REMOTE_STORE)
def remote_store(
    src: object, target: object, peer: Whole, offsets: Offsets, *, atomic: AtomicType = AtomicType.None_
) -> None:
    """A tile into a peer's window."""
    run = current()
    mine, window = _window(run, target, "remote_store")
    _store(run, window, run.tile(src, "remote_store"), mine, peer, offsets, atomic, REMOTE_STORE)


def _store(
    run: TileRun, window: Window, tile: Tile, target: Tensor, peer: Whole, offsets: Offsets, atomic: AtomicType,
    op: OpSpec, staged: tuple[tuple[str, object], ...] = (),
) -> None:  # fmt: skip
    rank, theirs = _peer(run, target, window, peer)
    if theirs is target:
        store_box(run, tile, target, offsets, atomic, op=op)
        return
    box = _fitted(tile.valid or tile.shape, target, op.name)
    check_bounds(op.name, target.shape, offsets, box, theirs.buffer.name)
    if tile.dtype is not target.dtype and not (tile.dtype.is_int and tile.dtype.bytes == target.dtype.bytes):
        raise fault(f"pld.{op.name}: a tile {describe(tile)} into {describe(target)}", "Cast it first with pl.cast.")
    start = position(target, offsets)
    adds = atomic is AtomicType.Add
    run.touch(target, "add" if adds else "write")
    run.emit(op, (tile,), None, attributes=(("peer", rank), ("elements", int(np.prod(box))), *staged), plane="store")
    if tile.array is None and theirs.buffer.keeps_values:
        window.buffer.lose(window.buffer.device_of(rank))
    if tile.array is not None and theirs.buffer.data is not None:
        array = tile.array.reshape(_fitted(tile.shape, target, op.name))[tuple([slice(n) for n in box])]
        write_box(run, theirs, int(start), box, array, tile.dtype, adds)
        _seen(run, window, rank)


def _fitted(box: Shape, target: Tensor, op: str) -> Shape:
    """Leading axes of one come and go, as in pl.store."""
    lead = len(box) - len(target.shape)
    if lead < 0:
        return (1,) * -lead + box
    if any(n != 1 for n in box[:lead]):
        raise fault(f"pld.{op}: {list(box)} does not fit {describe(target)}")
    return box[lead:]


def _staged(box: Shape, rows: int, columns: int, pipeline: bool) -> tuple[tuple[str, object], ...]:
    """What of a box is on chip at once, and how often: nothing where all of it is."""
    whole = (int(np.prod(box[:-1])), int(box[-1]))
    part = (min(rows or whole[0], whole[0]), min(columns or whole[1], whole[1]))
    return () if part == whole and not pipeline else (("staged", (*part, 2 if pipeline else 1)),)


@implements(PUT)
def put(
    dst: object,
    peer: Whole,
    src: object,
    dst_offsets: Offsets | None = None,
    src_offsets: Offsets | None = None,
    shape: Offsets | None = None,
    *,
    atomic: AtomicType = AtomicType.None_,
    chunk_rows: int = 0,
    chunk_cols: int = 0,
    pipeline: bool = False,
) -> None:
    """Copies GM of this rank into a peer's window."""
    run = current()
    mine, window = _window(run, dst, "tensor.put")
    source = _in_gm(run, src, "put")
    into, out_of = dst_offsets or [0] * len(mine.shape), src_offsets or [0] * len(source.shape)
    box = source.shape if shape is None else shape_of(shape)
    check_bounds("tensor.put", source.shape, out_of, box, source.buffer.name)
    staged = _staged(box, chunk_rows, chunk_cols, pipeline)
    tile = load_box(run, source, position(source, out_of), box, None, op=PUT, attributes=staged)
    _store(run, window, tile, mine, peer, into, atomic, PUT, staged)


class AsyncEvent:
    """What `put_async` gives: the copy is done when somebody has waited for it."""


def put_async(dst: object, peer: Whole, src: object, session: object, *places: Any, **named: Any) -> AsyncEvent:
    """`put` by the copy engine: here the core does it, at once."""
    if session is not ASYNC_SESSION:
        raise fault("pld.tensor.put_async needs a session", "Make one: session = pld.system.async_session().")
    put(dst, peer, src, *places, **named)
    return AsyncEvent()


def wait_async_event(event: object, session: object) -> None:
    if not isinstance(event, AsyncEvent) or session is not ASYNC_SESSION:
        raise fault("pld.system.wait_async_event takes an event of put_async and its session")


def async_session() -> object:
    current().region("async_session")
    return ASYNC_SESSION


ASYNC_SESSION = object()  # a task has one


def _in_gm(run: TileRun, value: object, op: str) -> Tensor:
    if isinstance(value, Tile):
        return run.promoted(value)
    if not isinstance(value, Tensor):
        raise fault(f"pld.tensor.{op} copies GM tensors, not {describe(value)}")
    return value


@implements(GET)
def get(
    dst: object,
    peer: Whole,
    src: object,
    dst_offsets: Offsets | None = None,
    src_offsets: Offsets | None = None,
    shape: Offsets | None = None,
    *,
    chunk_rows: int = 0,
    chunk_cols: int = 0,
    pipeline: bool = False,
) -> None:
    """Copies a peer's window into GM of this rank."""
    run = current()
    theirs, _ = _window(run, src, "tensor.get")
    mine = _in_gm(run, dst, "get")
    into, out_of = dst_offsets or [0] * len(mine.shape), src_offsets or [0] * len(theirs.shape)
    box = theirs.shape if shape is None else shape_of(shape)
    staged = _staged(box, chunk_rows, chunk_cols, pipeline)
    store_box(run, _load(theirs, peer, out_of, box, None, staged), mine, into, op=GET)
