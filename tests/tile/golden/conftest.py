"""A stand-in for the executor: small enough to know what a run must say, whatever the language does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from npuscope.tile.record.model import Argument, Buffer, Mode, Recording, Site, Task


@dataclass(frozen=True)
class FakeRun:
    recording: Recording
    named: dict[str, np.ndarray]
    writers: dict[str, int]
    arguments: tuple
    seconds: float = 0.0

    def last_writer(self, name: str, flat_index: int) -> str | None:
        return f"task {self.writers[name]}" if name in self.writers else None


def execute(program: Callable, /, *arguments, mode: Mode) -> FakeRun:
    """Call `program(wrote, *arguments)`; each `wrote(name, array)` is a task that wrote a named tensor."""
    buffers: dict[str, np.ndarray] = {}
    tasks: list[str] = []

    def wrote(name: str, array: np.ndarray, *, task: bool = True) -> None:
        buffers[name] = array
        if task:
            tasks.append(name)

    if mode == "values":
        program(wrote, *arguments)
    ids = {name: i for i, name in enumerate(buffers)}
    recording = Recording(
        program.__name__,
        mode,
        (Site("program.py", 1, program.__name__),),
        tuple(Buffer(i, n, buffers[n].shape, "FP32", "created", 0) for n, i in ids.items()),
        (),
        tuple(
            Task(k, "kernel", 0, "AIV", 1, (), (Argument(ids[n], 0, (1,), (1,), False, True),), (), (), "at")
            for k, n in enumerate(tasks)
        ),
    )
    named = {name: array.copy() for name, array in buffers.items()}
    return FakeRun(recording, named, {name: k for k, name in enumerate(tasks)}, arguments)


@pytest.fixture
def executor():
    return execute
