"""Which point of a space of settings to try next: Optuna proposes, and what it proposes again becomes a neighbour.

A point is a value's number per setting, in the order of the values, so that near numbers are near values. The first
point is the program as it is. Then Optuna's tree-structured Parzen estimator and steps to untried neighbours of the
best so far take turns: the first finds the region, the second its end.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING

from npuscope.errors import NpuscopeError

if TYPE_CHECKING:
    from types import ModuleType

Point = tuple[int, ...]
Goals = tuple[float, ...]  # what is to be small: the time, and memory or tasks where a front is asked for
BEST = 5  # points whose neighbours are tried
FIRST = 6  # points drawn before the estimator has something to estimate from


@dataclass(frozen=True)
class Space:
    """Settings with the values to try, and the point at which the program is now."""

    settings: tuple[tuple[str, tuple[str, ...]], ...]
    start: Point

    @cached_property
    def size(self) -> int:
        return prod(len(values) for _, values in self.settings)

    def at(self, point: Point) -> tuple[tuple[str, str], ...]:
        """The settings of a point."""
        return tuple((name, values[at]) for (name, values), at in zip(self.settings, point, strict=True))

    def beside(self, point: Point) -> list[Point]:
        """Points that differ in one setting by one value, then in one setting at all, then in two by one value.

        Two at a time, because what one tile gains another has to give: a memory that is full holds only one of them.
        """
        near: list[Point] = []
        far: list[Point] = []
        for place, (_, values) in enumerate(self.settings):
            for other in range(len(values)):
                if other != point[place]:
                    one = (*point[:place], other, *point[place + 1 :])
                    (near if abs(other - point[place]) == 1 else far).append(one)
        steps = [(place, one) for one in near for place in range(len(point)) if one[place] != point[place]]
        pairs = [
            tuple(b[place] if place == moved else value for place, value in enumerate(a))
            for (first, a), (moved, b) in combinations(steps, 2)
            if first != moved
        ]
        return near + pairs + far


class Search:
    """Proposes points of a space, never one twice. The same seed and answers give the same points."""

    def __init__(self, space: Space, goals: int = 1, seed: int = 0) -> None:
        optuna = _optuna()
        self._space, self._optuna, self._random = space, optuna, random.Random(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "experimental": the estimator's options
            sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=FIRST, multivariate=True)
        self._study = optuna.create_study(directions=["minimize"] * goals, sampler=sampler)
        self._kinds = {
            name: optuna.distributions.IntDistribution(0, len(values) - 1) for name, values in space.settings
        }
        self._asked: set[Point] = set()
        self._told: dict[Point, Goals] = {}

    def ask(self) -> Point | None:
        """The next point to try; None where all were tried."""
        if len(self._asked) == self._space.size:
            return None
        if not self._asked:
            point = self._space.start
        elif len(self._told) >= FIRST and len(self._asked) % 2:
            point = self._neighbour() or self._proposed()
        else:
            point = self._proposed()
        self._asked.add(point)
        return point

    def tell(self, point: Point, goals: Goals | None) -> None:
        """What came of a point; None where it cannot run."""
        params = dict(zip(self._kinds, point, strict=True))
        state = self._optuna.trial.TrialState
        create = self._optuna.trial.create_trial
        if goals is not None:
            self._told[point] = goals
            self._study.add_trial(create(params=params, distributions=self._kinds, values=list(goals)))
        elif len(self._study.directions) == 1:  # worse than all that run; Optuna takes that of one goal only
            self._study.add_trial(create(params=params, distributions=self._kinds, state=state.PRUNED))

    def _proposed(self) -> Point:
        trial = self._study.ask(self._kinds)
        point = tuple(trial.params[name] for name in self._kinds)
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)  # answers are added by `tell` alone
        return point if point not in self._asked else self._neighbour() or self._untried()

    def _neighbour(self) -> Point | None:
        """An untried one beside the best, or beside one of the front."""
        for best in best_first(self._told):
            for point in self._space.beside(best):
                if point not in self._asked:
                    return point
        return None

    def _untried(self) -> Point:
        while True:
            point = tuple(self._random.randrange(len(values)) for _, values in self._space.settings)
            if point not in self._asked:
                return point


def best_first(told: dict[Point, Goals]) -> list[Point]:
    """Those that nothing beats in all goals, the smallest first goal first."""
    return sorted(front(told), key=lambda point: told[point])[:BEST]


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
        raise NpuscopeError("Optuna is not installed", remedy="pip install 'npuscope[tune]'.") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def space_of(settings: Sequence[tuple[str, Sequence[str], str | None]]) -> Space:
    """A space of (name, values, the present value); where that is not among the values the first one is the start."""
    return Space(
        tuple((name, tuple(values)) for name, values, _ in settings),
        tuple(values.index(now) if now in values else 0 for _, values, now in settings),
    )
