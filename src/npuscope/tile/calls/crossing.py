"""Tiles that a Group's cube function and its vector functions hand to each other by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from npuscope.ops.dtypes import DataType
from npuscope.ops.transfers import PIPE_SETUP, TFREE, TPOP_FROM_AIC, TPOP_FROM_AIV, TPUSH
from npuscope.tile.calls.functions import implements
from npuscope.tile.fault import fault
from npuscope.tile.run.cube_vector_rings import HandedTiles, Way
from npuscope.tile.run.state import current
from npuscope.tile.values.checks import describe, dtype_of, index, shape_of, shown
from npuscope.tile.values.lanes import Whole
from npuscope.tile.values.tensors import Tile

AUTO = -1  # `pl.AUTO`: the compiler chooses where a ring lies


def _handover(op: str) -> HandedTiles:
    block = current().region(op)
    if block.handover is None:
        raise fault(
            f"pl.{op} outside a Group: no function runs beside this one",
            "Call the AIC and the AIV function from one of type=pl.FunctionType.Group.",
        )
    found: HandedTiles = block.handover
    return found


def _number(value: object, op: str, option: str, most: int) -> int:
    number = 0 if value is None else int(index(value, f"pl.{op}", f"{option}="))
    if not 0 <= number <= most:
        raise fault(f"pl.{op}: {option}={shown(value)}", f"It is a whole number from 0 to {most}.")
    return number


def _push(tile: object, way: Way, op: str, split: object, id: object) -> None:
    ring, run = _handover(op), current()
    ring.here(op, vector=way == "V2C")
    held = run.tile(tile, op)
    ring.push(held, way, _number(id, op, "id", 63), _number(split, op, "split", 4))


@implements(TPUSH, "tpush_to_aiv", "system.tpush_to_aiv")
def tpush_to_aiv(
    tile: object, *, split: object, lane_stride: object = None, id: object = None, span: object = None
) -> None:
    """The cube core gives a tile to the vector cores; it waits while the ring is full."""
    if lane_stride is not None:
        raise fault("pl.tpush_to_aiv: lane_stride= is not supported by npuscope")
    _push(tile, "C2V", "tpush_to_aiv", split, id)


@implements(TPUSH, "tpush_to_aic", "system.tpush_to_aic")
def tpush_to_aic(tile: object, *, split: object, id: object = None, span: object = None) -> None:
    """A vector core gives a tile, or its half of one, to the cube core."""
    _push(tile, "V2C", "tpush_to_aic", split, id)


def _pop(way: Way, op: str, shape: Sequence[Whole] | None, dtype: DataType | None, split: object, id: object) -> Tile:
    ring, run = _handover(op), current()
    ring.here(op, vector=way == "C2V")
    pipe, halves = _number(id, op, "id", 63), _number(split, op, "split", 4)
    sent, array, extents = ring.pop(way, pipe, halves)
    if shape is not None and tuple(map(int, shape_of(shape))) != extents:
        raise fault(f"pl.{op}: shape={list(shape)}, but {describe(sent)} gives {list(extents)} with split={halves}")
    if dtype is not None and dtype_of(dtype, op) is not sent.dtype:
        raise fault(f"pl.{op}: dtype={dtype}, but {describe(sent)} was pushed")
    spec, space = (TPOP_FROM_AIC, "Vec") if way == "C2V" else (TPOP_FROM_AIV, "Mat")
    valid = sent.valid if extents == sent.shape else None
    tile = run.result(spec, (sent,), extents, sent.dtype, valid, space)
    tile.array = None if array is None else array.copy()
    ring.hold(tile, way, pipe, halves)
    return tile


@implements(TPOP_FROM_AIC, "tpop_from_aic", "system.tpop_from_aic")
def tpop_from_aic(
    *,
    shape: Sequence[Whole] | None = None,
    dtype: DataType | None = None,
    split: object = 0,
    lane_stride: object = None,
    id: object = None,
    span: object = None,
) -> Tile:
    """The next tile of the cube core, or this vector core's part of it."""
    if lane_stride is not None:
        raise fault("pl.tpop_from_aic: lane_stride= is not supported by npuscope")
    return _pop("C2V", "tpop_from_aic", shape, dtype, split, id)


@implements(TPOP_FROM_AIV, "tpop_from_aiv", "system.tpop_from_aiv")
def tpop_from_aiv(
    *,
    shape: Sequence[Whole] | None = None,
    dtype: DataType | None = None,
    split: object = 0,
    id: object = None,
    span: object = None,
) -> Tile:
    """The next tile of the vector cores, their halves side by side."""
    return _pop("V2C", "tpop_from_aiv", shape, dtype, split, id)


def _free(tile: object, op: str, id: object, split: object) -> None:
    if not isinstance(tile, Tile):
        raise fault(f"pl.{op} takes the popped tile, not {describe(tile)}")
    halves = None if split is None else _number(split, op, "split", 4)
    _handover(op).free(tile, op, None if id is None else _number(id, op, "id", 63), halves)


@implements(TFREE, "tfree_to_aic", "system.tfree_to_aic")
def tfree_to_aic(tile: object, span: object = None, *, split: object = None, id: object = None) -> None:
    """A vector core is done with a tile of the cube core: its slot is free."""
    _free(tile, "tfree_to_aic", id, split)


@implements(TFREE, "tfree_to_aiv", "system.tfree_to_aiv")
def tfree_to_aiv(tile: object, span: object = None, *, split: object = None, id: object = None) -> None:
    """The cube core is done with a tile of the vector cores: its slots are free."""
    _free(tile, "tfree_to_aiv", id, split)


class PipeMemory(int):
    """Where the consumer's memory for a ring begins, and its bytes as far as this side knows them."""

    bytes = 0

    @classmethod
    def at(cls, base: int, bytes: int) -> PipeMemory:
        made = cls(base)
        made.bytes = bytes
        return made


def _open_pipe(
    op: str, memories: dict[Way, object], dir_mask: object, slot_size: object, counts: tuple[object, object], id: object
) -> None:
    """`counts`: slots of the ring, and those of them that the consumer has room for."""
    ring, pipe = _handover(op), _number(id, op, "id", 63)
    if (ways := _number(dir_mask, op, "dir_mask", 3)) == 0:
        raise fault(f"pl.{op}: dir_mask=0", "1 is cube to vector, 2 vector to cube, 3 both.")
    bytes_each = int(index(slot_size, f"pl.{op}", "slot_size="))
    if bytes_each < 1:
        raise fault(f"pl.{op}: slot_size={shown(slot_size)}")
    slots = int(index(counts[0], f"pl.{op}", "slot_num=")) if counts[0] is not None else 8 if ways < 3 else 4
    if slots < 1:
        raise fault(f"pl.{op}: slot_num={shown(counts[0])}; a ring has at least 1 slot")
    local = None if counts[1] is None else int(index(counts[1], f"pl.{op}", "local_slot_num="))
    if local is not None and not 1 <= local <= slots:
        raise fault(f"pl.{op}: local_slot_num={local} of {slots} slots")
    ring.size(pipe, slots)
    for way, memory in memories.items():
        if not ways & (1 if way == "C2V" else 2):
            continue
        held = memory.bytes if isinstance(memory, PipeMemory) else 0
        least = (local or (slots if counts[0] is not None else 1)) * bytes_each
        if 0 < held < least:
            raise fault(f"pl.{op}: {least:,} bytes of slots in {held:,} reserved ones", "Reserve more.")
        ring.keep(way, pipe, local * bytes_each if local else held)


def _opener(op: str) -> Callable[..., None]:
    """`aic_initialize_pipe` of the cube function and `aiv_initialize_pipe` of the vector function are alike."""

    def initialize_pipe(
        c2v_consumer_buf: object = 0,
        v2c_consumer_buf: object = 0,
        *,
        dir_mask: object,
        slot_size: object,
        slot_num: object = None,
        local_slot_num: object = None,
        id: object = None,
        span: object = None,
    ) -> None:
        """Opens a pipe: its directions, the bytes of a slot, how many there are and the consumer's room for them."""
        memories: dict[Way, object] = {"C2V": c2v_consumer_buf, "V2C": v2c_consumer_buf}
        _open_pipe(op, memories, dir_mask, slot_size, (slot_num, local_slot_num), id)

    return implements(PIPE_SETUP, op, f"system.{op}")(initialize_pipe)


aic_initialize_pipe, aiv_initialize_pipe = _opener("aic_initialize_pipe"), _opener("aiv_initialize_pipe")


@implements(PIPE_SETUP, "reserve_buffer", "system.reserve_buffer")
def reserve_buffer(*, name: str, size: object, base: object = AUTO, span: object = None) -> int:
    """The consumer's memory for a ring: a number that stands for its place."""
    if (held := int(index(size, "pl.reserve_buffer", "size="))) < 1:
        raise fault(f"pl.reserve_buffer: size={shown(size)} bytes")
    _handover("reserve_buffer").reserved.add(name)
    return PipeMemory.at(max(0, int(index(base, "pl.reserve_buffer", "base="))), held)


@implements(PIPE_SETUP, "import_peer_buffer", "system.import_peer_buffer")
def import_peer_buffer(*, name: str, peer_func: str, span: object = None) -> int:
    """The same memory as the producer sees it."""
    _handover("import_peer_buffer").imported[name] = peer_func
    return 0
