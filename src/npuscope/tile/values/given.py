"""The whole numbers that a task is given, watched while its body runs, to see what depends on them.

A sum of them with whole factors and plain numbers *follows* them. Where such a sum only says where a box lies, the
same body with other numbers does the same elsewhere, as long as all boxes lie inside. Where it is compared, it is
enough that it stays on its side. Whoever looks at its value in any other way *pins* the numbers in it: the body is
known for these numbers alone.
"""

from __future__ import annotations

from typing import NamedTuple

from npuscope.tile.record.recorder import Factors


class Given:
    """What is known of the numbers of one task."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.pinned: set[int] = set()
        self.reach: dict[Factors, tuple[int, int]] = {}  # a sum by its factors -> how far it may move, down and up

    def follow(self, place: int) -> Sum:
        """One of the numbers itself."""
        return Sum(self, tuple([int(k == place) for k in range(self.count)]))


class Sum(NamedTuple):
    """What a number follows."""

    given: Given
    factors: Factors

    def plus(self, other: Sum | None, sign: int = 1) -> Sum:
        if other is None:
            return self
        return Sum(self.given, tuple([a + sign * b for a, b in zip(self.factors, other.factors, strict=True)]))

    def times(self, factor: int) -> Sum:
        return Sum(self.given, tuple([factor * a for a in self.factors]))

    def pin(self) -> None:
        """Somebody looks at the value."""
        self.given.pinned.update(k for k, factor in enumerate(self.factors) if factor)

    def within(self, down: int, up: int) -> None:
        """What was done holds as long as the sum moves no further."""
        low, high = self.given.reach.get(self.factors, (down, up))
        self.given.reach[self.factors] = (max(low, down), min(high, up))
