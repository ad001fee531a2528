"""Noise as real runs have it: that of six replays where this machine has them, and heavy-tailed stand-ins everywhere.

Of a noise `draw(runs, count)` gives log times of so many runs, `count` times over; their true difference is nought.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from real_data import DATA

REPLAYS = DATA / "measured" / "csa_replay_noise.csv"
Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, int], Floats]


def replays() -> Floats:
    """Log times of twelve kernels in six replays, around each kernel's mean."""
    if not REPLAYS.exists():
        pytest.skip(f"{REPLAYS} is not on this machine")
    lines = [line.split(",") for line in REPLAYS.read_text().splitlines() if not line.startswith("#")]
    logs = np.log(np.array([[float(cell) for cell in line[2:8]] for line in lines[1:]]))
    return (logs - logs.mean(axis=1, keepdims=True)) * np.sqrt(6 / 5)  # six values know their mean


def real(rng: np.random.Generator, count: int, runs: int, kernel: int | None = None) -> Floats:
    """Replays drawn anew, each a little off, since six values would tie; kernel after kernel, or one of them."""
    logs = replays()
    which = np.arange(count) % len(logs) if kernel is None else np.full(count, kernel)
    drawn = logs[which[:, None], rng.integers(logs.shape[1], size=(count, runs))]
    return drawn + 0.3 * logs[which].std(axis=1, keepdims=True) * rng.normal(size=(count, runs))


def heavy(rng: np.random.Generator, count: int, runs: int) -> Floats:
    """Student's t with three degrees of freedom: a run in forty is three standard deviations off."""
    return 0.025 / np.sqrt(3) * rng.standard_t(3, size=(count, runs))


def spiked(rng: np.random.Generator, count: int, runs: int) -> Floats:
    """Two per cent of noise, and one run in twelve that something else disturbed by tens of per cent."""
    disturbed = rng.random((count, runs)) < 1 / 12
    return 0.02 * rng.normal(size=(count, runs)) + disturbed * rng.exponential(0.3, size=(count, runs))


NOISES: dict[str, Draw] = {"real": real, "heavy": heavy, "spiked": spiked}
