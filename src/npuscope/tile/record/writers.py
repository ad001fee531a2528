"""Who wrote an element last, by the record alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from npuscope.tile.record.model import Access, Alias, Recording, Site
from npuscope.tile.record.walk import accesses_of


@dataclass(frozen=True)
class Write:
    """The op that wrote an element."""

    op: str
    kernel: str
    task: int
    site: Site

    def __str__(self) -> str:
        return f"{self.op} in {self.kernel} (task {self.task}) at {Path(self.site.file).name}:{self.site.line}"


def last_writer(recording: Recording, buffer: int, element: int) -> Write | None:
    """The op that last wrote an element (counted in its buffer), in program order, through aliases too."""
    found = [_direct_writer(recording, buffer, element)]
    for alias in recording.aliases:
        inside = _index_in(alias, element) if alias.whole == buffer else None
        if inside is None:
            continue
        if recording.buffers[alias.part].shape == alias.shape:
            found.append(last_writer(recording, alias.part, inside))
        else:  # a view of the part was joined, and the record does not say which
            found.append(Write("assemble", "orchestration", alias.before_task - 1, recording.sites[alias.site]))
    return max((write for write in found if write is not None), key=lambda write: write.task, default=None)


def _direct_writer(recording: Recording, buffer: int, element: int) -> Write | None:
    one = np.array([element])
    for task in reversed(recording.tasks):
        numbers = {n for n, argument in enumerate(task.arguments) if argument.buffer == buffer and argument.writes}
        if not numbers:
            continue
        found = None
        for group in task.groups:
            body = recording.bodies[group.body]
            for (op, access, _), offsets in zip(accesses_of(body), group.offsets, strict=True):
                if access.mode != "read" and access.argument in numbers and bool(are_in(access, offsets, one)[0]):
                    found = op
        if found is not None:
            return Write(found.name, task.kernel, task.id, recording.sites[found.site])
    return None


def earliest(recording: Recording, buffer: int, elements: npt.NDArray[np.int64]) -> int:
    """Of these elements one whose last write is the earliest; of very many, some hundred spread over them are asked."""
    left = elements if len(elements) <= _MOST else elements[np.linspace(0, len(elements) - 1, _MOST).astype(np.int64)]
    found: list[int] = []
    for task in reversed(recording.tasks):
        numbers = {n for n, argument in enumerate(task.arguments) if argument.buffer == buffer and argument.writes}
        if not numbers or not len(left):
            continue
        touched = np.zeros(len(left), np.bool_)
        for group in task.groups:
            for (_, access, _), offsets in zip(accesses_of(recording.bodies[group.body]), group.offsets, strict=True):
                if access.mode != "read" and access.argument in numbers:
                    touched |= are_in(access, offsets, left)
        if np.any(touched):
            found = [int(left[touched][0])]
            left = left[~touched]
    # what no task wrote came through an alias, or was there before
    found += [int(element) for element in left[:1]]
    return min(found, key=lambda element: getattr(last_writer(recording, buffer, element), "task", -1))


_MOST = 256


def _index_in(alias: Alias, element: int) -> int | None:
    """The flat index in the part of an element of the whole; None where the part does not have it."""
    rest, index = element - alias.offset, 0
    places = {}
    for k in sorted(range(len(alias.shape)), key=lambda k: -alias.strides[k]):
        places[k] = rest // alias.strides[k] if alias.shape[k] > 1 else 0
        rest -= places[k] * alias.strides[k]
        if not 0 <= places[k] < alias.shape[k]:
            return None
    for k, extent in enumerate(alias.shape):
        index = index * extent + places[k]
    return index if rest == 0 else None


def are_in(access: Access, offsets: npt.NDArray[np.int64], elements: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which of the elements lie in any of the boxes."""
    rest = elements[:, None] - offsets.reshape(1, -1)
    inside = rest >= 0
    for k in sorted(range(len(access.shape)), key=lambda k: -access.strides[k]):
        stride, extent = access.strides[k], access.shape[k]
        if extent == 1 or stride == 0:
            continue
        index = rest // stride
        inside &= index < extent
        rest = rest - index * stride
    found: npt.NDArray[np.bool_] = np.any(inside & (rest == 0), axis=1)
    return found
