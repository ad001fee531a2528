"""Programs with one mistake each: what is said, and at which line (the one marked `# here`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.tile.fault import TileError
from npuscope.tile.record.model import Mode
from npuscope.tile.run.execute import record

X = pl.Tensor[[16, 32], pl.FP32]
Y = pl.Out[pl.Tensor[[16, 32], pl.FP32]]


@dataclass(frozen=True)
class Mistake:
    program: Any
    parts: tuple[str, ...]  # of the message

    def line(self) -> int:
        """The line marked `# here`."""
        lines, first = inspect.getsourcelines(self.program.function)
        marked = [first + k for k, line in enumerate(lines) if line.rstrip().endswith("# here")]
        assert len(marked) == 1
        return marked[0]


class Mistakes(list[Mistake]):
    """A table of mistakes, one program a row; `@mistakes("words", "of the message")` adds one."""

    def __call__(self, *parts: str) -> Callable[[Callable[..., Any]], Any]:
        def add(function: Callable[..., Any]) -> Any:
            self.append(Mistake(pl.jit(function), parts))
            return function

        return add

    def rows(self) -> list[Any]:
        return [pytest.param(mistake, id=mistake.program.name) for mistake in self]


def message_of(program: Any, mode: Mode) -> str:
    """What a program of (x, y) is stopped with."""
    x = np.linspace(-1, 1, 16 * 32, dtype=np.float32).reshape(16, 32)
    with pytest.raises(TileError) as caught:
        record(program, x, np.zeros_like(x), mode=mode)
    return str(caught.value)


def says(mistake: Mistake, mode: Mode) -> None:
    message = message_of(mistake.program, mode)
    for part in mistake.parts:
        assert part in message, message
    file = Path(inspect.getfile(mistake.program.function)).name
    assert f"{file}, line {mistake.line()}: " in message, message
