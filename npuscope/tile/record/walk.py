"""A body read in the order in which its ops ran: the one place that knows how segments nest."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.tile.record.model import Body, Loop, Op

Counts = tuple[int, ...]  # iterations of the segments around an op, outermost first


def ops_of(body: Body) -> Iterator[tuple[Op, Counts]]:
    """Every stored op once, in the order of a BlockGroup's offsets: the prologue, then depth first through segments."""
    for op in body.prologue:
        yield op, ()
    yield from _ops(body.items, ())


def _ops(items: tuple[Op | Loop, ...], counts: Counts) -> Iterator[tuple[Op, Counts]]:
    for item in items:
        if isinstance(item, Op):
            yield item, counts
        else:
            for segment in item.segments:
                yield from _ops(segment.items, (*counts, segment.count))
