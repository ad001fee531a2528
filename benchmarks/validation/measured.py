"""The measured tables of kernels' blocks and of scheduler phases, read where they lie: outside this repository."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
