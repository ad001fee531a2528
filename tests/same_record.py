"""Whether two recordings say the same, however their offsets are stored; and where they first differ."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from npuscope.tile.record.model import BlockGroup, Body, Recording
from npuscope.tile.record.walk import ops_of

_APART = {"mode", "findings", "tasks"}  # findings need values; tasks are walked one by one


def first_difference(one: Recording, other: Recording) -> str | None:
    """Where two recordings differ first, or None where they say the same."""
    for task, twin in zip(one.tasks, other.tasks, strict=False):
        found = _tasks(one, other, task, twin)
        if found:
            return f"task {task.id} ({task.kernel}): {found}"
    if len(one.tasks) != len(other.tasks):
        return f"{len(one.tasks)} tasks, not {len(other.tasks)}"
    for field in fields(Recording):
        if field.name not in _APART:
            found = _values(getattr(one, field.name), getattr(other, field.name), field.name)
            if found:
                return found
    return None


def _tasks(one: Recording, other: Recording, task: Any, twin: Any) -> str | None:
    for field in fields(task):
        if field.name != "groups":
            found = _values(getattr(task, field.name), getattr(twin, field.name), field.name)
            if found:
                return found
    if len(task.groups) != len(twin.groups):
        return f"{_blocks(task)} as groups of blocks, not {_blocks(twin)}"
    for number, (group, its) in enumerate(zip(task.groups, twin.groups, strict=True)):
        found = _groups(one, other, group, its)
        if found:
            return f"group {number}: {found}"
    return None


def _blocks(task: Any) -> list[list[int]]:
    return [group.blocks.tolist() for group in task.groups]


def _groups(one: Recording, other: Recording, group: BlockGroup, its: BlockGroup) -> str | None:
    if not np.array_equal(group.blocks, its.blocks):
        return f"blocks {group.blocks.tolist()}, not {its.blocks.tolist()}"
    body, twin = one.bodies[group.body], other.bodies[its.body]
    found = _values(body, twin, "body")
    if found:
        return found
    mine, theirs = everywhere(body, group), everywhere(twin, its)
    for place, (offsets, wanted) in enumerate(zip(mine, theirs, strict=True)):
        if not np.array_equal(offsets, wanted):
            names = [op.name for op, _ in ops_of(body) for _ in op.accesses]
            at = tuple(np.argwhere(offsets != wanted)[0].tolist())
            return f"access {place} ({names[place]}) at {at}: offset {offsets[at]}, not {wanted[at]}"
    return None


def everywhere(body: Body, group: BlockGroup) -> list[Any]:
    """The offsets of every access for every iteration and block (axis -1), nothing left to broadcasting."""
    shapes = [(*reversed(counts), len(group.blocks)) for op, counts in ops_of(body) for _ in op.accesses]
    assert len(shapes) == len(group.offsets), f"{len(group.offsets)} arrays of offsets for {len(shapes)} accesses"
    return [np.broadcast_to(offsets, shape) for offsets, shape in zip(group.offsets, shapes, strict=True)]


def _values(one: Any, other: Any, where: str) -> str | None:
    """The innermost place where two plain values differ."""
    if one == other:
        return None
    if type(one) is type(other):
        if is_dataclass(one):
            pairs = [(f".{f.name}", getattr(one, f.name), getattr(other, f.name)) for f in fields(one)]
            return next(filter(None, (_values(a, b, where + name) for name, a, b in pairs)), None)
        if isinstance(one, tuple):
            pairs = [(f"[{n}]", a, b) for n, (a, b) in enumerate(zip(one, other, strict=False))]
            found = next(filter(None, (_values(a, b, where + name) for name, a, b in pairs)), None)
            return found or f"{where} has {len(one)} entries, not {len(other)}"
    return f"{where} is {one!r}, not {other!r}"
