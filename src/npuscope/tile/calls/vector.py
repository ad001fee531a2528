"""Ops of the vector unit that are written by hand: casts, comparisons, selections, fills, sorting, gathering."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuscope.ops import elementwise, rounding, sorting, storage
from npuscope.ops.dtypes import BF16, FP4, FP16, FP32, INT32, UINT32, Array, DataType, Number, packed, unpacked
from npuscope.ops.elementwise import ADD, ADDC, CAST, CMP, EXPANDS, LRELU, MAXIMUM, MINIMUM, MUL, SEL, SUB, SUBC
from npuscope.ops.shaping import ARANGE, EXPAND_CLONE, FILLPAD, FILLPAD_EXPAND, FULL, RANDOM, TRI, philox
from npuscope.ops.sorting import GATHER, GATHERB, MRGSORT, SCATTER, SORT32
from npuscope.ops.spec import OpSpec
from npuscope.tile.calls.functions import function_from, implements, literal, rounded, same_in_lanes, settled
from npuscope.tile.enums import PadValue
from npuscope.tile.fault import fault
from npuscope.tile.run.state import TileRun, current, store_box
from npuscope.tile.values import checks
from npuscope.tile.values.checks import Scalar, broadcast, describe, dtype_of, fitting, flag, is_number, shape_of, shown
from npuscope.tile.values.lanes import UNKNOWN, Lane, Plain, Unknown, Whole, plain
from npuscope.tile.values.tensors import Shape, Tensor, Tile, window

_MODES = rounding.MODES
_ADD, _SUB = function_from(ADD), function_from(SUB)

# --- sums of three, casts, comparisons, selections


@implements(ADDC)
def addc(lhs: object, rhs: object, rhs2: object) -> object:
    return _ADD(_ADD(lhs, rhs), rhs2)


@implements(SUBC)
def subc(lhs: object, rhs: object, rhs2: object) -> object:
    return _ADD(_SUB(lhs, rhs), rhs2)


@implements(CAST)
def cast(
    input: object, target_type: object, mode: str | int = "round", *, saturation_mode: object = None
) -> Tile | Scalar:
    """Another data type; ties go away from zero unless the mode says otherwise. `saturation_mode="on"` holds what is
    too large within the type, where the chip would keep its low bits or make it infinite.
    """
    if saturation_mode not in (None, "on", "off"):
        raise fault(f"pl.cast: saturation_mode={shown(saturation_mode)}", "It is 'on' or 'off'.")
    dtype = dtype_of(target_type, "cast")
    mode = plain(mode)
    if isinstance(mode, int) and not isinstance(mode, bool):
        mode = _MODES[mode] if 0 <= mode < len(_MODES) else str(mode)
    if not isinstance(mode, str) or mode not in _MODES:
        raise fault(f"pl.cast: no rounding mode {shown(mode)}", f"Use one of {', '.join(_MODES)}.")
    if is_number(input):
        return _cast_scalar(input, dtype, mode)
    run = current()
    tile = run.tile(input, "cast")
    if tile.dtype.pairs or dtype.pairs:
        return _cast_pairs(run, tile, dtype, mode)
    result = run.result(CAST, (tile,), tile.shape, dtype, tile.valid, attributes=(("mode", mode),))
    if tile.array is not None:
        array = tile.share() if dtype is tile.dtype else tile.array
        if saturation_mode == "on" and dtype is not tile.dtype and array is not None:
            low, high = dtype.limits
            array = np.clip(array, float(low), float(high)).astype(array.dtype)
        result.array = array if dtype is tile.dtype or array is None else rounding.cast(array, tile.dtype, dtype, mode)
    return result


def _cast_pairs(run: TileRun, tile: Tile, dtype: DataType, mode: str) -> Tile:
    """Bytes of two FP4 each: rows become twice as long, or, into such bytes, half as long."""
    packs, other = dtype.pairs, tile.dtype if dtype.pairs else dtype
    if not other.is_float or other is FP4:
        raise fault(f"pl.cast: {describe(tile)} to {dtype}", "Two FP4 of a byte become BF16 or another wider type.")
    if packs and tile.shape[-1] % 2:
        raise fault(f"pl.cast: rows of {describe(tile)} have no pairs")
    old = tile.valid or tile.shape
    shape, valid = ((*of[:-1], -(-of[-1] // 2) if packs else 2 * of[-1]) for of in (tile.shape, old))
    result = run.result(CAST, (tile,), shape, dtype, valid, attributes=(("mode", mode),))
    if tile.array is not None and packs:
        bytes_ = np.empty(shape, np.uint8)
        packed(rounding.cast(tile.array, tile.dtype, FP4, mode).astype(FP4.storage), bytes_)
        result.array = bytes_.astype(np.float32)
    elif tile.array is not None:
        values = unpacked(tile.array.astype(np.uint8), FP4).astype(np.float32)
        result.array = rounding.cast(values, FP32, dtype, mode)
    return result


def _cast_scalar(x: Scalar, dtype: DataType, mode: str) -> Scalar:
    if isinstance(x, Unknown):
        return x
    x = plain(x)
    if type(x) is Lane:
        if dtype.is_float:
            block = current().block
            return UNKNOWN if block is None else Unknown.of(block.task)
        if x.values.dtype.kind != "f":
            return x
        return x.like(rounding.cast(x.values.astype(np.float32), FP32, dtype, mode).astype(np.int64))
    if dtype.is_float:
        value = np.asarray(np.float32(fitting(x, dtype, "pl.cast")))
        return np.float32(rounding.cast(value, FP32, dtype, "rint" if mode == "none" else mode))
    if isinstance(x, float | np.floating):
        return int(rounding.cast(np.asarray(np.float32(x)), FP32, dtype, mode))
    return fitting(x, dtype, "pl.cast")


def _part(spec: OpSpec, spelling: str) -> None:
    """An op of two tiles of which one may be valid further than the other: there its own elements are the result."""
    numeric = spec.numeric
    assert numeric is not None

    def op(lhs: object, rhs: object) -> Tile:
        run = current()
        one, other = run.tile(lhs, spelling), run.tile(rhs, spelling)
        if one.shape != other.shape or one.dtype is not other.dtype:
            raise fault(f"pl.{spelling}: {describe(one)} and {describe(other)} differ in shape or type")
        valid = [one.valid or one.shape, other.valid or other.shape]
        if not any(all(n >= m for n, m in zip(a, b, strict=True)) for a, b in (valid, valid[::-1])):
            raise fault(f"pl.{spelling}: of {describe(one)} and {describe(other)} none is valid wherever the other is")
        whole = tuple(map(max, *valid))
        result = run.result(spec, (one, other), one.shape, one.dtype, whole)
        if one.array is not None and other.array is not None:
            wide, narrow = (one, other) if valid[0] == whole else (other, one)
            assert wide.array is not None
            result.array = wide.array.copy()
            both = window(narrow.valid or narrow.shape)
            result.array[both] = rounded(numeric(one.array[both], other.array[both]), one.dtype)
        return result

    implements(spec, spelling)(op)


for _spec, _spelling in ((ADD, "part_add"), (MUL, "part_mul"), (MAXIMUM, "part_max"), (MINIMUM, "part_min")):
    _part(_spec, _spelling)


@implements(CMP)
def cmp(lhs: object, rhs: object, cmp_type: int = 0) -> Tile:
    if not 0 <= checks.index(cmp_type, "pl.cmp", "cmp_type=") < 6:
        raise fault(f"pl.cmp: no comparison {cmp_type!r}", "Use 0 ==, 1 !=, 2 <, 3 <=, 4 >, 5 >=.")
    run = current()
    left = run.tile(lhs, "cmp")
    right = literal(rhs, left.dtype, "cmp")[0] if is_number(rhs) else run.tile(rhs, "cmp")
    shape, valid = broadcast(left, right, "cmp") if isinstance(right, Tile) else (left.shape, left.valid)
    result = run.result(CMP, (left, right), shape, left.dtype, valid, attributes=(("cmp_type", cmp_type),))
    other = _known(right)
    if left.array is not None and other is not None:
        result.array = elementwise.cmp(left.array, other, cmp_type).astype(left.dtype.compute)
    return result


@implements(SEL, "sel")
def sel(mask: object, lhs: object, rhs: object, tmp: object = None) -> Tile:
    run = current()
    checks.check_scratch(tmp, "sel")
    chosen, left = run.tile(mask, "sel"), run.tile(lhs, "sel")
    packed = _holds_bits(chosen, left)
    if not packed:
        _check_fits("sel", left, chosen)
    right = _second("sel", left, rhs, left.dtype)
    result = run.result(SEL, (chosen, left, right), left.shape, left.dtype, left.valid)
    other = _known(right)
    if chosen.array is not None and left.array is not None and other is not None:
        picked = _bits(chosen)[..., : left.shape[-1]] if packed else chosen.array != 0
        result.array = np.where(picked, left.array, other).astype(left.dtype.compute)
    return result


def _holds_bits(mask: Tile, tile: Tile) -> bool:
    """Whether a mask is one of bits: whole numbers whose rows have a bit for each element.

    Of the same shape it may also have a number for each element, as pl.cmp gives here: then all are 0 or 1.
    """
    same = mask.shape[:-1] == tile.shape[:-1]
    if mask.shape == tile.shape and (mask.array is None or np.isin(mask.array, (0, 1)).all()):
        return False
    return same and mask.dtype.is_int and mask.shape[-1] * mask.dtype.bytes * 8 >= tile.shape[-1]


def _bits(mask: Tile) -> Array:
    """The bits of rows of whole numbers, the lowest first."""
    assert mask.array is not None
    held = np.empty(mask.shape, mask.dtype.storage)
    storage.store(held, mask.array, mask.dtype)
    bits: Array = np.unpackbits(held.view(np.uint8), axis=-1, bitorder="little") != 0
    return bits


@implements(SEL, "tile.select")
def select(cond: object, on_true: object, on_false: object) -> Tile:
    """`sel` without scratch; a side may be a number."""
    if not is_number(on_true):
        return sel(cond, on_true, on_false)
    other = current().tile(on_false, "tile.select")
    return sel(cond, full(other.shape, other.dtype, on_true), other)


@implements(SEL, "sels")
def sels(mask: object, src: object, tmp: object, scalar: object) -> Tile:
    return sel(mask, src, scalar, tmp)


@implements(LRELU, "lrelu")
def lrelu(tile: object, slope: object) -> Tile:
    run = current()
    x = run.tile(tile, "lrelu")
    factor = _second("lrelu", x, slope, FP32)
    result = run.result(LRELU, (x, factor), x.shape, x.dtype, x.valid)
    scale = _known(factor)
    if x.array is not None and scale is not None:
        result.array = rounded(np.where(x.array > 0, x.array, np.multiply(x.array, scale)), x.dtype)
    return result


@implements(LRELU, "prelu")
def prelu(tile: object, slope: object, tmp: object = None) -> Tile:
    checks.check_scratch(tmp, "prelu")
    return lrelu(tile, slope)


def _second(name: str, x: Tile, other: object, dtype: DataType) -> Tile | Number | Unknown:
    """A second operand: a tile that fits the first, or a number of a type."""
    if not isinstance(other, Tile | Tensor):
        return literal(fitting(other, dtype, f"pl.{name}"), dtype, name)[0]
    tile = current().tile(other, name)
    _check_fits(name, x, tile)
    return tile


def _known(operand: Tile | Number | Unknown) -> Array | Number | None:
    """What an operand holds, where it was computed."""
    if isinstance(operand, Tile):
        return operand.array
    return None if isinstance(operand, Unknown) else operand


def _check_fits(name: str, x: Tile, other: Tile) -> None:
    """The other operand has x's shape, or one along an axis."""
    if broadcast(x, other, name)[0] != x.shape:
        raise fault(f"pl.{name}: {describe(other)} does not fit {describe(x)}")


# --- fills: all of one number, ramps, triangles, random bits, copies, padding around what is valid


@implements(EXPAND_CLONE)
def expand_clone(src: object, target: object) -> Tile:
    run = current()
    tile, shape = run.tile(src, "expand_clone"), run.operand(target, "expand_clone").shape
    if len(tile.shape) != len(shape) or any(n not in (1, m) for n, m in zip(tile.shape, shape, strict=True)):
        raise fault(f"pl.expand_clone: {describe(tile)} does not repeat to {list(shape)}")
    result = run.result(EXPAND_CLONE, (tile,), shape, tile.dtype)
    if tile.array is not None:
        result.array = np.broadcast_to(tile.array, shape).copy()
    return result


@implements(RANDOM, "random")
def random(
    key0: Whole, key1: Whole, counter0: Whole, counter1: Whole, counter2: Whole, counter3: Whole,
    shape: Sequence[Whole], dtype: DataType = UINT32, rounds: Whole = 10, *, valid_shape: object = None,
) -> Tile:  # fmt: skip
    run, extents, kind = current(), shape_of(shape), dtype_of(dtype, "random")
    turns = int(checks.index(rounds, "pl.random", "rounds="))
    if kind not in (INT32, UINT32) or turns not in (7, 10):
        raise fault(f"pl.random of {kind} in {turns} rounds", "It makes INT32 or UINT32 in 7 or 10 rounds.")
    words = (key0, key1, counter0, counter1, counter2, counter3)
    key = [int(checks.index(word, "pl.random", "a word of the seed")) for word in words]
    valid = None if valid_shape is None else shape_of(valid_shape)
    result = run.result(RANDOM, words, extents, kind, valid, attributes=(("rounds", turns),))
    if run.computes_here:
        bits = philox(key[:2], key[2:], result.size, turns)
        result.array = bits.view(np.uint32 if kind is UINT32 else np.int32).reshape(extents)
    return result


@implements(RANDOM, "tile.random")
def random_tile(
    key0: Whole, key1: Whole, counter0: Whole, counter1: Whole, counter2: Whole, counter3: Whole,
    shape: Sequence[Whole], valid_shape: object = None, dtype: DataType = UINT32, rounds: Whole = 10,
) -> Tile:  # fmt: skip
    """The tile form, whose valid region stands before the type."""
    seed = (key0, key1, counter0, counter1, counter2, counter3)
    return random(*seed, shape, dtype, rounds, valid_shape=valid_shape)


@implements(EXPANDS)
def expands(target: object, scalar: object) -> Tile:
    run = current()
    tile = run.tile(target, "expands")
    number, _ = literal(fitting(scalar, tile.dtype, "pl.expands"), tile.dtype, "expands")
    result = run.result(EXPANDS, (tile, scalar), tile.shape, tile.dtype, tile.valid)
    if number is not UNKNOWN and (run.computes_here or tile.dtype.steers):
        result.array = np.full(tile.shape, number, tile.dtype.compute)
    return result


@implements(FULL)
def full(shape: Sequence[Whole], dtype: DataType, value: object) -> Tile:
    run = current()
    extents, kind = shape_of(shape), dtype_of(dtype, "full")
    number = _one(run, fitting(value, kind, "pl.full"))
    result = run.result(FULL, (value,), extents, kind)
    if number is not None and (run.computes_here or kind.steers):
        held = checks.rounded_number(number, kind) if kind.is_float else number
        result.array = storage.new(extents, kind, held)
    return result


def _one(run: TileRun, value: Scalar) -> Plain | None:
    """A number; None where shapes mode does not know it, or where it differs from lane to lane."""
    if isinstance(value, Unknown):
        return None
    number = same_in_lanes(value)
    if number is None:
        run.shapes.lose()
    return number


@implements(ARANGE)
def arange(start: object, shape: Sequence[Whole], dtype: DataType | None = None, descending: bool = False) -> Tile:
    run = current()
    extents, kind = shape_of(shape), INT32 if dtype is None else dtype_of(dtype, "arange")
    if any(n != 1 for n in extents[:-1]):
        raise fault(f"pl.arange makes one row, not {list(extents)}")
    first = _one(run, fitting(start, kind, "pl.arange"))
    step = -1 if flag(descending, "arange", "descending=") else 1
    result = run.result(ARANGE, (start,), extents, kind)
    if first is not None and (run.computes_here or kind.steers):
        ramp = np.add(first, step * np.arange(extents[-1]))
        result.array = ramp.astype(kind.compute).reshape(extents)
    return result


@implements(TRI)
def tri(
    diagonal: object,
    shape: Sequence[Whole],
    valid_shape: object = None,
    dtype: DataType | None = None,
    upper: bool = False,
) -> Tile:
    run = current()
    extents, kind = shape_of(shape), INT32 if dtype is None else dtype_of(dtype, "tri")
    if len(extents) != 2:
        raise fault(f"pl.tri makes rows and columns, not {list(extents)}")
    first = checks.index(diagonal, "pl.tri", "the diagonal") + (-1 if flag(upper, "tri", "upper=") else 0)
    valid = None if valid_shape is None else shape_of(valid_shape)
    if valid is not None and (len(valid) != 2 or valid[0] > extents[0] or valid[1] > extents[1]):
        raise fault(f"pl.tri: valid_shape {list(valid)} is larger than {list(extents)}")
    result = run.result(TRI, (diagonal,), extents, kind, valid)
    if run.computes_here or kind.steers:
        below = np.tri(extents[-2], extents[-1], k=int(first))
        result.array = (1 - below if upper else below).astype(kind.compute)
    return result


def pad_number(pad_value: object, dtype: DataType) -> Scalar:
    """What a padding stands for in a data type: `min` and `max` are its extremes, of floats with infinities those.

    pypto's tests on the device expect infinities (tests/st/runtime/ops/test_fillpad.py); its torch model of a program
    has the largest finite numbers instead.
    """
    if pad_value is PadValue.zero or pad_value is PadValue.null:
        return 0
    if is_number(pad_value):
        if isinstance(pad_value, float | np.floating) and np.isinf(pad_value):
            return pad_number(PadValue.max if pad_value > 0 else PadValue.min, dtype)
        return fitting(pad_value, dtype, "pl.fillpad")
    if not isinstance(pad_value, PadValue):
        raise fault(f"a padding must be pl.PadValue.… or a number, not {shown(pad_value)}")
    least, largest = (-np.inf, np.inf) if dtype in (FP32, FP16, BF16) else dtype.limits
    return least if pad_value is PadValue.min else largest


@implements(FILLPAD)
def fillpad(value: object, pad_value: object = PadValue.zero) -> Tile:
    run = current()
    tile = run.tile(value, "fillpad")
    padding = pad_number(pad_value, tile.dtype)
    result = run.result(FILLPAD, (tile,), tile.shape, tile.dtype, None, tile.space)
    result.array = tile.share() if tile.valid is None else _padded(tile, tile.shape, padding)
    return result


@implements(FILLPAD_EXPAND)
def fillpad_expand(value: object, shape: Sequence[Whole], pad_value: object = PadValue.zero) -> Tile:
    run = current()
    tile = run.tile(value, "fillpad_expand")
    extents, padding = shape_of(shape), pad_number(pad_value, tile.dtype)
    if len(extents) != len(tile.shape) or any(n < m for n, m in zip(extents, tile.shape, strict=True)):
        raise fault(f"pl.fillpad_expand: {describe(tile)} does not grow to {list(extents)}")
    result = run.result(FILLPAD_EXPAND, (tile,), extents, tile.dtype)
    result.array = _padded(tile, extents, padding)
    return result


def _padded(tile: Tile, shape: Shape, padding: Scalar) -> Array | None:
    if tile.array is None:
        return None
    array = storage.new(shape, tile.dtype, settled(padding))
    inside = window(tile.valid or tile.shape)
    array[inside] = tile.array[inside]
    return array


# --- sorting, gathering, scattering


@implements(SORT32)
def sort32(src: object, idx: object) -> Tile:
    run = current()
    values, numbers = run.tile(src, "sort32"), _indices(idx, "sort32")
    if broadcast(values, numbers, "sort32")[0] != values.shape:
        raise fault(f"pl.sort32: {describe(values)} with indices {describe(numbers)}")
    if values.shape[-1] % 32:
        raise fault(f"pl.sort32 sorts runs of 32: {describe(values)} has {values.shape[-1]} columns")
    result = run.result(SORT32, (values, numbers), (*values.shape[:-1], 2 * values.shape[-1]), FP32)
    if values.array is not None and numbers.array is not None:
        result.array = sorting.sort32(values.array, numbers.array.astype(np.uint32, copy=False))
    return result


@implements(MRGSORT)
def mrgsort(
    src0: object,
    src1: object = None,
    src2: object = None,
    src3: object = None,
    tmp: object = None,
    exhausted: bool = False,
    *,
    block_len: object = None,
) -> Tile:
    """Merges sorted runs of `block_len` lanes four by four, or two to four sorted lists into one."""
    run = current()
    first = run.tile(src0, "mrgsort")
    exhausted = flag(exhausted, "mrgsort", "exhausted=")
    checks.check_scratch(tmp, "mrgsort")
    if block_len is not None:
        length = int(checks.index(block_len, "pl.mrgsort", "block_len="))
        if length <= 0 or length % 64:
            raise fault(f"pl.mrgsort: block_len {length} is not a multiple of 64")
        if length > max(64, first.size):
            raise fault(f"pl.mrgsort: block_len {length} is longer than {describe(first)}")
        if first.dtype is not FP32 or first.size % 2:
            raise fault(f"pl.mrgsort merges FP32 pairs, not {describe(first)}")
        result = run.result(MRGSORT, (first,), first.shape, first.dtype)
        if first.array is not None:
            result.array = sorting.mrgsort_blocks(first.array, length)
        return result
    tiles = [first, *(run.tile(value, "mrgsort") for value in (src1, src2, src3) if value is not None)]
    for tile in tiles:
        if tile.dtype is not FP32 or tile.shape[-1] % 2 or tile.size != tile.shape[-1]:
            raise fault(f"pl.mrgsort merges rows of FP32 pairs, not {describe(tile)}")
    result = run.result(MRGSORT, tuple(tiles), (1, sum(t.shape[-1] for t in tiles)), first.dtype)
    arrays = [t.array for t in tiles if t.array is not None]
    if len(arrays) == len(tiles):
        result.array = sorting.mrgsort_lists(arrays, exhausted)
    return result


@implements(GATHER, "gather")
def gather(
    input: object,
    dim: object = None,
    index: object = None,
    *,
    mask_pattern: object = None,
    output_dtype: DataType | None = None,
    kvalue: object = None,
    cmp_mode: object = "eq",
    out_cols: object = None,
    offset: object = 0,
    count_dtype: DataType = INT32,
) -> Tile | tuple[Tile, Tile]:
    """The columns a mask names, side by side; per row the columns an index names; or which columns compare."""
    if kvalue is not None:
        return gather_compare(
            input, kvalue, cmp_mode=cmp_mode, offset=offset, out_cols=out_cols, count_dtype=count_dtype
        )
    if mask_pattern is not None:
        return gather_mask(input, mask_pattern, output_dtype=output_dtype)
    run = current()
    tile = run.tile(input, "gather")
    if index is None:
        dim, index = -1, dim
    numbers = _indices(index, "gather")
    rank, axis = len(tile.shape), int(checks.index(-1 if dim is None else dim, "pl.gather", "dim="))
    fits = len(numbers.shape) == rank and -rank <= axis < rank
    axis %= rank
    others = [n for n in range(rank) if n != axis]
    if not fits or any(numbers.shape[n] > tile.shape[n] for n in others):
        raise fault(f"pl.gather: indices {describe(numbers)} for {describe(tile)} along dim={shown(dim)}")
    result = run.result(GATHER, (tile, numbers), numbers.shape, tile.dtype)
    if tile.array is not None and numbers.array is not None:
        _check_index(numbers.array, tile.shape[axis], "places along this axis", tile)
        within = tuple(slice(None) if n == axis else slice(0, numbers.shape[n]) for n in range(rank))
        result.array = np.take_along_axis(tile.array[within], numbers.array.astype(np.int64), axis)
    return result


_COMPARES = ("eq", "ne", "lt", "le", "gt", "ge")


@implements(GATHER, "gather_compare")
def gather_compare(
    src: object,
    kvalue: object,
    tmp: object = None,
    *,
    cmp_mode: object = "eq",
    offset: object = 0,
    out_cols: object = None,
    count_dtype: DataType = INT32,
) -> tuple[Tile, Tile]:
    """Of each row the columns that compare with a number, counted from `offset`, and how many they are."""
    run = current()
    tile, number = run.tile(src, "gather_compare"), cmp_mode
    checks.check_scratch(tmp, "gather_compare")
    if number in _COMPARES:
        number = _COMPARES.index(str(cmp_mode))
    if type(number) is not int or not 0 <= number < len(_COMPARES):
        raise fault(f"pl.gather_compare: cmp_mode={shown(cmp_mode)}", f"Use one of {', '.join(_COMPARES)}.")
    if len(tile.shape) != 2 or not is_number(kvalue) or out_cols is None:
        raise fault(f"pl.gather_compare of {describe(tile)} needs rows, a number and out_cols=")
    wide = int(checks.index(out_cols, "pl.gather_compare", "out_cols="))
    first = int(checks.index(offset, "pl.gather_compare", "offset="))
    counted = dtype_of(count_dtype, "gather_compare")
    rows = tile.shape[0]
    numbers = run.result(GATHER, (tile,), (rows, wide), INT32)
    counts = run.result(GATHER, (tile,), (1, rows), counted)
    value = _known(literal(kvalue, tile.dtype, "gather_compare")[0])
    if tile.array is not None and value is not None:
        found = elementwise.cmp(tile.array, value, number) != 0
        if tile.valid is not None:
            found[:, tile.valid[1] :] = False
        numbers.array = storage.new((rows, wide), INT32, storage.poison(INT32))
        for row, places in enumerate(map(np.flatnonzero, found)):
            numbers.array[row, : len(places)] = places[:wide] + first
        counts.array = found.sum(axis=1, dtype=np.int64).astype(counted.compute).reshape(1, rows)
    return numbers, counts


@implements(GATHER, "gather_mask")
def gather_mask(src: object, mask_pattern: object, *, output_dtype: DataType | None = None) -> Tile:
    """The columns that a mask names, side by side; of 4 bytes they can be read as another type."""
    run = current()
    tile = run.tile(src, "gather")
    dtype = tile.dtype if output_dtype is None else dtype_of(output_dtype, "gather")
    if dtype is not tile.dtype and (dtype.bytes != 4 or tile.dtype.bytes != 4):
        raise fault(f"pl.gather: {describe(tile)} read as {dtype}", "Only 4-byte types can be read as each other.")
    pattern, kept = _columns(mask_pattern, tile, "gather")
    result = run.result(GATHER, (tile,), (*tile.shape[:-1], kept), dtype)
    if tile.array is not None:
        view = None if dtype is tile.dtype else dtype.compute
        result.array = sorting.gather_mask(tile.array, pattern, view)
    return result


@implements(GATHER, "tile.gather")
def gather_flat(
    src: object,
    indices: object = None,
    tmp: object = None,
    *,
    mask_pattern: object = None,
    output_dtype: DataType | None = None,
) -> Tile:
    """The tile form: gather(source, indices, scratch), indices counted over the whole tile, or by mask."""
    if mask_pattern is not None:
        return gather_mask(src, mask_pattern, output_dtype=output_dtype)
    run = current()
    checks.check_scratch(tmp, "tile.gather")
    tile, numbers = run.tile(src, "tile.gather"), _indices(indices, "tile.gather")
    result = run.result(GATHER, (tile, numbers), numbers.shape, tile.dtype)
    if tile.array is not None and numbers.array is not None:
        _check_index(numbers.array, tile.array.size, "elements", tile)
        result.array = tile.array.reshape(-1).take(numbers.array.astype(np.int64))
    return result


@implements(GATHERB)
def gatherb(src: object, offset: object, *, output_dtype: DataType | None = None) -> Tile:
    run = current()
    tile, offsets = run.tile(src, "gatherb"), _indices(offset, "gatherb")
    dtype = tile.dtype if output_dtype is None else dtype_of(output_dtype, "gatherb")
    if offsets.dtype is not UINT32 or offsets.shape[-1] % 8:
        raise fault(f"pl.gatherb: offsets are rows of UINT32, eight or a multiple of it, not {describe(offsets)}")
    shape = (*offsets.shape[:-1], offsets.shape[-1] * 32 // dtype.bytes)
    valid = None if offsets.valid is None else (*offsets.valid[:-1], offsets.valid[-1] * 32 // dtype.bytes)
    result = run.result(GATHERB, (tile, offsets), shape, dtype, valid)
    if tile.array is not None and offsets.array is not None:
        asked = offsets.array[window(offsets.valid or offsets.shape)]
        if np.any(asked % 32) or np.max(asked, initial=0) > tile.size * tile.dtype.bytes - 32:
            raise fault(f"pl.gatherb: an offset is no multiple of 32 bytes within {describe(tile)}")
        held = np.empty(tile.shape, tile.dtype.storage)
        storage.store(held, tile.array, tile.dtype)
        assert dtype.storage is not None
        blocks = np.zeros(offsets.shape, np.int64)
        blocks[window(offsets.valid or offsets.shape)] = asked
        picked = sorting.gather_blocks(held, blocks)
        result.array = storage.load(picked.view(dtype.storage), dtype)
    return result


@implements(SCATTER, "scatter_mask")
def scatter_mask(dst: object, src: object, mask_pattern: object) -> Tensor | Tile:
    return scatter(src, mask_pattern=mask_pattern, dst=dst)


@implements(SCATTER, "tile.scatter")
def scatter_flat(
    dst: object = None,
    src: object = None,
    indexes: object = None,
    index: object = None,
    *,
    dim: object = None,
    mask_pattern: object = None,
    input: object = None,
) -> Tensor | Tile:
    """The tile form: scatter(dst, src, indexes), indexes counted over the whole tile; or as `pl.scatter`."""
    if mask_pattern is not None or dim is not None or index is not None or is_number(src):
        if mask_pattern is not None:
            return scatter(input if src is None else src, mask_pattern=mask_pattern, dst=dst)
        if is_number(src):  # by place: scatter(input, dim, index, src)
            return scatter(dst, src, indexes, index)
        return scatter(dst if input is None else input, dim, index if indexes is None else indexes, src)
    run = current()
    target, source, numbers = run.tile(dst, "scatter"), run.tile(src, "scatter"), _indices(indexes, "scatter")
    if numbers.shape != source.shape or source.dtype is not target.dtype:
        raise fault(f"pl.tile.scatter: {describe(source)} at {describe(numbers)} into {describe(target)}")
    result = run.result(SCATTER, (target, numbers, source), target.shape, target.dtype, target.valid)
    if target.array is not None and numbers.array is not None and source.array is not None:
        inside = window(source.valid or source.shape)
        _check_index(numbers.array[inside], target.size, "elements", target)
        result.array = target.array.copy()
        result.array.reshape(-1)[numbers.array[inside].astype(np.int64)] = source.array[inside]
    return result


@implements(SCATTER, "scatter")
def scatter(
    input: object,
    dim: object = None,
    index: object = None,
    src: object = None,
    *,
    mask_pattern: object = None,
    dst: object = None,
) -> Tensor | Tile:
    """Columns of x into the marked columns of dst; the others keep what they hold."""
    if mask_pattern is None:
        return _scatter_index(input, -1 if dim is None else dim, index, src)
    run = current()
    tile, target = run.tile(input, "scatter"), run.tile(dst, "scatter")
    pattern, marked = _columns(mask_pattern, target, "scatter")
    if tile.shape != (*target.shape[:-1], marked):
        raise fault(f"pl.scatter: {describe(tile)} does not fill the marked columns of {describe(target)}")
    result = run.result(SCATTER, (tile, target), target.shape, target.dtype)
    if tile.array is not None and target.array is not None:
        result.array = sorting.scatter_mask(target.array, tile.array, pattern)
    if isinstance(dst, Tensor):
        return store_box(run, result, dst, [0] * len(dst.shape), op=SCATTER)
    return result


def _scatter_index(x: object, dim: object, index: object, src: object) -> Tile:
    run = current()
    target, numbers, source = run.tile(x, "scatter"), _indices(index, "scatter"), run.tile(src, "scatter")
    _check_last(dim, target, "scatter")
    if numbers.shape != source.shape or source.shape[:-1] != target.shape[:-1]:
        about = f"{describe(source)} at the indices {describe(numbers)}"
        raise fault(f"pl.scatter: {about} does not fit {describe(target)}")
    result = run.result(SCATTER, (target, numbers, source), target.shape, target.dtype)
    if target.array is not None and numbers.array is not None and source.array is not None:
        _check_index(numbers.array, target.shape[-1], "columns", target)
        result.array = target.array.copy()
        np.put_along_axis(result.array, numbers.array.astype(np.int64), source.array, axis=-1)
    return result


def _indices(value: object, op: str) -> Tile:
    """A tile of whole numbers, for a fraction would be cut off."""
    tile = current().tile(value, op)
    if not tile.dtype.is_int:
        raise fault(f"pl.{op}: indices must be whole numbers, not {describe(tile)}")
    return tile


def _columns(pattern: object, tile: Tile, op: str) -> tuple[int, int]:
    """A mask pattern, and how many columns of a tile it names."""
    number = int(checks.index(pattern, f"pl.{op}", "mask_pattern="))
    if not 1 <= number <= 7:
        raise fault(f"pl.{op}: no mask pattern {number}", "Use one of pl.tile.MaskPattern.…, 1 to 7.")
    step = 1 if number == 7 else 2 if number < 3 else 4
    if tile.shape[-1] % step:
        raise fault(f"pl.{op}: a mask of every {step} columns for {describe(tile)}")
    return number, tile.shape[-1] // step


def _check_last(dim: object, tile: Tile, op: str) -> None:
    """Only the last axis can be gathered or scattered along."""
    if checks.index(dim, f"pl.{op}", "dim=") not in (-1, len(tile.shape) - 1):
        raise fault(f"pl.{op}: dim={shown(dim)} of {describe(tile)}", "Only the last axis, dim=-1.")


def _check_index(index: Array, count: int, what: str, tile: Tile) -> None:
    if index.size and (np.min(index) < 0 or np.max(index) >= count):
        raise fault(f"pl.gather: an index lies outside the {count} {what} of {describe(tile)}")
