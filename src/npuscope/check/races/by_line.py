"""What tasks touched in a buffer, line by line of the source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator
from functools import cache

import numpy as np

from npuscope.tile.graph.boxes import Offsets, Placement
from npuscope.tile.graph.exact import Mode, Region, exact_accesses, once
from npuscope.tile.record.model import Recording, Task
from npuscope.tile.record.walk import accesses_of

Equal = tuple[int, int, Mode, tuple[int, ...], tuple[int, ...]]  # argument, site, mode, shape, strides


class Lines:
    """Reads one recording; a body is taken apart once."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.placement = recording, Placement(recording)
        self._plan = cache(self._planned)

    def of(self, number: int, buffers: Container[int]) -> Iterator[tuple[Region, int]]:
        """The regions of a task in these buffers (where assembled parts lie), each with the site that touched it."""
        task = self.recording.tasks[number]
        if task.form == "extern":
            yield from self._of_extern(task, buffers)
        together: dict[Equal, list[Offsets]] = defaultdict(list)
        for group in task.groups:
            for equal, places in self._plan(group.body):
                if self.placement.root(task.arguments[equal[0]].buffer) in buffers:
                    together[equal] += [group.offsets[place].ravel() for place in places]
        for (argument, site, mode, shape, strides), offsets in together.items():
            piece = (task.arguments[argument].buffer, shape, strides, once(np.concatenate(offsets)))
            if 0 not in shape:
                yield Region(task.id, mode, *self.placement.pieces(piece)), site

    def _planned(self, body: int) -> list[tuple[Equal, list[int]]]:
        """The accesses of a body at one line that touch equal boxes, and their places among its offsets."""
        found: dict[Equal, list[int]] = defaultdict(list)
        for place, (op, access, _) in enumerate(accesses_of(self.recording.bodies[body])):
            found[access.argument, op.site, access.mode, access.shape, access.strides].append(place)
        return list(found.items())

    def _of_extern(self, task: Task, buffers: Container[int]) -> Iterator[tuple[Region, int]]:
        for one in exact_accesses(self.recording, task, self.placement):
            if one.buffer in buffers and 0 not in one.shape:
                yield Region(task.id, one.mode, one.buffer, one.shape, one.strides, np.unique(one.offsets)), one.site
