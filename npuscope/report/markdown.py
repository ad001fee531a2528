"""Markdown ready to post: what was captured, the finding, tables, and how to make them again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import polars as pl

from npuscope.analysis.budget import Gate
from npuscope.analysis.comparison import Comparison
from npuscope.analysis.explanation import Explanation
from npuscope.analysis.hidden_exposed import Overlap, ping_pong_sentence
from npuscope.analysis.table import microseconds, percent, printable, short, times

KERNELS = 15
Cell = Callable[[object], str]


def report_markdown(name: str, e: Explanation, command: str) -> str:
    """A profiling report of one trace; `command` is how to make it again."""
    meta, s = e.trace.meta, e.scheduling
    units = ", ".join(f"{n} {unit}" for unit, n in e.busy.units.select("unit", "lanes").iter_rows())
    captured = [
        f"Capture: {meta.records:,} records ({text(meta.format)}), {e.trace.slices.height:,} slices on "
        f"{e.trace.lanes.height:,} channels; lanes with device work: {units or 'none'}.",
        f"Device: {text(meta.device or 'not told by the capture')}; window {microseconds(e.work.wall)} µs.",
    ]
    if e.steps.source != "none":
        captured.append(f"{text(e.steps.title())}.")
    parts = [
        f"# Profiling report: {text(name)}",
        "## What was captured",
        bullets(captured),
        "## Key finding",
        f"**{text(str(e.verdict))}**",
        bullets(text(sentence) for sentence in e.bubbles.sentences()),
        "## Busy and idle",
        table(e.busy.units, {"unit": "unit", "lanes": "lanes", "busy_ns": "busy µs", "idle_ns": "idle µs",
                             "share": "busy"}),
        "## Where the core time went",
        table(s.ledger, {"part": "part", "core_ns": "core µs", "share": "of all cores", "path_ns": "on the path µs",
                         "path_share": "of the window"}),
        f"The path is {'the critical path' if e.path.kind == 'chain' else 'a cover of the timeline, without edges'}; "
        "both columns add up.",
        "## Kernels",
        table(e.busy.kernels.head(KERNELS), {"kernel": "kernel", "count": "count", "core_ns": "core µs",
                                             "on_core_ns": "on-core µs", "mean_ns": "mean µs", "share": "share"}),
        _more(e.busy.kernels.height),
        "## Scheduling",
        table(_scheduling(e), {"metric": "metric", "value": "value"}),
        "## Fan-out",
        table(e.fan_out.areas, {"area": "area", "kernels": "kernels", "tasks": "tasks", "blocks": "blocks",
                                "tasks per step": "tasks per step", "share": "share"}),
        *([] if e.overlap is None else ["## Hidden and exposed", *_overlap(e.overlap)]),
        *_notes(e.notes),
    ]  # fmt: skip
    return document(parts, command)


def compare_markdown(names: tuple[str, str], c: Comparison, command: str) -> str:
    """A against B as a report."""
    gaps = c.gaps().with_columns(pl.col("metric").str.replace("_ns", "").str.replace("on_core", "on-core") + " time")
    what = "all work" if c.kernels_asked is None else c.kernels_asked
    a, b = (text(name) for name in names)
    parts = [
        f"# {a} against {b}",
        f"A = {a}, B = {b}; totals are of {text(what)}.",
        "## Summary",
        table(gaps, {"metric": "metric", "A_ns": "A µs", "B_ns": "B µs", "gap_ns": "gap µs", "ratio": "B / A"}),
        bullets([f"A: {text(str(c.a.verdict))}", f"B: {text(str(c.b.verdict))}"]),
        "## Where the gap comes from",
        table(c.waterfall.bars, {"part": "part", "ns": "µs"}),
        f"{text(c.waterfall.title())}; the parts add up exactly.",
        "## Kernels",
        table(c.kernels.head(KERNELS), {"kernel": "kernel", "rule": "matched by", "count_a": "count A",
                                        "count_b": "count B", "core_a_ns": "core A µs",
                                        "core_b_ns": "core B µs", "gap_ns": "gap µs", "ratio": "B / A"}),
        _more(c.kernels.height),
        "## Not like for like",
        bullets(text(line) for line in c.not_like_for_like) or "Nothing found that differs.",
        *(part for letter, found in zip("AB", c.overlaps, strict=True) if found
          for part in (f"## Hidden and exposed in {letter}", *_overlap(found))),
    ]  # fmt: skip
    return document(parts, command)


def gate_markdown(result: Gate) -> str:
    """A gate's table for a pull request."""
    columns = {"limit": "limit", "value": "value", "allowed": "allowed", "baseline": "baseline", "change": "change",
               "noise": "noise", "status": "status"}  # fmt: skip
    formats: dict[str, Cell] = {"change": _signed, "value": _plain, "baseline": _plain, "noise": _share}
    return document([f"### {text(result.title())}", table(result.table, columns, formats)])


def document(parts: Sequence[str], command: str | None = None) -> str:
    """Parts one below the other, empty ones left out; at the end the command that makes them again."""
    again = [] if command is None else ["## How to reproduce", f"```\n{printable(command)}\n```"]
    return "\n\n".join(part for part in (*parts, *again) if part) + "\n"


def table(frame: pl.DataFrame, columns: dict[str, str], formats: dict[str, Cell] | None = None) -> str:
    """A Markdown table of some columns under other names; a column's format follows from its name unless given."""
    chosen = {name: (formats or {}).get(name, _format(name)) for name in columns}
    numeric = [frame.schema[name].is_numeric() for name in columns]
    lines = ["| " + " | ".join(columns.values()) + " |", "|" + "|".join("---:" if n else "---" for n in numeric) + "|"]
    for row in frame.select(list(columns)).iter_rows():
        cells = [show(value) for show, value in zip(chosen.values(), row, strict=True)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def text(value: str) -> str:
    """Text that came from a capture, with nothing left that Markdown or HTML would act on."""
    safe = printable(value).replace("&", "&amp;").replace("<", "&lt;").replace("`", "'")
    return re.sub(r"([\\|\[*]|_(?=_)|(?<=_)_)", r"\\\1", safe)


def bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _format(name: str) -> Cell:
    if name == "ns" or name.endswith("_ns"):
        return lambda value: microseconds(value) if isinstance(value, int | float) else "–"
    if name in ("share", "path_share"):
        return _share
    if name == "ratio":
        return lambda value: times(value if isinstance(value, float) else None)
    return _plain


def _share(value: object) -> str:
    return percent(value) if isinstance(value, int | float) else "–"


def _signed(value: object) -> str:
    return f"{value:+.1%}" if isinstance(value, int | float) else "–"


def _plain(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return f"{value:,}" if isinstance(value, int) else text(short(str(value), 80))


def _scheduling(e: Explanation) -> pl.DataFrame:
    s = e.scheduling
    rows = [
        ("tasks", f"{s.tasks:,} in {s.launches:,} launches"),
        ("dispatch → start", f"{microseconds(s.mean_dispatch_to_start_ns)} µs"),
        ("start → end (run)", f"{microseconds(s.mean_run_ns)} µs"),
        ("end → finish", f"{microseconds(s.mean_end_to_finish_ns)} µs"),
        ("dispatch → finish", f"{microseconds(s.mean_dispatch_to_finish_ns)} µs"),
        ("overhead, 1 − run / (dispatch → finish)", percent(s.overhead)),
        ("tasks per second", f"{s.tasks_per_second:,.0f}"),
        ("in flight (Little's law)", "–" if s.in_flight is None else f"{s.in_flight:.1f} on {s.cores} cores"),
    ]
    return pl.DataFrame(rows, schema={"metric": pl.String, "value": pl.String}, orient="row")


def _overlap(found: Overlap) -> list[str]:
    columns = {
        "unit": "unit",
        "lanes": "lanes",
        "run_ns": "own run µs",
        "hidden_ns": "hidden µs",
        "exposed_ns": "exposed µs",
    }
    lines = [
        f"{text(', '.join(found.kernels))}: on-core {microseconds(found.on_core_ns)} µs, "
        f"{percent(found.hidden_share)} of its waiting hidden behind other kernels.",
        table(found.units, columns),
    ]
    if found.ping_pong is not None:
        lines.append(f"AIC↔AIV: {ping_pong_sentence(found.ping_pong)}.")
    return [*lines, *found.notes]


def _notes(notes: Sequence[str]) -> list[str]:
    return ["## Notes", bullets(text(note) for note in dict.fromkeys(notes))] if notes else []


def _more(height: int) -> str:
    return f"… and {height - KERNELS:,} more kernels." if height > KERNELS else ""
