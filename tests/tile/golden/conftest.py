"""A stand-in for the run of a program: small enough to know what it must say, whatever the language does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from npuscope.tile.golden import runner
from npuscope.tile.record.model import Mode, Recording


@dataclass(frozen=True)
class FakeRun:
    recording: Recording
    writers: dict[str, int]
    arguments: tuple

    def last_writer(self, name: str, flat_index: int) -> str | None:
        return f"task {self.writers[name]}" if name in self.writers else None


def execute(program: Callable, /, *arguments, mode: Mode) -> FakeRun:
    """Call `program(wrote, *arguments)`; each `wrote(name, array)` is a task that wrote a named tensor."""
    tasks: list[str] = []

    def wrote(name: str, array: np.ndarray) -> None:
        tasks.append(name)

    if mode == "values":
        program(wrote, *arguments)
    recording = Recording(program.__name__, mode, (), (), (), ())
    return FakeRun(recording, {name: k for k, name in enumerate(tasks)}, arguments)


@pytest.fixture
def fake_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are functions of NumPy arrays."""
    monkeypatch.setattr(runner, "record", execute)
