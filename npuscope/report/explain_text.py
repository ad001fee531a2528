"""An explained trace, a comparison and a trend as plain text: half a screen, the verdict first."""

from __future__ import annotations

import polars as pl

from npuscope.analysis.comparison import Comparison
from npuscope.analysis.explanation import Explanation
from npuscope.analysis.table import frame_lines, microseconds, percent, printable, times

KERNELS, BLOCKERS = 6, 3


def report_text(path: str, e: Explanation) -> str:
    """What `npuscope report` prints of the capture at `path`."""
    lanes = ", ".join(f"{n} {unit}" for unit, n in e.busy.units.select("unit", "lanes").iter_rows())
    lines = [
        f"{printable(path)}: {e.trace.meta.format}, {len(e.work.lane):,} slices on {lanes or 'no lanes'}",
        printable(str(e.verdict)),
        "",
        *_headline(e),
        "",
        *frame_lines(_kernels(e), KERNELS),
        "",
        *frame_lines(_ledger(e)),
    ]
    if e.overlap is not None:
        lines += ["", *e.overlap.title().splitlines(), *frame_lines(e.overlap.units)]
    told = [printable(sentence) for sentence in e.bubbles.sentences(BLOCKERS)]
    if told:
        lines += ["", *(f"  {sentence}" for sentence in told)]
    lines += [f"  note: {note}" for note in e.notes]
    return "\n".join(lines)


def _headline(e: Explanation) -> list[str]:
    units = ", ".join(f"{unit} {percent(share)}" for unit, share in e.busy.units.select("unit", "share").iter_rows())
    running, window, s = percent(e.busy.running), microseconds(e.work.wall), e.scheduling
    lines = [f"window {window} µs, any work running {running} of it; busy: {units or 'nothing'}"]
    records = f"{s.tasks:,} task records of {s.launches:,} tasks" if s.tasks != s.launches else f"{s.tasks:,} tasks"
    lines.append(f"{records}, one per {microseconds(s.ns_per_task)} µs, mean run {microseconds(s.mean_run_ns)} µs")
    if s.mean_dispatch_to_finish_ns is not None:
        told = f"dispatch→finish {microseconds(s.mean_dispatch_to_finish_ns)} µs"
        told += "" if s.overhead is None else f", overhead {percent(s.overhead)}"
        told += f" ({percent(s.queued)} queued behind a running task)" if s.queued and s.queued > 0.01 else ""
        lines.append(f"{told}; {s.in_flight or 0:.1f} in flight on {s.cores} cores")
    lines += [str(told) for told in (e.communication, e.copies) if told is not None]
    if e.steps.source != "none":
        lines.append(e.steps.title())
    return [f"  {line}" for line in lines]


def _kernels(e: Explanation) -> pl.DataFrame:
    where = f"on {'path' if e.path.kind == 'chain' else 'cover'}_ns"
    on_path = e.path.by_kernel().select("kernel", pl.col("path_ns").alias(where))
    table = e.busy.kernels.join(on_path, on="kernel", how="left", maintain_order="left")
    return table.select(
        "kernel",
        "count",
        "core_ns",
        pl.col("on_core_ns").alias("on-core_ns"),
        pl.col("mean_ns"),
        pl.col("share").map_elements(percent, return_dtype=pl.String),
        pl.col(where).fill_null(0),
    )


def _ledger(e: Explanation) -> pl.DataFrame:
    where = "critical path" if e.path.kind == "chain" else "cover"
    return e.scheduling.ledger.select(
        pl.col("part").alias("where core time went"),
        "core_ns",
        pl.col("share").map_elements(percent, return_dtype=pl.String).alias("of all cores"),
        pl.when(pl.col("path_ns") > 0).then("path_ns").alias(f"{where}_ns"),  # what cannot lie on a path has a dash
        pl.when(pl.col("path_ns") > 0)
        .then(pl.col("path_share").map_elements(percent, return_dtype=pl.String))
        .alias("of window"),
    )


def compare_text(names: tuple[str, str], c: Comparison) -> str:
    """What `npuscope compare` prints of two captures."""
    asked = f" of {c.kernels_asked}" if c.kernels_asked is not None else ""
    named = {"core_ns": f"core time{asked}", "on_core_ns": f"on-core time{asked}", "wall_ns": "wall"}
    table = c.gaps().with_columns(
        pl.col("metric").replace(named),
        pl.col("ratio").map_elements(times, return_dtype=pl.String).fill_null("–"),
    )
    kernels = c.kernels.select(
        "kernel", pl.col("rule").alias("by"), "count_a", "count_b", "core_a_ns", "core_b_ns", "gap_ns",
        pl.col("ratio").map_elements(times, return_dtype=pl.String).fill_null("–"),
    )  # fmt: skip
    lines = [
        f"A {printable(names[0])}: {printable(str(c.a.verdict))}",
        f"B {printable(names[1])}: {printable(str(c.b.verdict))}",
        "",
        *frame_lines(table),
        "",
        c.waterfall.title(),
        *frame_lines(c.waterfall.frame()),
        "",
        *frame_lines(kernels, KERNELS),
    ]
    for letter, found in zip("AB", c.overlaps, strict=True):
        if found is not None:
            lines += ["", f"{letter} {found.title()}", *frame_lines(found.units)]
    if c.not_like_for_like:
        lines += ["", "not like for like:", *(f"  {printable(line)}" for line in c.not_like_for_like)]
    return "\n".join(lines)


def trend_text(table: pl.DataFrame, kernels: str | None) -> str:
    """What `npuscope compare` prints of three and more captures."""
    what = "" if kernels is None else f" (core and on-core time of {kernels})"
    shown = table.with_columns(
        pl.col("running", "overhead").map_elements(percent, return_dtype=pl.String).fill_null("–")
    )
    return "\n".join([f"trend over {table.height} traces{what}", *frame_lines(shown, table.height)])
