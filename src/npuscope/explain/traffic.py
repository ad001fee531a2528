"""Bytes of a kernel's tensors, where a capture tells shapes and data types."""

from __future__ import annotations

from functools import lru_cache
from math import prod

import polars as pl

from npuscope.explain.work import Work
from npuscope.trace.tensors import slots, source_column

BITS = {
    "INT4": 4, "BOOL": 8, "INT8": 8, "UINT8": 8, "FLOAT8_E4M3FN": 8, "FLOAT8_E5M2": 8, "HIFLOAT8": 8,
    "FLOAT16": 16, "BF16": 16, "BFLOAT16": 16, "INT16": 16, "UINT16": 16, "FLOAT": 32, "FLOAT32": 32,
    "INT32": 32, "UINT32": 32, "DOUBLE": 64, "INT64": 64, "UINT64": 64, "COMPLEX64": 64,
}  # fmt: skip
MOST = 2**50  # bytes of one task


def tensor_bytes(work: Work) -> pl.Series:
    """Bytes of each slice's input and output tensors together; null where shapes or types are not told.

    Tensors are counted whole: of a paged cache this is the pool, not the part that was read.
    """
    columns: list[str] = []
    for side in ("input", "output"):
        shapes, dtypes = (source_column(work.trace.slices, f"{side}_{what}") for what in ("shapes", "dtypes"))
        if shapes is not None and dtypes is not None:
            columns += [shapes, dtypes]
    if not columns:
        return pl.Series("bytes", [None], dtype=pl.Int64).new_from_index(0, work.slices.height)
    texts = work.told(*columns).select(pl.concat_str(pl.col(columns).fill_null(""), separator="|")).to_series()
    distinct = texts.unique()
    sizes = pl.Series([_bytes(text) for text in distinct], dtype=pl.Int64)
    return texts.replace_strict(distinct, sizes, return_dtype=pl.Int64).alias("bytes")


@lru_cache(maxsize=4096)
def _bytes(text: str) -> int | None:
    fields = [field.strip().strip('"') for field in text.split("|")]
    total = 0
    for shapes, dtypes in zip(fields[::2], fields[1::2], strict=True):
        if shapes in ("", "N/A"):
            continue
        for shape, dtype in zip(slots(shapes), dtypes.split(";"), strict=False):
            word = dtype.removeprefix("DT_")
            if not shape:
                continue  # an absent input, or a scalar
            if word not in BITS:
                return None
            total += prod(shape) * BITS[word] // 8
    return total if 0 < total < MOST else None  # beyond that a shape is broken
