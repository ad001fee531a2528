"""What several families of ops check and derive."""

from __future__ import annotations

import enum
from typing import Any, TypeGuard, TypeVar, overload

import numpy as np

from npuscope.ops import rounding
from npuscope.ops.dtypes import FP32, DataType
from npuscope.tile.fault import fault
from npuscope.tile.values.lanes import Lane, Plain, Unknown, Whole, plain
from npuscope.tile.values.tensors import Shape, Tensor, Tile

Scalar = Plain | Lane | Unknown
NUMBERS = (int, float, np.integer, np.floating, np.bool_, Lane, Unknown)
Member = TypeVar("Member", bound=enum.Enum)
_LISTS = (list, tuple)
_MOST = 1 << 40  # elements of one tensor: more than any machine holds


def is_number(value: object) -> TypeGuard[Scalar]:
    return isinstance(value, NUMBERS)


def index(value: object, where: str, what: str = "an index") -> Whole:
    """A whole number, the same type for every caller: an int, or a lane of ints. A fraction would be cut off."""
    if type(value) is int:
        return value
    if type(value) is Lane:
        if value.is_whole:
            return value
    elif isinstance(value, int | np.integer | np.bool_ | Unknown):
        return int(value)  # of an unknown: says that shapes mode does not compute it
    raise fault(f"{where}: {what} must be a whole number, not {shown(value)}")


def axis_of(axis: object, x: Tensor | Tile, op: str) -> int:
    """An axis of an operand, from the front or from the back."""
    number = int(index(axis, f"pl.{op}", "an axis"))
    if not -len(x.shape) <= number < len(x.shape):
        raise fault(f"pl.{op}: no axis {number} in {describe(x)}")
    return number


def check_offsets(offset: object, rank: int, op: str) -> None:
    """One whole number for each axis."""
    if type(offset) is not list and not isinstance(offset, _LISTS):
        raise fault(f"pl.{op}: offsets must be a list of whole numbers, not {shown(offset)}")
    if len(offset) != rank:
        raise fault(f"pl.{op}: {len(offset)} offsets {list(offset)!r} for {rank} axes")
    for first in offset:
        if type(first) is not int:
            index(first, f"pl.{op}", "an offset")


def shape_of(shape: object) -> Shape:
    """A shape as ints; lanes that differ in it are run by themselves."""
    if not isinstance(shape, _LISTS) or not shape:
        raise fault(f"a shape must be a list of whole numbers, not {shown(shape)}")
    extents = tuple([n if type(n) is int else int(index(n, f"the shape {shown(shape)}", "an extent")) for n in shape])
    size = 1
    for n in extents:
        if n < 0:
            raise fault(f"a shape cannot have the extent {n}: {list(extents)}")
        size *= n
    if size > _MOST:
        raise fault(f"a shape {list(extents)} has {size} elements, more than any memory holds")
    return extents


def flag(value: object, op: str, name: str) -> bool:
    """True or False; a condition of lanes is settled."""
    value = plain(value)
    if value is True or value is False:
        return value
    if isinstance(value, Lane | Unknown | np.bool_) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise fault(f"pl.{op}: {name} must be True or False, not {shown(value)}")


def member(value: object, kind: type[Member], op: str, name: str) -> Member:
    """A named constant of the language."""
    if not isinstance(value, kind):
        raise fault(f"pl.{op} needs {name}=pl.{kind.__name__}.…, not {shown(value)}")
    return value


def check_phase(phase: object, op: str, name: str) -> None:
    """Whether more parts of K follow: for the hand-over to the way out, which the lowered form orders by itself."""
    if getattr(phase, "value", phase) not in ("unspecified", "partial", "final"):
        raise fault(f"pl.{op}: {name}={shown(phase)}", "Use Unspecified, Partial or Final.")


@overload
def fitting(value: Plain, dtype: DataType, where: str) -> Plain: ...
@overload
def fitting(value: object, dtype: DataType, where: str) -> Scalar: ...
def fitting(value: object, dtype: DataType, where: str) -> Scalar:
    """A number that a tile of this type can hold as it is."""
    value = plain(value)
    if type(value) is Lane or isinstance(value, Unknown):
        return value
    if not is_number(value) or dtype.storage is None:
        raise fault(f"{where} takes a number for {dtype}, not {shown(value)}")
    if dtype.is_float:
        try:
            float(value)
        except OverflowError:
            raise fault(f"{where}: a number of {len(str(value))} digits is too large for {dtype}") from None
        return value
    low, high = dtype.limits
    if not (low <= value <= high and value == int(value)):
        raise fault(f"{where}: {shown(value)} is not a value of {dtype}", f"It holds whole numbers {low} to {high}.")
    return int(value)


def tensor_or_tile(value: object, op: str) -> Tensor | Tile:
    """An operand that may lie in GM or on chip."""
    if not isinstance(value, Tensor | Tile):
        raise fault(f"pl.{op} takes a tensor or a tile, not {describe(value)}")
    return value


def check_scratch(value: object, op: str) -> None:
    """Room that a program gives to an op to work in: the memory plan has it from the op's spec."""
    if value is not None and not hasattr(value, "shape"):
        raise fault(f"pl.{op}: its scratch is a tile, not {shown(value)}")


def describe(value: object) -> str:
    """An operand for a message."""
    if isinstance(value, Tensor | Tile):
        valid = "" if value.valid is None else f" valid {list(value.valid)}"
        return f"{list(value.shape)} {value.dtype}{valid}"
    kind = type(value)
    if kind.__module__ == "numpy" and isinstance(value, np.ndarray):
        return "a NumPy array: pass it as an argument"
    if kind.__module__.partition(".")[0] == "torch" and hasattr(value, "detach"):
        return "a torch tensor: pass it as an argument"
    return kind.__name__


def shown(value: object) -> str:
    """A value that is none of what was asked for: itself where it is short, else what it is."""
    value = plain(value)
    if value is None or isinstance(value, int | float | complex | str | bytes | list | tuple | np.generic):
        text = repr(value)
        return text if len(text) <= 40 else f"{text[:40]}…"
    return describe(value)


def promoted(x: DataType, y: DataType) -> DataType:
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
    return shape, _narrower(shape, x, y)


def _narrower(shape: Shape, *tiles: Tile) -> Shape:
    """The region valid in every operand; a broadcast axis does not narrow."""
    valid = list(shape)
    for tile in tiles:
        if tile.valid is None:
            continue
        lead = len(shape) - len(tile.shape)
        for axis, (extent, inside) in enumerate(zip(tile.shape, tile.valid, strict=True), start=lead):
            if extent == shape[axis] and extent != 1:
                valid[axis] = min(valid[axis], inside)
    return tuple(valid)


def rounded_number(value: Plain, dtype: DataType) -> np.float32:
    """A number as a float type holds it."""
    exact = np.float32(value)
    return exact if dtype is FP32 else np.float32(rounding.cast(np.asarray(exact), FP32, dtype, "rint"))


def dtype_of(value: object, op: str) -> DataType:
    if not isinstance(value, DataType):
        raise fault(f"pl.{op}: {value!r} is not a data type of the language")
    if value.storage is None and value.is_float:
        raise fault(f"pl.{op}: which values {value} has is not public", "Use FP8E4M3FN or FP4.")
    return value


_MOST_ELEMENTS = 1 << 24  # elements of an array of scalars


class TaskId(int):
    """The number of a task in the recording."""

    def __repr__(self) -> str:
        return f"TaskId({int(self)})"


class ValueArray(list[Any]):
    """`pl.array.create(n, dtype)`: a fixed array; of task ids it starts as none."""

    def __init__(self, extent: object, dtype: object) -> None:
        kind = dtype_of(dtype, "array.create")
        count = int(index(extent, "pl.array.create", "the extent"))
        if not 0 <= count <= _MOST_ELEMENTS:
            raise fault(f"pl.array.create: an array of {count} elements")
        super().__init__([None if kind.storage is None else 0] * count)
        self.dtype = kind

    def _place(self, number: object) -> int:
        place = number if type(number) is int else int(index(number, "pl.array"))
        if not 0 <= place < len(self):
            raise fault(f"index {place} of an array of {len(self)}")
        return place

    def __setitem__(self, number: object, value: object) -> None:
        if self.dtype.storage is not None:
            value = fitting(value, self.dtype, "pl.array.update_element")
        elif value is not None and not isinstance(value, TaskId):
            raise fault(f"an array of task ids takes a task id, not {describe(value)}", "Take it from `with … as tid`.")
        super().__setitem__(self._place(number), value)

    def __getitem__(self, number: object) -> Any:
        if isinstance(number, slice):
            return super().__getitem__(number)
        return super().__getitem__(self._place(number))


def flat_ids(deps: object) -> tuple[int, ...]:
    """The task ids in a deps list: ids, arrays of ids, None for no task."""
    found: list[int] = []
    if deps is not None:
        _collect(deps, found)
    return tuple(found)


def _collect(deps: object, found: list[int]) -> None:
    if isinstance(deps, TaskId):
        found.append(int(deps))
    elif isinstance(deps, list | tuple | set | frozenset):
        for entry in deps:
            if type(entry) is TaskId:
                found.append(int(entry))
            elif entry is not None:
                _collect(entry, found)
    else:
        raise fault(f"deps= entries must be task ids, not {type(deps).__name__}", "Take them from `with … as tid`.")


def create(extent: object, dtype: object) -> ValueArray:
    return ValueArray(extent, dtype)


def get_element(array: object, index: object) -> object:
    element: object = _array(array, "get_element")[index]
    return element


def update_element(array: object, index: object, value: object) -> ValueArray:
    held = _array(array, "update_element")
    held[index] = value
    return held


def _array(value: object, op: str) -> ValueArray:
    if not isinstance(value, ValueArray):
        raise fault(f"pl.array.{op} takes an array of pl.array.create, not {describe(value)}")
    return value
