"""The types written in signatures: `pl.Tensor[[M, 128], pl.FP32]`, `pl.Out[...]`, `pl.Scalar[pl.INT32]`,
`pl.dynamic("M")`.
"""

from __future__ import annotations

import math
import operator
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuscope.ops.dtypes import DataType
from npuscope.tile.enums import TensorLayout
from npuscope.tile.fault import fault
from npuscope.tile.record.model import Direction


class _RunTimeExtent:
    """What is computed with dimensions in a signature: `pl.dynamic("N") * 64`."""

    name: str


@dataclass(frozen=True)
class DynVar(_RunTimeExtent):
    """A dimension known at run time."""

    name: str


_COMPUTES = {"*": operator.mul, "+": operator.add, "-": operator.sub, "//": operator.floordiv}


@dataclass(frozen=True)
class DynExpr(_RunTimeExtent):
    """An extent that follows from dimensions known at run time."""

    sign: str
    left: object
    right: object

    @property
    def name(self) -> str:  # type: ignore[override]
        left, right = (str(getattr(side, "name", side)) for side in (self.left, self.right))
        return f"{left} {self.sign} {right}"

    def value(self, known: dict[DynVar, int]) -> int | None:
        """What it is where every dimension in it is known."""
        sides = [extent_of(side, known) for side in (self.left, self.right)]
        return None if None in sides else int(_COMPUTES[self.sign](*sides))

    def solve(self, extent: int, known: dict[DynVar, int]) -> None:
        """The dimension that an extent gives, where that is the only one left open: `N * 64` of 256 is 4."""
        sides = [extent_of(side, known) for side in (self.left, self.right)]
        if self.sign == "*" and sides.count(None) == 1:
            other = sides[1] if sides[0] is None else sides[0]
            side = self.left if sides[0] is None else self.right
            if isinstance(side, DynVar) and other and extent % other == 0:
                known[side] = extent // other


for _sign, _function in _COMPUTES.items():
    _name = _function.__name__
    setattr(_RunTimeExtent, f"__{_name}__", lambda self, other, sign=_sign: DynExpr(sign, self, other))
    setattr(_RunTimeExtent, f"__r{_name}__", lambda self, other, sign=_sign: DynExpr(sign, other, self))


def extent_of(side: object, known: dict[DynVar, int]) -> int | None:
    if isinstance(side, DynExpr):
        return side.value(known)
    return known.get(side) if isinstance(side, DynVar) else int(side)  # type: ignore[call-overload]


@dataclass(frozen=True)
class TensorType:
    """What a parameter must be; None where the annotation does not say."""

    shape: tuple[int | np.integer | DynVar | DynExpr, ...] | None = None
    dtype: DataType | None = None
    layout: str = ""  # how a matrix lies in GM where that is not row by row
    strides: tuple[int, ...] = ()  # likewise, elements from one to the next along each axis


@dataclass(frozen=True)
class ScalarType:
    dtype: DataType | None = None


@dataclass(frozen=True)
class ArrayType:
    extent: int
    dtype: DataType


@dataclass(frozen=True)
class Directed:
    """A parameter that is written."""

    direction: Direction
    inner: object


def dynamic(name: str) -> DynVar:
    return DynVar(name)


def tensor(item: object) -> TensorType:
    """`[[M, 128], dtype, …]` or the shape alone; what else follows says where it lies and how."""
    if isinstance(item, list):
        item = (item, None)
    if not isinstance(item, tuple) or not item or not isinstance(item[0], list | tuple):
        return TensorType()
    for extent in item[0]:
        if not isinstance(extent, DynVar | DynExpr) and (not isinstance(extent, int | np.integer) or extent < 0):
            raise fault(f"a declared shape has whole numbers or pl.dynamic names, not {extent!r}")
    dtype = item[1] if len(item) > 1 else None
    if dtype is not None and not isinstance(dtype, DataType):
        raise fault(f"a tensor is declared with a data type such as pl.FP32, not {dtype!r}")
    layout = next((one for one in item[2:] if isinstance(one, TensorLayout)), TensorLayout.ND)
    if layout is TensorLayout.DN:
        raise fault("a tensor declared pl.DN lies column by column", "Declare pl.TensorView(stride=, layout=pl.DN).")
    view = next((one for one in item[2:] if isinstance(one, TensorView)), TensorView())
    strides = view.strides(tuple(item[0]))
    return TensorType(tuple(item[0]), dtype, "" if layout is TensorLayout.ND else layout.name, strides)


class Out:
    """Written before it is read; copied back."""

    def __class_getitem__(cls, item: object) -> Directed:
        return Directed("Out", item)


class InOut:
    """Read and written."""

    def __class_getitem__(cls, item: object) -> Directed:
        return Directed("InOut", item)


class Scalar:
    """A value parameter."""

    def __class_getitem__(cls, item: object) -> ScalarType:
        return ScalarType(item if isinstance(item, DataType) else None)


class Array:
    """A fixed array parameter, usually of task ids."""

    def __class_getitem__(cls, item: object) -> ArrayType:
        if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[1], DataType):
            raise fault(f"an array is declared with its extent and a data type, not {item!r}")
        return ArrayType(item[0], item[1])


class TensorView:
    """How a tensor parameter lies in GM: elements from one to the next along each axis (`stride`), or pl.DN for column
    by column. Of a tile it says what the tile knows itself, but for which part of it holds data (`valid_shape`).
    """

    def __init__(
        self, stride: object = None, layout: object = None, *_: object, valid_shape: object = None, **__: object
    ) -> None:
        self.stride, self.layout, self.valid_shape = stride, layout, valid_shape

    def strides(self, shape: tuple[object, ...]) -> tuple[int, ...]:
        """Those of a tensor of a shape; none where it lies row by row."""
        given, sizes = self.stride, [int(n) if isinstance(n, int | np.integer) else 0 for n in shape]
        if given is None and self.layout is TensorLayout.DN and len(sizes) > 1 and all(sizes):
            matrix = sizes[-2] * sizes[-1]
            return (*(matrix * math.prod(sizes[n + 1 : -2]) for n in range(len(sizes) - 2)), 1, sizes[-2])
        if not isinstance(given, list | tuple) or not all(isinstance(n, int | np.integer) for n in given):
            return ()
        if len(given) != len(shape):
            raise fault(f"pl.TensorView: {len(given)} strides for a tensor of {len(shape)} axes")
        return tuple(int(n) for n in given)


class MemRef:
    """A buffer that the author of a program declares, alone or in slots: `t: pl.Tile[…, m[i % 2], pl.Mem.Vec] = …`.

    It lies in memory for the whole function, as many times the largest of its tiles as it has slots, and shares its
    place with nothing else. A tile in a slot overwrites the one before it there.
    """

    def __init__(self, name: object = "", *_: object, slots: int = 1) -> None:
        if type(slots) is not int or slots < 1:
            raise fault(f"pl.MemRef: slots= is a whole number from 1, not {slots!r}")
        self.slots, self.index, self.whole = slots, 0, self
        self.name = name if isinstance(name, str) else ""

    def __getitem__(self, index: Any) -> MemRef:
        chosen = copy(self)
        chosen.index = index
        return chosen


class _AtRunTime:
    """`pl.RUNTIME`: stands for a number that `compile` leaves open."""

    def __repr__(self) -> str:
        return "pl.RUNTIME"


RUNTIME = _AtRunTime()


class ConstexprMarker:
    """`n: pl.constexpr`: a value that the compiler knows; a call gives any constant."""

    def __call__(self, *_: object, **__: object) -> object:
        raise fault("pl.constexpr is written as an annotation: n: pl.constexpr", "Give the value where you call it.")


constexpr = ConstexprMarker()


class Tuple:
    def __class_getitem__(cls, item: object) -> object:
        return item


def direction(annotation: object) -> Direction | None:
    return annotation.direction if isinstance(annotation, Directed) else None


def bare(annotation: object) -> object:
    return annotation.inner if isinstance(annotation, Directed) else annotation
