"""What a rank does to the memory of a peer: signals, puts, loads and stores of windows.

The runtime of a rank sees its own window as the argument of such an op, and so does the record; the exact region
touched is the peer's, so the op has no access of its own rank's memory, but says the peer.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from npuscope.ops.numeric import storage
from npuscope.ops.spec import OpSpec
from npuscope.ops.synchronisation import NOTIFY, WAIT
from npuscope.ops.transfers import GET, PUT, REMOTE_LOAD, REMOTE_STORE
from npuscope.tile.calls.gm import check_bounds, load_box, position, store_box, write_box
from npuscope.tile.calls.own import own
from npuscope.tile.calls.slicing import inside
from npuscope.tile.distributed.windows import Window
from npuscope.tile.enums import AtomicType, NotifyOp, WaitCmp
from npuscope.tile.fault import fault
from npuscope.tile.run.state import Run, current
from npuscope.tile.values import lanes
from npuscope.tile.values.buffers import Buffer
from npuscope.tile.values.checks import describe, shape_of
from npuscope.tile.values.tensors import Shape, Tensor, Tile, strided

_HOLDS: dict[WaitCmp, Callable[[int, int], bool]] = {WaitCmp.Eq: operator.eq, WaitCmp.Ge: operator.ge}
_SIGN = {WaitCmp.Eq: "==", WaitCmp.Ge: ">="}


def _window(run: Run, value: Any, op: str) -> Window:
    run.region(op)
    window: Window | None = (
        run.rank.windows.get(value.buffer.id) if run.rank is not None and isinstance(value, Tensor) else None
    )
    if window is None:
        raise fault(f"pld.{op} takes a window, not {describe(value)}", "Make it with pld.window in the host function.")
    return window


def _peer(run: Run, target: Tensor, window: Window, peer: Any) -> tuple[int, Tensor]:
    """A peer's number, and its copy of a tensor that is a window or a view of one."""
    rank = lanes.whole(peer)
    device = window.buffer.device_of(rank)
    if device == run.rank.device:
        return rank, target
    data = window.buffer.memory(device, window.dtype, window.elements) if run.computes else None
    theirs = Buffer(-1, f"{target.buffer.name} of rank {rank}", window.shape, window.dtype, data, None)
    return rank, Tensor(theirs, target.offset, target.shape, target.strides, target.dtype)


# --- signals


@own(NOTIFY)
def notify(target: Any, peer: Any, offsets: Sequence[Any], value: Any, *, op: NotifyOp = NotifyOp.AtomicAdd) -> None:
    """Adds to a peer's counter, or sets it."""
    run = current()
    window = _window(run, target, "system.notify")
    rank, theirs = _peer(run, target, window, peer)
    check_bounds("system.notify", target.shape, offsets, (1,) * len(offsets), target.buffer.name)
    start = position(target, offsets)
    run.touch(target, "add" if op is NotifyOp.AtomicAdd else "write")
    run.emit(NOTIFY, (), None, attributes=(("peer", rank), ("op", op.value)))
    if not run.computes:
        return
    data = theirs.buffer.data
    assert data is not None
    data[int(start)] = int(value) + (int(data[int(start)]) if op is NotifyOp.AtomicAdd else 0)
    window.buffer.changed(window.buffer.device_of(rank))


@own(WAIT)
def wait(signal: Any, offsets: Sequence[Any], expected: Any, *, cmp: WaitCmp = WaitCmp.Ge) -> None:
    """Goes on when a counter of this rank is what it should be."""
    run = current()
    _window(run, signal, "system.wait")
    ones = (1,) * len(offsets)
    check_bounds("system.wait", signal.shape, offsets, ones, signal.buffer.name)
    start = position(signal, offsets)
    number = run.touch(signal, "read")
    access = (number, "read", ones, signal.strides)
    run.emit(WAIT, (), None, (access,), (start,), attributes=(("cmp", cmp.value),))
    data = signal.buffer.data
    if data is None or not run.computes:
        return
    at, wanted, where = int(start), int(expected), [int(o) for o in offsets]
    run.rank.wait(
        lambda: _HOLDS[cmp](int(data[at]), wanted),
        lambda: f"{signal.buffer.name}{where} {_SIGN[cmp]} {wanted}, which is {int(data[at])}",
    )


def barrier(signal: Any) -> Any:
    """Every rank that has this window reaches this before any goes on; the counters are zero again after."""
    run = current()
    window = _window(run, signal, "tensor.barrier")
    mine, count = window.buffer.rank_of(run.rank.device), len(window.buffer.devices)
    slots = [[int(i) for i in np.unravel_index(k, signal.shape)] for k in range(count)]
    for peer in range(count):
        notify(signal, peer, slots[mine], 1)
    for slot in slots:
        wait(signal, slot, 1)
        if run.computes:
            signal.buffer.data[int(position(signal, slot))] -= 1
    return signal


# --- data


@own(REMOTE_LOAD)
def remote_load(
    target: Any, peer: Any, offsets: Sequence[Any], shape: Sequence[Any], valid_shape: Sequence[Any] | None = None
) -> Tile:
    """A box of a peer's window as a tile."""
    return _load(target, peer, offsets, shape, valid_shape, ())


def _load(
    target: Any, peer: Any, offsets: Sequence[Any], shape: Sequence[Any], valid_shape: Sequence[Any] | None,
    attributes: tuple[tuple[str, Any], ...],
) -> Tile:  # fmt: skip
    run = current()
    window = _window(run, target, "tile.remote_load")
    box = shape_of(shape)
    valid = inside(target, box, offsets, None if valid_shape is None else shape_of(valid_shape), False)
    rank, theirs = _peer(run, target, window, peer)
    start = position(target, offsets)
    if theirs is target:
        return load_box(run, target, start, box, valid, op=REMOTE_LOAD, attributes=attributes)
    run.touch(target, "read")
    tile = Tile(None, box, target.dtype, valid)
    run.emit(REMOTE_LOAD, (), tile, attributes=(("peer", rank), *attributes))
    if run.computes:
        tile.array = storage.new(box, target.dtype, 0)
        part = strided(theirs.buffer, int(start), valid or box, target.strides, target.dtype)
        tile.array[tuple([slice(n) for n in valid or box])] = storage.load(part, target.dtype)
    return tile


@own(REMOTE_STORE)
def remote_store(
    src: Any, target: Any, peer: Any, offsets: Sequence[Any], *, atomic: AtomicType = AtomicType.None_
) -> None:
    """A tile into a peer's window."""
    run = current()
    window = _window(run, target, "remote_store")
    _store(run, window, run.tile(src, "remote_store"), target, peer, offsets, atomic, REMOTE_STORE)


def _store(
    run: Run,
    window: Window,
    tile: Tile,
    target: Tensor,
    peer: Any,
    offsets: Sequence[Any],
    atomic: AtomicType,
    op: OpSpec,
) -> None:
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
    run.emit(op, (tile,), None, attributes=(("peer", rank), ("elements", int(np.prod(box)))), plane="store")
    if tile.array is not None and theirs.buffer.data is not None:
        array = tile.array.reshape(_fitted(tile.shape, target, op.name))[tuple([slice(n) for n in box])]
        write_box(run, theirs, int(start), box, array, tile.dtype, adds)
        window.buffer.changed(window.buffer.device_of(rank))


def _fitted(box: Shape, target: Tensor, op: str) -> Shape:
    """Leading axes of one come and go, as in pl.store."""
    lead = len(box) - len(target.shape)
    if lead < 0:
        return (1,) * -lead + box
    if any(n != 1 for n in box[:lead]):
        raise fault(f"pld.{op}: {list(box)} does not fit {describe(target)}")
    return box[lead:]


def _region(
    run: Run, dst: Any, src: Any, dst_offsets: Any, src_offsets: Any, shape: Any
) -> tuple[Sequence[Any], Sequence[Any], Shape]:
    box = src.shape if shape is None else shape_of(shape)
    return dst_offsets or [0] * len(dst.shape), src_offsets or [0] * len(src.shape), box


def _staged(box: Shape, rows: int, columns: int, pipeline: bool) -> tuple[tuple[str, Any], ...]:
    """What of a box is on chip at once, and how often: nothing where all of it is."""
    whole = (int(np.prod(box[:-1])), int(box[-1]))
    part = (min(rows or whole[0], whole[0]), min(columns or whole[1], whole[1]))
    return () if part == whole and not pipeline else (("staged", (*part, 2 if pipeline else 1)),)


@own(PUT)
def put(
    dst: Any,
    peer: Any,
    src: Any,
    dst_offsets: Sequence[Any] | None = None,
    src_offsets: Sequence[Any] | None = None,
    shape: Sequence[Any] | None = None,
    *,
    atomic: AtomicType = AtomicType.None_,
    chunk_rows: int = 0,
    chunk_cols: int = 0,
    pipeline: bool = False,
) -> None:
    """Copies GM of this rank into a peer's window."""
    run = current()
    window = _window(run, dst, "tensor.put")
    if isinstance(src, Tile):
        src = run.promoted(src)
    into, out_of, box = _region(run, dst, src, dst_offsets, src_offsets, shape)
    check_bounds("tensor.put", src.shape, out_of, box, src.buffer.name)
    staged = _staged(box, chunk_rows, chunk_cols, pipeline)
    tile = load_box(run, src, position(src, out_of), box, None, op=PUT, attributes=staged)
    _store(run, window, tile, dst, peer, into, atomic, PUT)


@own(GET)
def get(
    dst: Any,
    peer: Any,
    src: Any,
    dst_offsets: Sequence[Any] | None = None,
    src_offsets: Sequence[Any] | None = None,
    shape: Sequence[Any] | None = None,
    *,
    chunk_rows: int = 0,
    chunk_cols: int = 0,
    pipeline: bool = False,
) -> None:
    """Copies a peer's window into GM of this rank."""
    run = current()
    into, out_of, box = _region(run, dst, src, dst_offsets, src_offsets, shape)
    staged = _staged(box, chunk_rows, chunk_cols, pipeline)
    store_box(run, _load(src, peer, out_of, box, None, staged), dst, into, op=GET)
