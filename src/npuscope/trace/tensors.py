"""Shapes, data types and formats of a kernel's tensors, parsed when somebody asks.

A kernel table holds them as text: `"4,3072;96,192,16,16"`, `DT_BF16;FLOAT`, `ND;FORMAT_NZ`, a slot per tensor.
An empty slot is an absent input, a scalar or an empty tensor; the table does not tell which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from npuscope.trace.core import Trace

# our column -> the source's, in kernel tables and in the profiler's database
SHAPES = {"input_shapes": ("Input Shapes", "inputShapes"), "output_shapes": ("Output Shapes", "outputShapes")}
WORDS = {
    "input_dtypes": ("Input Data Types", "inputDataTypes"),
    "output_dtypes": ("Output Data Types", "outputDataTypes"),
    "input_formats": ("Input Formats", "inputFormats"),
    "output_formats": ("Output Formats", "outputFormats"),
}
_NOT_TOLD = ["N/A", "UNDEFINED", "NULL", ""]


def with_tensors(trace: Trace) -> pl.DataFrame:
    """The slices with input_ and output_ shapes, dtypes and formats as lists, a slot per tensor.

    Shapes are lists of int; dtypes and formats lose the prefixes `DT_` and `FORMAT_` of some generations and
    are null where the table does not tell, or tells garbage such as 65534. Null for rows without tensors.
    """
    slices = trace.slices
    columns = [_shapes(_column(slices, ours)).alias(ours) for ours in SHAPES]
    columns += [_words(_column(slices, ours)).alias(ours) for ours in WORDS]
    return slices.with_columns(columns)


def source_column(slices: pl.DataFrame, ours: str) -> str | None:
    """The source's name of one of our columns, such as input_shapes; None where the capture does not have it."""
    return next((name for name in {**SHAPES, **WORDS}[ours] if name in slices.columns), None)


def slots(text: str) -> list[tuple[int, ...]]:
    """The shapes in one cell; empty where a slot is, or where it is not made of numbers."""
    return [_numbers(slot.split(",")) for slot in text.strip().strip('"').split(";")]


def _numbers(words: list[str]) -> tuple[int, ...]:
    return tuple(map(int, words)) if all(word.strip().isdecimal() for word in words) else ()


def _column(slices: pl.DataFrame, ours: str) -> pl.Expr:
    found = source_column(slices, ours)
    if found is None:
        return pl.lit(None, dtype=pl.String)
    text = pl.col(found).str.strip_chars()
    return pl.when(text != "N/A").then(text.str.strip_chars('"'))


def _shapes(text: pl.Expr) -> pl.Expr:
    numbers = pl.element().str.split(",").list.eval(pl.element().cast(pl.Int64, strict=False)).list.drop_nulls()
    return text.str.split(";").list.eval(numbers)


def _words(text: pl.Expr) -> pl.Expr:
    word = pl.element().str.strip_prefix("DT_").str.strip_prefix("FORMAT_")
    garbage = word.is_in(_NOT_TOLD) | word.str.contains(r"^\d+$")
    return text.str.split(";").list.eval(pl.when(~garbage).then(word))
