"""Whether two runs of a program did the same work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from npuscope.tile.record.model import BlockGroup, Recording, Task


def same_work(a: Sequence[Recording], b: Sequence[Recording]) -> bool:
    """Of runs in one process, whose lines have the same numbers."""
    return len(a) == len(b) and all(_same(one, other) for one, other in zip(a, b, strict=True))


def _same(a: Recording, b: Recording) -> bool:
    whole = a.program == b.program and (a.buffers, a.aliases, a.host_reads) == (b.buffers, b.aliases, b.host_reads)
    if not whole or (a.bodies, a.auto_scope, a.rings) != (b.bodies, b.auto_scope, b.rings):
        return False
    return len(a.tasks) == len(b.tasks) and all(map(_same_task, a.tasks, b.tasks))


def _same_task(a: Task, b: Task) -> bool:
    if len(a.groups) != len(b.groups) or replace(a, groups=()) != replace(b, groups=()):
        return False
    return all(map(_same_group, a.groups, b.groups))


def _same_group(a: BlockGroup, b: BlockGroup) -> bool:
    if a.body != b.body or len(a.offsets) != len(b.offsets) or not np.array_equal(a.blocks, b.blocks):
        return False
    return all(map(np.array_equal, a.offsets, b.offsets))
