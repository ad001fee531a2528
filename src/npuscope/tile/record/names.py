"""How tensors and kernels of a run are called: a name used again with #2, #3, …, a kernel without its factory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from npuscope.tile.record.model import Buffer


def unique_names(buffers: Iterable[Buffer]) -> dict[str, int]:
    """Unique name → buffer id, in the order the buffers came to be."""
    seen: Counter[str] = Counter()
    found = {}
    for buffer in buffers:
        seen[buffer.name] += 1
        found[buffer.name if seen[buffer.name] == 1 else f"{buffer.name}#{seen[buffer.name]}"] = buffer.id
    return found


def short_name(name: str) -> str:
    """A kernel's or function's name without the factory it was made in."""
    return name.rpartition("<locals>.")[2]
