"""What untried points of a space may take, learnt from those that were tried: a Gaussian process over their numbers.

Tile sizes act smoothly: a neighbour's time says much of a point's own, and some settings matter more than others. The
process learns from the answers how far each setting reaches, and tells of every untried point how much faster than the
best so far it may be, weighed with how likely it is to run at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
REACHES = (0.15, 0.3, 0.6, 1.2, 2.5, 5.0)  # of a setting, in lengths of its whole range
NOISES = (1e-4, 1e-2)  # of the variance: simulated times are jumpy, because blocks change places
ROUNDS = 2  # over all settings, each looking for its own reach


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
