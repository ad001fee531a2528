"""A body read in the order in which its ops ran: the one place that knows how segments nest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from npuscope.tile.record.model import Access, Body, Loop, Op

Counts = tuple[int, ...]  # iterations of the segments around an op, outermost first


@dataclass(frozen=True, slots=True)
class Around:
    """A loop around an op: where it stands among the items around it, and which of its segments the op is in."""

    loop: Loop
    index: int
    segment: int

    @property
    def count(self) -> int:
        """Turns of the segment."""
        return self.loop.segments[self.segment].count


def walk(body: Body) -> Iterator[tuple[Op, int, tuple[Around, ...]]]:
    """Every stored op once with its index and the loops around it, outermost first.

    In the order of a BlockGroup's offsets: the prologue, then depth first through segments.
    """
    for index, op in enumerate(body.prologue):
        yield op, index, ()
    yield from _walk(body.items, ())


def _walk(items: tuple[Op | Loop, ...], around: tuple[Around, ...]) -> Iterator[tuple[Op, int, tuple[Around, ...]]]:
    for index, item in enumerate(items):
        if isinstance(item, Op):
            yield item, index, around
        else:
            for number, segment in enumerate(item.segments):
                yield from _walk(segment.items, (*around, Around(item, index, number)))


def ops_of(body: Body) -> Iterator[tuple[Op, Counts]]:
    """Every stored op once, in order, with how often each segment around it is run."""
    for op, _, around in walk(body):
        yield op, tuple([loop.count for loop in around])


def accesses_of(body: Body) -> Iterator[tuple[Op, Access, Counts]]:
    """The accesses of a body in the order of its offsets."""
    for op, counts in ops_of(body):
        for access in op.accesses:
            yield op, access, counts
