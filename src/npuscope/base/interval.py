"""A predicted number with its interval, and two of them held against each other. Light: whoever passes answers on loads
nothing else."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

COVERAGE = 0.8
SURE = (1 + COVERAGE) / 2  # a probability from here up decides, or one up to 1 - SURE
NOISE = 0.03  # of a published time


@dataclass(frozen=True)
class Basis:
    """What an interval was learnt from; without a `bound` from all of them, because the kind has too few commits."""

    quantity: str = ""
    bound: str | None = None
    rows: int = 0
    commits: int = 0


@dataclass(frozen=True)
class Interval:
    """A predicted value; `coverage` is the share of predictions whose measured value lies from `low` to `high`."""

    value: float
    low: float
    high: float
    coverage: float = COVERAGE
    basis: Basis = Basis()

    def times(self, factor: float) -> Interval:
        """In another unit, or so many of them."""
        return replace(self, value=self.value * factor, low=self.low * factor, high=self.high * factor)

    def as_dict(self) -> dict[str, object]:
        """Part of the JSON contracts; the value stands beside it, and of a whole one the interval is whole."""
        low, high = (round(v) if isinstance(self.value, int) else v for v in (self.low, self.high))
        learnt = {} if not self.basis.rows else {"learnt_from": asdict(self.basis)}
        return {"low": low, "high": high, "coverage": self.coverage, **learnt}


@dataclass(frozen=True)
class Against:
    """B against A: the ratio of their times, below 1 where B is faster, and the probability that it is."""

    ratio: Interval
    faster: float

    @property
    def verdict(self) -> str:
        """faster, slower, or undecided: within the noise of what is measured, or of what is predicted."""
        if abs(math.log(self.ratio.value)) < NOISE or 1 - SURE < self.faster < SURE:
            return "undecided"
        return "faster" if self.faster > 0.5 else "slower"

    def as_dict(self) -> dict[str, object]:
        return {
            "ratio": self.ratio.value,
            **self.ratio.as_dict(),
            "probability_faster": self.faster,
            "verdict": self.verdict,
        }
