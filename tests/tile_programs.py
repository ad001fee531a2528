"""The tile programs of models/: loaded as their own scripts would be, and counted."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from npuscope.tile.record.model import Recording

MODELS = Path(__file__).resolve().parents[1] / "models"


def load(name: str) -> ModuleType:
    """`models/<name>.py` as a module; programs import their neighbours as scripts do."""
    if str(MODELS) not in sys.path:
        sys.path.insert(0, str(MODELS))
    spec = importlib.util.spec_from_file_location("models." + name.replace("/", "."), MODELS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def recording(result: Any) -> Recording:
    """What a passed run recorded."""
    assert result.passed, result.error
    found: Recording = result.run.recording
    return found


def counts(recorded: Recording) -> dict[str, tuple[int, int, str]]:
    """Tasks, blocks and core shape per kernel, in the order of first submission."""
    found: dict[str, tuple[int, int, str]] = {}
    for task in recorded.tasks:
        tasks, blocks, _ = found.get(task.kernel, (0, 0, ""))
        found[task.kernel] = (tasks + 1, blocks + task.blocks, task.core)
    return found
