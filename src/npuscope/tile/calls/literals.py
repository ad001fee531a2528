"""Numbers beside tiles: in which type they enter an op, and what ops make of numbers alone."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from npuscope.ops import elementwise, scalars
from npuscope.ops.dtypes import FP32, DataType
from npuscope.ops.numeric.arrays import Number
from npuscope.ops.spec import OpSpec
from npuscope.tile.calls.own import own
from npuscope.tile.fault import fault
from npuscope.tile.run.state import current
from npuscope.tile.values import lanes
from npuscope.tile.values.checks import Scalar, fitting, held, is_number
from npuscope.tile.values.lanes import Lane, Plain
from npuscope.tile.values.unknown import UNKNOWN, Unknown


def literal(value: Scalar, dtype: DataType, op: str) -> tuple[Number | Unknown, DataType]:
    """A scalar operand takes the tile's type; a fraction beside whole numbers makes FP32."""
    if isinstance(value, Unknown):
        return UNKNOWN, dtype
    number = number_of(value)
    if number is None:
        current().shapes.lose()
        return UNKNOWN, dtype  # differs from lane to lane: the op runs for all, its values are not computed
    if isinstance(number, float | np.floating):
        return (held(number, dtype), dtype) if dtype.is_float else (np.float32(number), FP32)
    fits = fitting(number, dtype, f"pl.{op}")
    return held(fits, dtype) if dtype.is_float else fits, dtype


def number_of(value: Plain | Lane) -> Plain | None:
    """A number; None where it differs from lane to lane."""
    one: Plain | Lane = lanes.plain(value)
    return None if isinstance(one, Lane) else one


def settled(value: Scalar) -> Plain:
    """A number that is needed now, as it is in the first lane."""
    if isinstance(value, Lane):
        return int(value) if value.is_whole else float(value)
    return float(value) if isinstance(value, Unknown) else value


def of_two(spec: OpSpec, x: Scalar, y: Scalar) -> Scalar:
    """An op of two numbers."""
    if isinstance(x, Unknown) or isinstance(y, Unknown):
        return UNKNOWN
    function = _OF_TWO.get(spec.name)
    if function is None:
        raise fault(f"pl.{spec.name} takes a tensor or a tile, not two scalars")
    return function(x, y)


def of_one(spec: OpSpec, x: Scalar) -> Scalar:
    """An op of one number."""
    if isinstance(x, Unknown):
        return UNKNOWN
    if spec.bits:
        raise fault(f"pl.{spec.name} takes a tensor or a tile, not a scalar")
    function = _OF_ONE.get(spec.name)
    if function is not None:
        return function(x)
    assert spec.numeric is not None
    return np.float32(spec.numeric(np.float32(float(fitting(x, FP32, f"pl.{spec.name}")))))


@own(scalars.MIN)
def scalar_min(lhs: object, rhs: object) -> Scalar:
    return _extreme(lhs, rhs, np.minimum, less=True)


@own(scalars.MAX)
def scalar_max(lhs: object, rhs: object) -> Scalar:
    return _extreme(lhs, rhs, np.maximum, less=False)


def _extreme(x: object, y: object, kernel: np.ufunc, less: bool) -> Scalar:
    if isinstance(x, Unknown) or isinstance(y, Unknown):
        return UNKNOWN
    if not is_number(x) or not is_number(y):
        name = "min" if less else "max"
        raise fault(f"pl.{name} takes two scalars", f"For tiles use pl.{name}imum; along rows pl.row_{name}.")
    one, other = (None if isinstance(n, Unknown) else number_of(n) for n in (x, y))
    if one is None or other is None:
        lane = x if isinstance(x, Lane) else y
        assert isinstance(lane, Lane)
        return lane.like(kernel(lanes.of(lanes.plain(x)), lanes.of(lanes.plain(y))))
    return (one if one <= other else other) if less else (one if one >= other else other)


def _divided(x: Scalar, y: Scalar) -> Scalar:
    whole = isinstance(x, int | Lane) and isinstance(y, int | Lane)
    quotient: Scalar = operator.floordiv(x, y) if whole else operator.truediv(x, y)
    return quotient


def _negative(x: Scalar) -> Scalar:
    negative: Scalar = operator.mul(x, -1)
    return negative


def _without_sign(x: Scalar) -> Scalar:
    positive: Scalar = operator.methodcaller("__abs__")(x)
    return positive


_OF_TWO: dict[str, Callable[[Scalar, Scalar], Scalar]] = {
    elementwise.ADD.name: operator.add,
    elementwise.SUB.name: operator.sub,
    elementwise.MUL.name: operator.mul,
    elementwise.DIV.name: _divided,
    elementwise.MAXIMUM.name: scalar_max,
    elementwise.MINIMUM.name: scalar_min,
}
_OF_ONE: dict[str, Callable[[Scalar], Scalar]] = {elementwise.NEG.name: _negative, elementwise.ABS.name: _without_sign}
