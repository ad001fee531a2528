"""The command line through its real entry point, in a process of its own.

That process is forked from one that has everything loaded (tests/warm_commands.py): to load it anew for each of a
thousand commands took a third of the suite's time. A command with an environment of its own is started as users start
it, and so are those of the README by tests/test_wheel.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from npuscope.base.fork_server import QUIET

WARM = Path(__file__).with_name("warm_commands.py")
PYTEST = "PYTEST_CURRENT_TEST"  # pytest's own, another one in every test


def npuscope(*arguments: str | Path, folder: str | Path = "", **environment: str) -> subprocess.CompletedProcess[str]:
    words, folder = [*map(str, arguments)], Path(folder).absolute()
    if not environment and hasattr(os, "fork") and _environment() == _warm().around:
        return _warm().run(words, folder)
    command = [str(Path(sys.executable).with_name("npuscope")), *words]
    around = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=around, cwd=folder)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != PYTEST}


class _Warm:
    """The process that commands are forked from, with the environment it was started in; it ends with its input."""

    def __init__(self) -> None:
        self.around, self.cpu_seconds = _environment(), 0.0
        self.process = subprocess.Popen(
            [sys.executable, WARM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**self.around, **QUIET},
            cwd=Path(__file__).parent,
        )
        assert self._answer() == "ready"

    def run(self, words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
        with TemporaryDirectory() as place:
            out, err = Path(place, "out"), Path(place, "err")
            order = {"words": words, "folder": str(folder), "out": str(out), "err": str(err)}
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
            code, seconds = self._answer().split()
            self.cpu_seconds += float(seconds)
            shown = (file.read_bytes().decode().replace("\r\n", "\n") for file in (out, err))
            return subprocess.CompletedProcess(["npuscope", *words], int(code), *shown)

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


_warm = cache(_Warm)


def cpu_seconds() -> float:
    """Of the commands so far that were forked: they are no children of this process."""
    return _warm().cpu_seconds if _warm.cache_info().currsize else 0.0
