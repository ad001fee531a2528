"""B against A from several runs of each: the ratio of their times, how sure it is, and what would make it sure.

The interval is Yuen's: a t interval of the difference of means on a log scale, each without the lowest and the highest
fifth of its runs, that does not take both sides to be equally noisy. benchmarks/noise.py measured how often
intervals cover the true ratio, with real and with heavy-tailed noise: this one about 95 times in 100 from three runs
a side on, bootstraps of the medians 89 times with three runs and 92 with four (docs/understand/noise.md).
scipy.special has what is needed here; scipy.stats, which has the test itself, takes longer to import than to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from math import ceil, exp, inf, log, sqrt
from typing import Literal

import numpy as np

from npuscope.base.frozen import dataclass

CONFIDENCE = 0.95
TRIM = 0.2  # of the runs at either end, left out of the mean; of fewer than five none
TRIM_COSTS = 1.1  # the variance of a trimmed mean over that of a mean, of normal noise
ENOUGH = 3  # runs of a side that show their own noise
CHANCE = 0.8  # with which so many runs more would decide, if the difference is what it seems
MOST_RUNS = 1000  # more than this nobody runs
Verdict = Literal["faster", "slower", "undecided"]


@dataclass(frozen=True)
class Ratio:
    """B over A, below 1 where B is faster. `low` to `high` has the true ratio 95 times in 100."""

    value: float
    low: float
    high: float
    runs: tuple[int, int]
    p: float  # how often noise alone would look at least as different; 1 where nobody knows
    more_runs: int | None  # of each side, to decide it; None where it is decided, or nobody knows, or no number would
    confidence: float = CONFIDENCE

    @property
    def verdict(self) -> Verdict:
        """B is faster or slower where the interval leaves out 1."""
        if self.low <= 1 <= self.high:
            return "undecided"
        return "faster" if self.high < 1 else "slower"

    @property
    def has_interval(self) -> bool:
        """Too few runs show no noise."""
        return self.high < inf

    @property
    def largest_difference(self) -> float:
        """A difference larger than this, as a share, is ruled out."""
        return max(self.high - 1, 1 - self.low)

    def as_dict(self) -> dict[str, object]:
        """Part of the JSON contracts; ends that are not known are null."""
        unknown = {} if self.has_interval else {"low": None, "high": None, "p": None}
        return {**asdict(self), "runs": list(self.runs), "verdict": self.verdict, **unknown}


@dataclass(frozen=True)
class Typical:
    """Runs of one side on a log scale: their trimmed mean, its variance, and the degrees of freedom of that."""

    mean: float
    variance: float
    freedom: int
    spread: float  # standard deviation of a single run, none left out
    runs: int

    def width(self) -> float:
        """Half the interval of the mean."""
        return t_quantile(self.freedom) * sqrt(self.variance)


def typical(times: Sequence[float] | np.ndarray) -> Typical:
    """Positive times, one a run, at least one."""
    logs = np.sort(np.log(np.asarray(times, dtype=np.float64)))
    n = len(logs)
    if n < 2:
        return Typical(float(logs[0]), 0.0, 0, 0.0, n)
    cut = int(TRIM * n)
    inner = logs[cut : n - cut]
    pulled = np.clip(logs, inner[0], inner[-1])  # those left out count as the outermost that are in
    variance = (n - 1) * float(pulled.var(ddof=1)) / (len(inner) * (len(inner) - 1))
    return Typical(float(inner.mean()), variance, len(inner) - 1, float(logs.std(ddof=1)), n)


def t_quantile(freedom: float) -> float:
    """How many standard errors the interval reaches to either side."""
    from scipy.special import stdtrit

    return float(stdtrit(min(freedom, 1e9), (1 + CONFIDENCE) / 2))


def ratio_of(a: Sequence[float], b: Sequence[float], noise: float | None = None) -> Ratio:
    """Times of runs of A and of B. Where a side has fewer than three the other's noise counts for it; where neither
    has, `noise`, by which share single runs differ (half the width of the interval of one run), or nothing is known."""
    from scipy.special import ndtri, stdtr

    one, two = typical(a), typical(b)
    size, runs = two.mean - one.mean, (one.runs, two.runs)
    value = exp(size)
    if min(runs) >= ENOUGH:
        variance = one.variance + two.variance
        squares = sum(side.variance**2 / side.freedom for side in (one, two))
        freedom = variance**2 / squares if squares else inf
    elif max(runs) >= ENOUGH:  # one run has the noise of those it is held against
        known = one if one.runs > two.runs else two
        variance, freedom = known.spread**2 / min(runs) + known.variance, known.runs - 1
    elif noise is not None:
        variance, freedom = (noise / float(ndtri(0.975))) ** 2 * (1 / runs[0] + 1 / runs[1]), inf
    else:
        return Ratio(value, 0.0, inf, runs, 1.0, None)
    error, size = sqrt(variance), log(value)
    if error == 0:  # runs that are all equal: no noise, so any difference is one
        return Ratio(value, value, value, runs, float(value == 1), None)
    width = error * t_quantile(freedom)
    p = 2 * float(stdtr(min(freedom, 1e9), -abs(size) / error))
    ratio = Ratio(value, exp(size - width), exp(size + width), runs, p, None)
    return ratio if ratio.verdict != "undecided" else replace(ratio, more_runs=more_runs(size, variance, runs))


def more_runs(size: float, variance: float, runs: Sequence[int]) -> int | None:
    """Runs to add to each side, `runs` being those there are, until a log difference of this size, whose variance is
    now this, is decided with a chance of 80%; None where nobody would run so many."""
    from scipy.special import ndtri

    if size == 0:
        return None
    # few runs mostly look less noisy than they are (the median of a sample variance), and trimming costs a tenth
    seen = max(sum(runs) - len(runs), 1)
    of_one_run = variance / sum(1 / n for n in runs) * TRIM_COSTS / (1 - 2 / (9 * seen)) ** 3
    more = 0
    while more <= MOST_RUNS:
        error = sqrt(of_one_run * sum(1 / (n + more) for n in runs))
        freedom = max(sum((n + more) * (1 - 2 * TRIM) - 1 for n in runs), 1)
        if abs(size) >= error * (t_quantile(freedom) + float(ndtri(CHANCE))):
            return max(more, 1)
        more += max(1, ceil(more / 20))
    return None


def holm(p: Sequence[float]) -> list[float]:
    """p values corrected for their number by Holm: the chance that any of those up to 5% is noise is at most 5%."""
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    scaled = np.minimum(values[order] * (len(values) - np.arange(len(values))), 1.0)
    corrected = np.empty(len(values))
    corrected[order] = np.maximum.accumulate(scaled)
    return [float(one) for one in corrected]
