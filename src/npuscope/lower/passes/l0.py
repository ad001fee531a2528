"""How one product is cut for the cube's own buffers: the tile m × n × k of least time by the chip's formula.

Cycles of M × N × K cut into m × n × k: the cube and the loads into Left and Right run side by side, the drain of the
accumulator comes after. Both operands are double-buffered. Source of formula and constants: the device file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from npuscope.chip.devices.chip import Device

Floats = npt.NDArray[np.float64]
HALVES = 2  # of Left and Right: one is filled while the other is read


@dataclass(frozen=True, slots=True)
class Product:
    """A product as the cube core sees it: sizes and bytes per element of operands and accumulator."""

    m: int
    n: int
    k: int
    left: int
    right: int
    acc: int
    acc_rows: int  # rows of the accumulator are rounded up to it


@dataclass(frozen=True, slots=True)
class Cut:
    """A tile of the product and what the whole product takes with it, in cycles."""

    m: int
    n: int
    k: int
    cycles: float


def choose(product: Product, device: Device, whole_output: bool) -> Cut | None:
    """The best cut that fits; None where none does. `whole_output`: the accumulator is not to be cut."""
    return _choose(product, tuple(sorted((k, c.value) for k, c in device.core.items())), _sizes(device), whole_output)


def _sizes(device: Device) -> tuple[int, int, int]:
    left, right, acc = (int(device.space[name].size.value) for name in ("Left", "Right", "Acc"))
    return left, right, acc


@lru_cache(maxsize=4096)
def _choose(
    product: Product, constants: tuple[tuple[str, float], ...], sizes: tuple[int, int, int], whole_output: bool
) -> Cut | None:
    core = dict(constants)
    fractal = int(core["fractal"])
    deep = max(fractal, int(core["fractal_k"]) // product.left)
    m, n, k = np.meshgrid(
        _steps(product.m, fractal, whole_output),
        _steps(product.n, fractal, whole_output),
        _steps(product.k, deep, False),
        indexing="ij",
    )
    rows = -(-m // product.acc_rows) * product.acc_rows
    fits = (
        (m * k * product.left * HALVES <= sizes[0])
        & (k * n * product.right * HALVES <= sizes[1])
        & (rows * n * product.acc <= sizes[2])
    )
    if not np.any(fits):
        return None
    m, n, k = m[fits], n[fits], k[fits]
    cycles = cycles_of(product, m, n, k, core)
    # Of equal times fewer steps of K, then the larger tile.
    best = np.lexsort((-m * n, -(-product.k // k), np.round(cycles)))[0]
    return Cut(int(m[best]), int(n[best]), int(k[best]), float(cycles[best]))


def _steps(extent: int, step: int, whole: bool) -> Floats:
    """Multiples of a fractal up to the extent, and the extent itself."""
    if whole or extent <= step:
        return np.array([extent], np.float64)
    return np.unique([*range(step, extent + 1, step), extent]).astype(np.float64)


def cycles_of(product: Product, m: Floats, n: Floats, k: Floats, core: dict[str, float]) -> Floats:
    """Core cycles of the whole product for every cut."""
    fractal = core["fractal"]
    tiles_m, tiles_n = np.ceil(product.m / m), np.ceil(product.n / n)
    blocks = np.ceil(product.k / k)
    per_fractal = core["l0_cycles_fp32"] if product.left == 4 else core["l0_cycles"]
    fractals = np.ceil(product.k / (core["fractal_k"] / product.left))
    mad = (
        tiles_m
        * tiles_n
        * (blocks * core["l0_head"] + per_fractal * np.ceil(m / fractal) * fractals * np.ceil(n / fractal))
    )
    left, right = float(product.left * product.m * product.k), float(product.right * product.k * product.n)
    hold_left = left / core["l0_left"] + right * tiles_m / core["l0_right"]
    hold_right = left * tiles_n / core["l0_left"] + right / core["l0_right"]
    neither = left * tiles_n / core["l0_left"] + right * tiles_m / core["l0_right"]
    load = np.where(k >= product.k, np.minimum(hold_left, hold_right), neither)
    blocks_of_row = np.ceil(n * product.acc / 32)
    row = np.maximum(core["l0_drain_row"], product.acc * n / core["l0_drain"])
    row = row + core["l0_drain_odd"] * (_odd_part(blocks_of_row) - 1)
    drain = tiles_m * tiles_n * (core["l0_drain_fixed"] + m * row)
    cycles: Floats = np.maximum(load, mad) + drain
    return cycles


def _odd_part(numbers: Floats) -> Floats:
    whole = numbers.astype(np.int64)
    return (whole // (whole & -whole)).astype(np.float64)
