"""The types written in signatures: `pl.Tensor[[M, 128], pl.FP32]`, `pl.Out[...]`, `pl.Scalar[pl.INT32]`,
`pl.dynamic("M")`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuscope.ops.dtypes import DataType
from npuscope.tile.enums import TensorLayout
from npuscope.tile.fault import fault
from npuscope.tile.record.model import Direction


@dataclass(frozen=True)
class DynVar:
    """A dimension known at run time."""

    name: str


@dataclass(frozen=True)
class TensorType:
    """What a parameter must be; None where the annotation does not say."""

    shape: tuple[int | np.integer | DynVar, ...] | None = None
    dtype: DataType | None = None
    layout: str = ""  # how a matrix lies in GM where that is not row by row


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
        if not isinstance(extent, DynVar) and (not isinstance(extent, int | np.integer) or extent < 0):
            raise fault(f"a declared shape has whole numbers or pl.dynamic names, not {extent!r}")
    dtype = item[1] if len(item) > 1 else None
    if dtype is not None and not isinstance(dtype, DataType):
        raise fault(f"a tensor is declared with a data type such as pl.FP32, not {dtype!r}")
    layout = next((one for one in item[2:] if isinstance(one, TensorLayout)), TensorLayout.ND)
    if layout is TensorLayout.DN:
        raise fault("a tensor declared pl.DN lies column by column", "Read it with pl.transpose_view or b_trans=.")
    return TensorType(tuple(item[0]), dtype, "" if layout is TensorLayout.ND else layout.name)


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
    """How a tensor parameter is laid out; here tensors know themselves."""

    def __init__(self, **_: object) -> None:
        pass


class MemRef:
    """A buffer that the author of a program declares, alone or in slots: `t: pl.Tile[…, m[i % 2], pl.Mem.Vec] = …`.

    Annotations in bodies are not evaluated, so here it is a name: npuscope places such tiles as it does others.
    """

    def __init__(self, *where: object, slots: int = 1) -> None:
        if type(slots) is not int or slots < 1:
            raise fault(f"pl.MemRef: slots= is a whole number from 1, not {slots!r}")
        self.slots = slots

    def __getitem__(self, index: object) -> MemRef:
        return self


class Tuple:
    def __class_getitem__(cls, item: object) -> object:
        return item


def direction(annotation: object) -> Direction | None:
    return annotation.direction if isinstance(annotation, Directed) else None


def bare(annotation: object) -> object:
    return annotation.inner if isinstance(annotation, Directed) else annotation
