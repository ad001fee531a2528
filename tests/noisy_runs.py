"""Captures of one small program, run several times with noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from builders import kernel_row, write_kernel_table

KERNELS = {"MatMulV2": 50.0, "RmsNorm": 8.0, "Softmax": 20.0, "Cast": 4.0}


def row(name: str, at: float, took: float, step: int = 0) -> dict[str, str]:
    return kernel_row(name=name, type=name, start=f"{at:.3f}", dur=f"{took:.3f}", step=str(step))


def write_runs(folder: Path, seed: int, count: int = 6, noise: float = 0.01, **factors: float) -> Path:
    """Captures of one stream, each kernel once, with noise and kernels slower by a factor."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        rows, at = [], 1000.0
        for name, us in KERNELS.items():
            took = us * factors.get(name, 1.0) * float(np.exp(noise * rng.normal()))
            rows.append(row(name, at, took))
            at += took + 1
        place = folder / f"run{number + 1}"
        place.mkdir(parents=True)
        write_kernel_table(place / "kernel_details.csv", rows)
    return folder
