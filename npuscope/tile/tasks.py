"""Handles of tasks, and arrays of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from npuscope.tile.fault import fault


class TaskId(int):
    """The number of a task in the recording."""

    def __repr__(self) -> str:
        return f"TaskId({int(self)})"


class ValueArray(list[Any]):
    """`pl.array.create(n, dtype)`: a fixed array; of task ids it starts as none."""

    def __init__(self, extent: int, dtype: Any) -> None:
        super().__init__([None if dtype.storage is None else 0] * int(extent))
        self.dtype = dtype

    def __setitem__(self, index: Any, value: Any) -> None:
        if not 0 <= int(index) < len(self):
            raise fault(f"index {int(index)} of an array of {len(self)}")
        super().__setitem__(int(index), value)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return super().__getitem__(index)
        if not 0 <= int(index) < len(self):
            raise fault(f"index {int(index)} of an array of {len(self)}")
        return super().__getitem__(int(index))


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
    elif isinstance(deps, Iterable) and not isinstance(deps, str):
        for entry in deps:
            _collect(entry, found)
    else:
        raise fault(f"deps= entries must be task ids, not {type(deps).__name__}", "Take them from `with … as tid`.")


def create(extent: int, dtype: Any) -> ValueArray:
    return ValueArray(extent, dtype)


def get_element(array: ValueArray, index: Any) -> Any:
    return array[index]


def update_element(array: ValueArray, index: Any, value: Any) -> ValueArray:
    array[index] = value
    return array
