"""Handles of tasks, and arrays of them."""

from __future__ import annotations

from typing import Any

from npuscope.tile.fault import fault
from npuscope.tile.values.checks import describe, dtype_of, fitting, index

_MOST = 1 << 24  # elements of an array of scalars


class TaskId(int):
    """The number of a task in the recording."""

    def __repr__(self) -> str:
        return f"TaskId({int(self)})"


class ValueArray(list[Any]):
    """`pl.array.create(n, dtype)`: a fixed array; of task ids it starts as none."""

    def __init__(self, extent: int, dtype: Any) -> None:
        kind = dtype_of(dtype, "array.create")
        count = int(index(extent, "pl.array.create", "the extent"))
        if not 0 <= count <= _MOST:
            raise fault(f"pl.array.create: an array of {count} elements")
        super().__init__([None if kind.storage is None else 0] * count)
        self.dtype = kind

    def _place(self, number: Any) -> int:
        place = int(index(number, "pl.array"))
        if not 0 <= place < len(self):
            raise fault(f"index {place} of an array of {len(self)}")
        return place

    def __setitem__(self, number: Any, value: Any) -> None:
        if self.dtype.storage is not None:
            value = fitting(value, self.dtype, "pl.array.update_element")
        elif value is not None and not isinstance(value, TaskId):
            raise fault(f"an array of task ids takes a task id, not {describe(value)}", "Take it from `with … as tid`.")
        super().__setitem__(self._place(number), value)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return super().__getitem__(number)
        return super().__getitem__(self._place(number))


def flat_ids(deps: Any) -> tuple[int, ...]:
    """The task ids in a deps list: ids, arrays of ids, None for no task."""
    found: list[int] = []
    _collect(deps, found)
    return tuple(found)


def _collect(deps: Any, found: list[int]) -> None:
    if deps is None:
        return
    if isinstance(deps, TaskId):
        found.append(int(deps))
    elif isinstance(deps, list | tuple | set | frozenset):
        for entry in deps:
            _collect(entry, found)
    else:
        raise fault(f"deps= entries must be task ids, not {type(deps).__name__}", "Take them from `with … as tid`.")


def create(extent: int, dtype: Any) -> ValueArray:
    return ValueArray(extent, dtype)


def get_element(array: ValueArray, index: Any) -> Any:
    return _array(array, "get_element")[index]


def update_element(array: ValueArray, index: Any, value: Any) -> ValueArray:
    _array(array, "update_element")[index] = value
    return array


def _array(value: Any, op: str) -> ValueArray:
    if not isinstance(value, ValueArray):
        raise fault(f"pl.array.{op} takes an array of pl.array.create, not {describe(value)}")
    return value
