"""Ops that move tiles: between GM and a core, between the memories of a core, between cores, between ranks."""

from __future__ import annotations

from npuscope.ops.spec import OpSpec, Plane, Role

# fmt: off

_LOAD: tuple[Plane, ...] = ("load",)
_STORE: tuple[Plane, ...] = ("store",)
_MOVE: tuple[Plane, ...] = ("move",)
_IN, _OUT = "timing.load_vector_l2", "timing.store_rate"

# --- GM

LOAD = OpSpec("load", _LOAD, "own", "A box of GM into Vec or Mat.", cost=_IN, roles=(Role.NO_NEW_VALUE,))
GATHER_ROW = OpSpec(
    "gather_row", _LOAD, "own", "One box of GM into a part of a tile, in place.", cost=_IN, roles=(Role.NO_NEW_VALUE,),
)
STORE = OpSpec(
    "store", _STORE, "own", "The valid part of a tile to GM, or added to what is there.", cost=_OUT,
    roles=(Role.NO_NEW_VALUE,),
)
ASSEMBLE = OpSpec(
    "assemble", ("store", "vector"), "own", "The valid part of a tile into GM or into another tile.", cost="op.vcopy",
    storage="operand", roles=(Role.WRITES_INTO, Role.NO_NEW_VALUE),
)
ASYNC_PREFETCH = OpSpec(
    "async_prefetch", ("sync",), "own", "Starts fetching a tensor into L2.", cost="timing.scalar_read",
    spellings=("prefetch.async_prefetch",),
)

# --- on chip

MOVE = OpSpec(
    "move", _MOVE, "own", "A tile into another memory of the core.", cost="op.vcopy", storage="apart",
    roles=(Role.SAME_ELEMENTS, Role.SAME_PLACES, Role.KEEPS_VALUES, Role.KEEPS_ZEROS),
)
COPY = OpSpec(
    "copy", _MOVE, "lowered", "A tile that is written to although it is needed as it was.", cost="op.vcopy",
    storage="apart", roles=(Role.COPY,),
)
AIV_SHARD = OpSpec(
    "aiv_shard", _MOVE, "own", "A cube value for this vector lane: its half, or all of it.", cost="op.vcopy",
)
AIC_GATHER = OpSpec(
    "aic_gather", _MOVE, "own", "A vector value for the cube: both lanes' halves, or all of it.", cost="op.vcopy",
)
PUSH = OpSpec(
    "push", _MOVE, "lowered", "A tile into the ring to the other kind of core.", cost=_OUT, roles=(Role.SEND,),
)
POP = OpSpec(
    "pop", _MOVE, "lowered", "A tile out of the ring from the other kind of core.", cost="timing.hand_over_to_vector",
    roles=(Role.RECEIVE,),
)

# --- other ranks

REMOTE_LOAD = OpSpec(
    "remote_load", _LOAD, "own", "A box of a peer's window as a tile.", cost=_IN,
    spellings=("pld.remote_load", "pld.tile.remote_load"),
)
REMOTE_STORE = OpSpec(
    "remote_store", _STORE, "own", "A tile into a peer's window.", cost=_OUT,
    spellings=("pld.remote_store", "pld.tile.remote_store", "pld.tensor.remote_store"),
)
PUT = OpSpec(
    "put", ("load", "store"), "own", "GM of this rank into a peer's window.", cost=_OUT, spellings=("pld.tensor.put",),
)
GET = OpSpec("get", _STORE, "own", "A peer's window into GM of this rank.", cost=_OUT, spellings=("pld.tensor.get",))

ALL = (
    LOAD, GATHER_ROW, STORE, ASSEMBLE, ASYNC_PREFETCH, MOVE, COPY, AIV_SHARD, AIC_GATHER, PUSH, POP, REMOTE_LOAD,
    REMOTE_STORE, PUT, GET,
)
