"""An Optuna sampler that knows that tile sizes act smoothly, and that proposes no point twice.

Optuna's tree-structured estimator missed the best in one search of five, and its Gaussian process needs torch. This one
has a process of its own: it learns from the answers how far each setting reaches, and says of every untried point how
much faster than the best it may be, weighed with how likely it is to run at all. Of two goals each question weighs them
anew, so that all of a front is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

Floats = NDArray[np.float64]
Point = tuple[int, ...]  # as of `search.py`, which asks this module
FIRST = 4  # points that run, drawn before there is something to learn from
MOST_UNTRIED = 2048  # of a larger space so many are drawn, and those beside the best are taken
MOST_TRIED = 500  # the best of those that ran, the last of those that cannot
AGAIN = 1.1  # learns anew with so many times the answers
REACHES = (0.15, 0.3, 0.6, 1.2, 2.5, 5.0)  # of a setting, in lengths of its whole range
NOISES = (1e-4, 1e-2)  # of the variance: simulated times are jumpy, because blocks change places
ROUNDS = 2  # over all settings, each looking for its own reach


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


@dataclass(frozen=True)
class Smoothness:
    """How far each setting reaches, and how jumpy times are."""

    reach: tuple[float, ...]
    noise: float


def smoothness(points: Floats, goals: Floats) -> Smoothness:
    """Under which the answers are likeliest; one setting after the other. Points are rows of places in 0 to 1."""
    goals, squares = standard(goals), _squares(points, points)
    best = Smoothness((0.6,) * points.shape[1], NOISES[0])
    most = _likelihood(squares, goals, best)
    for _ in range(ROUNDS):
        for place in range(points.shape[1]):
            for one in REACHES:
                other = Smoothness((*best.reach[:place], one, *best.reach[place + 1 :]), best.noise)
                if (found := _likelihood(squares, goals, other)) > most:
                    best, most = other, found
        for noise in NOISES:
            if (found := _likelihood(squares, goals, other := Smoothness(best.reach, noise))) > most:
                best, most = other, found
    return best


def promise(how: Smoothness, tried: Floats, goals: Floats, failed: Floats, untried: Floats) -> Floats:
    """How much smaller than the best each untried point's goal may be; `failed` are points that cannot run."""
    goals = standard(goals)
    near = _alike(_squares(untried, tried), how)
    root, weights = _solved(_alike(_squares(tried, tried), how), goals, how.noise)
    seen = np.linalg.solve(root, near.T)
    deviation = np.sqrt(np.maximum(1.0 + how.noise - (seen * seen).sum(axis=0), 1e-9))
    return _gain(goals.min() - near @ weights, deviation) * _chance(near, _alike(_squares(untried, failed), how))


def standard(values: Floats) -> Floats:
    """About zero, with a spread of one."""
    return np.asarray((values - values.mean()) / (values.std() or 1.0))


def _chance(ran: Floats, failed: Floats) -> Floats:
    """That a point runs: those near it have a vote each."""
    ayes = ran.sum(axis=1) + 0.5
    return np.asarray(ayes / (ayes + failed.sum(axis=1)))


def _gain(better: Floats, deviation: Floats) -> Floats:
    """Expected improvement over the best, with a logistic in place of the normal distribution's integral."""
    by = better / deviation
    below = (1 + np.tanh(0.851 * by)) / 2
    return np.asarray(better * below + deviation * np.exp(-by * by / 2) / np.sqrt(2 * np.pi))


def _squares(a: Floats, b: Floats) -> Floats:
    """Squared distances per setting: setting, point of a, point of b."""
    apart = a.T[:, :, None] - b.T[:, None, :]
    return np.asarray(apart * apart)


def _alike(squares: Floats, how: Smoothness) -> Floats:
    """How alike the times of two points are: a Matérn 5/2 kernel, each setting in its own reach."""
    distance = np.sqrt(5.0 * np.tensordot(1 / np.square(how.reach), squares, 1))
    return np.asarray((1.0 + distance + distance * distance / 3.0) * np.exp(-distance))


def _solved(alike: Floats, goals: Floats, noise: float) -> tuple[Floats, Floats]:
    root = np.linalg.cholesky(alike + noise * np.eye(len(goals)))
    return np.asarray(root), np.asarray(np.linalg.solve(root.T, np.linalg.solve(root, goals)))


def _likelihood(squares: Floats, goals: Floats, how: Smoothness) -> float:
    root, weights = _solved(_alike(squares, how), goals, how.noise)
    return float(-goals @ weights / 2 - np.log(np.diag(root)).sum())
