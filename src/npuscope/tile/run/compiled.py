"""What `compile` and `lower` return. Nothing is compiled: it can be called, and tells which functions there are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from npuscope.tile.enums import FunctionType
from npuscope.tile.record.model import Recording
from npuscope.tile.run.execute import Finished

_TYPES = {"AIC": FunctionType.AIC, "AIV": FunctionType.AIV, "MIX": FunctionType.Group}


@dataclass(frozen=True)
class KernelFunction:
    """A function of the device program."""

    name: str
    func_type: FunctionType


@dataclass(frozen=True)
class Compiled:
    """A program ready to run. `lower` records it without values, when somebody first asks."""

    name: str
    run: Callable[..., object] = field(repr=False)
    lower: Callable[[], Finished] = field(repr=False)

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.run(*args, **kwargs)

    @functools.cached_property
    def recording(self) -> Recording:
        return self.lower().recording

    @property
    def functions(self) -> dict[str, KernelFunction]:
        """The orchestration and every kernel."""
        found = {self.name: KernelFunction(self.name, FunctionType.Orchestration)}
        for task in self.recording.tasks:
            if task.form != "dummy":
                found.setdefault(task.kernel, KernelFunction(task.kernel, _TYPES.get(task.core, FunctionType.InCore)))
        return found

    @property
    def program(self) -> Compiled:
        return self

    @property
    def output_dir(self) -> Path:
        """Where a compiler would leave its files; there are none."""
        return Path("build_output", self.name)
