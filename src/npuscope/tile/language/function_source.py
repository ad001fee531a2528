"""The source of a tile function, as it was when the function was made.

A function is rewritten at its first call, which may be long after its file was read and after the program changed its
folder. So the file's place and age are noted when the function is decorated; a file edited since is said, not run.
"""

from __future__ import annotations

import inspect
import os
import tokenize
from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType

from npuscope.tile.fault import TileError


@dataclass(frozen=True)
class FunctionSource:
    """Where a function's text stands."""

    name: str
    shown: str  # the file as Python names it
    path: str
    age: int | None  # when the file was last written, ns; None where it is no file
    line: int

    def lines(self) -> list[str]:
        """The function's own lines."""
        if self.age is None:
            raise TileError(
                f"the source of {self.name} cannot be read",
                path=self.shown,
                line=self.line,
                remedy="Tile functions must live in a file.",
            )
        if _age(self.path) != self.age:
            raise TileError(
                f"the file changed after {self.name} was defined",
                path=self.shown,
                line=self.line,
                remedy="Run it again.",
            )
        return inspect.getblock(_file(self.path, self.age)[self.line - 1 :])


def source_of(function: FunctionType) -> FunctionSource:
    """Notes where a function stands; reads nothing yet."""
    code = function.__code__
    path = os.path.abspath(code.co_filename)
    return FunctionSource(function.__name__, code.co_filename, path, _age(path), code.co_firstlineno)


def _age(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


@lru_cache(maxsize=32)
def _file(path: str, age: int) -> list[str]:
    with tokenize.open(path) as file:
        return file.readlines()
