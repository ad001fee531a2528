"""Element-wise ops, broadcasts of a row or column, casts and selections: the vector unit's work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from npuscope.ops.dtypes import FP32, DataType
from npuscope.ops.numeric import elementwise, rounding
from npuscope.tile.calls.checks import broadcast, describe, dtype_of, fitting, held, index, is_number, promoted, shown
from npuscope.tile.fault import fault
from npuscope.tile.run.state import current
from npuscope.tile.run.values import Tensor, Tile
from npuscope.tile.shapes import lanes
from npuscope.tile.shapes.lanes import Lane
from npuscope.tile.shapes.unknown import UNKNOWN, Unknown

_MODES = rounding.MODES
_SCALAR = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum}


def _with_scalar(name: str, x: Any, y: Any) -> Any:
    """Two scalars."""
    if isinstance(x, Unknown) or isinstance(y, Unknown):
        return UNKNOWN
    function = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": _divided}.get(
        name
    )
    if function is not None:
        return function(x, y)
    if name in ("maximum", "minimum"):
        return scalar_max(x, y) if name == "maximum" else scalar_min(x, y)
    raise fault(f"pl.{name} takes a tensor or a tile, not two scalars")


def _divided(x: Any, y: Any) -> Any:
    whole = isinstance(x, int | Lane) and isinstance(y, int | Lane)
    return x // y if whole else x / y


def _literal(value: Any, dtype: DataType, op: str) -> tuple[Any, DataType]:
    """A scalar operand takes the tile's type; a fraction beside whole numbers makes FP32."""
    if isinstance(value, Unknown):
        return UNKNOWN, dtype
    value = lanes.of(value)
    if isinstance(value, np.ndarray):
        current().lost = True
        return UNKNOWN, dtype  # differs from lane to lane: the op runs for all, its values are not computed
    if isinstance(value, float | np.floating):
        return (held(value, dtype), dtype) if dtype.is_float else (np.float32(value), FP32)
    value = fitting(value, dtype, f"pl.{op}")
    return held(value, dtype) if dtype.is_float else value, dtype


def _no_bits(name: str, *operands: Any) -> Exception:
    held = " and ".join(describe(x) if isinstance(x, Tile) else shown(x) for x in operands)
    return fault(f"pl.{name} works on the bits of whole numbers, not on {held}", "Cast it to INT32 first.")


def binary(name: str, kernel: Callable[[Any, Any], Any], bits: bool = False) -> Callable[..., Any]:
    """An op on two tiles, or a tile and a scalar; `bits`: on whole numbers only."""

    def op(lhs: Any, rhs: Any, tmp: Any = None, high_precision: bool = False) -> Any:
        run, x, y = current(), lhs, rhs
        if is_number(y):
            if is_number(x):
                return _with_scalar(name, x, y)
            left = run.tile(x, name)
            value, dtype = _literal(y, left.dtype, name)
            if bits and dtype.is_float:
                raise _no_bits(name, left, y)
            result = Tile(None, left.shape, dtype, left.valid)
            run.region(name)
            run.emit(name, "vector", (left, y), result)
            if left.array is not None and value is not UNKNOWN:
                array = left.array if dtype is left.dtype else left.array.astype(np.float32)
                result.array = _rounded(kernel(array, value), dtype)
            return result
        if is_number(x):
            right = run.tile(y, name)
            value, dtype = _literal(x, right.dtype, name)
            if bits and dtype.is_float:
                raise _no_bits(name, x, right)
            result = Tile(None, right.shape, dtype, right.valid)
            run.region(name)
            run.emit(name, "vector", (x, right), result)
            if right.array is not None and value is not UNKNOWN:
                array = right.array if dtype is right.dtype else right.array.astype(np.float32)
                result.array = _rounded(kernel(np.asarray(value, array.dtype), array), dtype)
            return result
        left, right = run.tile(x, name), run.tile(y, name)
        shape, valid = broadcast(left, right, name)
        dtype = left.dtype if left.dtype is right.dtype else promoted(left.dtype, right.dtype, name)
        if bits and dtype.is_float:
            raise _no_bits(name, left, right)
        result = Tile(None, shape, dtype, valid)
        run.emit(name, "vector", (left, right), result)
        if left.array is not None and right.array is not None:
            result.array = _rounded(kernel(left.array, right.array), dtype)
        return result

    op.__name__ = op.__qualname__ = f"pl.{name}"
    return op


def _rounded(array: Any, dtype: DataType) -> Any:
    if dtype is FP32:
        return array if array.dtype == np.float32 else array.astype(np.float32)
    return rounding.round_to(array.astype(dtype.compute, copy=False), dtype)


def unary(name: str, kernel: Callable[[Any], Any], bits: bool = False) -> Callable[..., Any]:
    """An op on one tile; `bits`: of whole numbers only."""

    def op(input: Any, tmp: Any = None, high_precision: bool = False) -> Any:
        run = current()
        if is_number(input):
            return _scalar_unary(name, input)
        tile = run.tile(input, name)
        if bits and tile.dtype.is_float:
            raise _no_bits(name, tile)
        result = Tile(None, tile.shape, tile.dtype, tile.valid)
        run.region(name)
        run.emit(name, "vector", (tile,), result)
        if tile.array is not None:
            result.array = _rounded(kernel(tile.array), tile.dtype)
        return result

    op.__name__ = op.__qualname__ = f"pl.{name}"
    return op


def _scalar_unary(name: str, x: Any) -> Any:
    if isinstance(x, Unknown):
        return UNKNOWN
    if name == "neg":
        return -x
    if name == "not":
        raise fault("pl.not takes a tensor or a tile, not a scalar")
    if name == "abs":
        return x if isinstance(x, int) and x >= 0 else -x if isinstance(x, int) else abs(x)
    return elementwise.UNARY[name](np.float32(fitting(x, FP32, f"pl.{name}")))  # type: ignore[arg-type]


def spread(name: str, kernel: Callable[[Any, Any], Any] | None, rows: bool) -> Callable[..., Any]:
    """An op of [M, N] with a column [M, 1] (rows) or a row [1, N]; without a kernel the vector is spread itself."""

    def op(lhs: Any, rhs: Any, tmp: Any = None) -> Any:
        run = current()
        left, right = run.tile(lhs, name), run.tile(rhs, name)
        run.region(name)
        want = (*left.shape[:-1], 1) if rows else (1, left.shape[-1])
        array = right.array
        if right.shape != want:
            count = left.shape[-2] if rows else left.shape[-1]
            held = 1
            for n in right.shape:
                held *= n
            if held != count:
                raise fault(f"pl.{name}: {describe(left)} needs a vector {list(want)}, not {describe(right)}")
            array = None if array is None else array.reshape(want)
        dtype = right.dtype if kernel is None else promoted(left.dtype, right.dtype, name)
        result = Tile(None, left.shape, dtype, left.valid)
        run.emit(name, "vector", (left, right), result)
        if array is not None and (left.array is not None or kernel is None):
            if kernel is None:
                result.array = np.ascontiguousarray(np.broadcast_to(array, left.shape))
            else:
                result.array = _rounded(kernel(left.array, array), dtype)
        return result

    op.__name__ = op.__qualname__ = f"pl.{name}"
    return op


def expands(target: Any, scalar: Any) -> Tile:
    """A tile of target's shape filled with a scalar."""
    run, value = current(), scalar
    tile = run.tile(target, "expands")
    number, _ = _literal(fitting(value, tile.dtype, "pl.expands"), tile.dtype, "expands")
    result = Tile(None, tile.shape, tile.dtype, tile.valid)
    run.emit("expands", "vector", (tile, value), result)
    if number is not UNKNOWN and (run.computes or tile.dtype.steers):
        result.array = np.full(tile.shape, number, tile.dtype.compute)
    return result


def cast(input: Any, target_type: Any, mode: str | int = "round") -> Any:
    """Another data type; ties go away from zero unless the mode says otherwise."""
    dtype = dtype_of(target_type, "cast")
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
    run.emit("cast", "vector", (tile,), result, attributes=(("mode", mode),))
    if tile.array is not None:
        result.array = tile.share() if dtype is tile.dtype else rounding.cast(tile.array, tile.dtype, dtype, mode)
    return result


def _cast_scalar(x: Any, dtype: DataType, mode: str) -> Any:
    if isinstance(x, Unknown):
        return x
    if type(x) is Lane:
        if dtype.is_float:
            return UNKNOWN
        if x.values.dtype.kind != "f":
            return x
        return Lane(rounding.cast(x.values.astype(np.float32), FP32, dtype, mode).astype(np.int64))
    if dtype.is_float:
        value = np.asarray(np.float32(fitting(x, dtype, "pl.cast")))
        return np.float32(rounding.cast(value, FP32, dtype, "rint" if mode == "none" else mode))
    if isinstance(x, float | np.floating):
        return int(rounding.cast(np.asarray(np.float32(x)), FP32, dtype, mode))
    return fitting(x, dtype, "pl.cast")


def cmp(lhs: Any, rhs: Any, cmp_type: int = 0) -> Tile:
    """0 or 1 of x's type: 0 ==, 1 !=, 2 <, 3 <=, 4 >, 5 >=."""
    if not 0 <= index(cmp_type, "pl.cmp", "cmp_type=") < 6:
        raise fault(f"pl.cmp: no comparison {cmp_type!r}", "Use 0 ==, 1 !=, 2 <, 3 <=, 4 >, 5 >=.")
    run = current()
    left = run.tile(lhs, "cmp")
    run.region("cmp")
    right: Any = _literal(rhs, left.dtype, "cmp")[0] if is_number(rhs) else run.tile(rhs, "cmp")
    shape, valid = (left.shape, left.valid) if is_number(rhs) else broadcast(left, right, "cmp")
    result = Tile(None, shape, left.dtype, valid)
    run.emit("cmp", "vector", (left, right), result, attributes=(("cmp_type", cmp_type),))
    other = right.array if isinstance(right, Tile) else None if right is UNKNOWN else right
    if left.array is not None and other is not None:
        result.array = elementwise.cmp(left.array, other, cmp_type).astype(left.dtype.compute)
    return result


def sel(mask: Any, lhs: Any, rhs: Any, tmp: Any = None) -> Tile:
    """lhs where the mask is not zero, else rhs (a tile or a scalar)."""
    run = current()
    chosen, left = run.tile(mask, "sel"), run.tile(lhs, "sel")
    _fits("sel", left, chosen)
    if isinstance(rhs, Tile | Tensor):
        right = run.tile(rhs, "sel")
        _fits("sel", left, right)
        other: Any = right.array
    else:
        right, other = rhs, _literal(fitting(rhs, left.dtype, "pl.sel"), left.dtype, "sel")[0]
    result = Tile(None, left.shape, left.dtype, left.valid)
    run.emit("sel", "vector", (chosen, left, right), result)
    if chosen.array is not None and left.array is not None and other is not None and other is not UNKNOWN:
        result.array = elementwise.select(chosen.array != 0, left.array, other).astype(left.dtype.compute)
    return result


def sels(mask: Any, src: Any, tmp: Any, scalar: Any) -> Tile:
    return sel(mask, src, scalar)


def lrelu(tile: Any, slope: Any) -> Tile:
    """The tile where positive, slope times it elsewhere."""
    run = current()
    x = run.tile(tile, "lrelu")
    if is_number(slope):
        factor, scale = slope, _literal(fitting(slope, FP32, "pl.lrelu"), FP32, "lrelu")[0]
    else:
        factor = run.tile(slope, "lrelu")
        _fits("lrelu", x, factor)
        scale = factor.array
    result = Tile(None, x.shape, x.dtype, x.valid)
    run.emit("lrelu", "vector", (x, factor), result)
    if x.array is not None and scale is not None and scale is not UNKNOWN:
        result.array = _rounded(np.where(x.array > 0, x.array, x.array * scale), x.dtype)
    return result


def _fits(name: str, x: Tile, other: Tile) -> None:
    """The other operand has x's shape, or one along an axis."""
    if broadcast(x, other, name)[0] != x.shape:
        raise fault(f"pl.{name}: {describe(other)} does not fit {describe(x)}")


def prelu(tile: Any, slope: Any, tmp: Any = None) -> Tile:
    return lrelu(tile, slope)


def scalar_min(lhs: Any, rhs: Any) -> Any:
    return _extreme(lhs, rhs, np.minimum, less=True)


def scalar_max(lhs: Any, rhs: Any) -> Any:
    return _extreme(lhs, rhs, np.maximum, less=False)


def _extreme(x: Any, y: Any, kernel: Any, less: bool) -> Any:
    if isinstance(x, Unknown) or isinstance(y, Unknown):
        return UNKNOWN
    if type(x) is Lane or type(y) is Lane:
        return Lane(kernel(lanes.of(x), lanes.of(y)))
    if not is_number(x) or not is_number(y):
        name = "min" if less else "max"
        raise fault(f"pl.{name} takes two scalars", f"For tiles use pl.{name}imum; along rows pl.row_{name}.")
    return (x if x <= y else y) if less else (x if x >= y else y)


_B, _U = elementwise.BINARY, elementwise.UNARY
add, sub, mul = binary("add", _B["add"]), binary("sub", _B["sub"]), binary("mul", _B["mul"])
div, maximum, minimum = binary("div", _B["div"]), binary("maximum", _B["maximum"]), binary("minimum", _B["minimum"])
fmod, fmods, rem = binary("fmod", _B["fmod"]), binary("fmods", _B["fmods"]), binary("rem", _B["rem"])
and_, or_, xor = binary("and", _B["and"], True), binary("or", _B["or"], True), binary("xor", _B["xor"], True)
shl, shr = binary("shl", _B["shl"], True), binary("shr", _B["shr"], True)
neg, exp, log, sqrt = (
    unary("neg", _U["neg"]),
    unary("exp", _U["exp"]),
    unary("log", _U["log"]),
    unary("sqrt", _U["sqrt"]),
)
rsqrt, recip, relu = unary("rsqrt", _U["rsqrt"]), unary("recip", _U["recip"]), unary("relu", _U["relu"])
sin, cos, not_, absolute = (
    unary("sin", _U["sin"]),
    unary("cos", _U["cos"]),
    unary("not", _U["not"], bits=True),
    unary("abs", _U["abs"]),
)
row_expand, col_expand = spread("row_expand", None, True), spread("col_expand", None, False)
row_expand_add, col_expand_add = spread("row_expand_add", _B["add"], True), spread("col_expand_add", _B["add"], False)
row_expand_sub, col_expand_sub = spread("row_expand_sub", _B["sub"], True), spread("col_expand_sub", _B["sub"], False)
row_expand_mul, col_expand_mul = spread("row_expand_mul", _B["mul"], True), spread("col_expand_mul", _B["mul"], False)
row_expand_div, col_expand_div = spread("row_expand_div", _B["div"], True), spread("col_expand_div", _B["div"], False)
row_expand_max, col_expand_max = (
    spread("row_expand_max", _B["maximum"], True),
    spread("col_expand_max", _B["maximum"], False),
)
row_expand_min, col_expand_min = (
    spread("row_expand_min", _B["minimum"], True),
    spread("col_expand_min", _B["minimum"], False),
)
row_expand_expdif = spread("row_expand_expdif", _B["expdif"], True)
col_expand_expdif = spread("col_expand_expdif", _B["expdif"], False)
