"""How sure a predicted time is: an interval, and of two programs the probability that the second is faster.

Both come from the misses on published changes (`misses.py`). A ratio's miss is as likely in either direction, so that
A against B and B against A say the same; the interval of a ratio leaves out 1 just where the probability is decided.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import cache

from npuscope.time.misses import FILE, NOISE, Basis, Miss, Misses, kind_of, read_misses

COVERAGE = 0.8
SURE = (1 + COVERAGE) / 2  # a probability from here up decides, or one up to 1 - SURE


@dataclass(frozen=True)
class Estimate:
    """A predicted value; `coverage` is the share of predictions whose measured value lies from `low` to `high`."""

    value: float
    low: float
    high: float
    coverage: float
    basis: Basis

    def times(self, factor: float) -> Estimate:
        """In another unit, or so many of them."""
        return replace(self, value=self.value * factor, low=self.low * factor, high=self.high * factor)

    def as_dict(self) -> dict[str, object]:
        """Part of the JSON contracts; the value stands beside it, and of a whole one the interval is whole."""
        low, high = (round(v) if isinstance(self.value, int) else v for v in (self.low, self.high))
        return {"low": low, "high": high, "coverage": self.coverage, "learnt_from": asdict(self.basis)}


@dataclass(frozen=True)
class Against:
    """B against A: the ratio of their times, below 1 where B is faster, and the probability that it is."""

    ratio: Estimate
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


@cache
def known_misses() -> Misses:
    """The misses that come with npuscope."""
    with FILE.open(newline="", encoding="utf-8") as source:
        return read_misses(source)


def time_estimate(time: float, quantity: str, bound: str, misses: Misses | None = None) -> Estimate:
    """A time in any unit: `quantity` is wall or kernel, `bound` the kind of what limits the run."""
    low, high, basis = (misses or known_misses()).time(quantity, bound, COVERAGE)
    return Estimate(time, time * math.exp(low), time * math.exp(high), COVERAGE, basis)


def against(
    a: float, b: float, bound_a: str, bound_b: str, misses: Misses | None = None, quantity: str = "wall"
) -> Against:
    """The time B against the time A, each with what limits its run. Both times are above 0."""
    return _compared(math.log(b / a), quantity, kind_of(bound_a, bound_b), misses or known_misses())


def time_after(time: float, change: Against) -> Estimate:
    """A predicted time that stands on a measured one: all that is unknown is the change between them.

    A published ratio's miss is the miss of the time after, foretold from the measured time before.
    """
    ratio = change.ratio
    low, high = (time * end / ratio.value for end in (ratio.low, ratio.high))
    return replace(ratio, value=time, low=low, high=high)


def _compared(change: float, quantity: str, kind: str, misses: Misses) -> Against:
    spread, basis = misses.ratio(quantity, kind)
    size = misses.size(change)
    width = spread.at(COVERAGE) * size
    ratio = Estimate(math.exp(change), math.exp(change - width), math.exp(change + width), COVERAGE, basis)
    return Against(ratio, 0.5 - math.copysign(0.5 * spread.share(abs(change) / size), change))


def ratio_inside(misses: Misses, row: Miss) -> list[bool]:
    """Whether the measured ratio of a row lies in the interval that other rows teach."""
    ratio = _compared(row.change, row.quantity, row.kind, misses).ratio
    return [ratio.low <= math.exp(row.change + row.ratio) <= ratio.high]


def time_inside(misses: Misses, row: Miss) -> list[bool]:
    """The same for the times of its sides."""
    found = []
    for bound, miss in row.times():
        one = time_estimate(1.0, row.quantity, bound, misses)
        found.append(one.low <= math.exp(miss) <= one.high)
    return found
