"""A measured value with the predicted one, and how well many of them agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from published_changes.score import spearman, weighted_median


@dataclass(frozen=True)
class Pair:
    """Measured and predicted in one unit. A pair may weigh more than one."""

    name: str
    measured: float
    predicted: float
    weight: float = 1.0

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.measured

    @property
    def error(self) -> float:
        """How far off, as a factor minus one: double and half are the same error."""
        return max(self.ratio, 1 / self.ratio) - 1 if self.ratio > 0 else math.inf


@dataclass(frozen=True)
class Agreement:
    """Of some pairs: the middle error, the share within 15 % and the correlation of ranks."""

    pairs: int
    median_error: float
    within_15: float
    rho: float


def agreement(pairs: Sequence[Pair]) -> Agreement:
    weights = [one.weight for one in pairs]
    return Agreement(
        len(pairs),
        weighted_median([one.error for one in pairs], weights),
        share_within(pairs, 0.15),
        spearman([one.measured for one in pairs], [one.predicted for one in pairs], weights),
    )


def share_within(pairs: Sequence[Pair], error: float) -> float:
    total = sum(one.weight for one in pairs)
    return sum(one.weight for one in pairs if one.error <= error) / total if total else math.nan
