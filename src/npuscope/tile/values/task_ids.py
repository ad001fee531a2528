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

    def __init__(self, extent: object, dtype: object) -> None:
        kind = dtype_of(dtype, "array.create")
        count = int(index(extent, "pl.array.create", "the extent"))
        if not 0 <= count <= _MOST:
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
