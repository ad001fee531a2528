"""Bands above a timeline: steps, and the layers of a simulated program."""

from __future__ import annotations

import polars as pl

from npuscope.analysis.explanation import Explanation
from npuscope.simulate.run import Simulated

MOST = 5000  # of one kind


def bands(explained: Explanation, simulated: Simulated | None) -> list[dict[str, object]]:
    """Each with a title and its spans: start and end in nanoseconds from the window's start, and a name."""
    found = [("steps", _steps(explained)), ("layers", _layers(explained, simulated))]
    return [{"title": title, "spans": spans[:MOST]} for title, spans in found if spans]


def _steps(explained: Explanation) -> list[list[object]]:
    table, origin = explained.steps.table, explained.work.window[0]
    word = "step" if explained.steps.source == "column" else "repeat"
    return [
        [start - origin, start - origin + span, f"{word} {step}" + (f" {phase}" if phase else "")]
        for step, start, span, phase in table.select("step", "start", "span_ns", "phase").iter_rows()
    ]


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
