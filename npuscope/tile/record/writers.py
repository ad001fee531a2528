"""Who wrote an element last, by the record alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from npuscope.tile.record.model import Access, Body, Loop, Op, Recording, Site


def accesses(body: Body) -> Iterator[tuple[Op, Access]]:
    """The accesses of a body in the order of its offsets."""
    yield from _of(body.prologue)
    yield from _of(body.items)


def _of(items: tuple[Op | Loop, ...] | tuple[Op, ...]) -> Iterator[tuple[Op, Access]]:
    for item in items:
        if isinstance(item, Op):
            for access in item.accesses:
                yield item, access
        else:
            for segment in item.segments:
                yield from _of(segment.items)


def last_writer(recording: Recording, buffer: int, element: int) -> Site | None:
    """The op that last wrote an element (counted in its buffer), in program order."""
    for task in reversed(recording.tasks):
        numbers = {n for n, argument in enumerate(task.arguments) if argument.buffer == buffer and argument.writes}
        if not numbers:
            continue
        found = None
        for group in task.groups:
            body = recording.bodies[group.body]
            for (op, access), offsets in zip(accesses(body), group.offsets, strict=True):
                if access.mode != "read" and access.argument in numbers and _touches(access, offsets, element):
                    found = op
        if found is not None:
            return recording.sites[found.site]
    return None


def _touches(access: Access, offsets: npt.NDArray[np.int64], element: int) -> bool:
    """Whether any of the boxes contains the element."""
    rest = element - offsets.reshape(-1)
    rest = rest[rest >= 0]
    order = sorted(range(len(access.shape)), key=lambda k: -access.strides[k])
    for k in order:
        stride, extent = access.strides[k], access.shape[k]
        if extent == 1 or stride == 0:
            continue
        index = rest // stride
        rest = rest[index < extent] - index[index < extent] * stride
    return bool(np.any(rest == 0))
