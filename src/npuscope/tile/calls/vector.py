"""Ops of the vector unit whose functions have a form of their own: casts, comparisons, selections."""

from __future__ import annotations

import numpy as np

from npuscope.ops.dtypes import FP32, DataType
from npuscope.ops.elementwise import CAST, CMP, EXPANDS, LRELU, SEL
from npuscope.ops.numeric import elementwise, rounding
from npuscope.ops.numeric.arrays import Array, Number
from npuscope.tile.calls.literals import literal
from npuscope.tile.calls.own import own
from npuscope.tile.calls.regular import rounded
from npuscope.tile.fault import fault
from npuscope.tile.run.state import current
from npuscope.tile.values.checks import Scalar, broadcast, describe, dtype_of, fitting, index, is_number, shown
from npuscope.tile.values.lanes import Lane, plain
from npuscope.tile.values.tensors import Tensor, Tile
from npuscope.tile.values.unknown import UNKNOWN, Unknown

_MODES = rounding.MODES


@own(EXPANDS)
def expands(target: object, scalar: object) -> Tile:
    """A tile of target's shape filled with a scalar."""
    run, value = current(), scalar
    tile = run.tile(target, "expands")
    number, _ = literal(fitting(value, tile.dtype, "pl.expands"), tile.dtype, "expands")
    result = Tile(None, tile.shape, tile.dtype, tile.valid)
    run.emit(EXPANDS, (tile, value), result)
    if number is not UNKNOWN and (run.computes or tile.dtype.steers):
        result.array = np.full(tile.shape, number, tile.dtype.compute)
    return result


@own(CAST)
def cast(input: object, target_type: object, mode: str | int = "round") -> Tile | Scalar:
    """Another data type; ties go away from zero unless the mode says otherwise."""
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
    run.region("cast")
    result = Tile(None, tile.shape, dtype, tile.valid)
    run.emit(CAST, (tile,), result, attributes=(("mode", mode),))
    if tile.array is not None:
        result.array = tile.share() if dtype is tile.dtype else rounding.cast(tile.array, tile.dtype, dtype, mode)
    return result


def _cast_scalar(x: Scalar, dtype: DataType, mode: str) -> Scalar:
    if isinstance(x, Unknown):
        return x
    x = plain(x)
    if type(x) is Lane:
        if dtype.is_float:
            return UNKNOWN
        if x.values.dtype.kind != "f":
            return x
        return x.like(rounding.cast(x.values.astype(np.float32), FP32, dtype, mode).astype(np.int64))
    if dtype.is_float:
        value = np.asarray(np.float32(fitting(x, dtype, "pl.cast")))
        return np.float32(rounding.cast(value, FP32, dtype, "rint" if mode == "none" else mode))
    if isinstance(x, float | np.floating):
        return int(rounding.cast(np.asarray(np.float32(x)), FP32, dtype, mode))
    return fitting(x, dtype, "pl.cast")


@own(CMP)
def cmp(lhs: object, rhs: object, cmp_type: int = 0) -> Tile:
    """0 or 1 of x's type: 0 ==, 1 !=, 2 <, 3 <=, 4 >, 5 >=."""
    if not 0 <= index(cmp_type, "pl.cmp", "cmp_type=") < 6:
        raise fault(f"pl.cmp: no comparison {cmp_type!r}", "Use 0 ==, 1 !=, 2 <, 3 <=, 4 >, 5 >=.")
    run = current()
    left = run.tile(lhs, "cmp")
    run.region("cmp")
    right = literal(rhs, left.dtype, "cmp")[0] if is_number(rhs) else run.tile(rhs, "cmp")
    shape, valid = broadcast(left, right, "cmp") if isinstance(right, Tile) else (left.shape, left.valid)
    result = Tile(None, shape, left.dtype, valid)
    run.emit(CMP, (left, right), result, attributes=(("cmp_type", cmp_type),))
    other = _known(right)
    if left.array is not None and other is not None:
        result.array = elementwise.cmp(left.array, other, cmp_type).astype(left.dtype.compute)
    return result


@own(SEL, "sel")
def sel(mask: object, lhs: object, rhs: object, tmp: object = None) -> Tile:
    """lhs where the mask is not zero, else rhs (a tile or a scalar)."""
    run = current()
    chosen, left = run.tile(mask, "sel"), run.tile(lhs, "sel")
    _fits("sel", left, chosen)
    right = _second("sel", left, rhs, left.dtype)
    result = Tile(None, left.shape, left.dtype, left.valid)
    run.emit(SEL, (chosen, left, right), result)
    other = _known(right)
    if chosen.array is not None and left.array is not None and other is not None:
        result.array = elementwise.select(chosen.array != 0, left.array, other).astype(left.dtype.compute)
    return result


@own(SEL, "sels")
def sels(mask: object, src: object, tmp: object, scalar: object) -> Tile:
    return sel(mask, src, scalar)


@own(LRELU, "lrelu")
def lrelu(tile: object, slope: object) -> Tile:
    """The tile where positive, slope times it elsewhere."""
    run = current()
    x = run.tile(tile, "lrelu")
    factor = _second("lrelu", x, slope, FP32)
    result = Tile(None, x.shape, x.dtype, x.valid)
    run.emit(LRELU, (x, factor), result)
    scale = _known(factor)
    if x.array is not None and scale is not None:
        result.array = rounded(np.where(x.array > 0, x.array, np.multiply(x.array, scale)), x.dtype)
    return result


def _second(name: str, x: Tile, other: object, dtype: DataType) -> Tile | Number | Unknown:
    """A second operand: a tile that fits the first, or a number of a type."""
    if not isinstance(other, Tile | Tensor):
        return literal(fitting(other, dtype, f"pl.{name}"), dtype, name)[0]
    tile = current().tile(other, name)
    _fits(name, x, tile)
    return tile


def _known(operand: Tile | Number | Unknown) -> Array | Number | None:
    """What an operand holds, where it was computed."""
    if isinstance(operand, Tile):
        return operand.array
    return None if isinstance(operand, Unknown) else operand


def _fits(name: str, x: Tile, other: Tile) -> None:
    """The other operand has x's shape, or one along an axis."""
    if broadcast(x, other, name)[0] != x.shape:
        raise fault(f"pl.{name}: {describe(other)} does not fit {describe(x)}")


@own(LRELU, "prelu")
def prelu(tile: object, slope: object, tmp: object = None) -> Tile:
    return lrelu(tile, slope)
