"""Programs with one mistake each: what is said, and at which line (the one marked `# here`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
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
    place: str  # file and line
    parts: list[str]  # of the message


def mistakes(table: str, **names: Any) -> list[Any]:
    """The programs of a table: what is said of each, in parts with && between, then its body, indented."""
    file = Path(mkdtemp(prefix="npuscope_")) / "mistakes.py"
    lines: list[str] = []
    said: list[list[str]] = []
    here: list[int] = []
    for line in table.strip("\n").splitlines():
        if line.startswith(" "):
            lines.append(line)
            here += [len(lines)] if line.endswith("# here") else []
        else:
            said.append(line.split(" && "))
            lines.append(f"def mistake_{len(said)}(x: X, y: Y):")
    file.write_text("\n".join(lines))
    space = {"pl": pl, "X": X, "Y": Y, **names}
    exec(compile(file.read_text(), str(file), "exec"), space)
    return [
        pytest.param(Mistake(pl.jit(space[f"mistake_{n}"]), f"mistakes.py, line {line}: ", parts), id=parts[0])
        for n, (line, parts) in enumerate(zip(here, said, strict=True), 1)
    ]


def message_of(program: Any, mode: Mode) -> str:
    """What a program of (x, y) is stopped with."""
    x = np.linspace(-1, 1, 16 * 32, dtype=np.float32).reshape(16, 32)
    with pytest.raises(TileError) as caught:
        record(program, x, np.zeros_like(x), mode=mode)
    return str(caught.value)


def says(mistake: Mistake, mode: Mode) -> None:
    message = message_of(mistake.program, mode)
    for part in (*mistake.parts, mistake.place):
        assert part in message, message
