"""The types written in signatures: `pl.Tensor[[M, 128], pl.FP32]`, `pl.Out[...]`, `pl.Scalar[pl.INT32]`,
`pl.dynamic("M")`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npuscope.tile.dtypes import DataType


@dataclass(frozen=True)
class DynVar:
    """A dimension known at run time."""

    name: str


@dataclass(frozen=True)
class TensorType:
    """What a parameter must be; None where the annotation does not say."""

    shape: tuple[Any, ...] | None = None
    dtype: DataType | None = None


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

    direction: str
    inner: Any


def dynamic(name: str) -> DynVar:
    return DynVar(name)


def tensor(item: Any) -> TensorType:
    if isinstance(item, tuple) and len(item) >= 2 and isinstance(item[0], list | tuple):
        return TensorType(tuple(item[0]), item[1] if isinstance(item[1], DataType) else None)
    return TensorType()


class Out:
    """Written before it is read; copied back."""

    def __class_getitem__(cls, item: Any) -> Directed:
        return Directed("Out", item)


class InOut:
    """Read and written."""

    def __class_getitem__(cls, item: Any) -> Directed:
        return Directed("InOut", item)


class Scalar:
    """A value parameter."""

    def __class_getitem__(cls, item: Any) -> ScalarType:
        return ScalarType(item if isinstance(item, DataType) else None)


class Array:
    """A fixed array parameter, usually of task ids."""

    def __class_getitem__(cls, item: Any) -> ArrayType:
        return ArrayType(item[0], item[1])


class TensorView:
    """How a tensor parameter is laid out; here tensors know themselves."""

    def __init__(self, **_: Any) -> None:
        pass


class Tuple:
    def __class_getitem__(cls, item: Any) -> Any:
        return item


def direction(annotation: Any) -> str | None:
    return annotation.direction if isinstance(annotation, Directed) else None


def bare(annotation: Any) -> Any:
    return annotation.inner if isinstance(annotation, Directed) else annotation
