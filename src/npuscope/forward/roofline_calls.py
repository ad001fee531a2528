"""The device work of a trace as kernel calls: each distinct call once, and which rows are calls of it.

Kernel tables tell shapes beside each row; rows that tell another row's work again are left out. A torch profile tells
them beside the operator that launched a GPU kernel: the innermost that was open on the launching thread, by the
kernel's own `External id` in new profiles, by the launching call (same `correlation`) and its time in old ones. An
operator's kernels are one row, since its shapes are the work of all of them. Kernels without such an operator, as in a
replayed graph, keep their names and have no shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import polars as pl

from npuscope.base.frozen import dataclass
from npuscope.explain.work import kernel_group, on_ai_cpu
from npuscope.forward.calls import Call, CallTensor
from npuscope.forward.work import CallWork
from npuscope.trace.core import Trace
from npuscope.trace.intervals import Enclosing
from npuscope.trace.names import SHAPES, WORDS, source_column, with_tensors
from npuscope.trace.schema import is_work
from npuscope.trace.source import json_field, json_whole_number

# the database's numbers of data types, by its own table ENUM_HCCL_DATA_TYPE
HCCL_BYTES = {"0": 1, "1": 2, "2": 4, "3": 2, "4": 4, "5": 8, "6": 8, "7": 1, "8": 2, "9": 4, "10": 8, "11": 2}
ON_AI_CPU = "runs on the AI CPU, whose rate no device file has"


@dataclass(frozen=True)
class CallRows:
    """What stands at place i of a tuple belongs to the rows of `table` (call, dur, step) whose `call` is i."""

    table: pl.DataFrame
    calls: tuple[Call, ...]
    shapes: tuple[str | None, ...]  # as the capture writes them
    kernels: tuple[str, ...]  # the kernel's name, where the call is of an operator
    reasons: tuple[str | None, ...]  # why a call can have no price, whatever its type
    left_out: int  # rows that tell another row's work again
    works: tuple[CallWork | None, ...]  # what the capture itself says that a call has to do


def rows_of(trace: Trace, given: Mapping[str, float]) -> CallRows:
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
    tensors = with_tensors(distinct)
    return CallRows(
        table.select("call", "dur", "step"),
        tuple(_call(row, given) for row in tensors.iter_rows(named=True)),
        tuple(_text(distinct, source_column(counted, "input_shapes"))),
        tuple(distinct["name"].to_list()),
        tuple(distinct.select(_reason(distinct))["reason"].to_list()),
        left_out,
        tuple(
            _leaf_work(trace.meta.notes.get("leaves", {}).get(row.get("leaf"))) for row in tensors.iter_rows(named=True)
        ),
    )


def _leaf_work(leaf: Mapping[str, Any] | None) -> CallWork | None:
    """What one task of a leaf of CANN's own PyPTO computes and moves, on one core."""
    if leaf is None:
        return None
    cube = leaf["cube_flops"] > 0
    return CallWork(
        "cube leaf" if cube else "vector leaf",
        leaf["cube_flops"] or leaf["vector_elements"] or None,
        "cube" if cube else "vector",
        leaf["dtype"],
        leaf["bytes"],
        0,
        note="the part of one core of the chip's rate; memory as if no other core used it",
        one_core=True,
    )


def _facts(slices: pl.DataFrame) -> list[pl.Expr]:
    """type, name, on_ai_cpu, and a collective's message and ranks where the capture has them."""
    launched = "op_type" in slices.columns
    facts = [
        (pl.col("op_type") if launched else kernel_group(slices).fill_null("")).alias("type"),
        (pl.col("kernel").fill_null("") if launched else pl.lit("")).alias("name"),
        on_ai_cpu(slices),
    ]
    facts += [pl.col(name) for name in ("message_bytes", "message_ranks", "causal", "leaf") if name in slices.columns]
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
    stated = {name: float(value) for name, value in own.items() if isinstance(value, int | float)}
    sides = [_tensors(*(row[f"{side}_{what}"] for what in ("shapes", "dtypes", "formats"))) for side in _SIDES]
    return Call(str(row["type"]), sides[0], sides[1], {**given, **stated})


_SIDES = ("input", "output")


def _tensors(shapes: object, dtypes: object, formats: object) -> tuple[CallTensor | None, ...]:
    """Slots of one side."""
    if not isinstance(shapes, list):
        return ()
    words = [list(side) if isinstance(side, list) else [] for side in (dtypes, formats)]
    dtype, format = (side + [None] * (len(shapes) - len(side)) for side in words)
    return tuple(CallTensor(tuple(shape), dtype[n], format[n]) if shape else None for n, shape in enumerate(shapes))


def _text(frame: pl.DataFrame, column: str | None) -> list[str | None]:
    if column is None:
        return [None] * frame.height
    return frame[column].str.strip_chars('" ').replace(["N/A", ""], [None, None]).to_list()


LAUNCHES = ["cuda_runtime", "cuda_driver", "hip_runtime", "privateuse1_runtime"]
TYPES = {
    "float": "FLOAT", "double": "DOUBLE", "c10::BFloat16": "BF16", "c10::Half": "FLOAT16", "int": "INT32",
    "long int": "INT64", "long": "INT64", "bool": "BOOL", "unsigned char": "UINT8", "signed char": "INT8",
    "short": "INT16", "c10::Float8_e4m3fn": "FLOAT8_E4M3FN", "c10::Float8_e5m2": "FLOAT8_E5M2",
    "c10::Float8_e4m3fnuz": "FLOAT8_E4M3FN", "c10::Float8_e5m2fnuz": "FLOAT8_E5M2",
}  # fmt: skip
NCCL_TYPES = {
    "Float": 4, "Double": 8, "BFloat16": 2, "Half": 2, "Int": 4, "Long": 8, "Byte": 1, "Char": 1, "Bool": 1,
    "Float8_e4m3fn": 1, "Float8_e5m2": 1,
}  # fmt: skip
IN_DEVICE = r"^Mem(cpy DtoD|set)"  # copies whose bytes the device's memory reads or writes at its own rate


def launched_ops(slices: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """The device rows with op_type, input shapes and types in the form of kernel tables, and a collective's message."""
    args = work["args"]
    work = work.with_columns(
        json_whole_number(args, "External id").alias("external"),
        json_whole_number(args, "correlation").alias("correlation"),
        json_whole_number(args, "Group size").alias("message_ranks"),
        (json_whole_number(args, "In msg nelems") * _widths(json_field(args, "dtype"))).alias("message_bytes"),
    )
    ops = slices.filter(pl.col("cat") == "cpu_op")
    ops = ops.with_columns(json_whole_number(ops["args"], "External id").alias("external"), _described(ops["args"]))
    place = _places(slices, work, ops)
    known = ops.select("kernel", "described").with_row_index("op")
    found = work.with_columns(pl.Series("op", place, dtype=pl.UInt32, strict=False)).join(
        known.rename({"kernel": "op_name"}), on="op", how="left", maintain_order="left"
    )
    # a copy or a collective tells its own work; an operator without shapes tells nothing
    own = pl.col("kind").is_in(["comm", "copy"]) | pl.col("described").is_null()
    found = found.with_columns(
        pl.when(own).then(pl.col("kernel")).otherwise("op_name").alias("op_type"),
        pl.when(own).then(None).otherwise("op").alias("op"),
        _copied(work).alias("copied"),
    )
    return _one_row_per_op(found)


def _one_row_per_op(found: pl.DataFrame) -> pl.DataFrame:
    """The kernels of one operator call as one row, with the name of the longest and the time of all."""
    alone = pl.col("op").is_null()
    together = (
        found.filter(~alone)
        .sort("dur", descending=True, maintain_order=True)
        .group_by("op", maintain_order=True)
        .agg(
            pl.col("dur").sum(),
            pl.col("kernel", "step", "op_type", "described", "message_bytes", "message_ranks").first(),
        )
    )
    rows = pl.concat([found.filter(alone), together], how="diagonal_relaxed")
    shapes, types, causal = (pl.col("described").struct.field(name) for name in ("shapes", "types", "causal"))
    own = pl.col("op").is_null()
    return rows.with_columns(
        pl.when(own).then(pl.col("copied").struct.field("shapes")).otherwise(shapes).alias("Input Shapes"),
        pl.when(own).then(pl.col("copied").struct.field("types")).otherwise(types).alias("Input Data Types"),
        pl.when(~own).then(causal).alias("causal"),
    ).drop("described", "copied")


def _places(slices: pl.DataFrame, work: pl.DataFrame, ops: pl.DataFrame) -> list[int | None]:
    """For each device row the position of its operator in `ops`."""
    by_id = ops.select("external").with_row_index("op").drop_nulls().unique("external", keep="last")
    # old profiles repeat the correlation as the external id, which then names no operator
    external = work.select(pl.when(pl.col("external") != pl.col("correlation")).then(pl.col("external")))
    direct = external.join(by_id, on="external", how="left", maintain_order="left")["op"]
    calls = slices.filter(pl.col("cat").is_in(LAUNCHES))
    calls = calls.select("lane", "start", json_whole_number(calls["args"], "correlation").alias("correlation"))
    calls = calls.drop_nulls().unique("correlation", keep="first")
    launch = work.select("correlation").join(calls, on="correlation", how="left", maintain_order="left")
    open_ops = Enclosing(*(ops[c].cast(pl.Int64).to_numpy() for c in ("lane", "start", "dur")))
    lane, start = (launch[c].cast(pl.Int64).fill_null(-1).to_numpy() for c in ("lane", "start"))
    inside = np.where(lane >= 0, open_ops.find(lane, start), -1) if ops.height else np.full(work.height, -1)
    around = pl.Series(inside).replace(-1, None).cast(pl.UInt32)
    return direct.fill_null(around).to_list()


def _described(args: pl.Series) -> pl.Series:
    """{shapes, types, causal} as a kernel table writes them, from an operator's arguments; null without shapes."""
    distinct = args.unique()
    fields = {"shapes": pl.String, "types": pl.String, "causal": pl.Int64}
    parsed = pl.Series("described", [_describe(text) for text in distinct], dtype=pl.Struct(fields))
    table = pl.DataFrame({"args": distinct, "described": parsed})
    return args.to_frame("args").join(table, on="args", how="left", maintain_order="left", nulls_equal=True)[
        "described"
    ]


def _describe(text: str | None) -> dict[str, object] | None:
    try:
        fields = msgspec.json.decode(text or "null")
    except (msgspec.DecodeError, RecursionError):
        return None
    dims = fields.get("Input Dims") if isinstance(fields, dict) else None
    if not isinstance(dims, list) or not any(dims):
        return None
    types = fields.get("Input type")
    types = types if isinstance(types, list) else []
    shapes, words = [], []
    for n, shape in enumerate(dims):
        word = TYPES.get(types[n], "UNDEFINED") if n < len(types) and isinstance(types[n], str) else "UNDEFINED"
        several = shape if isinstance(shape, list) and shape and isinstance(shape[0], list) else [shape]
        for one in several:
            numbers = one if isinstance(one, list) and all(isinstance(d, int) for d in one) else []
            shapes.append(",".join(map(str, numbers)))
            words.append(word)
    values = fields.get("Concrete Inputs")
    causal = int("True" in values) if isinstance(values, list) else None  # attention's only flag among its inputs
    return {"shapes": ";".join(shapes), "types": ";".join(words), "causal": causal}


def _copied(work: pl.DataFrame) -> pl.Series:
    """What a copy within the device or a memset moves, as the shape of its bytes."""
    moved = json_whole_number(work["args"], "bytes")
    copies = pl.DataFrame({"kernel": work["kernel"], "bytes": moved}).with_columns(
        pl.when(pl.col("kernel").str.contains(IN_DEVICE)).then(pl.col("bytes").cast(pl.String)).alias("shapes")
    )
    types = pl.when(pl.col("shapes").is_not_null()).then(pl.lit("UINT8")).alias("types")
    return copies.with_columns(types).select(pl.struct("shapes", "types").alias("copied"))["copied"]


def _widths(dtype: pl.Series) -> pl.Series:
    return dtype.replace_strict(NCCL_TYPES, default=None, return_dtype=pl.Int64)
