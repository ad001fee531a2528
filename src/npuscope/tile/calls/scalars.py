"""Single elements and extents, a block's identity, barriers, and the ops that only place or order work."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuscope.ops import rounding
from npuscope.ops.dtypes import FP32, INT32, Array, DataType
from npuscope.ops.transfers import (
    ASYNC_PREFETCH,
    DIM,
    GET_BLOCK_IDX,
    GET_BLOCK_NUM,
    GET_SUBBLOCK_IDX,
    READ,
    SYNCALL,
    WRITE,
)
from npuscope.tile.calls.functions import implements, settled
from npuscope.tile.enums import KernelType, SyncAllMode
from npuscope.tile.fault import fault
from npuscope.tile.record import model, sites
from npuscope.tile.record.recorder import AccessKey, Launch
from npuscope.tile.run.state import TileRun, check_bounds, current, last_inside, position, write_box
from npuscope.tile.values import checks, lanes
from npuscope.tile.values.checks import Scalar, TaskId, describe, fitting, flat_ids, is_number, shown, tensor_or_tile
from npuscope.tile.values.lanes import UNKNOWN, Lane, Number, Unknown, Whole
from npuscope.tile.values.tensors import Tensor, Tile, strided


def _flat(x: Tensor | Tile, index: object) -> list[Whole]:
    """An index list; one number on a tensor of more axes counts elements row by row."""
    indices = index if isinstance(index, list | tuple) else [index]
    where = [i if type(i) is int else checks.index(i, f"an element of {describe(x)}") for i in indices]
    if len(where) == len(x.shape):
        return where
    if len(where) == 1:
        rest = where[0]
        unfolded: list[Whole] = []
        for extent in reversed(x.shape[1:]):
            unfolded.append(rest % extent)
            rest = rest // extent
        return [rest, *reversed(unfolded)]
    raise fault(f"{len(where)} indices for {describe(x)}")


def _element_of(x: Tensor, index: object, op: str) -> tuple[Number, tuple[int, ...]]:
    """Where an element lies in its buffer, and its box."""
    where = _flat(x, index)
    ones = (1,) * len(where)
    check_bounds(op, x.shape, where, ones, x.buffer.name)
    return position(x, where), ones


@implements(READ)
def read(src: object, offset: object) -> Scalar:
    run, x = current(), tensor_or_tile(src, "read")
    if isinstance(x, Tile):
        if x.block is run.block:
            return _read_tile(run, x, _flat(x, offset))
        x = run.promoted(x)
    start, ones = _element_of(x, offset, "read")
    if run.block is None and not run.orchestration.reads_for_runtime:
        run.recorder.host_reads.append(model.HostRead(x.buffer.id, int(start), len(run.recorder.tasks), sites.here()))
    elif run.block is not None:
        access: AccessKey = (run.touch(x, "read"), "read", ones, x.strides)
        run.emit(READ, (), None, (access,), (start,))
    buffer = x.buffer
    if not buffer.keeps_values or not buffer.known:
        return Unknown.of(buffer)
    assert buffer.data is not None
    if not run.computes:
        run.shapes.reads(x.buffer, run.block)
        start = lanes.plain(start)
        if isinstance(start, Lane) and x.dtype is buffer.dtype and x.dtype.is_int:
            return start.like(buffer.data[start.values].astype(np.int64))
    at = int(start)
    if buffer.written is not None and not buffer.written[at]:
        run.recorder.notice("unwritten", f"pl.read of an element of {buffer.name} that was never written")
    return _scalar(buffer.data[at] if x.dtype is buffer.dtype else strided(buffer, at, (), (), x.dtype).take(0))


def _scalar(value: np.generic) -> int | np.float32:
    """fp32 scalars stay fp32; whole numbers are Python's."""
    if isinstance(value, np.integer | np.bool_):
        return int(value)
    return np.float32(value)


def _read_tile(run: TileRun, x: Tile, where: list[Whole]) -> Scalar:
    check_bounds("read", x.shape, where, (1,) * len(where), "the tile")
    run.emit(READ, (x,), None)
    if x.array is None:
        return UNKNOWN if run.block is None else Unknown.of(run.block.task)
    where = [lanes.plain(i) for i in where]
    lane = next((i for i in where if isinstance(i, Lane)), None)
    if lane is not None and x.dtype.is_int:
        return lane.like(x.array[tuple([lanes.of(i) for i in where])].astype(np.int64))
    value = x.array[tuple([int(i) for i in where])]
    return int(value) if x.dtype.is_int else np.float32(value)


@implements(WRITE)
def write(dst: object, offset: object, value: object) -> Tensor | Tile:
    run = current()
    if not is_number(value):
        raise fault(f"pl.write takes a scalar, not {describe(value)}")
    x = tensor_or_tile(dst, "write")
    value = fitting(value, x.dtype, "pl.write")
    if isinstance(x, Tile):
        where = _flat(x, offset)
        check_bounds("write", x.valid or x.shape, where, (1,) * len(where), "the tile's valid region")
        run.region("write")
        run.emit(WRITE, (x, value), None)
        _write_tile(run, x, where, value)
        return x
    where = _flat(x, offset)
    run.region("write")
    last = last_inside(run, "write", x, where)
    start, ones = _element_of(x, last or where, "write")
    access: AccessKey = (run.touch(x, "write", "write"), "write", ones, x.strides)
    run.emit(WRITE, (value,), None, (access,), (start,), attributes=_signal(run, x, start, value))
    buffer = x.buffer
    if last is not None:
        return x
    if isinstance(value, Unknown) or (x.dtype is not buffer.dtype and not run.computes_here):
        if buffer.known and not run.computes:
            run.shapes.will_write(x.buffer, run.block)
        buffer.known = False
    elif buffer.keeps_values and run.computes:
        write_box(run, x, int(start), ones, _element(settled(value), x.dtype), x.dtype)
    elif buffer.keeps_values and (run.computes_here or not x.dtype.is_int):
        run.shapes.only_first()
        run.shapes.will_write(buffer, run.block)
        write_box(run, x, int(start), ones, _element(settled(value), x.dtype), x.dtype)
    elif buffer.keeps_values:
        run.shapes.write(x.buffer, start, value, run.block)
    return x


def _signal(run: TileRun, x: Tensor, start: Number, value: Scalar) -> tuple[tuple[str, object], ...]:
    """What a simulation of several ranks must know of a counter that is written."""
    rank = run.orchestration.rank
    window = None if rank is None else rank.signal(x.buffer.id)
    if window is None:
        return ()
    known = None if isinstance(value, Unknown) else int(settled(value))
    return ("window", window), ("cell", int(start) * x.dtype.bytes), ("value", known)


def _element(value: int | float | np.number | np.bool_, dtype: DataType) -> Array:
    array = np.asarray(value)
    if dtype.is_float:
        return rounding.cast(array.astype(np.float32), FP32, dtype, "rint")
    return array.astype(dtype.compute)


def _write_tile(run: TileRun, x: Tile, where: list[Whole], value: Scalar) -> None:
    if x.source is None or run.shapes.writes_late(x, where, value):
        return
    run.shapes.only_first()  # the next turn finds what this one wrote
    if isinstance(value, Unknown):
        x.array = None
        return
    x.writable()[tuple([int(i) for i in where])] = _element(settled(value), x.dtype)


@implements(DIM)
def dim(tensor: object, axis: object) -> int:
    x = tensor_or_tile(tensor, "tensor.dim")
    return x.shape[checks.axis_of(axis, x, "tensor.dim")]


@implements(GET_BLOCK_IDX)
def get_block_idx() -> Whole:
    """The block's number within its task; 0 outside spmd."""
    block = current().block
    return 0 if block is None else block.index


@implements(GET_BLOCK_NUM)
def get_block_num() -> int:
    block = current().block
    return 1 if block is None else block.blocks


@implements(GET_SUBBLOCK_IDX)
def get_subblock_idx() -> Whole:
    block = current().block
    return 0 if block is None else block.vector.core


@implements(SYNCALL)
def syncall(
    *,
    core_type: object = KernelType.MIX,
    mode: object = SyncAllMode.HARD,
    gm_workspace: object = None,
    used_cores: object = None,
) -> None:
    run = current()
    block = run.region("system.syncall")
    core_type, mode = getattr(core_type, "value", core_type), getattr(mode, "value", mode)  # or words, before September
    if not isinstance(core_type, str) or core_type not in ("mix", "aic_only", "aiv_only"):
        raise fault(f"pl.system.syncall: no core_type {shown(core_type)}", "Use mix, aic_only or aiv_only.")
    if not isinstance(mode, str) or mode not in ("hard", "soft"):
        raise fault(f"pl.system.syncall: no mode {shown(mode)}", "Use hard or soft.")
    if mode == "soft" and not (isinstance(gm_workspace, Tensor) and gm_workspace.dtype is INT32):
        about = "a GM tensor of INT32 that is 0 at first"
        raise fault(f"pl.system.syncall: mode='soft' needs gm_workspace=, {about}, not {shown(gm_workspace)}")
    if mode == "hard" and (gm_workspace is not None or used_cores is not None):
        raise fault("pl.system.syncall: gm_workspace= and used_cores= are of mode='soft'")
    if mode == "soft":
        count = int(checks.index(used_cores, "pl.system.syncall", "used_cores="))
        there = block.task.blocks * {"aic_only": 1, "aiv_only": 2, "mix": 3}[core_type]
        if count < 0 or count > there:
            raise fault(f"pl.system.syncall: used_cores={count} of {block.task.blocks} blocks: some never arrive")
    run.emit(SYNCALL, (), None, attributes=(("core_type", core_type), ("mode", mode)))
    run.meet(block)


def task_dummy(*, deps: Sequence[Whole]) -> TaskId:
    """A join without work."""
    run = current()
    if run.block is not None:
        raise fault("pl.system.task_dummy inside a task", "Tasks are launched in orchestration.")
    task = run.recorder.open_task("task_dummy", 0, "dummy", Launch(flat_ids(deps), run.orchestration.in_manual_scope))
    return TaskId(task.id)


def task_invalid() -> None:
    """No task: an entry of deps that waits for nothing."""
    return None


def available_cluster_count() -> int:
    return 24


def available_aiv_count() -> int:
    return 48


def nothing(*_: object, **__: object) -> None:
    """Orders or hints without changing values: cache control, events, memory fences."""


class PrefetchContext:
    """A handle for asynchronous prefetches into L2."""


def make_context() -> PrefetchContext:
    return PrefetchContext()


@implements(ASYNC_PREFETCH)
def async_prefetch(src: object, ctx: object) -> None:
    """Starts fetching a flat tensor into L2; no value, no order."""
    run = current()
    if not isinstance(src, Tensor) or not isinstance(ctx, PrefetchContext):
        about = f"{describe(src)} and {describe(ctx)}"
        raise fault(f"pl.prefetch.async_prefetch takes a GM tensor and a context, not {about}")
    if run.block is not None:
        access: AccessKey = (run.touch(src, "read"), "read", src.shape, src.strides)
        run.emit(ASYNC_PREFETCH, (), None, (access,), (src.offset,))
