"""Races between tasks: accesses of two of them that conflict and that no path of the runtime's graph orders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from npuscope.check.races.by_line import Lines
from npuscope.check.races.conflicts import classes_of, conflicts_of, hazard, ones, unordered
from npuscope.check.races.model import Race, Side, side_of
from npuscope.check.races.order import order_of
from npuscope.check.races.remedy import remedy
from npuscope.check.wording.region_text import named
from npuscope.lower.program import Program
from npuscope.tile.graph.boxes import dims, offsets_meet
from npuscope.tile.graph.exact import Hazard, Region

MOST_SHOWN = 1 << 14  # pairs of boxes compared to tell which of them meet


class AccessName(NamedTuple):
    """Which accesses are one race: those of one kernel at one line."""

    kernel: str
    site: int


class _Found(NamedTuple):
    buffer: int
    earlier: dict[int, int]  # per later task


def task_races(program: Program) -> Iterator[Race]:
    """One race per pair of kernels and lines, hazard and name of the buffer."""
    recording, racing = program.recording, conflicts_of(program).racing
    if not racing:
        return
    lines = Lines(recording)
    regions: dict[int, list[Region]] = defaultdict(list)
    names: dict[int, list[AccessName]] = defaultdict(list)
    wanted: dict[int, set[int]] = defaultdict(set)
    for buffer, tasks in racing.items():
        for task in ones(tasks):
            wanted[task].add(buffer)
    for task, buffers in sorted(wanted.items()):
        for region, site in lines.of(task, buffers):
            regions[region.buffer].append(region)
            names[region.buffer].append(AccessName(recording.tasks[task].kernel, site))
    found: dict[tuple[AccessName, AccessName, Hazard, str], list[_Found]] = defaultdict(list)
    for buffer in racing:
        together = unordered(regions[buffer], names[buffer], order_of(program).before, classes_of(program))
        for (one, other, kind), pairs in together.items():
            found[one, other, kind, named(program, buffer).name].append(_Found(buffer, pairs))
    for (one, other, kind, name), parts in found.items():
        buffer, pairs = parts[0]
        later = min(pairs)
        earlier = pairs[later].bit_length() - 1  # the nearest before it
        sides = _sides(program, lines, buffer, (earlier, later), (one, other), kind)
        why, fix = remedy(program, pairs[later], later, kind, buffer)
        count = sum(mask.bit_count() for part in parts for mask in part.earlier.values())
        yield Race(kind, name, sides, count, why, fix)


def _sides(
    program: Program,
    lines: Lines,
    buffer: int,
    tasks: tuple[int, int],
    names: tuple[AccessName, AccessName],
    kind: Hazard,
) -> tuple[Side, Side]:
    """Both accesses as they are shown: the boxes of each that meet one of the other's."""
    boxes = [
        [region for region, site in lines.of(task, (buffer,)) if site == name.site]
        for task, name in zip(tasks, names, strict=True)
    ]
    one, other = (
        side_of(program, program.recording.tasks[task], name.site, region)
        for task, name, region in zip(tasks, names, meeting(boxes[0], boxes[1], kind), strict=True)
    )
    return one, other


def meeting(ours: Sequence[Region], theirs: Sequence[Region], kind: Hazard) -> tuple[Region, Region]:
    """Of equal boxes here and there the first that conflict in this way, each with only the boxes that meet."""
    for one in ours:
        for other in theirs:
            if hazard(one.mode, other.mode) != kind:
                continue
            if len(one.offsets) * len(other.offsets) > MOST_SHOWN:
                return one, other
            a, b = dims(one.shape, one.strides), dims(other.shape, other.strides)
            pairs = [(x, y) for x in one.offsets.tolist() for y in other.offsets.tolist() if offsets_meet(y - x, a, b)]
            if pairs:
                left, right = (np.array(sorted(set(places))) for places in zip(*pairs, strict=True))
                return one._replace(offsets=left), other._replace(offsets=right)
    return ours[0], theirs[0]
