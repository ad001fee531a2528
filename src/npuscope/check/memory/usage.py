"""What every kernel takes of each memory.

A kernel may have several bodies (its branches); a space is as full as the fullest of them makes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from npuscope.lower.memory_plan import SpacePlan
from npuscope.lower.program import PlannedBody


@dataclass(frozen=True)
class Usage:
    """One memory of one function, in the body that fills it most."""

    function: str
    body: PlannedBody
    space: SpacePlan

    @property
    def share(self) -> float:
        return self.space.used / self.space.limit


def usages(bodies: Iterable[PlannedBody]) -> tuple[Usage, ...]:
    """Per function and space the fullest body; functions in order of their first task."""
    fullest: dict[tuple[str, str], Usage] = {}
    for body in bodies:
        for space in body.plan.spaces:
            usage = Usage(body.function(space), body, space)
            known = fullest.get((usage.function, space.space))
            if known is None or space.used > known.space.used:
                fullest[usage.function, space.space] = usage
    return tuple(fullest.values())
