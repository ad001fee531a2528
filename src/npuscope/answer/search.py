"""Settings of a program with the values to try, and which point of them to try next: an Optuna study with a sampler
for tile sizes (`sampler.py`, apart from this because Optuna may not be installed).

The first point is the program as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

from npuscope.base.plugins import not_installed

if TYPE_CHECKING:
    from types import ModuleType

    from optuna.trial import Trial

Point = tuple[int, ...]  # a value's number per setting; near numbers are near values
Goals = tuple[float, ...]  # what is to be small: the time, and memory or tasks where a front is asked for


@dataclass(frozen=True)
class SearchSpace:
    """Settings with the values to try, and the point at which the program is now."""

    settings: tuple[tuple[str, tuple[str, ...]], ...]
    start: Point

    @cached_property
    def size(self) -> int:
        return prod(len(values) for _, values in self.settings)

    def changes(self, point: Point) -> int:
        """How many settings differ from what the program has now."""
        return sum(one != now for one, now in zip(point, self.start, strict=True))

    def at(self, point: Point) -> tuple[tuple[str, str], ...]:
        """The settings of a point."""
        return tuple((name, values[at]) for (name, values), at in zip(self.settings, point, strict=True))


def space_of(settings: Sequence[tuple[str, Sequence[str], str | None]]) -> SearchSpace:
    """A space of (name, values, the present value); where that is not among the values the first one is the start."""
    return SearchSpace(
        tuple((name, tuple(values)) for name, values, _ in settings),
        tuple(values.index(now) if now in values else 0 for _, values, now in settings),
    )


class Search:
    """Proposes points of a space, never one twice. The same seed and answers give the same points."""

    def __init__(self, space: SearchSpace, goals: int = 1, seed: int = 0) -> None:
        optuna = _optuna()
        from npuscope.answer.sampler import SmoothSampler

        self._space, self._failed = space, optuna.trial.TrialState.FAIL
        self._sampler = SmoothSampler({name: len(values) for name, values in space.settings}, seed)
        self._study = optuna.create_study(directions=["minimize"] * goals, sampler=self._sampler)
        self._study.enqueue_trial(dict(zip(self._sampler.kinds, space.start, strict=True)))
        self._trials: dict[Point, Trial] = {}

    def ask(self) -> Point | None:
        """The next point to try; None where all were tried."""
        if len(self._trials) == self._space.size:
            return None
        trial = self._study.ask(self._sampler.kinds)
        point = tuple(trial.params[name] for name in self._sampler.kinds)
        self._trials[point] = trial
        return point

    def tell(self, point: Point, goals: Goals | None) -> None:
        """What came of a point; None where it cannot run."""
        self._study.tell(self._trials[point], goals, None if goals else self._failed)


def front(told: dict[Point, Goals]) -> list[Point]:
    """The points that no other beats or equals in every goal and beats in one."""
    return [
        point
        for point, goals in told.items()
        if not any(all(a <= b for a, b in zip(other, goals, strict=True)) and other != goals for other in told.values())
    ]


def _optuna() -> ModuleType:
    try:
        import optuna
    except ImportError as error:
        raise not_installed("Optuna is", "tune") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
