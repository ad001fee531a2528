"""Rows of a kernel table that tell a piece of work a second time. They are marked, never dropped.

Six kinds are known. In each, `duplicate_of` of the second telling names the `task` of the first:

* a collective listed logically (no stream) and physically (`AivKernel` on a stream) with equal start,
  duration and type: the logical row is the duplicate, and the physical row takes its telling name;
* where `AivKernel` is the type of the physical row too, that row is the duplicate;
* an `...AicpuKernel` row beside the collective it carries out, whose time includes waiting;
* an AI_CPU row without shapes, of a type that also ran on a compute core: the tiling of that kernel
  (an AI_CPU row with shapes is work of its own);
* simpler's AI_CPU launch row around its AICore kernel;
* AI CPU rows with the name of the kernel that they schedule: PyPTO's launches have two of them, in msprof's tables
  without type and core, where only the kernel's row has counters.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from npuscope.trace.meta import Ledger

AIV = "AivKernel"
AI_CPUS = ["AI_CPU", "KERNEL_AICPU"]  # task types of AI CPU work, older and newer
SAME_NAME = "AI_CPU row with the name of its kernel"
COMPUTE_CORES = ["AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV"]


def mark_duplicates(facts: pl.DataFrame, ledger: Ledger) -> pl.DataFrame:
    """The rows with `duplicate_of` set on every second telling, counted in the ledger.

    `facts` has task (the row's number), start, dur, kernel, kind, type, core, stream, has_shapes and has_counters;
    words are null where the table says nothing.
    """
    logical = _logical_collectives(facts)
    pairs = {
        "collective listed logically and physically": logical,
        "AivKernel row of a collective": _aiv_collectives(facts),
        "AicpuKernel row of a collective": _aicpu_collectives(facts),
        "AI_CPU row of a kernel": _tilings(facts),
        "AI_CPU launch row of a PyPTO kernel": _simpler_launches(facts),
        SAME_NAME: _schedulers(facts),
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
    on_ai_cpu = pl.any_horizontal(pl.col("type", "kernel").str.ends_with("AicpuKernel").fill_null(False))
    again = facts.filter(on_ai_cpu).with_columns(_collective_kind(pl.coalesce("type", "kernel")))
    real = facts.filter((pl.col("kind") == "comm") & ~on_ai_cpu).with_columns(
        _collective_kind(pl.coalesce("type", "kernel"))
    )
    return _overlapping(again, real, by="what")


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


def _schedulers(facts: pl.DataFrame) -> pl.DataFrame:
    """Rows without type, core and counters, beside one of their name that has counters."""
    nameless = facts.filter(pl.col("type").is_null() & pl.col("core").is_null() & (pl.col("kind") == "task"))
    return scheduling(nameless.filter(~pl.col("has_counters")), nameless.filter("has_counters"))


def scheduling(on_ai_cpu: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """AI CPU rows meet the kernel of their name that they overlap; else the next one, if others of the name fill the
    time until it starts: two threads schedule a launch, and one may be done before the kernel starts."""
    met = _overlapping(on_ai_cpu, kernels, by="kernel")
    rest = on_ai_cpu.join(met, on="task", how="anti")
    if rest.is_empty() or kernels.is_empty():
        return met
    rows = pl.concat([on_ai_cpu, kernels]).select("task", "kernel", "start", end=pl.col("start") + pl.col("dur"))
    rows = rows.sort("kernel", "start", "end")
    reached = pl.col("end").cum_max().shift().over("kernel")
    rows = rows.with_columns(launch=(pl.col("start") > reached).fill_null(True).cum_sum())
    is_kernel = pl.col("task").is_in(kernels["task"].implode())
    kernel = pl.when(is_kernel).then("task").otherwise(None).backward_fill().over("kernel", "launch")
    missed = rows.with_columns(duplicate_of=kernel).join(rest.select("task"), on="task").drop_nulls("duplicate_of")
    return pl.concat([met, missed.select("task", "duplicate_of")])


def _overlapping(again: pl.DataFrame, real: pl.DataFrame, by: str) -> pl.DataFrame:
    """Rows that tell something again meet the latest real row that starts before they end, if it overlaps them."""
    if again.is_empty() or real.is_empty():
        return _NO_PAIRS
    again = again.with_columns(stop=pl.col("start") + pl.col("dur")).sort("stop")
    real = real.select(
        by,
        pl.col("task").alias("duplicate_of"),
        pl.col("start").alias("stop"),
        (pl.col("start") + pl.col("dur")).alias("real_stop"),
    ).sort("stop")
    met = again.join_asof(real, on="stop", by=by, strategy="backward", check_sortedness=False)
    return met.filter(pl.col("real_stop") > pl.col("start")).select("task", "duplicate_of")


_NO_PAIRS = pl.DataFrame(schema={"task": pl.Int64, "duplicate_of": pl.Int64})
