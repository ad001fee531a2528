"""An Optuna sampler that knows that tile sizes act smoothly, and that proposes no point twice.

Optuna's tree-structured estimator missed the best in one search of five, and its Gaussian process needs torch.
This one asks its own process (`surrogate.py`) which untried point may gain most. Of two goals each question weighs them
anew, so that all of a front is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from random import Random
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from npuscope.answer.space import Point
from npuscope.answer.surrogate import Floats, Smoothness, promise, smoothness, standard

FIRST = 4  # points that run, drawn before there is something to learn from
MOST_UNTRIED = 2048  # of a larger space so many are drawn, and those beside the best are taken
MOST_TRIED = 500  # the best of those that ran, the last of those that cannot
AGAIN = 1.1  # learns anew with so many times the answers


class SmoothSampler(BaseSampler):
    """Settings are numbers from 0 up to their sizes. A trial that failed is a point that cannot run."""

    def __init__(self, sizes: dict[str, int], seed: int) -> None:
        self.kinds: dict[str, BaseDistribution] = {name: IntDistribution(0, size - 1) for name, size in sizes.items()}
        self._sizes, self._random = tuple(sizes.values()), Random(seed)
        self._learnt: tuple[int, Smoothness] | None = None

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self.kinds

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: dict[str, Any]) -> dict[str, Any]:
        trials = [one for one in study.get_trials(deepcopy=False) if one.number != trial.number]
        return dict(zip(self.kinds, self._proposed(trials), strict=True))

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: Any) -> Any:
        raise AssertionError("every point is proposed as a whole")

    def _proposed(self, trials: Sequence[FrozenTrial]) -> Point:
        asked = {tuple(trial.params[name] for name in self.kinds): trial for trial in trials}
        ran = {point: trial.values for point, trial in asked.items() if trial.state is TrialState.COMPLETE}
        if len(ran) < FIRST:
            return next(self._drawn(asked))
        goals = self._weighed(np.array([*ran.values()]))
        best_first = np.argsort(goals, kind="stable")[:MOST_TRIED]
        points = [[*ran][n] for n in best_first]
        goals = goals[best_first]
        untried = self._untried(points[0], asked)
        failed = [point for point, trial in asked.items() if trial.state is TrialState.FAIL][-MOST_TRIED:]
        waiting = [point for point, trial in asked.items() if trial.state is TrialState.RUNNING]
        if self._learnt is None or len(ran) >= AGAIN * self._learnt[0]:
            self._learnt = len(ran), smoothness(self._places(points), goals)
        tried = self._places(points + waiting)  # as good as the best, so that the next one asked for is elsewhere
        goals = np.append(goals, [goals[0]] * len(waiting))
        gains = promise(self._learnt[1], tried, goals, self._places(failed), self._places(untried))
        return untried[int(np.argmax(gains))]

    def _weighed(self, values: Floats) -> Floats:
        """One goal of several: times by their logarithms, a front's other goal as it is, each in its own spread."""
        time = standard(np.log(np.maximum(values[:, 0], 1.0)))
        if values.shape[1] == 1:
            return time
        weight = self._random.random()
        return weight * time + (1 - weight) * standard(values[:, 1])

    def _untried(self, best: Point, asked: dict[Point, FrozenTrial]) -> list[Point]:
        if prod(self._sizes) <= MOST_UNTRIED:
            return [point for point in product(*map(range, self._sizes)) if point not in asked]
        beside = [
            (*best[:place], value, *best[place + 1 :])
            for place, size in enumerate(self._sizes)
            for value in range(size)
        ]
        drawn = self._drawn(asked)
        return [*(point for point in beside if point not in asked), *(next(drawn) for _ in range(MOST_UNTRIED))]

    def _drawn(self, asked: dict[Point, FrozenTrial]) -> Iterator[Point]:
        while True:
            point = tuple(map(self._random.randrange, self._sizes))
            if point not in asked:
                yield point

    def _places(self, points: Sequence[Point]) -> Floats:
        """Points with each setting from 0 to 1."""
        most = np.maximum(np.array(self._sizes) - 1, 1)
        return np.asarray(np.array(points, float).reshape(-1, len(most)) / most)
