"""A roofline as plain text and as Markdown: the answer first, then the kernels, the families, and what has no price."""

from __future__ import annotations

import polars as pl

from npuscope.analysis.table import frame_lines, heading, percent, printable
from npuscope.forward.roofline import Roofline
from npuscope.report.markdown import bullets, document, table, text

MOST = 12
NEEDS = {
    "context not given": "--context N (tokens in the cache per sequence)",
    "number of ranks not given": "--ranks N",
    "tokens per expert not given": "--tokens-per-expert N",
}


def roofline_text(path: str, r: Roofline) -> str:
    """What `npuscope roofline` prints of the capture at `path`."""
    per = "µs are per step" if r.steps else "the capture marks no steps: µs are of the whole of it"
    counted = f"{int(r.calls['count'].sum()):,} calls of {r.calls.height:,} kinds"
    lines = [
        f"{printable(path)}: {counted}" + (f" in {r.steps} steps" if r.steps else "") + f"; device by {_chosen(r)}",
        printable(r.sentence()),
        "",
        f"farthest from the chip's limits ({per}; mean and limit are of one call)",
        *frame_lines(kernels(r), MOST),
        "",
        "by family",
        *frame_lines(families(r)),
    ]
    if not r.unknown().is_empty():
        lines += ["", f"without a price: {percent(1 - r.priced_share)} of the time", *frame_lines(unknown(r))]
    return "\n".join([*lines, *(f"  note: {printable(note)}" for note in remarks(r))])


def roofline_markdown(path: str, r: Roofline, command: str) -> str:
    """A report to post; `command` is how to make it again."""
    parts = [
        f"# Roofline: {text(path)}",
        f"**{text(r.sentence())}**",
        f"Device by {text(_chosen(r))}. Times are {'per step' if r.steps else 'of the whole capture'}.",
        "## Farthest from the limits",
        _markdown(kernels(r).head(MOST)),
        "## By family",
        _markdown(families(r)),
        *([] if r.unknown().is_empty() else ["## Without a price", _markdown(unknown(r))]),
        *(["## Notes", bullets(text(note) for note in remarks(r))] if remarks(r) else []),
    ]
    return document(parts, command)


def kernels(r: Roofline) -> pl.DataFrame:
    """The table for people."""
    return r.priced.select(
        "kernel",
        pl.col("shapes").fill_null("").alias("inputs"),
        _per_step(r.priced["count"], r.steps or 1),
        "mean_ns",
        "limit_ns",
        "bound",
        pl.col("efficiency").map_elements(percent, return_dtype=pl.String).alias("of limit"),
        "lost_ns",
    )


def _per_step(count: pl.Series, steps: int) -> pl.Series:
    """Calls per step: whole numbers where every step has as many."""
    each = (count / steps).alias("calls")
    return each.cast(pl.Int64) if (count % steps == 0).all() else each


def families(r: Roofline) -> pl.DataFrame:
    """The families for people."""
    shares = pl.col("priced", "efficiency").map_elements(percent, return_dtype=pl.String, skip_nulls=False)
    found = r.families()
    per_step = _per_step(found["count"], r.steps or 1)
    found = found.with_columns(shares, per_step).rename({"step_ns": "time_ns", "efficiency": "of limit"})
    return found.select("family", "calls", pl.exclude("family", "calls", "count"))


def unknown(r: Roofline) -> pl.DataFrame:
    """What has no price, for people."""
    found = r.unknown()
    return found.select(
        "why",
        _per_step(found["count"], r.steps or 1),
        (pl.col("measured_ns") / (r.steps or 1)).alias("time_ns"),
        pl.col("share").map_elements(percent, return_dtype=pl.String),
        pl.col("kernels").list.join(", "),
    )


def remarks(r: Roofline) -> list[str]:
    """What a reader should know of the numbers."""
    found = []
    reasons = r.unknown()["why"].to_list()
    found += [f"{need} prices more" for why, need in NEEDS.items() if any(w.startswith(why) for w in reasons)]
    if not r.above.is_empty():
        names = ", ".join(r.above["kernel"].unique(maintain_order=True).head(4))
        found.append(
            f"{r.above.height} kinds of calls ran faster than memory allows ({names}): their bytes came from L2, "
            "or the work is less than the shapes say"
        )
    if r.left_out:
        found.append(f"{r.left_out:,} rows that tell another row's work again are left out")
    return found


def _chosen(r: Roofline) -> str:
    return "--device" if r.chosen_by == "given" else r.chosen_by


def _markdown(frame: pl.DataFrame) -> str:
    return table(frame, {name: heading(name) for name in frame.columns})
