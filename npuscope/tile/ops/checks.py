"""What several families of ops check and derive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from npuscope.tile.dtypes import BOOL, FP32, DataType
from npuscope.tile.fault import fault
from npuscope.tile.lanes import Lane
from npuscope.tile.numeric import rounding
from npuscope.tile.unknown import Unknown
from npuscope.tile.values import Shape, Tensor, Tile

NUMBERS = (int, float, np.number, np.bool_, Lane, Unknown)


def is_number(value: Any) -> bool:
    return isinstance(value, NUMBERS)


def shape_of(shape: Sequence[Any]) -> Shape:
    """A shape as ints; lanes that differ in it are run apart."""
    try:
        extents = tuple([n if type(n) is int else int(n) for n in shape])
    except TypeError:
        raise fault(f"a shape must be a list of whole numbers, not {shape!r}") from None
    for n in extents:
        if n < 0:
            raise fault(f"a shape cannot have the extent {n}: {list(extents)}")
    return extents


def describe(value: Any) -> str:
    """An operand for a message."""
    if isinstance(value, Tensor | Tile):
        valid = "" if value.valid is None else f" valid {list(value.valid)}"
        return f"{list(value.shape)} {value.dtype}{valid}"
    return type(value).__name__


def promoted(x: DataType, y: DataType, op: str) -> DataType:
    """The type of x op y: float over int, wider over narrower, signed over unsigned."""
    if x is y:
        return x
    if x.is_float != y.is_float:
        return x if x.is_float else y
    if x.bytes != y.bytes:
        return x if x.bytes > y.bytes else y
    if x.is_float:
        return FP32  # bf16 with fp16
    return y if x.name.startswith("UINT") else x


def broadcast(x: Tile, y: Tile, op: str) -> tuple[Shape, Shape | None]:
    """Shape and valid region of x op y."""
    if x.shape == y.shape:
        shape = x.shape
    else:
        try:
            shape = np.broadcast_shapes(x.shape, y.shape)
        except ValueError:
            raise fault(f"pl.{op}: shapes {describe(x)} and {describe(y)} do not fit together") from None
    if x.valid is None and y.valid is None:
        return shape, None
    return shape, narrower(shape, x, y)


def narrower(shape: Shape, *tiles: Tile) -> Shape | None:
    """The region valid in every operand; a broadcast axis does not narrow."""
    valid = list(shape)
    for tile in tiles:
        if tile.valid is None:
            continue
        lead = len(shape) - len(tile.shape)
        for axis, (extent, inside) in enumerate(zip(tile.shape, tile.valid, strict=True), start=lead):
            if extent == shape[axis] and extent != 1:
                valid[axis] = min(valid[axis], inside)
    return None if tuple(valid) == shape else tuple(valid)


def held(value: Any, dtype: DataType, op: str) -> Any:
    """A number as a data type holds it; a whole number that it cannot hold is a mistake."""
    if dtype.is_float:
        exact = np.float32(value)
        return exact if dtype is FP32 else rounding.cast(np.asarray(exact), FP32, dtype, "rint")[()]
    if dtype is BOOL:
        return bool(value)
    limits, whole = np.iinfo(dtype.storage), int(value)
    if not limits.min <= whole <= limits.max:
        raise fault(f"pl.{op}: {whole} does not fit {dtype}, which goes from {limits.min} to {limits.max}")
    return whole


def dtype_of(value: Any, op: str) -> DataType:
    if not isinstance(value, DataType):
        raise fault(f"pl.{op}: {value!r} is not a data type of the language")
    return value
