"""Blocks' identity, barriers, prefetches, and the ops that only place or order work."""

from __future__ import annotations

from collections.abc import Sequence

from npuscope.ops.scalars import GET_BLOCK_IDX, GET_BLOCK_NUM, GET_SUBBLOCK_IDX
from npuscope.ops.synchronisation import SYNCALL
from npuscope.ops.transfers import ASYNC_PREFETCH
from npuscope.tile.calls.own import own
from npuscope.tile.fault import fault
from npuscope.tile.record.recorder import Launch
from npuscope.tile.run.state import current
from npuscope.tile.values.checks import describe, shown
from npuscope.tile.values.lanes import Whole
from npuscope.tile.values.task_ids import TaskId, flat_ids
from npuscope.tile.values.tensors import Tensor


@own(GET_BLOCK_IDX)
def get_block_idx() -> Whole:
    """The block's number within its task; 0 outside spmd."""
    block = current().block
    return 0 if block is None else block.index


@own(GET_BLOCK_NUM)
def get_block_num() -> int:
    block = current().block
    return 1 if block is None else block.blocks


@own(GET_SUBBLOCK_IDX)
def get_subblock_idx() -> Whole:
    block = current().block
    return 0 if block is None else block.vector.core


@own(SYNCALL)
def syncall(
    *, core_type: str = "mix", mode: str = "hard", gm_workspace: object = None, used_cores: object = None
) -> None:
    """Every block of the launch reaches this before any goes on."""
    run = current()
    block = run.region("system.syncall")
    if not isinstance(core_type, str) or core_type not in ("mix", "aic_only", "aiv_only"):
        raise fault(f"pl.system.syncall: no core_type {shown(core_type)}", "Use mix, aic_only or aiv_only.")
    if not isinstance(mode, str) or mode not in ("hard", "soft"):
        raise fault(f"pl.system.syncall: no mode {shown(mode)}", "Use hard or soft.")
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


@own(ASYNC_PREFETCH)
def async_prefetch(src: object, ctx: object) -> None:
    """Starts fetching a flat tensor into L2; no value, no order."""
    run, source = current(), src
    if not isinstance(source, Tensor):
        raise fault(f"pl.prefetch.async_prefetch takes a GM tensor, not {describe(source)}")
    if run.block is not None:
        number = run.touch(source, "read")
        run.emit(ASYNC_PREFETCH, (), None, ((number, "read", source.shape, source.strides),), (source.offset,))
