"""The calibrated time of a matrix multiplication on cores that each compute tiles of the output.

    time = fixed + max(first + again, cube)

first   the weights come from memory once: at the memory's bandwidth, and no faster than the cores in use can each
        take them in (the cube root of the sum of cubes of the two times: near the larger, above it where they meet)
again   what a core loads beyond its share of the weights (its rows, and weights that several row tiles share) comes
        from L2: (tile rows + tile columns) · K bytes per tile
cube    the multiply-adds of padded tiles at the cube's rate
tiles   go to the cores in waves; after more than one wave the last is uneven, which costs half a tile on average

Of the tile sizes that kernels use the fastest counts. K is loaded in steps of 256. INT8 kernels use columns of 256
only, which leaves cores idle on narrow weights. docs/understand/trust.md says how well this holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npuscope.chip.devices import Constant, Device

Floats = NDArray[np.float64]
Flags = bool | NDArray[np.bool_]
ROW_TILES = (16, 32, 64, 128)
COLUMN_TILES = (32, 64, 96, 128, 160, 192, 224, 256)
INT8_COLUMN_TILES = (256,)
K_STEP = 256
FRACTAL = 16
UNEVEN = 0.5  # tiles
SHARPNESS = 3  # of the meeting of two limits


@dataclass(frozen=True)
class GemmCosts:
    """The fitted constants: seconds, and bytes per second of one core."""

    fixed: float
    fixed_int8: float
    first: float
    again: float
    v3_gain: float  # MatMulV3 loads from L2 that much faster

    @staticmethod
    def of(constants: Mapping[str, Constant]) -> GemmCosts:
        names = ("fixed", "fixed_int8", "first", "again", "v3_gain")
        return GemmCosts(*(constants[name].value for name in names))


@dataclass(frozen=True)
class Tilings:
    """Every tiling of one product (or of several, stacked): an array element each."""

    waves: Floats
    tile_bytes: Floats  # loaded per tile
    share_bytes: Floats  # of the weights per core in use
    weight_bytes: Floats
    tile_macs: Floats


def tilings(m: int, k: int, n: int, int8: bool, cores: int) -> Tilings:
    """The tilings of an M×K by K×N product; always as many, so that products can be stacked."""
    columns = INT8_COLUMN_TILES * len(COLUMN_TILES) if int8 else COLUMN_TILES
    tile_m, tile_n = (grid.ravel() for grid in np.meshgrid(ROW_TILES, columns))
    tile_m, tile_n = np.minimum(tile_m, _up(m, FRACTAL)), np.minimum(tile_n, _up(n, FRACTAL))
    width = 1 if int8 else 2
    tiles = -(-m // tile_m) * -(-n // tile_n)
    loaded_k = _up(k, K_STEP)
    weights = float(k) * n * width
    return Tilings(
        waves=-(-tiles // cores),
        tile_bytes=(np.minimum(tile_m, m) + tile_n) * float(loaded_k) * width,
        share_bytes=weights / np.minimum(tiles, cores),
        weight_bytes=np.full(len(tiles), weights),
        tile_macs=tile_m * tile_n * float(loaded_k),
    )


def gemm_seconds(
    t: Tilings, costs: GemmCosts, *, int8: Flags, v3: Flags, bandwidth: float, macs_per_second: float | Floats
) -> np.float64 | Floats:
    """Seconds of the fastest tiling. `macs_per_second` is of one core. Flags may be arrays, one per stacked product."""
    waves = np.where(t.waves > 1, t.waves + UNEVEN, t.waves)
    meet = (t.weight_bytes / bandwidth) ** SHARPNESS + (t.share_bytes / costs.first) ** SHARPNESS
    first = meet ** (1 / SHARPNESS)
    rate = costs.again * np.where(v3, costs.v3_gain, 1.0)
    again = np.maximum(waves * t.tile_bytes - t.share_bytes, 0) / rate
    cube = waves * t.tile_macs / macs_per_second
    fastest: np.float64 | Floats = np.min(np.maximum(first + again, cube), axis=-1)
    return fastest + np.squeeze(np.where(int8, costs.fixed_int8, costs.fixed))


def gemm_time(m: int, k: int, n: int, dtype: str, v3: bool, device: Device, costs: GemmCosts) -> float | None:
    """Seconds on a device; None where its cube has no rate for the data type."""
    peak, cores = device.peak("cube", dtype), int(device.cores.cube.value)
    if peak is None:
        return None
    int8 = dtype == "int8"
    found = gemm_seconds(
        tilings(m, k, n, int8, cores),
        costs,
        int8=int8,
        v3=v3,
        bandwidth=device.bandwidth,
        macs_per_second=peak / 2 / cores,
    )
    return float(found)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
