"""The Qwen3 programs recorded without computing: placeholders for all but the numbers that steer them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import npuscope.tile as pl
from npuscope.tile.golden import TensorSpec
from npuscope.tile.record.model import Recording
from npuscope.tile.run.execute import record


def recorded(program: Any, specs: list[TensorSpec], mode: str = "shapes") -> Recording:
    """One run; in shapes mode at any size in about a second."""
    if mode == "values":
        return record(program, *(spec.create_tensor() for spec in specs)).recording
    steers = [spec.storage.kind == "i" and spec.storage.itemsize > 1 for spec in specs]
    arguments = [
        spec.create_tensor() if steering else pl.Placeholder(tuple(spec.shape), spec.dtype)
        for spec, steering in zip(specs, steers, strict=True)
    ]
    return record(program, *arguments, mode="shapes").recording


def waits(found: Recording, tasks: range) -> dict[str, set[tuple[tuple[str, int], ...]]]:
    """Per kernel, what its tasks wait for: (kernel, how many of its tasks), as declared with deps=."""
    told: dict[str, set[tuple[tuple[str, int], ...]]] = {}
    for task in found.tasks[tasks.start : tasks.stop]:
        producers = Counter(found.tasks[dep].kernel for dep in set(task.deps))
        told.setdefault(task.kernel, set()).add(tuple(sorted(producers.items())))
    return told
