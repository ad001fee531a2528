"""Ops of the vector unit that are written by hand: sums of three, casts, comparisons, selections, fills."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuscope.ops import elementwise, rounding, storage
from npuscope.ops.dtypes import BF16, FP4, FP16, FP32, INT32, UINT32, Array, DataType, Number, packed, unpacked
from npuscope.ops.elementwise import ADD, ADDC, AXPY, CAST, CMP, EXPANDS, LRELU, MAXIMUM, MINIMUM, MUL, SEL, SUB, SUBC
from npuscope.ops.shaping import ARANGE, EXPAND_CLONE, FILLPAD, FILLPAD_EXPAND, FULL, RANDOM, TRI, philox
from npuscope.ops.spec import OpSpec
from npuscope.tile.calls.functions import function_from, implements, literal, rounded, same_in_lanes, settled
from npuscope.tile.enums import PadValue
from npuscope.tile.fault import fault
from npuscope.tile.run.state import TileRun, current
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


@implements(AXPY)
def axpy(src: object, scalar: object, dst: object) -> Tile:
    run = current()
    x, z = run.tile(src, "axpy"), run.tile(dst, "axpy")
    if not is_number(scalar) or x.shape != z.shape or not (x.dtype.is_float and z.dtype.is_float):
        raise fault(f"pl.axpy: {describe(z)} + {describe(x)} times {shown(scalar)}")
    factor = known(literal(scalar, x.dtype, "axpy")[0])
    result = run.result(AXPY, (x, scalar, z), z.shape, z.dtype, z.valid)
    if x.array is not None and z.array is not None and factor is not None:
        result.array = rounded(np.add(z.array, np.multiply(x.array, factor)), z.dtype)
    return result


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
    held = (("mode", mode), *((("saturation", saturation_mode),) if saturation_mode else ()))
    result = run.result(CAST, (tile,), tile.shape, dtype, tile.valid, attributes=held)
    result.drains = tile.space == "Acc" or tile.drains
    if tile.array is not None:
        array = tile.array
        if saturation_mode == "on" and dtype is not tile.dtype:
            low, high = dtype.limits
            array = np.clip(array, float(low), float(high)).astype(array.dtype)
        result.array = array if dtype is tile.dtype else rounding.cast(array, tile.dtype, dtype, mode)
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
    other = known(right)
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
    other = known(right)
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
    """`sel` with a number; beside unsigned elements one below 0 stands for its bits, as on the chip."""
    low, high = current().tile(src, "sels").dtype.limits
    if isinstance(scalar, int | float) and scalar < 0 and low == 0:
        scalar = int(scalar) + int(high) + 1
    return sel(mask, src, scalar, tmp)


@implements(LRELU, "lrelu")
def lrelu(tile: object, slope: object) -> Tile:
    run = current()
    x = run.tile(tile, "lrelu")
    factor = _second("lrelu", x, slope, FP32)
    result = run.result(LRELU, (x, factor), x.shape, x.dtype, x.valid)
    scale = known(factor)
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


def known(operand: Tile | Number | Unknown) -> Array | Number | None:
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
    result.array = tile.array if tile.valid is None else _padded(tile, tile.shape, padding)
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
