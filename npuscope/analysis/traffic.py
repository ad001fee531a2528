"""Bytes of a kernel's tensors, where a capture tells shapes and data types."""

from __future__ import annotations

from functools import lru_cache
from math import prod

import polars as pl

from npuscope.trace.tensors import SHAPES, WORDS

BYTES = {
    "BOOL": 1, "INT8": 1, "UINT8": 1, "FLOAT8_E4M3FN": 1, "FLOAT8_E5M2": 1, "HIFLOAT8": 1,
    "FLOAT16": 2, "BF16": 2, "BFLOAT16": 2, "INT16": 2, "UINT16": 2, "FLOAT": 4, "FLOAT32": 4,
    "INT32": 4, "UINT32": 4, "DOUBLE": 8, "INT64": 8, "UINT64": 8, "COMPLEX64": 8,
}  # fmt: skip
INT4 = "INT4"
MOST = 2**50  # bytes of one task


def tensor_bytes(slices: pl.DataFrame) -> pl.Series:
    """Bytes of each slice's input and output tensors together; null where shapes or types are not told.

    Tensors are counted whole: of a paged cache this is the pool, not the part that was read.
    """
    sides = [_columns(slices, f"{side}_shapes", f"{side}_dtypes") for side in ("input", "output")]
    found = [side for side in sides if side is not None]
    if not found:
        return pl.Series("bytes", [None], dtype=pl.Int64).new_from_index(0, slices.height)
    columns = [pl.col(name).fill_null("") for side in found for name in side]
    texts = slices.select(pl.concat_str(columns, separator="|")).to_series()
    distinct = texts.unique()
    sizes = pl.Series([_bytes(text) for text in distinct], dtype=pl.Int64)
    return texts.replace_strict(distinct, sizes, return_dtype=pl.Int64).alias("bytes")


def _columns(slices: pl.DataFrame, shapes: str, dtypes: str) -> tuple[str, str] | None:
    shape = next((name for name in SHAPES[shapes] if name in slices.columns), None)
    dtype = next((name for name in WORDS[dtypes] if name in slices.columns), None)
    return None if shape is None or dtype is None else (shape, dtype)


@lru_cache(maxsize=4096)
def _bytes(text: str) -> int | None:
    fields = [field.strip().strip('"') for field in text.split("|")]
    total = 0
    for shapes, dtypes in zip(fields[::2], fields[1::2], strict=True):
        if shapes in ("", "N/A"):
            continue
        for shape, dtype in zip(shapes.split(";"), dtypes.split(";"), strict=False):
            word = dtype.removeprefix("DT_")
            if not shape:
                continue  # an absent input, or a scalar
            if word not in BYTES and word != INT4:
                return None
            elements = prod(int(n) if n.strip().isdecimal() else 0 for n in shape.split(","))
            total += elements // 2 if word == INT4 else elements * BYTES[word]
    return total if 0 < total < MOST else None  # beyond that a shape is broken
