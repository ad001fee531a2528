"""Ops that move tiles, ops on single elements and numbers, and ops that only order work."""

from __future__ import annotations

from npuscope.ops.spec import OpRole, OpSpec, Plane

# fmt: off

_LOAD: tuple[Plane, ...] = ("load",)
_STORE: tuple[Plane, ...] = ("store",)
_MOVE: tuple[Plane, ...] = ("move",)
_SYNC: tuple[Plane, ...] = ("sync",)
_SCALAR: tuple[Plane, ...] = ("scalar",)
_IN, _OUT = "timing.load_vector_l2", "timing.store_rate"

# --- GM

LOAD = OpSpec("load", _LOAD, "custom", "A box of GM into Vec or Mat.", cost=_IN, roles=(OpRole.NO_NEW_VALUE,))
GATHER_ROW = OpSpec(
    "gather_row", _LOAD, "custom", "One box of GM into a part of a tile, in place.", cost=_IN,
    storage="operand", roles=(OpRole.WRITES_INTO, OpRole.NO_NEW_VALUE),
)
STORE = OpSpec(
    "store", _STORE, "custom", "The valid part of a tile to GM, or added to what is there.", cost=_OUT,
    roles=(OpRole.NO_NEW_VALUE,),
)
ASSEMBLE = OpSpec(
    "assemble", ("store", "vector", "view"), "custom", "The valid part of a tile into GM or into another tile.",
    cost="op.vcopy", storage="operand", roles=(OpRole.WRITES_INTO, OpRole.NO_NEW_VALUE),
)
ASYNC_PREFETCH = OpSpec(
    "async_prefetch", ("sync",), "custom", "Starts fetching a tensor into L2.", cost="timing.scalar_read",
    spellings=("prefetch.async_prefetch",),
)

# --- on chip

MOVE = OpSpec(
    "move", _MOVE, "custom", "A tile into another memory of the core.", cost="op.vcopy", storage="separate",
    roles=(OpRole.SAME_ELEMENTS, OpRole.SAME_PLACES, OpRole.KEEPS_VALUES, OpRole.KEEPS_ZEROS),
)
IMG2COL = OpSpec(
    "img2col", _MOVE, "custom", "What a kernel sees at each place of an image, as rows of a product's left side.",
    cost="op.vcopy", storage="separate", roles=(OpRole.FROM_MAT,),
)
COPY_BOX = OpSpec("copy_box", (), "custom", "A box of GM to another tensor: a load and a store.", spellings=("copy",))
COPY = OpSpec(
    "copy", _MOVE, "lowered", "A tile that is written to although it is needed as it was.", cost="op.vcopy",
    storage="separate", roles=(OpRole.COPY,),
)
AIV_SHARD = OpSpec(
    "aiv_shard", _MOVE, "custom", "A cube value for this vector lane: its half, or all of it.", cost="op.vcopy",
)
AIC_GATHER = OpSpec(
    "aic_gather", _MOVE, "custom", "A vector value for the cube: both lanes' halves, or all of it.", cost="op.vcopy",
)
PUSH = OpSpec(
    "push", _MOVE, "lowered", "A tile into the ring to the other kind of core.", cost=_OUT, roles=(OpRole.SEND,),
)
POP = OpSpec(
    "pop", _MOVE, "lowered", "A tile out of the ring from the other kind of core.", cost="timing.hand_over_to_vector",
    roles=(OpRole.RECEIVE,),
)

# --- by hand, between the cube function and the vector functions of a Group: a pop is the move of the tile that was
# pushed, which lowering makes a push and a pop of

_SENT = (OpRole.SAME_ELEMENTS, OpRole.KEEPS_VALUES, OpRole.KEEPS_ZEROS)


def _both(*names: str) -> tuple[str, ...]:
    return (*names, *(f"system.{name}" for name in names))


TPUSH = OpSpec(
    "tpush", (), "custom", "A tile into the ring to the other kind of core; waits while it is full.",
    spellings=_both("tpush_to_aiv", "tpush_to_aic"),
)
TPOP_FROM_AIC = OpSpec(
    "tpop_from_aic", _MOVE, "custom", "The next tile of the cube core, or this vector core's half.", cost="op.vcopy",
    storage="separate", spellings=_both("tpop_from_aic"), roles=_SENT,
)
TPOP_FROM_AIV = OpSpec(
    "tpop_from_aiv", _MOVE, "custom", "The next tile of the vector cores, their halves joined.", cost="op.vcopy",
    storage="separate", spellings=_both("tpop_from_aiv"), roles=_SENT,
)
TFREE = OpSpec(
    "tfree", (), "custom", "Gives the slot of a popped tile back.", spellings=_both("tfree_to_aic", "tfree_to_aiv"),
)
PIPE_SETUP = OpSpec(
    "pipe_setup", (), "custom", "Memory and slots of a ring between the cores.",
    spellings=_both("aic_initialize_pipe", "aiv_initialize_pipe", "reserve_buffer", "import_peer_buffer"),
)

# --- other ranks

REMOTE_LOAD = OpSpec(
    "remote_load", _LOAD, "custom", "A box of a peer's window as a tile.", cost="timing.remote_load",
    spellings=("pld.remote_load", "pld.tile.remote_load"),
)
REMOTE_STORE = OpSpec(
    "remote_store", _STORE, "custom", "A tile into a peer's window.", cost="timing.remote_store",
    spellings=("pld.remote_store", "pld.tile.remote_store", "pld.tensor.remote_store"),
)
PUT = OpSpec(
    "put", ("store", "load"), "custom", "GM of this rank into a peer's window.", cost="timing.put_remote",
    spellings=("pld.tensor.put",),
)
GET = OpSpec(
    "get", _STORE, "custom", "A peer's window into GM of this rank; the way in is a remote_load.", cost=_OUT,
    spellings=("pld.tensor.get",),
)

ALL = (
    LOAD, GATHER_ROW, STORE, ASSEMBLE, ASYNC_PREFETCH, MOVE, IMG2COL, COPY_BOX, COPY, AIV_SHARD, AIC_GATHER,
    PUSH, POP, TPUSH, TPOP_FROM_AIC, TPOP_FROM_AIV, TFREE, PIPE_SETUP, REMOTE_LOAD, REMOTE_STORE, PUT, GET,
)

# --- order: barriers between blocks, signals between ranks

SYNCALL = OpSpec(
    "syncall", _SYNC, "custom", "Every block of the launch reaches it before any goes on.", cost="timing.barrier",
    spellings=("system.syncall",), roles=(OpRole.BARRIER,),
)
HOLD = OpSpec(
    "hold", _SYNC, "lowered", "A pipe waits until nobody reads these tiles any more.", roles=(OpRole.HOLD,),
)
NOTIFY = OpSpec(
    "notify", _SYNC, "custom", "Changes a counter in a peer's window.", cost="timing.notify_add",
    spellings=("pld.system.notify",),
)
WAIT = OpSpec(
    "wait", _SYNC, "custom", "Goes on when a counter of this rank's window has come so far.", cost="timing.signal_wait",
    spellings=("pld.system.wait",),
)
DEFER_WAIT = OpSpec(
    "defer_wait", _SYNC, "custom", "The task is done when a counter of this rank's window has come so far.",
    cost="timing.signal_wait", spellings=("pld.system.defer_wait",),
)

ORDER = (SYNCALL, HOLD, NOTIFY, WAIT, DEFER_WAIT)

# --- single elements, and numbers that are computed on the way without an instruction of their own

READ = OpSpec(
    "read", _SCALAR, "custom", "One element as a number.", cost="timing.scalar_read",
    roles=(OpRole.NUMBER, OpRole.NO_NEW_VALUE),
)
WRITE = OpSpec(
    "write", _SCALAR, "custom", "One element in place.", cost="timing.scalar_access", roles=(OpRole.NO_NEW_VALUE,),
)
DIM = OpSpec("dim", (), "custom", "The extent of an axis at run time.", roles=(OpRole.NO_NEW_VALUE,))
MIN = OpSpec("min", (), "custom", "The smaller of two numbers.", types="numbers")
MAX = OpSpec("max", (), "custom", "The larger of two numbers.", types="numbers")
GET_BLOCK_IDX = OpSpec("get_block_idx", (), "custom", "The block's number within its task.", roles=(OpRole.NUMBER,))
GET_BLOCK_NUM = OpSpec("get_block_num", (), "custom", "How many blocks the task has.")
GET_SUBBLOCK_IDX = OpSpec(
    "get_subblock_idx", (), "custom", "Which of the two vector lanes this is.", roles=(OpRole.NUMBER,),
)

NUMBERS = (READ, WRITE, DIM, MIN, MAX, GET_BLOCK_IDX, GET_BLOCK_NUM, GET_SUBBLOCK_IDX)
