"""`pl.parse` and `pl.loads`: a function or a program from text, as files of programs are run.

Nothing is compiled: what comes back is what the decorators in the text make.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from npuscope.tile.fault import fault
from npuscope.tile.language.functions import TileFunction, TileProgram


def parse(code: str, filename: str = "", **_: object) -> TileFunction | TileProgram:
    """The last function or program that a text defines."""
    if not isinstance(code, str):
        raise fault(f"pl.parse takes the text of a program, not {type(code).__name__}")
    with tempfile.NamedTemporaryFile("w", suffix=".py", prefix="parsed_", delete=False, encoding="utf-8") as file:
        file.write(code)
    atexit.register(_gone, file.name)  # its functions read their source when they first run
    return _defined(file.name, code, filename or "the text")


def loads(filepath: str | Path, **_: object) -> TileFunction | TileProgram:
    """The same from a file."""
    path = Path(filepath)
    if not path.is_file():
        raise fault(f"pl.loads: no file {filepath}")
    return _defined(str(path), path.read_text(encoding="utf-8"), str(filepath))


def _defined(path: str, code: str, title: str) -> TileFunction | TileProgram:
    names: dict[str, Any] = {"__name__": "parsed", "__file__": path, "pl": sys.modules["npuscope.tile"]}
    exec(compile(code, path, "exec"), names)
    found = [value for value in names.values() if isinstance(value, TileFunction | TileProgram)]
    if not found:
        what = f"pl.parse: {title} defines no function of the language"
        raise fault(what, "Decorate one with @pl.jit or @pl.program.")
    return found[-1]


def _gone(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
