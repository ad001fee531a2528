"""Races between tasks: accesses of two of them that conflict and that no path of the runtime's graph orders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from npuscope.lower.races.classes import Classes
from npuscope.lower.races.conflicts import Hazard, ones, unordered
from npuscope.lower.races.model import Race, Side
from npuscope.lower.races.region_text import named, region_text
from npuscope.lower.races.remedy import remedy
from npuscope.tile.graph.aliases import Placement
from npuscope.tile.graph.boxes import dims, offsets_meet
from npuscope.tile.graph.cells import Mode, Region
from npuscope.tile.graph.exact import exact_accesses
from npuscope.tile.record.model import Recording, Task

if TYPE_CHECKING:
    from npuscope.lower.program import Program

MOST_SHOWN = 1 << 14  # pairs of boxes compared to tell which of them meet


class Name(NamedTuple):
    """Which accesses are one race: those of one kernel at one line."""

    kernel: str
    site: int
    mode: Mode


class _Found(NamedTuple):
    buffer: int
    earlier: dict[int, int]  # per later task


def task_races(program: Program) -> Iterator[Race]:
    """One race per pair of kernels and lines, hazard and name of the buffer."""
    recording, before = program.recording, program.order.before
    placement = Placement(recording)
    found: dict[tuple[Name, Name, Hazard, str], list[_Found]] = defaultdict(list)
    for buffer, racing in program.conflicts.racing.items():
        regions, names = [], []
        for task in ones(racing):
            for region, site in touched(recording, recording.tasks[task], placement, buffer):
                regions.append(region)
                names.append(Name(recording.tasks[task].kernel, site, region.mode))
        for (one, other, kind), pairs in unordered(regions, names, before, Classes()).items():
            found[one, other, kind, named(program, buffer).name].append(_Found(buffer, pairs))
    for (one, other, kind, name), parts in found.items():
        buffer, pairs = parts[0]
        later = min(pairs)
        earlier = pairs[later].bit_length() - 1  # the nearest before it
        sides = _sides(program, placement, buffer, (earlier, later), (one, other))
        why, fix = remedy(program, pairs[later], later, kind, buffer)
        count = sum(mask.bit_count() for part in parts for mask in part.earlier.values())
        yield Race(kind, name, sides, count, why, fix)


def touched(recording: Recording, task: Task, placement: Placement, buffer: int) -> Iterator[tuple[Region, int]]:
    """What a task touched in a buffer, line by line: the region, its line."""
    for one in exact_accesses(recording, task, placement):
        if one.buffer == buffer and 0 not in one.shape:
            yield Region(task.id, one.mode, buffer, one.shape, one.strides, np.unique(one.offsets)), one.site


def _sides(
    program: Program, placement: Placement, buffer: int, tasks: tuple[int, int], names: tuple[Name, Name]
) -> tuple[Side, Side]:
    """Both accesses as they are shown: the boxes of each that meet one of the other's."""
    recording = program.recording
    boxes = []
    for task, name in zip(tasks, names, strict=True):
        found = touched(recording, recording.tasks[task], placement, buffer)
        boxes.append([region for region, site in found if (site, region.mode) == (name.site, name.mode)])
    shown = meeting(boxes[0], boxes[1])
    made = []
    for task, name, region in zip(tasks, names, shown, strict=True):
        launch, site = recording.sites[recording.tasks[task].site], recording.sites[name.site]
        text = region_text(named(program, buffer), region.shape, region.strides, region.offsets.tolist())
        made.append(Side(task, name.kernel, site.file, site.line, (launch.file, launch.line), text))
    return made[0], made[1]


def meeting(ours: Sequence[Region], theirs: Sequence[Region]) -> tuple[Region, Region]:
    """Of two lists of equal boxes the first pair that shares an element, each with only the boxes that meet."""
    for one in ours:
        for other in theirs:
            if len(one.offsets) * len(other.offsets) > MOST_SHOWN:
                return one, other
            a, b = dims(one.shape, one.strides), dims(other.shape, other.strides)
            pairs = [(x, y) for x in one.offsets.tolist() for y in other.offsets.tolist() if offsets_meet(y - x, a, b)]
            if pairs:
                left, right = (np.array(sorted(set(places))) for places in zip(*pairs, strict=True))
                return one._replace(offsets=left), other._replace(offsets=right)
    return ours[0], theirs[0]
