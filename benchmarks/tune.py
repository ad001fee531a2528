"""Does `tune` find what trying everything finds? With a tenth of the trials, for several seeds, against its peers.

    python benchmarks/tune.py                      # all cases, twenty seeds
    python benchmarks/tune.py --only gemm --seeds 3 --kept FOLDER

Every point of a space is simulated once (what `sweep` does); the searches then take their answers from there, so that
seeds cost nothing. Two points are asked for at a time, as `tune` does; those that cannot run do not count. A search
found the best where it is at most 2 % slower than the best of all. The peers: Optuna's own estimator (TPE), and
drawing points.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
from optuna import create_study, logging
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import Trial, TrialState

from npuscope.answer.rank import answers_of
from npuscope.answer.request import Request
from npuscope.answer.search import Goals, Point, Search, SearchSpace, space_of

ROOT = Path(__file__).resolve().parents[1]
NEAR = 1.02
PART = 10  # of all points that run, one in so many is tried


@dataclass(frozen=True)
class Case:
    """A program, its arguments, and of each setting the values and the one that it has now."""

    name: str
    file: str
    argv: tuple[str, ...]
    settings: tuple[tuple[str, tuple[int, ...], int], ...]

    @property
    def space(self) -> SearchSpace:
        return space_of([(name, [str(value) for value in values], str(now)) for name, values, now in self.settings])

    @property
    def alike(self) -> Request:
        return Request(str(ROOT / self.file), self.argv)


TILELET = ("--heads", "8", "--kv-heads", "1", "--inter", "256", "--context", "128")
CASES = (
    Case(
        "gemm", "benchmarks/tuned/gemm.py", (),
        (
            ("TILE_M", (16, 32, 64, 128, 256), 64), ("TILE_N", (64, 128, 192, 256, 384, 512), 128),
            ("TILE_K", (32, 64, 128, 256, 512), 128), ("STAGES", (1, 2, 3, 4), 2),
        ),
    ),
    Case(
        "decode layer", "models/qwen3_14b/decode_layer.py", ("--small",),
        (
            ("SMALL.tiles.qkv_tn", (16, 32, 64, 128), 64), ("SMALL.tiles.qkv_tk", (16, 32, 64, 128), 64),
            ("SMALL.tiles.out_n", (32, 64, 128), 64), ("SMALL.tiles.out_k", (64, 128), 128),
            ("SMALL.tiles.tk", (16, 32, 64), 64), ("SMALL.tiles.mlp_n", (64, 128), 128),
        ),
    ),
    Case(
        "tilelet layer", "models/qwen3_32b_tilelet.py", TILELET,
        (
            ("K_TILE", (64, 128, 256), 128), ("improved.SEQ_TILE", (32, 64, 128), 128),
            ("NORM_TILE", (128, 256, 512), 256), ("N_TILE", (64, 128, 256), 256), ("KV_TILE", (32, 64, 128), 128),
        ),
    ),
)  # fmt: skip


class Peer:
    """A sampler of Optuna's with the interface of `Search`. What it proposes twice is told again, for nothing."""

    def __init__(self, sampler: BaseSampler, space: SearchSpace) -> None:
        self.kinds: dict[str, BaseDistribution] = {
            name: IntDistribution(0, len(values) - 1) for name, values in space.settings
        }
        self.study = create_study(sampler=sampler)
        self.study.enqueue_trial(dict(zip(self.kinds, space.start, strict=True)))
        self.open: dict[Point, list[Trial]] = {}

    def ask(self) -> Point:
        trial = self.study.ask(self.kinds)
        point = tuple(trial.params[name] for name in self.kinds)
        self.open.setdefault(point, []).append(trial)
        return point

    def answer(self, point: Point, goals: Goals | None) -> None:
        self.study.tell(self.open[point].pop(), goals, None if goals else TrialState.PRUNED)


SEARCHES: dict[str, Callable[[SearchSpace, int], Search | Peer]] = {
    "tune": lambda space, seed: Search(space, seed=seed),
    "TPE": lambda space, seed: Peer(TPESampler(seed=seed, multivariate=True), space),
    "drawn": lambda space, seed: Peer(RandomSampler(seed=seed), space),
}


def best_of(search: Search | Peer, walls: Mapping[Point, int | None], trials: int) -> int:
    found: dict[Point, int] = {}
    while len(found) < trials:
        points = [point for _ in range(2) if (point := search.ask()) is not None]
        if not points:
            break
        for point in points:
            wall = walls[point]
            search.answer(point, None if wall is None else (wall,))
            if wall is not None and len(found) < trials:
                found[point] = wall
    return min(found.values())


def tried(case: Case, kept: Path, seeds: int, jobs: int | None) -> bool:
    """Prints a line for each search; whether every seed of `tune` came near enough."""
    space, results = case.space, kept / f"{case.name.replace(' ', '_')}.jsonl"
    points = list(product(*(range(len(values)) for _, values in space.settings)))
    names = {point: " ".join(f"{name}={value}" for name, value in space.at(point)) for point in points}
    alike = case.alike
    variants = [replace(alike, settings=space.at(point), name=names[point]) for point in points]
    every = answers_of(variants, results, jobs=jobs)
    times = {point: one.wall_ns for point, one in zip(points, every, strict=True)}
    walls = sorted(wall for wall in times.values() if wall is not None)
    trials = max(len(walls) // PART, 1)
    near = sum(wall <= walls[0] * NEAR for wall in walls)
    all_hit = True
    for name, made in SEARCHES.items():
        found = [best_of(made(space, seed), times, trials) / walls[0] for seed in range(seeds)]
        hits = sum(one <= NEAR for one in found)
        all_hit &= name != "tune" or hits == seeds
        print(
            f"{case.name:<16} {len(points):>7} {len(walls):>7} {near:>9} {trials:>7} {walls[0] / 1e3:>9.1f} {name:>7} "
            f"{hits:>4}/{seeds:<3} {np.median(found):>7.3f} {max(found):>7.3f}",
            flush=True,
        )
    return all_hit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--kept", type=Path, help="a folder that keeps what was simulated")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # "experimental": the estimator's options
    logging.set_verbosity(logging.ERROR)
    print("points: of the space; run: fit and run; within 2 %: of the best; median, worst: to the best of all")
    print(
        f"{'program':<16} {'points':>7} {'run':>7} {'within 2%':>9} {'trials':>7} {'best µs':>9} {'search':>7} "
        f"{'found':>8} {'median':>7} {'worst':>7}"
    )
    with tempfile.TemporaryDirectory() as place:
        kept = given.kept or Path(place)
        kept.mkdir(parents=True, exist_ok=True)
        near = [tried(case, kept, given.seeds, given.jobs) for case in CASES if given.only in case.name]
    raise SystemExit(0 if all(near) else 1)


if __name__ == "__main__":
    main()
