"""An explained trace, a comparison, a replay and a gate as plain text: half a screen, the verdict first."""

from __future__ import annotations

import polars as pl

from npuscope.analysis.comparison import Comparison
from npuscope.analysis.explanation import Explanation
from npuscope.analysis.table import frame_lines, microseconds, percent, printable, short

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
    notes = dict.fromkeys([*e.bubbles.notes, *e.scheduling.notes])
    lines += [f"  note: {note}" for note in notes]
    return "\n".join(lines)


def _headline(e: Explanation) -> list[str]:
    units = ", ".join(f"{unit} {percent(share)}" for unit, share in e.busy.units.select("unit", "share").iter_rows())
    running, window = percent(e.busy.running), microseconds(e.work.wall)
    lines = [f"  window {window} µs, any work running {running} of it; busy: {units or 'nothing'}"]
    s = e.scheduling
    told = f"  {s.tasks:,} tasks in {s.launches:,} launches, one per "
    told += f"{microseconds(s.window_ns / s.tasks if s.tasks else None)} µs, mean run {microseconds(s.mean_run_ns)} µs"
    if s.mean_dispatch_to_finish_ns is not None:
        told += f", dispatch→finish {microseconds(s.mean_dispatch_to_finish_ns)} µs"
    if s.overhead is not None:
        told += f", overhead {percent(s.overhead)}"
    if s.in_flight is not None:
        told += f"; {s.in_flight:.1f} in flight on {s.cores} cores"
    lines.append(told)
    if e.steps.source != "none":
        lines.append(f"  {e.steps.title()}")
    return lines


def _kernels(e: Explanation) -> pl.DataFrame:
    on_path = e.path.by_kernel().select("kernel", pl.col("path_ns").alias("on path_ns"))
    table = e.busy.kernels.join(on_path, on="kernel", how="left", maintain_order="left")
    return table.select(
        "kernel",
        "count",
        "core_ns",
        pl.col("on_core_ns").alias("on-core_ns"),
        pl.col("mean_ns"),
        pl.col("share").map_elements(percent, return_dtype=pl.String),
        pl.col("on path_ns").fill_null(0),
    )


def _ledger(e: Explanation) -> pl.DataFrame:
    where = "critical path" if e.path.kind == "chain" else "cover"
    return e.scheduling.ledger.select(
        pl.col("part").alias("where core time went"),
        "core_ns",
        pl.col("share").map_elements(percent, return_dtype=pl.String).alias("of all cores"),
        pl.col("path_ns").alias(f"{where}_ns"),
        pl.col("path_share").map_elements(percent, return_dtype=pl.String).alias("of window"),
    )


def compare_text(names: tuple[str, str], c: Comparison) -> str:
    """What `npuscope compare` prints of two captures."""
    asked = f" of {c.kernels_asked}" if c.kernels_asked is not None else ""
    named = {"core_ns": f"core time{asked}", "on_core_ns": f"on-core time{asked}", "wall_ns": "wall"}
    table = c.gaps().with_columns(
        pl.col("metric").replace(named),
        pl.col("ratio").map_elements(lambda r: f"{r:.2f}x", return_dtype=pl.String).fill_null("–"),
    )
    kernels = c.kernels.select(
        "kernel", pl.col("rule").alias("by"), "count_a", "count_b", "core_a_ns", "core_b_ns", "gap_ns",
        pl.col("ratio").map_elements(lambda r: f"{r:.2f}x", return_dtype=pl.String).fill_null("–"),
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
    for letter, side in (("A", c.a), ("B", c.b)):
        if c.kernels_asked is not None and side.overlap is not None:
            lines += ["", f"{letter} {side.overlap.title()}", *frame_lines(side.overlap.units)]
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


def names_of(paths: list[str]) -> list[str]:
    """Short names of captures that still differ."""
    parts = [path.rstrip("/").split("/") for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return [short(name, 60) for name in names]
    return [short(path, 60) for path in paths]
