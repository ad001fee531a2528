"""A robust fit of constants: least absolute errors of logarithms, by steps on the model as it is near a point.

At a point every prediction is taken as linear in the logarithms of the constants (one trial per constant gives the
slopes). Weighted least squares, weighted anew until large misses count for no more than their size, gives a step of at
most `REACH`; it is taken as far as the true loss falls. The same slopes answer what a fit without some of the
evidence would have said, so leaving out one commit after the other costs no more trials.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np
import numpy.typing as npt

from fitting.evidence import Evidence

Floats = npt.NDArray[np.float64]
Point = dict[str, float]  # constant -> value
Trial = Callable[[Point], list[tuple[Evidence, float]]]
STEP = log(1.15)  # by which a constant is moved to see what it does
REACH = 0.35  # the most that a logarithm may move in a step
LARGEST = 0.7  # a miss above counts as this one: nobody learns from what the model does not have
PRIOR = 0.02  # what it costs to move a constant, so that those that matter nowhere stay


@dataclass(frozen=True)
class Near:
    """The model near a point: predictions and their slopes."""

    point: Point
    evidence: tuple[Evidence, ...]
    predicted: Floats
    slopes: Floats  # [evidence, constant]


def loss_of(trial: Sequence[tuple[Evidence, float]]) -> float:
    """The mean miss, by weight."""
    misses = [(one.weight, min(abs(predicted - one.measured), LARGEST)) for one, predicted in trial]
    return sum(weight * miss for weight, miss in misses) / sum(weight for weight, _ in misses)


def look(trial: Trial, point: Point) -> Near:
    base = trial(point)
    evidence = tuple(one for one, _ in base)
    predicted = np.array([value for _, value in base])
    columns = []
    for name in point:
        moved = dict(trial({**point, name: point[name] * exp(STEP)}))
        columns.append([(moved.get(one, value) - value) / STEP for one, value in base])
    return Near(point, evidence, predicted, np.array(columns).T)


def step(near: Near, bounds: dict[str, tuple[float, float]], without: str = "") -> Floats:
    """How far each logarithm should move; `without`: the group that is left out."""
    measured = np.array([one.measured for one in near.evidence])
    weight = np.array([one.weight * (one.group != without) for one in near.evidence])
    moved = np.zeros(len(near.point))
    low = np.array([max(log(bounds[name][0] / value), -REACH) for name, value in near.point.items()])
    high = np.array([min(log(bounds[name][1] / value), REACH) for name, value in near.point.items()])
    for _ in range(60):
        miss = near.predicted + near.slopes @ moved - measured
        size = np.maximum(np.abs(miss), 0.02)
        pull = np.where(size > LARGEST, 0.0, weight / size)
        normal = near.slopes.T @ (pull[:, None] * near.slopes) + PRIOR * np.sum(weight) * np.eye(len(moved))
        wanted = np.linalg.solve(normal, near.slopes.T @ (pull * (measured - near.predicted)))
        moved = 0.5 * moved + 0.5 * np.clip(wanted, low, high)
    return moved


def predicted_after(near: Near, moved: Floats) -> Floats:
    return near.predicted + near.slopes @ moved


def moved_point(near: Near, moved: Floats, share: float = 1.0) -> Point:
    return {
        name: float(f"{value * exp(share * by):.3g}")
        for (name, value), by in zip(near.point.items(), moved, strict=True)
    }
