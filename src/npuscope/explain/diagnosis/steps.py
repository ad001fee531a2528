"""Steps that take much longer than the others, and what makes the difference."""

from __future__ import annotations

import numpy as np
import polars as pl

from npuscope.explain.diagnosis.device import LATE_RANK
from npuscope.explain.diagnosis.known import Known
from npuscope.explain.diagnosis.shape import Cause, Gain, Span
from npuscope.table.formats import duration, percent, short, significant

ALIKE = 0.2  # steps whose numbers of slices differ by more do other work
FEWEST = 3  # steps, to say what is usual


def odd_steps(known: Known) -> tuple[Cause, str] | None:
    """One cause for all steps that take longer than 1.5 times the median of their phase, and what makes the difference:
    comm, copy or task, idle time, or "" where nothing stands out."""
    table = known.steps.table
    if table.height < FEWEST:
        return None
    usual_slices = float(np.median(table["slices"].to_numpy()))
    phase = pl.col("phase").fill_null("")
    table = table.filter((pl.col("slices") - usual_slices).abs() <= ALIKE * usual_slices)
    table = table.with_columns(usual=pl.col("span_ns").median().over(phase), of=pl.len().over(phase))
    odd = table.filter(pl.col("outlier") & (pl.col("span_ns") > 1.5 * pl.col("usual")) & (pl.col("of") >= FEWEST))
    if odd.is_empty() or odd.height > table.height / 3:
        return None
    others = table.filter(~pl.col("step").is_in(odd["step"].implode()))
    spans = others["span_ns"].to_numpy()
    usual = float(np.median(spans))
    lost, least = (max(float((odd["span_ns"] - floor).sum()), 0.0) for floor in (usual, float(spans.max())))
    kernel, kind, why = _difference(known, odd, others)
    first = known.steps.table["step"][0]
    worst = odd.sort("span_ns", descending=True).row(0, named=True)
    named = f"Step {worst['step']}"
    takes = f"{duration(worst['span_ns'])}, {significant(worst['span_ns'] / usual)} times the usual {duration(usual)}"
    more = f" ({odd.height - 1:,} others are long, too)" if odd.height > 1 else ""
    evidence = [why] if why else []
    if worst["step"] == first:
        evidence.append(
            "it is the first step of the capture: what warms up, and the start of the profiler, fall into it"
        )
    cause = Cause(
        "step",
        f"{named} takes {takes}{more}{f': {kernel}' if kernel else ''}.",
        known.share(lost),
        tuple(evidence),
        Gain(round(lost), round(least), round(lost)),
        tuple(Span(int(row["start"]), int(row["start"] + row["span_ns"])) for row in odd.iter_rows(named=True)),
        LATE_RANK if kind == "comm" else "Look into this step alone: `npuscope report --step` explains it.",
        "likely",
    )
    return cause, kind


def _difference(known: Known, odd: pl.DataFrame, others: pl.DataFrame) -> tuple[str, str, str]:
    """The kernel, or the idle time, that makes the longest step longer: in words for the sentence, its kind, and as
    evidence."""
    worst = odd.sort("span_ns", descending=True).row(0, named=True)
    idle = (worst["span_ns"] - worst["on_core_ns"]) - float((others["span_ns"] - others["on_core_ns"]).median() or 0)  # type: ignore[arg-type]
    excess = worst["span_ns"] - float(others["span_ns"].median() or 0)  # type: ignore[arg-type]
    if known.steps.source == "column":
        spent = known.work.slices.group_by("step", "kernel", "kind").agg(
            ns=pl.col("dur").sum(), longest=pl.col("dur").max()
        )
        usual = (
            spent.filter(pl.col("step").is_in(others["step"].implode()))
            .group_by("kernel")
            .agg(usual=pl.col("ns").sum() / others.height)
        )
        here = spent.filter(pl.col("step") == worst["step"]).join(usual, on="kernel", how="left")
        here = here.with_columns(more=pl.col("ns") - pl.col("usual").fill_null(0)).sort("more", descending=True)
        if here.height and float(here["more"][0]) > max(idle, excess / 3):
            row = here.row(0, named=True)
            name = f"`{short(str(row['kernel']), 48)}`"
            kernel = f"{name} takes {duration(row['more'])} more in it, the longest {duration(row['longest'])}"
            waits = ", so this rank waited for another" if row["kind"] == "comm" else ""
            return (
                kernel + waits,
                str(row["kind"]),
                f"{name} makes up {percent(row['more'] / excess)} of the difference",
            )
    if idle > excess / 3:
        return f"the device is idle {duration(idle)} longer in it", "idle", ""
    return "", "", ""
