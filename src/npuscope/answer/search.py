"""Settings of a program with the values to try, and which point of them to try next.

Tile sizes act smoothly: a Gaussian process learns from the answers how far each setting reaches, and says of every
untried point how much faster than the best it may be, weighed with how likely it is to run at all. Of two goals each
question weighs them anew, so that all of a front is looked for. Measured against Optuna's estimator, which missed the
best in one search of five, in benchmarks/tune.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import product
from math import prod
from random import Random

import numpy as np
from numpy.typing import NDArray

from npuscope.base.frozen import dataclass

Floats = NDArray[np.float64]
Point = tuple[int, ...]  # a value's number per setting; near numbers are near values
Goals = tuple[float, ...]  # what is to be small: the time, and memory or tasks where a front is asked for
FIRST = 4  # points that run, drawn before there is something to learn from
MOST_UNTRIED = 2048  # of a larger space so many are drawn, and those beside the best are taken
MOST_TRIED = 500  # the best of those that ran, the last of those that cannot
AGAIN = 1.1  # learns anew with so many times the answers
REACHES = (0.15, 0.3, 0.6, 1.2, 2.5, 5.0)  # of a setting, in lengths of its whole range
NOISES = (1e-4, 1e-2)  # of the variance: simulated times are jumpy, because blocks change places
ROUNDS = 2  # over all settings, each looking for its own reach


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
    """Proposes points of a space, never one twice, the program as it is first. The same seed and answers give the same
    points."""

    def __init__(self, space: SearchSpace, seed: int = 0) -> None:
        self._space, self._random = space, Random(seed)
        self._sizes = tuple(len(values) for _, values in space.settings)
        self._ran: dict[Point, Goals] = {}
        self._failed: list[Point] = []
        self._waiting: list[Point] = []
        self._learnt: tuple[int, Smoothness] | None = None

    @property
    def _asked(self) -> set[Point]:
        return {*self._ran, *self._failed, *self._waiting}

    def ask(self) -> Point | None:
        """The next point to try; None where all were tried."""
        asked = self._asked
        if len(asked) == self._space.size:
            return None
        point = self._proposed(asked) if asked else self._space.start
        self._waiting.append(point)
        return point

    def answer(self, point: Point, goals: Goals | None) -> None:
        """What came of a point; None where it cannot run."""
        self._waiting.remove(point)
        if goals is None:
            self._failed.append(point)
        else:
            self._ran[point] = goals

    def _proposed(self, asked: set[Point]) -> Point:
        if len(self._ran) < FIRST:
            return next(self._drawn(asked))
        goals = self._weighed(np.array([*self._ran.values()]))
        best_first = np.argsort(goals, kind="stable")[:MOST_TRIED]
        ran = [*self._ran]
        points = [ran[n] for n in best_first]
        goals = goals[best_first]
        untried = self._untried(points[0], asked)
        if self._learnt is None or len(ran) >= AGAIN * self._learnt[0]:
            self._learnt = len(ran), smoothness(self._places(points), goals)
        tried = self._places(points + self._waiting)  # as good as the best, so that the next one asked for is elsewhere
        goals = np.append(goals, [goals[0]] * len(self._waiting))
        failed = self._places(self._failed[-MOST_TRIED:])
        return untried[int(np.argmax(expected_gains(self._learnt[1], tried, goals, failed, self._places(untried))))]

    def _weighed(self, values: Floats) -> Floats:
        """One goal of several: times by their logarithms, a front's other goal as it is, each in its own spread."""
        time = standard(np.log(np.maximum(values[:, 0], 1.0)))
        if values.shape[1] == 1:
            return time
        weight = self._random.random()
        return weight * time + (1 - weight) * standard(values[:, 1])

    def _untried(self, best: Point, asked: set[Point]) -> list[Point]:
        if prod(self._sizes) <= MOST_UNTRIED:
            return [point for point in product(*map(range, self._sizes)) if point not in asked]
        beside = [
            (*best[:place], value, *best[place + 1 :])
            for place, size in enumerate(self._sizes)
            for value in range(size)
        ]
        drawn = self._drawn(asked)
        return [*(point for point in beside if point not in asked), *(next(drawn) for _ in range(MOST_UNTRIED))]

    def _drawn(self, asked: set[Point]) -> Iterator[Point]:
        while True:
            point = tuple(map(self._random.randrange, self._sizes))
            if point not in asked:
                yield point

    def _places(self, points: Sequence[Point]) -> Floats:
        """Points with each setting from 0 to 1."""
        most = np.maximum(np.array(self._sizes) - 1, 1)
        return np.asarray(np.array(points, float).reshape(-1, len(most)) / most)


def front(reached: dict[Point, Goals]) -> list[Point]:
    """The points that no other beats or equals in every goal and beats in one."""

    def is_beaten(goals: Goals) -> bool:
        others = (other for other in reached.values() if other != goals)
        return any(all(a <= b for a, b in zip(other, goals, strict=True)) for other in others)

    return [point for point, goals in reached.items() if not is_beaten(goals)]


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


def expected_gains(how: Smoothness, tried: Floats, goals: Floats, failed: Floats, untried: Floats) -> Floats:
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
