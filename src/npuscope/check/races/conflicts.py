"""Accesses that conflict: they share an element and one of them writes it, so their order matters.

Atomic adds into one element commute up to rounding, so two of them need no order; with reads and writes they do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from npuscope.check.once import once
from npuscope.check.races.element_classes import ElementClasses
from npuscope.check.races.order import order_of
from npuscope.lower.program import Program
from npuscope.tile.graph.exact import Hazard, Mode, Region, regions_by_buffer

_HAZARDS: dict[tuple[Mode, Mode], Hazard] = {
    ("write", "read"): "raw",
    ("write", "add"): "raw",
    ("add", "read"): "raw",
    ("write", "write"): "waw",
    ("add", "write"): "waw",
    ("read", "write"): "war",
    ("read", "add"): "war",
}
Name = TypeVar("Name", bound=Hashable)
Pairs = dict[tuple[Name, Name, Hazard], dict[int, int]]  # names of both and hazard -> the later one -> earlier ones


def hazard(earlier: Mode, later: Mode) -> Hazard | None:
    """What goes wrong if the later access comes first; None if nothing does."""
    return _HAZARDS.get((earlier, later))


@dataclass(frozen=True)
class Conflicts:
    """Bitsets over tasks, the later one's number first: earlier tasks (and perhaps itself) that it conflicts with.

    `adds`: those that add to an element that it adds to. `racing`: per buffer the tasks that no edge orders.
    """

    needed: tuple[int, ...]
    adds: tuple[int, ...]
    racing: dict[int, int]


@once
def regions_of(program: Program) -> dict[int, list[Region]]:
    """What tasks touched of every buffer that somebody wrote, in order of submission."""
    return regions_by_buffer(program.recording)


@once
def classes_of(program: Program) -> ElementClasses:
    """Elements that the same regions touched, together; remembers what it was asked."""
    return ElementClasses()


@once
def conflicts_of(program: Program) -> Conflicts:
    """Which earlier tasks each task shares an element with that one of the two writes."""
    return conflicts(regions_of(program), order_of(program).before, classes_of(program))


def conflicts(regions: Mapping[int, Sequence[Region]], before: Sequence[int], classes: ElementClasses) -> Conflicts:
    """Of all tasks; `before[t]` are the tasks ordered before t, and t itself."""
    needed, adds = [0] * len(before), [0] * len(before)
    racing: dict[int, int] = defaultdict(int)
    for buffer, touched in regions.items():
        tasks = [region.task for region in touched]
        modes = [region.mode for region in touched]
        for found in classes.of(touched):
            if len(found) == 1:
                continue
            reads = writes = added = 0
            for n in found:
                task, mode = tasks[n], modes[n]
                if mode == "read":
                    earlier = writes | added
                    reads |= 1 << task
                elif mode == "write":
                    earlier = reads | writes | added
                    writes |= 1 << task
                else:
                    earlier = reads | writes
                    adds[task] |= added
                    added |= 1 << task
                needed[task] |= earlier
                if loose := earlier & ~before[task]:
                    racing[buffer] |= loose | 1 << task
    return Conflicts(tuple(needed), tuple(adds), dict(racing))


def unordered(
    regions: Sequence[Region], names: Sequence[Name], before: Mapping[int, int] | Sequence[int], classes: ElementClasses
) -> Pairs[Name]:
    """Pairs of accesses that conflict and are not ordered, by the names of the two."""
    found: Pairs[Name] = defaultdict(lambda: defaultdict(int))
    for touched in classes.of(regions):
        seen: dict[tuple[Name, Mode], int] = defaultdict(int)
        for n in touched:
            task, mode, name = regions[n].task, regions[n].mode, names[n]
            for (other, how), earlier in seen.items():
                kind = hazard(how, mode)
                if kind is not None and (loose := earlier & ~before[task]):
                    found[other, name, kind][task] |= loose
            seen[name, mode] |= 1 << task
    return found


def ones(bits: int) -> list[int]:
    """The places of a bitset, ascending."""
    return [place for place, bit in enumerate(reversed(bin(bits)[2:])) if bit == "1"]
