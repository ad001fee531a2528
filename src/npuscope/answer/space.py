"""Settings of a program with the values to try, and the points that they span.

A point is a value's number per setting, in the order of the values, so that near numbers are near values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

Point = tuple[int, ...]


@dataclass(frozen=True)
class SearchSpace:
    """Settings with the values to try, and the point at which the program is now."""

    settings: tuple[tuple[str, tuple[str, ...]], ...]
    start: Point

    @cached_property
    def size(self) -> int:
        return prod(len(values) for _, values in self.settings)

    def at(self, point: Point) -> tuple[tuple[str, str], ...]:
        """The settings of a point."""
        return tuple((name, values[at]) for (name, values), at in zip(self.settings, point, strict=True))


def space_of(settings: Sequence[tuple[str, Sequence[str], str | None]]) -> SearchSpace:
    """A space of (name, values, the present value); where that is not among the values the first one is the start."""
    return SearchSpace(
        tuple((name, tuple(values)) for name, values, _ in settings),
        tuple(values.index(now) if now in values else 0 for _, values, now in settings),
    )
