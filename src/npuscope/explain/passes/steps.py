"""The steps of a run for every report: as marked, else its forward passes, else what repeats; with the passes, layers
and phases that `forward` finds, so that both say the same."""

from __future__ import annotations

import polars as pl

from npuscope.explain.passes.found import NoPasses, Passes, passes
from npuscope.explain.repetition import Steps, in_steps, layers_inside, steps_from
from npuscope.explain.work import Work


def steps_of(work: Work) -> Steps:
    """The steps of the work, one row each."""
    rows, source, found = rows_in_steps(work)
    # marks inside one another are marks of one step, the outer one its length
    first = pl.col("phase", "tokens").drop_nulls().first()
    marks = work.trace.marks.group_by("step").agg(first, marked_ns=pl.col("dur").max())
    if found is None:
        layers = layers_inside(rows) if work.on_cores or source == "repetition" else None
        kinds = {step: phase or "" for step, phase in marks.select("step", "phase").iter_rows()}
        return steps_from(rows, source, marks, kinds, layers)
    table = found.table.with_columns(kind=pl.Series(found.kinds, dtype=pl.String))
    table = table if source == "column" else table.with_columns(step=pl.col("index").cast(pl.Int64))
    main = table.filter(pl.col("phase") != "draft") if source == "column" else table  # a draft is part of its step
    known = (
        main.filter(pl.col("phase") != "unknown")
        .group_by("step")
        .agg(pl.col("phase", "tokens").first(), several=pl.col("phase").n_unique() > 1)
    )
    known = known.select(
        "step",
        phase=pl.when("several").then(pl.lit("mixed")).otherwise("phase"),
        tokens=pl.when(~pl.col("several")).then("tokens"),
    )
    marks = known.join(marks.select("step", "marked_ns"), on="step", how="full", coalesce=True)
    kinds = dict(main.group_by("step").agg(pl.col("kind").str.join(", ")).iter_rows())
    layers = layers_inside(rows) if work.on_cores else found.count.layers
    return steps_from(rows, source, marks, kinds, layers if layers and layers > 1 else None, found.count)


def rows_in_steps(work: Work) -> tuple[pl.DataFrame, str, Passes | None]:
    """The device's rows with the step of each, null for none; who says so, as `Steps.source`; and the passes."""
    rows, source = in_steps(work)
    try:
        found = passes(work.trace)
    except NoPasses:
        return rows, source, None
    if source == "column":
        return rows, source, found
    in_pass = found.rows["in_pass"].cast(pl.Int64).gather(rows["row"].cast(pl.Int64))
    return rows.with_columns(in_pass.alias("step")), "passes", found
