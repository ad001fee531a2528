"""Long columns on a page: little-endian arrays, deflated, as base64; page/packed.js reads them.

A column of rising numbers is stored as differences, which are small and deflate well.
"""

from __future__ import annotations

import base64
import zlib
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

Packed: TypeAlias = dict[str, str]  # type, data, and `delta` where differences are stored
Values: TypeAlias = "pl.Series | NDArray[np.generic]"
TYPES = {"u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "i32": np.int32, "f64": np.float64}
LEVEL = 1  # of deflating: a page is made at every save of a program, and read from this machine's disk


def packed(values: Values, type: str) -> Packed:
    """A column as the type that its reader gets."""
    return {"type": type, "data": _text(np.asarray(values), type)}


def whole_numbers(values: Values) -> Packed:
    """Integers as the narrowest type that holds them."""
    array = np.asarray(values)
    low, high = (int(array.min()), int(array.max())) if len(array) else (0, 0)
    for name in ("u8", "u16", "u32", "i32"):
        limits = np.iinfo(TYPES[name])  # type: ignore[type-var]
        if limits.min <= low and high <= limits.max:
            return packed(array, name)
    return packed(array, "f64")


def rising(values: Values) -> Packed:
    """Integers that mostly rise, in steps that mostly fit 32 bits; the reader gets f64."""
    array = np.asarray(values).astype(np.int64)
    steps = np.diff(array, prepend=0)
    limits = np.iinfo(np.int32)
    if len(steps) and (steps.min() < limits.min or steps.max() > limits.max):
        return packed(array, "f64")
    return {"type": "f64", "delta": "i32", "data": _text(steps, "i32")}


def _text(array: NDArray[np.generic], type: str) -> str:
    stored = np.ascontiguousarray(array, dtype=np.dtype(TYPES[type]).newbyteorder("<"))
    return base64.b64encode(zlib.compress(stored.tobytes(), LEVEL)).decode()
