"""The device work of a trace as kernel calls: each distinct call once, and which rows are calls of it.

Kernel tables tell shapes beside each row. GPU traces tell them beside the operator that launched a kernel
(see `launched_ops`). Rows that tell another row's work again are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl

from npuscope.explain.summary import kernel_group, on_ai_cpu
from npuscope.forward.calls import Call, Tensor
from npuscope.forward.roofline.launched_ops import launched_ops
from npuscope.trace.core import Trace
from npuscope.trace.names import SHAPES, WORDS, source_column, with_tensors
from npuscope.trace.schema import is_work

# the database's numbers of data types, by its own table ENUM_HCCL_DATA_TYPE
HCCL_BYTES = {"0": 1, "1": 2, "2": 4, "3": 2, "4": 4, "5": 8, "6": 8, "7": 1, "8": 2, "9": 4, "10": 8, "11": 2}
ON_AI_CPU = "runs on the AI CPU, whose rate no device file has"


@dataclass(frozen=True)
class Rows:
    """What stands at place i of a tuple belongs to the rows of `table` (call, dur, step) whose `call` is i."""

    table: pl.DataFrame
    calls: tuple[Call, ...]
    shapes: tuple[str | None, ...]  # as the capture writes them
    kernels: tuple[str, ...]  # the kernel's name, where the call is of an operator
    reasons: tuple[str | None, ...]  # why a call can have no price, whatever its type
    left_out: int  # rows that tell another row's work again


def rows_of(trace: Trace, given: Mapping[str, float]) -> Rows:
    """`given` is what shapes cannot tell: context, ranks, tokens_per_expert."""
    work = trace.slices.filter(is_work())
    counted = work.filter(pl.col("duplicate_of").is_null())
    left_out = work.height - counted.height
    if trace.meta.format == "kineto" and "args" in counted.columns:
        counted = launched_ops(trace.slices, counted)
    texts = [found for ours in (*SHAPES, *WORDS) if (found := source_column(counted, ours)) is not None]
    frame = counted.select("dur", "step", *_facts(counted), *texts)
    key = [name for name in frame.columns if name not in ("dur", "step")]
    distinct = frame.select(key).unique(maintain_order=True).with_row_index("call")
    table = frame.join(distinct, on=key, how="left", nulls_equal=True, maintain_order="left")
    told = with_tensors(replace(trace, slices=distinct))
    return Rows(
        table.select("call", "dur", "step"),
        tuple(_call(row, given) for row in told.iter_rows(named=True)),
        tuple(_text(distinct, source_column(counted, "input_shapes"))),
        tuple(distinct["name"].to_list()),
        tuple(distinct.select(_reason(distinct))["reason"].to_list()),
        left_out,
    )


def _facts(slices: pl.DataFrame) -> list[pl.Expr]:
    """type, name, on_ai_cpu, and a collective's message and ranks where the capture has them."""
    launched = "op_type" in slices.columns
    facts = [
        (pl.col("op_type") if launched else kernel_group(slices).fill_null("")).alias("type"),
        (pl.col("kernel").fill_null("") if launched else pl.lit("")).alias("name"),
        on_ai_cpu(slices),
    ]
    facts += [pl.col(name) for name in ("message_bytes", "message_ranks", "causal") if name in slices.columns]
    if {"count", "dataType"} <= set(slices.columns):  # of collectives in the profiler's database
        width = pl.col("dataType").cast(pl.String).replace_strict(HCCL_BYTES, default=None, return_dtype=pl.Int64)
        facts.append((pl.col("count").cast(pl.Int64, strict=False) * width).alias("message_bytes"))
    return facts


def _reason(distinct: pl.DataFrame) -> pl.Expr:
    """Work of the AI CPU, and shapes that are no numbers, which parsing would take for smaller ones."""
    texts = [pl.col(found) for ours in SHAPES if (found := source_column(distinct, ours)) is not None]
    broken = [~text.str.contains(r'^\s*(N/A|["\-0-9,; ]*)\s*$') | text.str.contains(r"\d{19}") for text in texts]
    any_broken = pl.any_horizontal(broken).fill_null(False) if broken else pl.lit(False)
    ai_cpu = pl.when("on_ai_cpu").then(pl.lit(ON_AI_CPU))
    return ai_cpu.when(any_broken).then(pl.lit("a shape is not made of numbers")).alias("reason")


def _call(row: dict[str, object], given: Mapping[str, float]) -> Call:
    own = {"bytes": row.get("message_bytes"), "ranks": row.get("message_ranks"), "causal": row.get("causal")}
    told = {name: float(value) for name, value in own.items() if isinstance(value, int | float)}
    sides = [_tensors(*(row[f"{side}_{what}"] for what in ("shapes", "dtypes", "formats"))) for side in _SIDES]
    return Call(str(row["type"]), sides[0], sides[1], {**given, **told})


_SIDES = ("input", "output")


def _tensors(shapes: object, dtypes: object, formats: object) -> tuple[Tensor | None, ...]:
    """Slots of one side."""
    if not isinstance(shapes, list):
        return ()
    words = [list(side) if isinstance(side, list) else [] for side in (dtypes, formats)]
    dtype, format = (side + [None] * (len(shapes) - len(side)) for side in words)
    return tuple(Tensor(tuple(shape), dtype[n], format[n]) if shape else None for n, shape in enumerate(shapes))


def _text(frame: pl.DataFrame, column: str | None) -> list[str | None]:
    if column is None:
        return [None] * frame.height
    return frame[column].str.strip_chars('" ').replace(["N/A", ""], [None, None]).to_list()
