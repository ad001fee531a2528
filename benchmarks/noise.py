"""How often intervals cover the true ratio and change points are false alarms, with real and with heavy-tailed noise.

`python benchmarks/noise.py [TRIALS]` prints the tables of docs/understand/noise.md. The real noise is that of six
replays of twelve kernels, where this machine has them.
"""

from __future__ import annotations

import sys
from math import log
from pathlib import Path

# this file is called as a module of Python is: its folder must not come before the library's
sys.path = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).resolve().parent]
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import numpy as np  # noqa: E402
from noise import NOISES, REPLAYS  # noqa: E402
from scipy import stats  # noqa: E402

from npuscope.explain.many import history as points  # noqa: E402
from npuscope.explain.many.ratio import ratio_of  # noqa: E402


def bootstrap(a: np.ndarray, b: np.ndarray, method: str, rng: np.random.Generator) -> float:
    """The share of intervals of the ratio of medians that cover."""

    def gap(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.median(y, axis=axis) - np.median(x, axis=axis)

    ends = stats.bootstrap((a, b), gap, axis=-1, n_resamples=999, method=method, rng=rng, batch=50).confidence_interval
    return float(((ends.low <= 0) & (ends.high >= 0)).mean())


def coverage(trials: int) -> None:
    print("| noise | runs a side | this (Yuen) | bootstrap, percentile | bootstrap, BCa |\n|---|---:|---:|---:|---:|")
    for name, draw in NOISES.items():
        for runs in (3, 4, 5, 8, 12, 20):
            rng = np.random.default_rng(runs)
            a, b = draw(rng, trials, runs), draw(rng, trials, runs)
            found = [ratio_of(np.exp(x), np.exp(y)) for x, y in zip(a, b, strict=True)]
            ours = float(np.mean([one.low <= 1 <= one.high for one in found]))
            theirs = " | ".join(f"{bootstrap(a, b, method, rng):.1%}" for method in ("percentile", "BCa"))
            print(f"| {name} | {runs} | {ours:.1%} | {theirs} |", flush=True)


def pelt_alone(row: np.ndarray) -> bool:
    noise = float(np.median(np.abs(np.diff(row)))) / 0.954
    return bool(points._proposed(row / noise, range(1, len(row))))


def alarms(trials: int) -> None:
    print("\n| noise | runs | false alarms | of PELT alone | 5 % found | its commit first | in the list |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, draw in NOISES.items():
        for runs in (20, 40):
            rng = np.random.default_rng(runs)
            quiet = draw(rng, trials, runs)
            false = np.mean([bool(points.change_points(np.exp(row), range(runs))) for row in quiet])
            alone = np.mean([pelt_alone(row) for row in quiet])
            found = first = listed = 0
            for row in draw(rng, trials, runs):
                at = int(rng.integers(5, runs - 4))
                row[at:] += log(1.05)
                changes = points.change_points(np.exp(row), range(runs))
                found += bool(changes)
                first += any(change.at == at for change in changes)
                listed += any(at in [place for place, _ in change.blame] for change in changes)
            shares = " | ".join(f"{value / trials:.0%}" for value in (found, first, listed))
            print(f"| {name} | {runs} | {false:.1%} | {alone:.1%} | {shares} |", flush=True)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    if not REPLAYS.exists():
        del NOISES["real"]
    coverage(count)
    alarms(min(count, 200))
