"""Rows of a kernel table that tell one piece of work twice. They are marked, never dropped.

Five kinds are known. In each, `duplicate_of` of the second telling names the `task` of the first:

* a collective listed logically (no stream) and physically (`AivKernel` on a stream) with equal start,
  duration and type: the logical row is the duplicate, and the physical row takes its telling name;
* where `AivKernel` is the type of the physical row too, that row is the duplicate;
* an `...AicpuKernel` row beside the collective it carries out, whose time includes waiting;
* an AI_CPU row without shapes, of a type that also ran on a compute core: the tiling of that kernel
  (an AI_CPU row with shapes is work of its own);
* simpler's AI_CPU launch row around its AICore kernel.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from npuscope.trace.meta import Ledger

AIV = "AivKernel"
COMPUTE_CORES = ["AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV"]


def mark_twins(facts: pl.DataFrame, ledger: Ledger) -> pl.DataFrame:
    """The rows with `duplicate_of` set on every second telling, counted in the ledger.

    `facts` has task (the row's number), start, dur, kernel, kind, type, core, stream and has_shapes; words
    are null where the table says nothing.
    """
    logical = _logical_collectives(facts)
    pairs = {
        "collective listed logically and physically": logical,
        "AivKernel twin of a collective": _aiv_collectives(facts),
        "AicpuKernel twin of a collective": _aicpu_collectives(facts),
        "AI_CPU twin of a kernel": _tilings(facts),
        "AI_CPU launch row of a PyPTO kernel": _simpler_launches(facts),
    }
    # a row can be found twice (an AicpuKernel is on AI_CPU too); the first finding stands
    found = pl.concat(pair.with_columns(pl.lit(reason).alias("reason")) for reason, pair in pairs.items())
    found = found.unique("task", keep="first", maintain_order=True)
    for reason in pairs:
        ledger.marked[reason] += int((found["reason"] == reason).sum())
    if found.is_empty():
        return facts
    duplicate_of = pl.Series([None], dtype=pl.Int64).new_from_index(0, facts.height)
    duplicate_of = duplicate_of.scatter(found["task"], found["duplicate_of"])
    # the physical row of a collective takes the telling name of the logical one
    kernel = facts["kernel"].scatter(logical["duplicate_of"], facts["kernel"].gather(logical["task"]))
    return facts.with_columns(duplicate_of.alias("duplicate_of"), kernel.alias("kernel"))


def _logical_collectives(facts: pl.DataFrame) -> pl.DataFrame:
    comm = facts.filter(pl.col("kind") == "comm")
    # several collectives may share start, duration and type: the nth logical row meets the nth physical one
    key = ["start", "dur", "type", "nth"]
    nth = pl.int_range(pl.len()).over("start", "dur", "type").alias("nth")
    logical = comm.filter(pl.col("stream").is_null()).with_columns(nth)
    physical = comm.filter(pl.col("stream").is_not_null()).with_columns(nth)
    pairs = logical.join(physical.select(*key, pl.col("task").alias("duplicate_of")), on=key)
    return pairs.select("task", "duplicate_of")


def _aiv_collectives(facts: pl.DataFrame) -> pl.DataFrame:
    """Where the kernel's type is AivKernel as well, the logical row is the telling one and counts."""
    key = ["start", "dur", "nth"]
    nth = pl.int_range(pl.len()).over("start", "dur").alias("nth")
    kernels = facts.filter((pl.col("type") == AIV) & pl.col("stream").is_not_null()).with_columns(nth)
    if kernels.is_empty():
        return _NO_PAIRS
    logical = facts.filter((pl.col("kind") == "comm") & pl.col("stream").is_null()).with_columns(nth)
    pairs = kernels.join(logical.select(*key, pl.col("task").alias("duplicate_of")), on=key)
    return pairs.select("task", "duplicate_of")


def _aicpu_collectives(facts: pl.DataFrame) -> pl.DataFrame:
    is_twin = pl.any_horizontal(pl.col("type", "kernel").str.ends_with("AicpuKernel").fill_null(False))
    twins = facts.filter(is_twin).with_columns(_collective_kind(pl.coalesce("type", "kernel")))
    real = facts.filter((pl.col("kind") == "comm") & ~is_twin).with_columns(
        _collective_kind(pl.coalesce("type", "kernel"))
    )
    return _overlapping(twins, real, by="what")


def _collective_kind(name: pl.Expr) -> pl.Expr:
    """`allgather` of hcom_allGather_, HcomAllGather and allgatherAicpuKernel alike."""
    bare = name.str.to_lowercase().str.replace_all("[^a-z]", "").str.strip_prefix("hcom")
    return bare.str.strip_suffix("aicpukernel").alias("what")


def _tilings(facts: pl.DataFrame) -> pl.DataFrame:
    """AI_CPU rows meet the next compute row of their type to start; each compute row meets one."""
    aicpu = facts.filter((pl.col("core") == "AI_CPU") & pl.col("type").is_not_null() & ~pl.col("has_shapes"))
    compute = facts.filter(pl.col("core").is_in(COMPUTE_CORES) & pl.col("type").is_in(aicpu["type"].unique().implode()))
    found = []
    for (kind,), rows in aicpu.sort("start").group_by("type"):
        partners = compute.filter(pl.col("type") == kind).sort("start")
        if partners.is_empty():
            continue  # work of its own, such as Cumsum
        meets = _meet_in_order(rows["start"].to_numpy(), partners["start"].to_numpy())
        met = meets >= 0
        found.append(
            pl.DataFrame(
                {
                    "task": rows["task"].to_numpy()[met],
                    "duplicate_of": partners["task"].to_numpy()[meets[met]],
                }
            )
        )
    return pl.concat([_NO_PAIRS, *found])


def _meet_in_order(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """For each of `first`, sorted, the earliest entry of `second` that starts later and is still free, or -1."""
    wanted = np.searchsorted(second, first, side="left")
    steps = np.arange(len(first))
    free = np.maximum.accumulate(wanted - steps) + steps  # each takes at least the place after the last one's
    return np.where(free < len(second), free, -1)


def _simpler_launches(facts: pl.DataFrame) -> pl.DataFrame:
    launches = facts.filter(pl.col("kernel").str.starts_with("simpler_aicpu")).with_columns(what=pl.lit(""))
    kernels = facts.filter(pl.col("kernel").str.starts_with("aicore_kernel")).with_columns(what=pl.lit(""))
    return _overlapping(launches, kernels, by="what")


def _overlapping(twins: pl.DataFrame, real: pl.DataFrame, by: str) -> pl.DataFrame:
    """Each twin meets the latest real row that starts before the twin ends, if it overlaps the twin."""
    if twins.is_empty() or real.is_empty():
        return _NO_PAIRS
    twins = twins.with_columns(stop=pl.col("start") + pl.col("dur")).sort("stop")
    real = real.select(
        by,
        pl.col("task").alias("duplicate_of"),
        pl.col("start").alias("stop"),
        (pl.col("start") + pl.col("dur")).alias("real_stop"),
    ).sort("stop")
    met = twins.join_asof(real, on="stop", by=by, strategy="backward", check_sortedness=False)
    return met.filter(pl.col("real_stop") > pl.col("start")).select("task", "duplicate_of")


_NO_PAIRS = pl.DataFrame(schema={"task": pl.Int64, "duplicate_of": pl.Int64})
