"""What a tile takes in a memory space: its shape rounded up to what the space is made of."""

from __future__ import annotations

from math import prod

from npuscope.chip.devices.chip import Device
from npuscope.ops.dtypes import BY_NAME

Shape = tuple[int, ...]


def up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def matrix(shape: Shape) -> tuple[int, int]:
    """Rows and columns: tiles on chip are two-dimensional, leading axes are rows."""
    return (prod(shape[:-1]), shape[-1]) if shape else (1, 1)


def tile_bytes(shape: Shape, dtype: str, space: str, device: Device) -> int:
    """Bytes of a tile in a space. Cube spaces hold fractals; an INT32 accumulator has its rows padded further."""
    size = BY_NAME[dtype].bytes
    rows, columns = matrix(shape)
    if space == "Vec" or space == "Bias":
        return max(rows * columns * size, int(device.core["vec_least"].value))
    fractal = int(device.core["fractal"].value)
    if space == "Acc":
        least = int(device.core["acc_rows_int32"].value) if dtype == "INT32" else fractal
        return up(rows, least) * up(columns, fractal) * size
    return up(rows, fractal) * up(columns, max(int(device.core["fractal_k"].value) // size, 1)) * size
