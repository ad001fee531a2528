"""Bands above a timeline: steps, forward passes and layers."""

from __future__ import annotations

import polars as pl

from npuscope.base.errors import NpuscopeError
from npuscope.explain.explanation import Explanation
from npuscope.explain.passes import passes
from npuscope.explain.passes.tracks import with_tracks
from npuscope.time.run import Simulated

MOST = 5000  # of one kind


def bands(explained: Explanation, simulated: Simulated | None) -> list[dict[str, object]]:
    """Each with a title and its spans: start and end in nanoseconds from the window's start, and a name."""
    found = [("steps", _steps(explained)), ("layers", _layers(explained, simulated)), *_passes(explained)]
    return [{"title": title, "spans": spans[:MOST]} for title, spans in found if spans]


def _steps(explained: Explanation) -> list[list[object]]:
    table, origin = explained.steps.table, explained.work.window[0]
    word = "step" if explained.steps.source == "column" else "repeat"
    return [
        [start - origin, start - origin + span, f"{word} {step}" + (f" {phase}" if phase else "")]
        for step, start, span, phase in table.select("step", "start", "span_ns", "phase").iter_rows()
    ]


def _passes(explained: Explanation) -> list[tuple[str, list[list[object]]]]:
    """Forward passes and their layers, where a profiler's trace has them; on cores a scheduler mixes layers."""
    if explained.work.on_cores:
        return []
    try:
        drawn = with_tracks(passes(explained.trace))
    except NpuscopeError:  # no pass is found, which says nothing against the trace
        return []
    origin, titles = explained.work.window[0], drawn.lanes["name"].to_list()[-2:]
    added = drawn.slices.tail(drawn.slices.height - explained.trace.slices.height)
    first = drawn.lanes["lane"].to_list()[-2]
    spans: tuple[list[list[object]], list[list[object]]] = [], []
    for lane, start, dur, name in added.select("lane", "start", "dur", "kernel").iter_rows():
        spans[lane - first].append([start - origin, start + dur - origin, name])
    return list(zip(titles, spans, strict=True))


def _layers(explained: Explanation, simulated: Simulated | None) -> list[list[object]]:
    """From the first start to the last end of the tasks of each inline call; calls may overlap."""
    if simulated is None:
        return []
    names = pl.Series([task.layer for task in simulated.prepared.program.recording.tasks], dtype=pl.String)
    if names.n_unique() <= 1:
        return []
    slices = explained.work.slices.select("start", "dur", "task").drop_nulls("task")
    spans = (
        slices.with_columns(layer=names.gather(slices["task"]))
        .filter(pl.col("layer") != "")
        .group_by("layer")
        .agg(pl.col("start").min(), end=(pl.col("start") + pl.col("dur")).max())
        .sort("start")
    )
    origin = explained.work.window[0]
    return [[start - origin, end - origin, layer] for layer, start, end in spans.iter_rows()]
