"""Ops on the shape, the valid region or the layout of a tile, and ops that fill one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from npuscope.ops.spec import VECTOR, OpRole, OpSpec, Plane

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_FACTORS, _STEPS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)  # of Philox (Salmon et al., SC 2011)


def philox(key: Sequence[int], counter: Sequence[int], count: int, rounds: int) -> npt.NDArray[np.uint32]:
    """`count` words of Philox-4x32: four for each value of the counter, which counts up by its first word.

    PyPTO says that the chip's generator is of this kind and not in which order its words lie: the same arguments give
    the same words, but not the chip's.
    """
    turns = np.arange((count + 3) // 4, dtype=np.uint64)
    words = [np.full(turns.shape, number & 0xFFFFFFFF, np.uint64) for number in counter]
    carry = words[0] + turns
    for place in range(4):
        words[place], carry = carry & _LOW, (words[place + 1] if place < 3 else turns * 0) + (carry >> _HALF)
    left, right = (number & 0xFFFFFFFF for number in key)
    for _ in range(rounds):
        first, second = (words[2 * i] * np.uint64(factor) for i, factor in enumerate(_FACTORS))
        words = [
            (second >> _HALF) ^ words[1] ^ np.uint64(left),
            second & _LOW,
            (first >> _HALF) ^ words[3] ^ np.uint64(right),
            first & _LOW,
        ]
        left, right = ((word + step) & 0xFFFFFFFF for word, step in zip((left, right), _STEPS, strict=True))
    return np.stack(words, axis=-1).reshape(-1)[:count].astype(np.uint32)


# fmt: off

_VIEW: tuple[Plane, ...] = ("view",)
_SAME = (OpRole.SAME_ELEMENTS, OpRole.KEEPS_VALUES, OpRole.KEEPS_ZEROS)
_SEEN = (*_SAME, OpRole.NO_NEW_VALUE)

# --- views: nothing moves

CREATE = OpSpec(
    "create", _VIEW, "custom",
    "An on-chip buffer, or outside tasks a tensor in GM; it holds nothing until it is written.",
    storage="operand", roles=(OpRole.NO_NEW_VALUE,),
    spellings=("pl.create_tensor", "create_tile", "create_l1", "tile.create", "tensor.create"),
)
RESHAPE = OpSpec("reshape", _VIEW, "custom", "The same elements in another shape.", storage="operand", roles=_SEEN)
DECLARE = OpSpec(
    "declare", _VIEW, "lowered", "Says which buffer of the author's a tile lies in (pl.MemRef).", storage="operand",
    roles=(*_SEEN, OpRole.SAME_PLACES),
)
TRANSPOSE_VIEW = OpSpec(
    "transpose_view", _VIEW, "custom", "The transpose by another reading of the layout.", storage="operand",
    roles=_SAME,
)
SET_VALIDSHAPE = OpSpec(
    "set_validshape", _VIEW, "custom", "Says which part of a tile holds data.", storage="operand",
    roles=(*_SEEN, OpRole.SAME_PLACES),
)
REINTERPRET_VIEW = OpSpec(
    "reinterpret_view", _VIEW, "custom", "The same bits read as another type.", storage="operand",
    roles=(OpRole.NO_NEW_VALUE,), spellings=("reinterpret_view", "bitcast"),
)
EXTRACT = OpSpec("extract", (), "custom", "A box of a tile in another memory of the core: a slice and a move.")
SLICE = OpSpec(
    "slice", ("load", "view"), "custom", "A box: of a tensor it loads, of a tile it is a view.",
    cost="timing.load_vector_l2", storage="operand",
    roles=(OpRole.PART, OpRole.KEEPS_VALUES, OpRole.KEEPS_ZEROS, OpRole.NO_NEW_VALUE),
)

# --- work for the vector unit

TRANSPOSE = OpSpec(
    "transpose", VECTOR, "custom", "Two axes swapped.", cost="op.vnchwconv", storage="separate",
    roles=(OpRole.KEEPS_VALUES, OpRole.NO_NEW_VALUE),
)
CONCAT = OpSpec("concat", VECTOR, "custom", "Two tiles side by side.", cost="op.vcopy", storage="separate")
CONCAT_IDX = OpSpec(
    "concat_idx", VECTOR, "custom", "Of each row as much of two tiles as their indices say, side by side, over dst.",
    cost="op.vcopy", like="a copy of the rows", storage="separate",
)
FILLPAD = OpSpec(
    "fillpad", ("vector", "move"), "custom",
    "Fills what lies outside the valid region; the result is valid everywhere.",
    cost="op.vcopy", like="a copy of the whole tile", spellings=("fillpad", "fillpad_inplace"),
    roles=(OpRole.INHERITS_SPACE, OpRole.KEEPS_ZEROS),
)
FILLPAD_EXPAND = OpSpec(
    "fillpad_expand", VECTOR, "custom", "A larger tile: the valid part of x, the rest padding.", cost="op.vcopy",
    like="a copy of the larger tile",
)
FULL = OpSpec(
    "full", VECTOR, "custom", "A tile of one number.", cost="op.vcopy", roles=(OpRole.FILL, OpRole.KEEPS_ZEROS),
)
ARANGE = OpSpec(
    "arange", VECTOR, "custom", "A row of start, start + 1, …", cost="op.arange",
    spellings=("arange", "ci"),
)
TRI = OpSpec(
    "tri", VECTOR, "custom", "Ones on and below a diagonal, or above it.", cost="op.vcopy",
    like="a pass that writes the tile",
)
EXPAND_CLONE = OpSpec(
    "expand_clone", VECTOR, "custom", "A copy of x, repeated to the target's shape.", cost="op.vcopy",
    like="a pass that writes the tile", roles=(OpRole.KEEPS_VALUES, OpRole.KEEPS_ZEROS),
)
RANDOM = OpSpec(
    "random", VECTOR, "custom", "Random bits from a key and a counter, the same for the same six words.",
    cost="op.vmul", like="no cost of it is public", types="INT32, UINT32", spellings=("random", "tile.random"),
)

ALL = (
    CREATE, DECLARE, RESHAPE, TRANSPOSE_VIEW, SET_VALIDSHAPE, REINTERPRET_VIEW, SLICE, TRANSPOSE, CONCAT,
    CONCAT_IDX, FILLPAD,
    FILLPAD_EXPAND, FULL, ARANGE, TRI, EXPAND_CLONE, RANDOM, EXTRACT,
)
