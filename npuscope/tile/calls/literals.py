"""Numbers beside tiles: in which type they enter an op, and what ops make of numbers alone."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from npuscope.ops import elementwise, scalars
from npuscope.ops.dtypes import FP32, DataType
from npuscope.ops.spec import OpSpec
from npuscope.tile.calls.own import own
from npuscope.tile.fault import fault
from npuscope.tile.run.state import current
from npuscope.tile.values import lanes
from npuscope.tile.values.checks import fitting, held, is_number
from npuscope.tile.values.lanes import Lane
from npuscope.tile.values.unknown import UNKNOWN, Unknown


def literal(value: Any, dtype: DataType, op: str) -> tuple[Any, DataType]:
    """A scalar operand takes the tile's type; a fraction beside whole numbers makes FP32."""
    if isinstance(value, Unknown):
        return UNKNOWN, dtype
    value = lanes.plain(value)
    if type(value) is Lane:
        current().lost = True
        return UNKNOWN, dtype  # differs from lane to lane: the op runs for all, its values are not computed
    if isinstance(value, float | np.floating):
        return (held(value, dtype), dtype) if dtype.is_float else (np.float32(value), FP32)
    value = fitting(value, dtype, f"pl.{op}")
    return held(value, dtype) if dtype.is_float else value, dtype


def of_two(spec: OpSpec, x: Any, y: Any) -> Any:
    """An op of two numbers."""
    if isinstance(x, Unknown) or isinstance(y, Unknown):
        return UNKNOWN
    function = _OF_TWO.get(spec.name)
    if function is None:
        raise fault(f"pl.{spec.name} takes a tensor or a tile, not two scalars")
    return function(x, y)


def of_one(spec: OpSpec, x: Any) -> Any:
    """An op of one number."""
    if isinstance(x, Unknown):
        return UNKNOWN
    if spec.bits:
        raise fault(f"pl.{spec.name} takes a tensor or a tile, not a scalar")
    function = _OF_ONE.get(spec.name)
    if function is not None:
        return function(x)
    assert spec.numeric is not None
    return spec.numeric(np.float32(fitting(x, FP32, f"pl.{spec.name}")))


@own(scalars.MIN)
def scalar_min(lhs: Any, rhs: Any) -> Any:
    return _extreme(lhs, rhs, np.minimum, less=True)


@own(scalars.MAX)
def scalar_max(lhs: Any, rhs: Any) -> Any:
    return _extreme(lhs, rhs, np.maximum, less=False)


def _extreme(x: Any, y: Any, kernel: Any, less: bool) -> Any:
    if isinstance(x, Unknown) or isinstance(y, Unknown):
        return UNKNOWN
    x, y = lanes.plain(x), lanes.plain(y)
    if type(x) is Lane or type(y) is Lane:
        return Lane(kernel(lanes.of(x), lanes.of(y)))
    if not is_number(x) or not is_number(y):
        name = "min" if less else "max"
        raise fault(f"pl.{name} takes two scalars", f"For tiles use pl.{name}imum; along rows pl.row_{name}.")
    return (x if x <= y else y) if less else (x if x >= y else y)


def _divided(x: Any, y: Any) -> Any:
    whole = isinstance(x, int | Lane) and isinstance(y, int | Lane)
    return x // y if whole else x / y


def _without_sign(x: Any) -> Any:
    return x if isinstance(x, int) and x >= 0 else -x if isinstance(x, int) else abs(x)


_OF_TWO: dict[str, Callable[[Any, Any], Any]] = {
    elementwise.ADD.name: operator.add,
    elementwise.SUB.name: operator.sub,
    elementwise.MUL.name: operator.mul,
    elementwise.DIV.name: _divided,
    elementwise.MAXIMUM.name: scalar_max,
    elementwise.MINIMUM.name: scalar_min,
}
_OF_ONE: dict[str, Callable[[Any], Any]] = {elementwise.NEG.name: operator.neg, elementwise.ABS.name: _without_sign}
