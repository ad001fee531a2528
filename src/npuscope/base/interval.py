"""A predicted number with its interval, and two of them held against each other. Light: whoever passes answers on loads
nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from npuscope.base.frozen import dataclass

COVERAGE = 0.8
SURE = (1 + COVERAGE) / 2  # a probability from here up decides, or one up to 1 - SURE
NOISE = 0.03  # of a published time
ROUGH = 0.05  # of a gain: replays and simulations are never surer


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

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Interval:
        """What `as_dict` made, with its `value`."""
        basis = Basis(**data.get("learnt_from", {}))
        return cls(data["value"], data["low"], data["high"], data["coverage"], basis)


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

    def __str__(self) -> str:
        return chance_text(self.faster, self.verdict)

    def as_dict(self) -> dict[str, object]:
        return {
            "ratio": self.ratio.value,
            **self.ratio.as_dict(),
            "probability_faster": self.faster,
            "verdict": self.verdict,
        }


def chance_text(faster: float, verdict: str) -> str:
    """The verdict of a predicted change with its probability: `93% likely faster`, `95% likely slower`, `undecided, 88%
    likely faster`. The same words wherever such a change is told."""
    if verdict == "slower":
        return f"{never_certain(1 - faster)} likely slower"
    return f"{'undecided, ' if verdict == 'undecided' else ''}{never_certain(faster)} likely faster"


def never_certain(probability: float) -> str:
    """In whole per cent, from 1 to 99."""
    return f"{min(max(probability, 0.01), 0.99):.0%}"


@dataclass(frozen=True)
class Gain:
    """What mending a cause is worth: nanoseconds off the wall, the likely value and the bounds that it lies within."""

    ns: int
    low_ns: int
    high_ns: int

    @classmethod
    def around(cls, ns: float, low: float, high: float) -> Gain:
        """With bounds that stand off from the likely value by ROUGH of it at least: nothing here is surer. Where they
        are one, nobody knows any, and at worst nothing comes of it."""
        likely = max(round(ns), 0)
        least = 0 if low >= high else max(round(min(low, likely * (1 - ROUGH))), 0)
        return cls(likely, least, round(max(high, likely * (1 + ROUGH))))

    def within(self, wall: int) -> Gain:
        """No run saves more than all it takes."""
        return Gain(
            min(self.ns, int(wall * (1 - ROUGH))), min(self.low_ns, int(wall * (1 - ROUGH))), min(self.high_ns, wall)
        )
