"""What a piece of code reads besides its arguments: names of its module and of the functions around it.

Not to run code again is right only if it would read what it read before. Which names it reads, and that it changes none
of them, is told by its source when it is rewritten. Everything it can reach by them, function by function, is looked up
once; only constants and tile functions count, and that they are still there is seen by identity.
"""

from __future__ import annotations

import builtins
import enum
from collections.abc import Callable
from types import CellType, FunctionType, ModuleType
from typing import Any, NamedTuple, Protocol, runtime_checkable

from npuscope.ops.dtypes import DataType

_CONSTANTS = (bool, int, float, str, bytes, type(None), DataType, enum.Enum)
_MODULES = {"math", "npuscope"}
_BUILTINS = {
    *("abs", "all", "any", "bool", "dict", "divmod", "enumerate", "float", "int", "len", "list", "max", "min", "pow"),
    *("range", "reversed", "set", "slice", "sorted", "str", "sum", "tuple", "zip", "ValueError", "AssertionError"),
}


class Code(NamedTuple):
    """A function, and the names that it reads besides its arguments; None where it may change something else."""

    body: Callable[..., Any]
    names: tuple[str, ...] | None


@runtime_checkable
class Readable(Protocol):
    """A function of the language that can say what it reads."""

    def code(self) -> Code: ...


def is_constant(value: object) -> bool:
    """A value that cannot change."""
    if isinstance(value, tuple | frozenset):
        return all(is_constant(entry) for entry in value)
    return isinstance(value, _CONSTANTS)


class Outside:
    """All that a function reads besides its arguments, and what it found there; `known` is False where that cannot be
    told.
    """

    def __init__(self, code: Code) -> None:
        self._cells: dict[int, tuple[CellType, object]] = {}
        self._names: dict[tuple[int, str], tuple[dict[str, Any], str, object]] = {}
        self._seen: set[int] = set()
        self.known = self._is_known(code)

    def unchanged(self) -> bool:
        """Whether everything is still what it was."""
        for cell, value in self._cells.values():
            if cell.cell_contents is not value:
                return False
        return all(held.get(name) is value for held, name, value in self._names.values())

    def _is_known(self, code: Code) -> bool:
        function = code.body
        if code.names is None or not isinstance(function, FunctionType):
            return False
        if id(function.__code__) in self._seen:
            return True
        self._seen.add(id(function.__code__))
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        if not all(is_constant(value) for value in defaults):
            return False
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        held = function.__globals__
        for name in code.names:
            if name in cells:
                cell = cells[name]
                try:
                    value = cell.cell_contents
                except ValueError:  # not bound yet
                    return False
                self._cells[id(cell)] = (cell, value)
            elif name in held:
                value = held[name]
                self._names[id(held), name] = (held, name, value)
            elif name in _BUILTINS and hasattr(builtins, name):
                continue
            else:
                return False
            if not self._is_fixed(value):
                return False
        return True

    def _is_fixed(self, value: object) -> bool:
        if is_constant(value):
            return True
        if isinstance(value, ModuleType):
            return value.__name__.partition(".")[0] in _MODULES
        if isinstance(value, type | FunctionType):
            return value.__module__.partition(".")[0] in ("npuscope", "builtins")
        return isinstance(value, Readable) and self._is_known(value.code())
