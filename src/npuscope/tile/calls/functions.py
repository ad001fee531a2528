"""The functions of ops: bound by hand with `implements`, or made from the spec of an op with a regular form.

Every one checks its operands, records itself and, where values are kept, computes. A number beside a tile takes the
tile's type; what ops make of numbers alone stands at the end.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from inspect import Parameter, Signature
from typing import TypeVar

import numpy as np

from npuscope.ops import elementwise, rounding
from npuscope.ops.dtypes import BY_NAME, FP32, Array, DataType, Number
from npuscope.ops.reductions import COL_SUM, sum_of_rows
from npuscope.ops.spec import Numeric, OpSpec
from npuscope.ops.transfers import MAX, MIN
from npuscope.tile.fault import fault
from npuscope.tile.record.recorder import Attributes
from npuscope.tile.run.state import TileRun, current
from npuscope.tile.values import lanes
from npuscope.tile.values.checks import (
    Scalar,
    broadcast,
    check_scratch,
    describe,
    fitting,
    flag,
    is_number,
    promoted,
    rounded_number,
    shown,
)
from npuscope.tile.values.lanes import UNKNOWN, Lane, Plain, Unknown
from npuscope.tile.values.tensors import Tile

FUNCTIONS: dict[str, Callable[..., object]] = {}  # spelling -> function
_KIND = Parameter.POSITIONAL_OR_KEYWORD
_SCRATCH = ("tmp", "tmp_tile")
Function = TypeVar("Function", bound=Callable[..., object])


def implements(spec: OpSpec, *spellings: str) -> Callable[[Function], Function]:
    """Binds a function to the given spellings of an op, where none is given to all of them; without a docstring it gets
    the op's.
    """

    def bind(function: Function) -> Function:
        function.__doc__ = function.__doc__ or spec.doc
        FUNCTIONS.update(dict.fromkeys(spellings or spec.names, function))
        return function

    return bind


# --- made from a spec


def function_from(spec: OpSpec) -> Callable[..., object]:
    """The function of an op with a regular form."""
    make, operands = _FORMS[spec.form]
    options = _Options(spec)
    op = make(spec, options)
    op.__name__ = op.__qualname__ = f"pl.{spec.name}"
    op.__doc__ = spec.doc
    vars(op)["__signature__"] = Signature([*(Parameter(name, _KIND) for name in operands), *options.parameters])
    return op


class _Options:
    """The parameters of an op besides its operands (`OpSpec.options`)."""

    def __init__(self, spec: OpSpec) -> None:
        self._spec = spec
        self.parameters = [Parameter(name, _KIND, default=value) for name, value in spec.options.items()]

    @cached_property
    def _computed_with(self) -> list[str]:
        """Those that change what is computed."""
        numeric = self._spec.numeric
        if numeric is None or isinstance(numeric, np.ufunc):
            return []
        return [name for name in self._spec.options if name in inspect.signature(numeric).parameters]

    def __call__(self, given: tuple[object, ...], named: Mapping[str, object]) -> tuple[Numeric, Attributes]:
        """What the op computes with these options, and those of them that are recorded."""
        spec, numeric = self._spec, self._spec.numeric
        assert numeric is not None
        order = self.parameters
        if given and isinstance(given[0], bool):  # tensors have no scratch before their flags
            order = [one for one in order if one.name not in _SCRATCH]
        try:
            values = Signature(order).bind(*given, **named).arguments
        except TypeError as error:
            raise fault(f"pl.{spec.name}() {error}", f"It has {', '.join(spec.options) or 'no options'}.") from None
        used = {name: lanes.plain(values[name]) for name in self._computed_with if name in values}
        room: Attributes = ()
        for name, value in values.items():
            if name in _SCRATCH:
                check_scratch(value, spec.name)
                if spec.scratch and isinstance(value, Tile):
                    room = (("scratch", value.shape[-1]),)
            elif name == "is_binary":  # the order of its sums
                flag(value, spec.name, "is_binary=")
            elif name == "high_precision":  # values are exact in any case; what it costs is not known
                flag(value, spec.name, "high_precision=")
        for name, value in used.items():
            if not isinstance(value, bool | int | float | str):
                raise fault(f"pl.{spec.name}: {name}= cannot be {shown(value)}")
        recorded = {name: value for name, value in used.items() if value != spec.options[name]}
        return partial(numeric, **used), (*recorded.items(), *room)


def _unary(spec: OpSpec, options: _Options) -> Callable[..., object]:
    """An op on one tile."""
    name, numeric = spec.name, spec.numeric
    assert numeric is not None

    def op(input: object, *more: object, **named: object) -> Tile | Scalar:
        run = current()
        kernel, attributes = options(more, named) if more or named else (numeric, ())
        if is_number(input):
            return _of_one(spec, kernel, input)
        tile = run.tile(input, name)
        if spec.bits and tile.dtype.is_float:
            raise _no_bits(name, tile)
        result = run.result(spec, (tile,), tile.shape, tile.dtype, tile.valid, attributes=attributes)
        if tile.array is not None:
            result.array = rounded(kernel(tile.array), tile.dtype)
        return result

    return op


def _binary(spec: OpSpec, options: _Options) -> Callable[..., object]:
    """An op on two tiles, or on a tile and a number."""
    name, numeric = spec.name, spec.numeric
    assert numeric is not None

    def op(lhs: object, rhs: object, *more: object, **named: object) -> Tile | Scalar:
        run = current()
        kernel, attributes = options(more, named) if more or named else (numeric, ())
        if is_number(rhs):
            return _of_two(spec, lhs, rhs) if is_number(lhs) else with_number(kernel, attributes, lhs, rhs, False)
        if is_number(lhs):
            return with_number(kernel, attributes, rhs, lhs, True)
        left, right = run.tile(lhs, name), run.tile(rhs, name)
        shape, valid = broadcast(left, right, name)
        if left.shape != right.shape:
            _note_spread(run, spec, left, right)
        dtype = left.dtype if left.dtype is right.dtype else promoted(left.dtype, right.dtype)
        if spec.bits and dtype.is_float:
            raise _no_bits(name, left, right)
        result = run.result(spec, (left, right), shape, dtype, valid, attributes=attributes)
        if left.array is not None and right.array is not None:
            result.array = rounded(kernel(left.array, right.array), dtype)
        return result

    def with_number(kernel: Numeric, attributes: Attributes, x: object, number: Scalar, swapped: bool) -> Tile:
        run = current()
        tile = run.tile(x, name)
        operands = (number, tile) if swapped else (tile, number)
        value, dtype = literal(number, tile.dtype, name)
        if spec.bits and (dtype.is_float or isinstance(number, float)):
            raise _no_bits(name, *operands)
        drains = (tile.space == "Acc" or tile.drains) and not swapped and spec in (elementwise.MUL, elementwise.MAXIMUM)
        if drains and (type(number) is float or (type(number) is int and number == 0)):
            attributes = (*attributes, (elementwise.NUMBER, float(number)))
        result = run.result(spec, operands, tile.shape, dtype, tile.valid, attributes=attributes)
        result.drains = drains
        if tile.array is not None and value is not UNKNOWN:
            array = tile.array if dtype is tile.dtype else tile.array.astype(np.float32)
            made = kernel(np.asarray(value, array.dtype), array) if swapped else kernel(array, value)
            result.array = rounded(made, dtype)
        return result

    return op


def _note_spread(run: TileRun, spec: OpSpec, left: Tile, right: Tile) -> None:
    """What the chip makes of shapes that differ is not always what it says (measured on a 910B4, September 2026)."""
    rows, columns = (tuple([(tile.valid or tile.shape)[axis:][:1] for tile in (left, right)]) for axis in (-2, -1))
    about = f"pl.{spec.name} of {describe(left)} and {describe(right)}"
    if columns[0] == columns[1] and rows[0] != rows[1]:
        about = f"{about}: the chip spreads no row over the others, only the first row comes out right"
        run.recorder.notice("spread", f"{about}. Write pl.col_expand_{spec.name}, or pl.col_expand before it.")
    elif spec is elementwise.SUB and left.shape[-1] == 1:
        about = f"{about}: with the column on the left the chip computes the tile less the column"
        run.recorder.notice("spread", f"{about}. Write pl.neg(pl.row_expand_sub(tile, column)).")


def _spread(spec: OpSpec, options: _Options) -> Callable[..., object]:
    """An op of [M, N] with a column [M, 1] (rows) or a row [1, N]; without a kernel the vector is spread itself."""
    name, rows = spec.name, spec.axis == "rows"

    def op(lhs: object, rhs: object, *more: object, **named: object) -> Tile:
        kernel, attributes = options(more, named) if more or named else (spec.numeric, ())
        run = current()
        left, right = run.tile(lhs, name), run.tile(rhs, name)
        want = (*left.shape[:-1], 1) if rows else (1, left.shape[-1])
        array = right.array
        block = 32 // right.dtype.bytes
        if rows and right.shape == (*left.shape[:-1], block) and left.shape[-1] > block:
            # 32 bytes for each row, which the chip repeats along it
            wide = -(-left.shape[-1] // block)
            array = None if array is None else np.tile(array, (1,) * (array.ndim - 1) + (wide,))[..., : left.shape[-1]]
        elif right.shape != want:
            if right.size != (left.shape[-2] if rows else left.shape[-1]):
                raise fault(f"pl.{name}: {describe(left)} needs a vector {list(want)}, not {describe(right)}")
            array = None if array is None else array.reshape(want)
        dtype = right.dtype if kernel is None else promoted(left.dtype, right.dtype)
        result = run.result(spec, (left, right), left.shape, dtype, left.valid, attributes=attributes)
        if array is not None and kernel is None:
            result.array = np.ascontiguousarray(np.broadcast_to(array, left.shape))
        elif array is not None and left.array is not None and kernel is not None:
            result.array = rounded(kernel(left.array, array), dtype)
        return result

    return op


def _reduction(spec: OpSpec, options: _Options) -> Callable[..., object]:
    """One element of each row or column, over the valid region."""
    name, numeric = spec.name, spec.numeric
    assert numeric is not None
    axis = -1 if spec.axis == "rows" else -2

    def op(input: object, *more: object, **named: object) -> Tile:
        kernel, attributes = options(more, named) if more or named else (numeric, ())
        run = current()
        tile = run.tile(input, name)
        if len(tile.shape) < 2:
            raise fault(f"pl.{name} needs rows and columns, not {describe(tile)}")
        if not (tile.valid or tile.shape)[axis] and not spec.of_nothing:
            raise fault(f"pl.{name} of {describe(tile)}: there is nothing along this axis")
        dtype = BY_NAME[spec.gives] if spec.gives else tile.dtype
        shape, valid = list(tile.shape), list(tile.valid or tile.shape)
        shape[axis] = valid[axis] = 1
        result = run.result(spec, (tile,), tuple(shape), dtype, tuple(valid), attributes=attributes)
        array = tile.array
        if array is not None:
            if tile.valid is not None:
                array = array[..., : tile.valid[-1]] if axis == -1 else array[..., : tile.valid[-2], :]
            in_pairs = spec is COL_SUM and _adds_in_pairs(*more, **named)
            if spec is COL_SUM and dtype.is_float and array.shape[-2] and (in_pairs or dtype is not FP32):
                out = sum_of_rows(array, partial(rounded, dtype=dtype), in_pairs)
            else:
                out = kernel(array)
            result.array = out if spec.gives else rounded(out, dtype)
        return result

    return op


def _adds_in_pairs(tmp_tile: object = None, is_binary: object = None) -> bool:
    """A scratch tile asks for it, where nothing else is said."""
    return tmp_tile is not None if is_binary is None else bool(is_binary)


_FORMS = {
    "unary": (_unary, ("input",)),
    "binary": (_binary, ("lhs", "rhs")),
    "spread": (_spread, ("lhs", "rhs")),
    "reduction": (_reduction, ("input",)),
}


def _no_bits(name: str, *operands: object) -> Exception:
    given = " and ".join(describe(x) if isinstance(x, Tile) else shown(x) for x in operands)
    return fault(f"pl.{name} works on the bits of whole numbers, not on {given}", "Cast it to INT32 first.")


def rounded(array: Array, dtype: DataType) -> Array:
    """What an op computed, as a tile of its type holds it."""
    if dtype is FP32:
        return array if array.dtype == np.float32 else array.astype(np.float32)
    return rounding.round_to(array.astype(dtype.compute, copy=False), dtype)


# --- numbers


def literal(value: Scalar, dtype: DataType, op: str) -> tuple[Number | Unknown, DataType]:
    """A scalar operand takes the tile's type, for an instruction has one type: beside whole numbers a fraction goes."""
    if isinstance(value, Unknown):
        return UNKNOWN, dtype
    number = same_in_lanes(value)
    if number is None:
        current().shapes.lose()
        return UNKNOWN, dtype  # differs from lane to lane: the op runs for all, its values are not computed
    if isinstance(number, float | np.floating):
        if dtype.is_float:
            return rounded_number(number, dtype), dtype
        if np.isfinite(number) and number != int(number):
            about = f"pl.{op}: beside {dtype} the chip takes {shown(number)} for {int(number)}"
            current().recorder.notice("fraction", f"{about}. Cast the tile to FP32 first.")
            number = int(number)
    fits = fitting(number, dtype, f"pl.{op}")
    return rounded_number(fits, dtype) if dtype.is_float else fits, dtype


def same_in_lanes(value: Plain | Lane) -> Plain | None:
    """A number; None where it differs from lane to lane."""
    one: Plain | Lane = lanes.plain(value)
    return None if isinstance(one, Lane) else one


def settled(value: Scalar) -> Plain:
    """A number that is needed now, as it is in the first lane."""
    if isinstance(value, Lane):
        return int(value) if value.is_whole else float(value)
    return float(value) if isinstance(value, Unknown) else value


def _of_two(spec: OpSpec, x: Scalar, y: Scalar) -> Scalar:
    """An op of two numbers."""
    if isinstance(x, Unknown) or isinstance(y, Unknown):
        return Unknown.of(*(one for one in (x, y) if isinstance(one, Unknown)))
    function = _OF_TWO.get(spec.name)
    if function is None:
        raise fault(f"pl.{spec.name} takes a tensor or a tile, not two scalars")
    return function(x, y)


def _of_one(spec: OpSpec, kernel: Numeric, x: Scalar) -> Scalar:
    """An op of one number."""
    if isinstance(x, Unknown):
        return x
    if spec.bits:
        raise fault(f"pl.{spec.name} takes a tensor or a tile, not a scalar")
    function = _OF_ONE.get(spec.name)
    if function is not None:
        return function(x)
    return np.float32(kernel(np.float32(float(fitting(x, FP32, f"pl.{spec.name}")))))


@implements(MIN)
def scalar_min(lhs: object, rhs: object) -> Scalar:
    return _extreme(lhs, rhs, np.minimum, less=True)


@implements(MAX)
def scalar_max(lhs: object, rhs: object) -> Scalar:
    return _extreme(lhs, rhs, np.maximum, less=False)


def _extreme(x: object, y: object, kernel: np.ufunc, less: bool) -> Scalar:
    if isinstance(x, Unknown) or isinstance(y, Unknown):
        return Unknown.of(*(one for one in (x, y) if isinstance(one, Unknown)))
    if not is_number(x) or not is_number(y):
        name = "min" if less else "max"
        raise fault(f"pl.{name} takes two scalars", f"For tiles use pl.{name}imum; along rows pl.row_{name}.")
    one, other = lanes.plain(x), lanes.plain(y)
    if isinstance(one, Lane):
        return one.like(kernel(lanes.of(one), lanes.of(other)))
    if isinstance(other, Lane):
        return other.like(kernel(one, lanes.of(other)))
    first = one <= other if less else one >= other
    chosen: Plain = one if first else other
    return chosen


def _divided(x: Scalar, y: Scalar) -> Scalar:
    whole = isinstance(x, int | Lane) and isinstance(y, int | Lane)
    quotient: Scalar = operator.floordiv(x, y) if whole else operator.truediv(x, y)
    return quotient


_OF_TWO: dict[str, Callable[[Scalar, Scalar], Scalar]] = {
    elementwise.ADD.name: operator.add,
    elementwise.SUB.name: operator.sub,
    elementwise.MUL.name: operator.mul,
    elementwise.DIV.name: _divided,
    elementwise.MAXIMUM.name: scalar_max,
    elementwise.MINIMUM.name: scalar_min,
}
_OF_ONE: dict[str, Callable[[Scalar], Scalar]] = {
    elementwise.NEG.name: partial(operator.mul, -1),
    elementwise.ABS.name: operator.abs,
}
