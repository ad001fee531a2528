"""Is an interval honest that is about fixes that were chosen by their predictions? Worlds with known truth.

    python benchmarks/selection.py --times 2000

In each world a program has n fixes, each with a true change of the time and a miss; a search that sees predictions only
takes every fix that is predicted faster, or the best one. Misses as `npuscope` knows them come from published changes
of the same world, which nobody selected. Printed is how often the measured ratio of the whole lies in the stated
interval (80%), the stated probability of being faster and how often that was true: with misses counted once, n/k times
where k of n are taken, as `improve` does it, and n times.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from npuscope.answer.improve import counted
from npuscope.time.uncertainty import Miss, Misses, against

PUBLISHED, PROGRAMS = 60, 20  # changes that teach, programs that are improved on what they taught
COUNTED = ("once", "n/k", "improve", "n")


@dataclass(frozen=True)
class World:
    """Logarithms: the mean and spread of true changes, of misses of one fix, and of the miss of a whole program as a
    share of its changes; `heavy` misses are now and then much larger."""

    name: str
    mean: float
    spread: float
    miss: float = 0.08
    shared: float = 0.0
    heavy: bool = False
    best_only: bool = False

    def fixes(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """True changes and misses."""
        true = rng.normal(self.mean, self.spread, count)
        own = rng.standard_t(3, count) if self.heavy else rng.normal(0, 1, count)
        return true, self.miss * own + rng.normal(0, self.shared) * np.abs(true)


WORLDS = (
    World("nearly useless", 0.0, 0.015),
    World("useless on average", 0.0, 0.03),
    World("useful on average", -0.03, 0.1),
    World("heavy misses", 0.0, 0.1, 0.05, heavy=True),
    World("missed alike", 0.0, 0.1, 0.05, 0.3, heavy=True),
    World("the best of useless ones", 0.0, 0.01, best_only=True),
    World("the best, heavy misses", 0.0, 0.1, 0.05, heavy=True, best_only=True),
)


def published(world: World, rng: np.random.Generator) -> Misses:
    rows = []
    for number in range(PUBLISHED):
        true, miss = world.fixes(rng, int(rng.choice([1, 1, 1, 2, 3])))
        change = float(np.sum(true - miss))
        rows.append(Miss(f"commit {number}", "wall", "core", "core", change, float(np.sum(miss))))
    return Misses(tuple(rows))


def searches(world: World, count: int, times: int, seed: int = 0) -> Iterator[dict[str, tuple[float, bool, bool]]]:
    """By how misses are counted: the stated probability, whether it was faster, whether the ratio lay inside."""
    rng = np.random.default_rng(seed)
    for number in range(times):
        if number % PROGRAMS == 0:
            misses = published(world, rng)
        true, miss = world.fixes(rng, count)
        predicted = true - miss
        taken = np.flatnonzero(predicted < 0)
        if world.best_only:
            taken = taken[np.argsort(predicted[taken])[:1]]
        if not len(taken):
            continue
        stated, measured = float(np.sum(predicted[taken])), float(np.sum(true[taken]))
        found = {}
        ways = (1.0, count / len(taken), counted(count, len(taken)), float(count))
        for name, of in zip(COUNTED, ways, strict=True):
            one = against(1.0, math.exp(stated), "core", "core", misses, of=of)
            inside = math.log(one.ratio.low) <= measured <= math.log(one.ratio.high)
            found[name] = (one.faster, measured < 0, inside)
        yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=1000)
    args = parser.parse_args()
    print(f"{'world':26} {'n':>3} {'counted':8} {'inside':>7} {'stated':>7} {'true':>6}")
    for world in WORLDS:
        for count in (5, 12, 30):
            found = list(searches(world, count, args.times))
            for name in COUNTED:
                stated, true, inside = np.mean([one[name] for one in found], axis=0)
                print(f"{world.name:26} {count:3} {name:8} {inside:7.0%} {stated:7.0%} {true:6.0%}")


if __name__ == "__main__":
    main()
