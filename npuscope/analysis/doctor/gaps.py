"""Checks for what is not there: steps, records a full buffer lost, kernels a graph hides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from npuscope.analysis.doctor.finding import Finding, microseconds
from npuscope.trace.core import Trace


def steps(trace: Trace) -> Iterator[Finding]:
    """Steps that are missing, cut short, or unlike the others."""
    per_step = (
        trace.slices.filter(pl.col("step").is_not_null() & (pl.col("kind") != "derived"))
        .group_by("step")
        .agg(rows=pl.len(), span=(pl.col("start") + pl.col("dur")).max() - pl.col("start").min())
        .sort("step")
    )
    if per_step.height < 2:
        return
    ids = per_step["step"]
    gaps = int((ids.diff().drop_nulls() - 1).sum())
    if gaps:
        yield Finding("step-gaps", "warning", "step without any row", gaps, "", "Means per step leave these out.")
    usual = float(per_step["rows"].median() or 0)  # type: ignore[arg-type]
    cut = per_step.filter(pl.col("rows") < 0.5 * usual)
    if cut.height:
        yield Finding(
            "step-cut",
            "warning",
            "step with less than half the usual rows",
            cut.height,
            f"step {cut['step'][0]}: {cut['rows'][0]} of usually {usual:.0f} rows",
            "Likely cut by the capture's start or end: leave it out of means.",
        )
    middle = float(per_step["span"].median() or 0)  # type: ignore[arg-type]
    odd = per_step.filter(pl.col("span") > 1.5 * middle)
    if odd.height:
        yield Finding(
            "step-outlier",
            "warning",
            "step longer than 1.5 times the median",
            odd.height,
            f"step {odd['step'][0]}: {microseconds(int(odd['span'][0]))}, median {microseconds(int(middle))}",
            "A mean over all steps is pulled up; the first step is seldom typical.",
        )


def full_buffers(trace: Trace) -> Iterator[Finding]:
    """Signs that the capture lost records because a buffer was full or wrapped."""
    for name, process in trace.meta.notes.get("processes", {}).items():
        largest = int(process.get("largest_thread", 0))
        if largest >= 1 << 14 and largest & (largest - 1) == 0:
            yield Finding(
                "full-buffer",
                "warning",
                "thread with exactly a power of two of trace points",
                1,
                f"{name}: {largest:,}",
                "Its buffer was probably full: what came later is missing.",
            )
        if process.get("channels_of_several_threads"):
            yield Finding(
                "shared-channel",
                "warning",
                "channel written by several threads",
                int(process["channels_of_several_threads"]),
                name,
                "Their slices cut each other: a slice ends when the other thread sets a marker.",
            )
    capture = trace.meta.notes.get("host_capture")
    if isinstance(capture, Mapping) and capture.get("dropped_records"):
        yield Finding(
            "dropped-records",
            "warning",
            "host record lost by the profiler",
            int(capture["dropped_records"]),
            "",
            "Submit times are incomplete.",
        )
    if "reg_task_id" in trace.slices.columns:
        per_core = (
            trace.slices.filter(pl.col("reg_task_id").is_not_null())
            .group_by("lane")
            .agg(
                missing=pl.col("reg_task_id").max() - pl.col("reg_task_id").min() + 1 - pl.col("reg_task_id").n_unique()
            )
        )
        lost = int(per_core["missing"].sum())
        if lost:
            yield Finding(
                "lost-tasks",
                "warning",
                "task missing from a core's sequence",
                lost,
                "",
                "The swimlane's buffer wrapped or was full: busy time is too low.",
            )
    for reason in (
        "slice never closed",
        "task without dispatch and finish",
        "dispatch and finish of a task no core recorded",
    ):
        count = trace.meta.dropped.get(reason, 0) + trace.meta.marked.get(reason, 0)
        if count:
            yield Finding(
                "cut-off",
                "warning",
                reason,
                count,
                "",
                "The capture ended, or a buffer filled, while this was under way.",
            )


def graph_replays(trace: Trace) -> Iterator[Finding]:
    """Kernels that a replayed graph launched, so that no host call tells of them one by one."""
    if "Model ID" in trace.slices.columns:
        inside = trace.slices.filter(~pl.col("Model ID").is_in(["4294967295", "N/A", ""]))
        if inside.height:
            yield Finding(
                "graph",
                "note",
                "kernel launched by a graph",
                inside.height,
                f"Model ID {inside['Model ID'][0]}",
                "Task IDs restart with every replay and host calls cannot be matched to these kernels.",
            )
    launches = trace.slices.filter(pl.col("kernel").str.contains("GraphLaunch"))
    if launches.height and "name" in trace.edges.columns:
        launched = trace.edges.filter(
            pl.col("src").is_in(launches["task"].implode()) & pl.col("dst").is_not_null()
        ).height
        orphans = trace.edges.filter(pl.col("src").is_null()).height
        yield Finding(
            "graph",
            "warning",
            "graph replay",
            launches.height,
            f"{launched} kernels reached by flow, {orphans} without a launching call",
            "Shapes and CPU ops of replayed kernels are not in this capture.",
        )
