"""The measured tables of kernels' blocks and of scheduler phases, read where they lie: outside this repository."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from published_changes.score import spearman, weighted_median

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from real_data import DATA

FOLDER = DATA / "measured"
MAINLINE, SHAPES, SECOND = "qwen3_mainline_blocks.csv", "qwen3_leaves_blocks.csv", "qwen3_32b_decode_blocks.csv"
PHASES = "qwen3_scheduler_phases.csv"


@dataclass(frozen=True)
class Kernel:
    """A kernel's blocks and their mean run in µs; `again`: the means of the same kernel in other runs."""

    name: str
    unit: str
    blocks: int
    mean: float
    again: tuple[float, ...] = ()


@dataclass(frozen=True)
class Phase:
    """All records of one phase that handled the same number of blocks, in µs."""

    name: str
    blocks: int
    times: tuple[float, ...]


def kernels(folder: Path, table: str) -> list[Kernel]:
    """The kernels of one layer; those of Qwen3-14B with their means in six serving shapes."""
    again: dict[str, list[float]] = {}
    if table == MAINLINE:
        for cells in _rows(folder / SHAPES):
            if cells["run"] == "case_md":  # the other run cuts out_proj into blocks of half the size
                again.setdefault(cells["kernel"], []).append(float(cells["mean_us"]))
    found = []
    for cells in _rows(folder / table):
        mean = float(cells.get("mean_us") or cells["avg_exec_us"])
        name = cells["kernel"]
        found.append(Kernel(name, cells["unit"], int(cells["blocks"]), mean, tuple(again.get(name, ()))))
    return found


def phases(folder: Path) -> list[Phase]:
    """Records by phase and number of blocks; those that handled nothing say nothing."""
    times: dict[tuple[str, int], list[float]] = {}
    for cells in _rows(folder / PHASES):
        if int(cells["blocks"]) > 0:
            times.setdefault((cells["phase"], int(cells["blocks"])), []).append(float(cells["duration_us"]))
    return [Phase(*key, tuple(found)) for key, found in sorted(times.items())]


def _rows(file: Path) -> Iterator[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as source:
        yield from csv.DictReader(line for line in source if not line.startswith("#"))


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
