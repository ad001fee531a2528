"""Strided boxes of a buffer, and whether two of them share an element: exactly, not by their bounds."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from math import gcd
from typing import NamedTuple

Dims = tuple[tuple[int, int], ...]  # (size, stride) of the axes that matter, sizes > 1, strides > 0


class Box(NamedTuple):
    """Elements `offset + sum(i[k] * strides[k])` of a buffer, `0 <= i[k] < shape[k]`."""

    buffer: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def extent(self) -> int:
        """From the first element to one past the last; 0 for a box without elements."""
        return extent(self.shape, self.strides)


def extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a packed tensor; an axis of no length counts as one so that no stride is 0."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def overlaps(a: Box, b: Box) -> bool:
    """True if the two boxes share an element."""
    if a.buffer != b.buffer or 0 in a.shape or 0 in b.shape:
        return False
    return offsets_meet(b.offset - a.offset, dims(a.shape, a.strides), dims(b.shape, b.strides))


@lru_cache(maxsize=1 << 12)
def dims(shape: tuple[int, ...], strides: tuple[int, ...]) -> Dims:
    """Axes as (size, stride), without those of one element, adjacent ones that run on joined."""
    joined: list[tuple[int, int]] = []
    for size, stride in sorted(zip(shape, strides, strict=True), key=lambda axis: axis[1]):
        if size == 1 or stride == 0:
            continue
        if joined and joined[-1][0] * joined[-1][1] == stride:
            joined[-1] = (joined[-1][0] * size, joined[-1][1])
        else:
            joined.append((size, stride))
    return tuple(joined)


@lru_cache(maxsize=1 << 16)
def offsets_meet(distance: int, a: Dims, b: Dims) -> bool:
    """True if sum(i·stride of a) = distance + sum(j·stride of b) for indices inside both boxes.

    Axes of one stride become one number i − j with a range. From the widest stride down, only the few values are
    tried that the smaller strides can still make good: one or two in a row-major buffer.
    """
    low: Counter[int] = Counter()
    high: Counter[int] = Counter()
    for size, stride in a:
        high[stride] += size - 1
    for size, stride in b:
        low[stride] -= size - 1
    terms = [(stride, low[stride], high[stride]) for stride in sorted({*low, *high}, reverse=True)]
    rest = [(0, 0, 0)]  # of the terms from each place on: lowest sum, highest sum, greatest common divisor
    for stride, least, most in reversed(terms):
        below, above, divisor = rest[-1]
        rest.append((below + stride * least, above + stride * most, gcd(divisor, stride)))
    rest.reverse()

    def reachable(place: int, wanted: int) -> bool:
        below, above, divisor = rest[place]
        if not below <= wanted <= above or (wanted % divisor if divisor else wanted):
            return False
        if place == len(terms):
            return True
        stride, least, most = terms[place]
        below, above, _ = rest[place + 1]
        first = max(least, -((above - wanted) // stride))
        last = min(most, (wanted - below) // stride)
        return any(reachable(place + 1, wanted - stride * number) for number in range(first, last + 1))

    return reachable(0, distance)
