"""Checks for what is not there: steps, records a full buffer lost, kernels a graph hides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl

from npuscope.explain.doctor.symptom import Severity, Symptom
from npuscope.explain.repetition import OUTLIER
from npuscope.explain.summary import graph_capture
from npuscope.table.formats import duration
from npuscope.trace.core import CUT_OFF, Trace
from npuscope.trace.schema import is_work

# A guess: buffers are usually powers of two, and a thread that recorded exactly that many points probably filled one.
# How large TraCR's buffers are is not recorded in a bundle. Smaller counts than this are powers of two by accident.
FULL_FROM = 1 << 14


def steps(trace: Trace) -> Iterator[Symptom]:
    """Steps that are missing, cut short, or unlike the others."""
    per_step = (
        trace.slices.lazy()
        .filter(pl.col("step").is_not_null() & (pl.col("kind") != "derived"))
        .group_by("step")
        .agg(rows=pl.len(), span=(pl.col("start") + pl.col("dur")).max() - pl.col("start").min())
        .sort("step")
        .collect()
    )
    if per_step.height < 2:
        return
    gaps = int((per_step["step"].diff().drop_nulls() - 1).sum())
    if gaps:
        yield Symptom("step-gaps", "warning", "step without any row", gaps, "Means per step leave these out.")
    usual = float(np.median(per_step["rows"].to_numpy()))
    cut = per_step.filter(pl.col("rows") < 0.5 * usual)
    if cut.height:
        effect = "Likely cut by the capture's start or end: leave it out of means."
        example = f"step {cut['step'][0]}: {cut['rows'][0]} of usually {usual:.0f} rows"
        yield Symptom("step-cut", "warning", "step with less than half the usual rows", cut.height, effect, example)
    middle = float(np.median(per_step["span"].to_numpy()))
    odd = per_step.filter(pl.col("span") > OUTLIER * middle)
    if odd.height:
        effect = "A mean over all steps is pulled up; the first step is seldom typical."
        example = f"step {odd['step'][0]}: {duration(int(odd['span'][0]))}, median {duration(int(middle))}"
        yield Symptom(
            "step-outlier", "warning", f"step longer than {OUTLIER} times the median", odd.height, effect, example
        )


def full_buffers(trace: Trace) -> Iterator[Symptom]:
    """Threads of a TraCR bundle whose number of trace points is just what a buffer holds."""
    full = [
        f"{name}: {int(process['largest_thread']):,}"
        for name, process in _processes(trace)
        if int(process["largest_thread"]) >= FULL_FROM and int(process["largest_thread"]).bit_count() == 1
    ]
    if full:
        effect = "Its buffer was probably full: what came later is missing."
        what = "process with a thread of exactly a power of two of trace points"
        yield Symptom("full-buffer", "warning", what, len(full), effect, full[0])


def shared_channels(trace: Trace) -> Iterator[Symptom]:
    """Channels of a TraCR bundle that several threads wrote to."""
    shared = {name: int(process["channels_of_several_threads"]) for name, process in _processes(trace)}
    if sum(shared.values()):
        effect = "Their slices cut each other: a slice ends when the other thread sets a marker."
        example = next(name for name, count in shared.items() if count)
        yield Symptom(
            "shared-channel", "warning", "channel written by several threads", sum(shared.values()), effect, example
        )


def dropped_records(trace: Trace) -> Iterator[Symptom]:
    """Records the profiler itself says it lost."""
    notes = trace.meta.all_notes()
    hosts = [told for note in notes if isinstance(told := note.get("host_capture"), Mapping)]
    if lost := sum(_number(told, "dropped_records") for told in hosts):
        effect = "Submit times are incomplete."
        yield Symptom("dropped-records", "warning", "host record lost by the profiler", lost, effect)
    streams = [(name, told) for note in notes for name, told in _told(note.get("capture"))]
    lossy = [(name, told) for name, told in streams if _lost(told)]
    if lossy:
        name, told = lossy[0]
        cut = ", cut short" if told.get("truncated") else ""
        example = f"{name}: {_number(told, 'committed'):,} written, {_number(told, 'dropped'):,} dropped{cut}"
        lost = sum(_lost(told) for _, told in lossy)
        effect = "What schedulers did is incomplete: their busy time and counters are too low."
        yield Symptom("dropped-records", "warning", "scheduler record lost by the profiler", lost, effect, example)


def _lost(told: Mapping[str, object]) -> int:
    """Records that a stream says it dropped, or wrote and are not in the file; 1 for one that was cut short."""
    missing = max(_number(told, "committed") - _number(told, "records"), 0)
    return max(_number(told, "dropped") + missing, int(bool(told.get("truncated"))))


def _number(told: Mapping[str, object], key: str) -> int:
    value = told.get(key)
    return value if isinstance(value, int) else 0


def _told(note: object) -> list[tuple[str, Mapping[str, object]]]:
    if not isinstance(note, Mapping):
        return []
    return [(str(name), told) for name, told in note.items() if isinstance(told, Mapping)]


def lost_tasks(trace: Trace) -> Iterator[Symptom]:
    """Holes in the sequence of a core's register ids."""
    if "reg_task_id" not in trace.slices.columns:
        return
    ids = trace.slices.select("lane", "start", "reg_task_id").drop_nulls("reg_task_id").sort("lane", "start")
    step = pl.col("reg_task_id").diff().over("lane")
    # a step back is the register starting over, not a loss
    lost = int(ids.select((step - 1).filter(step > 1).sum()).item())
    if lost:
        effect = "The swimlane's buffer wrapped or was full: busy time is too low."
        yield Symptom("lost-tasks", "warning", "task missing from a core's sequence", lost, effect)


def cut_off(trace: Trace) -> Iterator[Symptom]:
    """What was under way when the capture ended."""
    for reason in CUT_OFF:
        count = trace.meta.dropped.get(reason, 0) + trace.meta.marked.get(reason, 0)
        if count:
            effect = "The capture ended, or a buffer filled, while this ran."
            yield Symptom("cut-off", "warning", reason, count, effect)


def graphs_of_ascend(trace: Trace) -> Iterator[Symptom]:
    """Kernels with the id of a graph."""
    if "Model ID" not in trace.slices.columns:
        return
    inside = trace.slices["Model ID"].filter(~trace.slices["Model ID"].is_in(["4294967295", "N/A", ""]))
    if len(inside):
        effect = "Task IDs restart with every replay and host calls cannot be matched to these kernels."
        example = f"Model ID {inside[0]}"
        yield Symptom("graph", "note", "kernel launched by a graph", len(inside), effect, example)


def graph_replays(trace: Trace) -> Iterator[Symptom]:
    """Launches of whole graphs, whose kernels no host call tells of one by one."""
    launches = int(trace.slices["kernel"].str.contains("GraphLaunch").sum())
    if launches == 0:
        return
    kernels = trace.slices.select(pl.col("task").filter(is_work())).to_series()
    launched = trace.edges.filter(pl.col("src").is_not_null())["dst"].drop_nulls()
    orphans = int((~kernels.is_in(launched.implode())).sum())
    effect = "Shapes and CPU ops of replayed kernels are not in this capture."
    example = f"{orphans} of {len(kernels)} device tasks have no launching call"
    yield Symptom("replay", "warning", "graph replay", launches, effect, example)


def recorded_graphs(trace: Trace) -> Iterator[Symptom]:
    """Launches that were recorded into a graph, which says nothing of the device."""
    found = graph_capture(trace)
    if found is None:
        return
    what = "launch recorded into a graph and not run"
    effect = "The time of recording is part of the window."
    severity: Severity = "note"
    if found.is_all:
        severity = "warning"
        effect = (
            f"This is a capture of recording a graph: {found.tasks:,} device tasks ran. Where the time of a run goes "
            "is told by the capture that replays the graph."
        )
    yield Symptom("graph-capture", severity, what, found.recorded, effect)


def _processes(trace: Trace) -> Iterator[tuple[str, Mapping[str, int]]]:
    for notes in trace.meta.all_notes():
        processes = notes.get("processes")
        if isinstance(processes, Mapping):
            yield from ((name, p) for name, p in processes.items() if isinstance(p, Mapping) and "largest_thread" in p)
