"""The line of instructions that lifetimes are counted along, with the loops over it.

Place n is the n-th instruction of a body in order, every loop once; a loop takes a place before and one after its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from npuscope.lower.model import Instruction, Items, Lowered, Repeat


@dataclass(frozen=True, slots=True)
class Span:
    """A loop over the places from `start` to `end`; `depth` loops are around it."""

    loop: Repeat
    start: int
    end: int
    depth: int


@dataclass(frozen=True)
class Line:
    """`places` has None where a loop begins or ends."""

    places: tuple[Instruction | None, ...]
    loops: tuple[Span, ...]


def line_of(lowered: Lowered) -> Line:
    places: list[Instruction | None] = []
    loops: list[Span] = []

    def walk(items: Items, depth: int) -> None:
        for item in items:
            if isinstance(item, Instruction):
                places.append(item)
                continue
            start = len(places)
            places.append(None)
            walk(item.items, depth + 1)
            loops.append(Span(item, start, len(places), depth))
            places.append(None)

    walk(lowered.items, 0)
    return Line(tuple(places), tuple(loops))
