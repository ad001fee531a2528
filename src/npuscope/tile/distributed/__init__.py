"""Several ranks: `@pl.jit.host`, and `pypto.language.distributed` (pld) with its windows, signals and remote copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from npuscope.tile.calls.spellings import members
from npuscope.tile.distributed import collectives
from npuscope.tile.distributed.ranks import host
from npuscope.tile.distributed.windows import (
    alloc_window_buffer,
    async_session,
    held_window,
    put_async,
    remote_load,
    remote_store,
    wait_async_event,
    window,
)
from npuscope.tile.enums import AtomicType, NotifyOp, ReduceOp, WaitCmp
from npuscope.tile.fault import fault
from npuscope.tile.language.namespace import Namespace, missing
from npuscope.tile.run.state import current
from npuscope.tile.values import signature
from npuscope.tile.values.tensors import Tile

__all__ = [
    "AtomicType",
    "CommCtx",
    "DistributedTensor",
    "NotifyOp",
    "ReduceOp",
    "WaitCmp",
    "alloc_window_buffer",
    "get_comm_ctx",
    "host",
    "nranks",
    "rank",
    "remote_load",
    "remote_store",
    "system",
    "tensor",
    "tile",
    "window",
    "world_size",
]


class DistributedTensor:
    """A parameter that is a window."""

    def __class_getitem__(cls, item: object) -> signature.TensorType:
        return signature.tensor(item)


@dataclass(frozen=True)
class CommCtx:
    """The ranks that share a window."""

    rank: int
    nranks: int


def world_size() -> int:
    """How many ranks the host function runs on."""
    host_run = current().orchestration.ranks
    if host_run is None:
        raise fault("pld.world_size outside a host function", "A kernel asks pld.nranks(pld.get_comm_ctx(window)).")
    return int(host_run.world_size)


def get_comm_ctx(dist_tensor: object) -> CommCtx:
    held = held_window(current(), dist_tensor)
    if held is None:
        raise fault("pld.get_comm_ctx takes a window that a rank holds")
    rank, window = held
    return CommCtx(window.buffer.rank_of(rank.device), len(window.buffer.devices))


def rank(ctx: CommCtx) -> int:
    """This rank's number."""
    return ctx.rank


def nranks(ctx: CommCtx) -> int:
    return ctx.nranks


system = Namespace(
    _label="pld.system",
    world_size=world_size,
    get_comm_ctx=get_comm_ctx,
    rank=rank,
    nranks=nranks,
    async_session=async_session,
    wait_async_event=wait_async_event,
    **members("pld.system"),
)
tensor = Namespace(
    _label="pld.tensor",
    alloc_window_buffer=alloc_window_buffer,
    window=window,
    barrier=collectives.arrive,
    put_async=put_async,
    **{
        name: getattr(collectives, name)
        for name in ("all_to_all", "all_to_all_v", "allgather", "allreduce", "broadcast", "reduce_scatter")
    },
    **members("pld.tensor"),
)


barrier = collectives.arrive
all_reduce, broadcast, reduce_scatter = (
    collectives.with_own_signal(one, after=1)
    for one in (collectives.allreduce, collectives.broadcast, collectives.reduce_scatter)
)
all_gather, all_to_all, all_to_all_v = (
    collectives.with_own_signal(one, after=2)
    for one in (collectives.allgather, collectives.all_to_all, collectives.all_to_all_v)
)


def _staged(copy: Callable[..., None]) -> Callable[..., None]:
    """`pld.tile.put` and `get`: the same with the tiles that the bytes pass through, one or two."""

    def staged(
        dst: object, peer: object, src: object, stage: Tile, stage2: object = None, *places: object, **named: object
    ) -> None:
        if stage2 is not None and not isinstance(stage2, Tile):  # one tile, then the places
            places, stage2 = (stage2, *places), None
        rows, columns = stage.shape[-2:]
        copy(dst, peer, src, *places, chunk_rows=rows, chunk_cols=columns, pipeline=stage2 is not None, **named)

    return staged


tile = Namespace(
    _label="pld.tile", **members("pld.tile"), **{name: _staged(getattr(tensor, name)) for name in ("put", "get")}
)


def __getattr__(name: str) -> NoReturn:
    raise missing("pld", name, globals())
