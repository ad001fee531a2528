"""What a piece of code reads besides its arguments: names of its module and of the functions around it.

To run code later than it was launched is right only if it then reads what it would have read. So everything it can
reach, function by function, is looked up once; only constants and functions of constants count, and that they are
still there is seen by identity.
"""

from __future__ import annotations

import builtins
import dis
import enum
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from npuscope.ops.dtypes import DataType

_CONSTANTS = (bool, int, float, str, bytes, type(None), DataType, enum.Enum)
_MODULES = {"math", "npuscope"}
_BUILTINS = {
    *("abs", "all", "any", "bool", "dict", "divmod", "enumerate", "float", "int", "len", "list", "max", "min", "pow"),
    *(
        "range",
        "reversed",
        "set",
        "slice",
        "sorted",
        "str",
        "sum",
        "tuple",
        "zip",
        "locals",
        "ValueError",
        "AssertionError",
    ),
}
_LOAD, _EXTENDED = dis.opmap["LOAD_GLOBAL"], dis.opmap["EXTENDED_ARG"]
_STORE_OUTER = {dis.opmap["STORE_DEREF"], dis.opmap["DELETE_DEREF"]}
_FORBIDDEN = {dis.opmap[name] for name in ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "IMPORT_NAME")}


def is_constant(value: Any) -> bool:
    """A value that cannot change."""
    if isinstance(value, tuple | frozenset):
        return all(is_constant(entry) for entry in value)
    return isinstance(value, _CONSTANTS)


class Outside:
    """All that a function reads besides its arguments, and what it found there; `known` is False where that cannot be
    told.
    """

    def __init__(self, function: FunctionType) -> None:
        self._cells: dict[int, tuple[CellType, Any]] = {}
        self._names: dict[tuple[int, str], tuple[dict[str, Any], str, Any]] = {}
        self._seen: set[int] = set()
        self.known = self._is_known(function)

    def unchanged(self) -> bool:
        """Whether everything is still what it was."""
        for cell, value in self._cells.values():
            if cell.cell_contents is not value:
                return False
        return all(held.get(name) is value for held, name, value in self._names.values())

    def _is_known(self, function: FunctionType) -> bool:
        if id(function.__code__) in self._seen:
            return True
        self._seen.add(id(function.__code__))
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        if not all(is_constant(value) for value in defaults):
            return False
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # not bound yet
                return False
            self._cells[id(cell)] = (cell, value)
            if not self._is_fixed(value):
                return False
        held = function.__globals__
        for name in _globals_of(function.__code__):
            if name is None:
                return False
            if name in held:
                self._names[id(held), name] = (held, name, held[name])
                if not self._is_fixed(held[name]):
                    return False
            elif name not in _BUILTINS or not hasattr(builtins, name):
                return False
        return True

    def _is_fixed(self, value: Any) -> bool:
        from npuscope.tile.language.functions import Extern, TileFunction

        if is_constant(value):
            return True
        if isinstance(value, ModuleType):
            return value.__name__.partition(".")[0] in _MODULES
        if isinstance(value, type):
            return value.__module__.partition(".")[0] in ("npuscope", "builtins")
        if isinstance(value, TileFunction):
            plain = not isinstance(value, Extern) and value.owner is None
            return plain and isinstance(value.body, FunctionType) and self._is_known(value.body)
        if isinstance(value, FunctionType):
            ours = value.__module__.partition(".")[0] == "npuscope"
            return ours or (not value.__dict__ and self._is_known(value))
        return False


def _globals_of(code: CodeType) -> Iterator[str | None]:
    """The names that code looks up in its module, functions made inside included; None where it changes what others
    see.
    """
    own = len({*code.co_varnames, *code.co_cellvars})
    extended = 0
    raw = code.co_code
    for k in range(0, len(raw), 2):
        op, argument = raw[k], raw[k + 1] | extended
        extended = argument << 8 if op == _EXTENDED else 0
        if op == _LOAD:
            yield code.co_names[argument >> 1]
        elif op in _FORBIDDEN or (op in _STORE_OUTER and argument >= own):
            yield None
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals_of(constant)
