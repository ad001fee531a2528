"""Sizes that a run asks for of the runtime's rings, over those of the device.

A script says so by `runtime_cfg={"ring_heap": ...}`, or by the environment variables PTO2_RING_HEAP,
PTO2_RING_TASK_WINDOW and PTO2_RING_DEP_POOL (its own or the user's). A number is for every ring, a list has one for
each; 0 leaves a ring as the device has it, and a single 0 of the script leaves it to the environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from operator import index
from types import MappingProxyType
from typing import Any

from npuscope.base.errors import NpuscopeError

RINGS = 4
MOST = 1 << 48  # bytes or slots: more than any machine has, and sums of it can be counted
NAMES = {"heap": "ring_heap", "task_window": "ring_task_window", "dep_pool": "ring_dep_pool"}
_given: ContextVar[Mapping[str, Any]] = ContextVar("ring sizes", default=MappingProxyType({}))


@dataclass(frozen=True)
class RingSizes:
    """Per ring; empty where nothing was asked for, 0 for the device's size."""

    heap: tuple[int, ...] = ()
    task_window: tuple[int, ...] = ()
    dep_pool: tuple[int, ...] = ()

    def of(self, name: str, ring: int, otherwise: int) -> int:
        """The size of a ring: of `heap` (bytes), `task_window` or `dep_pool`."""
        sizes: tuple[int, ...] = getattr(self, name)
        return (sizes[ring] if ring < len(sizes) else 0) or otherwise


@contextmanager
def asked_for(runtime_cfg: Mapping[str, Any]) -> Iterator[None]:
    """What runs inside the block has these settings of its run."""
    token = _given.set({**_given.get(), **{name: runtime_cfg[name] for name in NAMES.values() if name in runtime_cfg}})
    try:
        yield
    finally:
        _given.reset(token)


def ring_sizes() -> RingSizes:
    """What the run under way asks for."""
    found = {}
    for field, name in NAMES.items():
        variable = f"PTO2_{name.upper()}"
        given = _given.get().get(name)
        found[field] = _sizes(given, name) if given else _sizes(os.environ.get(variable, ""), variable)
    return RingSizes(**found)


def _sizes(value: Any, name: str) -> tuple[int, ...]:
    parts: Sequence[Any] = [value]
    if isinstance(value, Sequence):
        parts = value.split(",") if isinstance(value, str) else value
    if parts == [""]:
        return ()
    try:
        sizes = tuple(int(part) if isinstance(part, str) else index(part) for part in parts)
    except (TypeError, ValueError):
        sizes = (-1,)
    if not 0 <= min(sizes) <= max(sizes) <= MOST or len(sizes) not in (1, RINGS):
        wanted = f"one size for all rings or {RINGS} sizes, whole numbers from 0 to {MOST:,}"
        raise NpuscopeError(f"{name} is {value!r}: it must be {wanted}")
    return sizes * RINGS if len(sizes) == 1 else sizes
