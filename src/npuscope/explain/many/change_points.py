"""Where a series of times changed its level for good, and which commit did it.

ruptures' PELT proposes places; a rank test by permutation decides which are no noise, the largest step first. The test
is made for LEVEL false alarms in series without a change. tests/explain/many/ checks that with 120 series
of 20 runs of each kind of noise: it fails from 15 alarms on, which LEVEL makes less than once in 1000 times. A step
of three standard deviations is found there in at least 80 of 100 series. How many alarms PELT raises alone, and how
many steps of 5 % are found, is measured by benchmarks/noise.py and told in docs/understand/noise.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.05  # of false alarms in a series
LEAST = 2  # runs on either side of a change
PENALTY = 3.0  # of PELT, times the logarithm of the number of runs: low, since the test decides
DRAWS, MOST_DRAWS = 1999, 19_999
CLOSE = 10  # of the first draws that look as different at most: then it is worth drawing more
SPIKE = 4.0  # standard deviations from its neighbours' median, beyond which a run counts as that far off
NEIGHBOURS = 5
NAMED = 0.9  # how sure a list of commits has the one to blame
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ChangePoint:
    """A level that begins with the runs of a commit. `at` and `blame` are places of commits, `p` is of its series."""

    at: int
    p: float
    blame: tuple[tuple[int, float], ...]  # the likeliest first, with their probabilities, until they are 90 %


def change_points(times: Sequence[float], commits: Sequence[int], level: float = LEVEL) -> list[ChangePoint]:
    """Times of runs in order, and the commit of each; a level may begin only with a commit's first run."""
    logs = np.log(np.asarray(times, dtype=np.float64))
    begins = [n for n in range(1, len(logs)) if commits[n] != commits[n - 1]]
    noise = float(np.median(np.abs(np.diff(logs)))) / 0.954 if len(logs) > 1 else 0.0
    noise = noise or float(np.std(np.diff(logs))) if len(logs) > 1 else 0.0
    if len(logs) < 2 * LEAST or not begins or not noise:
        return []
    calm = _without_spikes(logs, noise)
    found = _split(logs, calm, (0, len(logs)), _proposed(calm / noise, begins), level)
    if not found:
        return []
    places = sorted(found)
    windows = zip([0, *places[:-1]], [*places[1:], len(logs)], strict=True)
    each = [_placed(calm, window, found[n], begins, commits) for window, n in zip(windows, places, strict=True)]
    return sorted({change.at: change for change in each}.values(), key=lambda change: change.at)


def _split(
    logs: Floats, calm: Floats, window: tuple[int, int], proposed: Sequence[int], level: float
) -> dict[int, float]:
    """Of the proposed places those that are no noise, with their p: the largest step first, then within its parts.

    A series without a change is tested once, so that its chance of a false alarm is the level, whatever is proposed.
    """
    first, last = window
    inside = [n for n in proposed if first + LEAST <= n <= last - LEAST]
    if not inside or (p := _p(logs[first:last])) > level:
        return {}
    best = max(inside, key=lambda n: _step(calm[first:last], n - first))
    before, after = (_split(logs, calm, part, inside, level) for part in ((first, best), (best, last)))
    return {**before, best: p, **after}


def exact_changes(times: Sequence[float], commits: Sequence[int], threshold: float) -> list[ChangePoint]:
    """Of runs without noise: every commit whose time differs from the one before by more than a share."""
    found = []
    for n in range(1, len(times)):
        if commits[n] != commits[n - 1] and abs(log(times[n] / times[n - 1])) > log(1 + threshold):
            found.append(ChangePoint(commits[n], 0.0, ((commits[n], 1.0),)))
    return found


def _without_spikes(logs: Floats, noise: float) -> Floats:
    """Single runs far off moved to where their neighbours end; a new level stays, since its neighbours have it."""
    half = NEIGHBOURS // 2
    middle = np.array([np.median(logs[max(n - half, 0) : n + half + 1]) for n in range(len(logs))])
    return np.clip(logs, middle - SPIKE * noise, middle + SPIKE * noise)


def _proposed(scaled: Floats, begins: Sequence[int]) -> list[int]:
    """Places where PELT would cut, moved to the nearest first run of a commit."""
    import ruptures

    search = ruptures.Pelt(model="l2", min_size=LEAST, jump=1).fit(scaled.reshape(-1, 1))
    cuts = search.predict(pen=PENALTY * log(len(scaled)))[:-1]
    moved = {min(begins, key=lambda begin: abs(begin - cut)) for cut in cuts}
    return sorted(place for place in moved if LEAST <= place <= len(scaled) - LEAST)


def _p(logs: Floats) -> float:
    """How often runs in any other order have a place where they differ as much, by their ranks."""
    ranks = np.argsort(np.argsort(logs, kind="stable"), kind="stable").astype(np.float64)
    for value in np.unique(logs):
        ranks[logs == value] = ranks[logs == value].mean()  # runs that take equally long have one rank
    ranks -= ranks.mean()
    if len(logs) < 2 * LEAST or not ranks.any():
        return 1.0
    rng = np.random.default_rng(0)  # the same answer every time
    seen, as_different, drawn = float(_largest(ranks[None])[0]), 0, 0
    for draws in (DRAWS, MOST_DRAWS - DRAWS):
        for begin in range(0, draws, DRAWS):
            count = min(DRAWS, draws - begin)
            shuffled = rng.permuted(np.broadcast_to(ranks, (count, len(ranks))), axis=1)
            as_different += int((_largest(shuffled) >= seen - 1e-9).sum())
            drawn += count
        if as_different > CLOSE:
            break
    return (1 + as_different) / (1 + drawn)


def _step(calm: Floats, place: int) -> float:
    """How much two levels fit better than one."""
    a, b = calm[:place], calm[place:]
    return float((a.mean() - b.mean()) ** 2 * len(a) * len(b) / len(calm))


def _largest(ranks: Floats) -> Floats:
    """Of each row, the largest difference of a beginning from the rest, over its standard deviation."""
    n = ranks.shape[1]
    first = np.arange(LEAST, n - LEAST + 1)
    sums = np.cumsum(ranks, axis=1)[:, first - 1]
    found: Floats = (np.abs(sums) / np.sqrt(first * (n - first))).max(axis=1)
    return found


def _placed(
    calm: Floats, window: tuple[int, int], p: float, begins: Sequence[int], commits: Sequence[int]
) -> ChangePoint:
    """Where in its window a change most likely is: by how well two levels fit, for every commit in it."""
    first, last = window
    places = [n for n in begins if first + LEAST <= n <= last - LEAST]
    misfits = np.array(
        [calm[first:n].var() * (n - first) + calm[n:last].var() * (last - n) for n in places], dtype=np.float64
    )
    weights = -(last - first) / 2 * np.log(np.maximum(misfits, 1e-30))
    chances = np.exp(weights - weights.max())
    chances /= chances.sum()
    order = np.argsort(-chances, kind="stable")
    enough = int(np.searchsorted(np.cumsum(chances[order]), NAMED)) + 1
    blame = tuple((commits[places[n]], float(chances[n])) for n in order[:enough])
    return ChangePoint(blame[0][0], p, blame)
