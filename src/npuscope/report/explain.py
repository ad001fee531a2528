"""An explained trace, a comparison, a trend and a gate as reports: half a screen of text, the verdict first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from npuscope.explain.comparison import TREND, Comparison
from npuscope.explain.explanation import Explanation
from npuscope.explain.hidden_exposed import Overlap
from npuscope.explain.many.gate import Gate
from npuscope.report.causes import causes
from npuscope.table.columns import Table
from npuscope.table.formats import duration, many, percent, sentence_start
from npuscope.table.parts import Heading, In, Notes, Part, Rows, Say

KERNELS, POSTED_KERNELS, BLOCKERS = 6, 15, 3


def report(path: str, name: str, e: Explanation, wide: bool = False) -> Iterator[Part]:
    """The capture at `path`, called `name` where it is posted."""
    lanes = ", ".join(f"{n} {unit}" for unit, n in e.busy.units.select("unit", "lanes").iter_rows())
    tables, scheduling = e.tables(), e.scheduling.tables()
    yield Heading(f"Profiling report: {name}", 1, In.POSTED)
    yield Heading("What was captured", where=In.POSTED)
    yield Notes(_captured(e, lanes), where=In.POSTED)
    yield Heading("Key finding", where=In.POSTED)
    yield from causes(e.diagnosis)
    yield Heading("The run:", where=In.TEXT)
    yield Notes(e.bubbles.sentences(), where=In.POSTED)
    slices = f"{many(len(e.work.lane), 'slice')} on {lanes or 'no lanes'}"
    yield Notes([f"{path}: {e.trace.meta.format}, {slices}", *headline(e)], where=In.TEXT)
    yield Heading("Busy and idle", where=In.POSTED)
    yield Rows(tables["units"], where=In.POSTED)
    yield Notes(_besides_compute(e), where=In.POSTED)
    yield Heading("Where the core time went", where=In.POSTED)
    yield Rows(scheduling["ledger"], where=In.POSTED)
    path_is = "the critical path" if e.path.kind == "chain" else "a cover of the timeline, without dependencies"
    yield Say(f"The path is {path_is}; both columns add up.", where=In.POSTED)
    yield Heading("Kernels", where=In.POSTED)
    yield Rows(tables["kernels"], KERNELS, POSTED_KERNELS, wide=wide)
    yield Rows(scheduling["ledger"], where=In.TEXT)
    yield Heading("Who waited for whom", where=In.POSTED)
    yield Rows(tables["blockers"], where=In.POSTED)
    yield Heading("Critical path" if e.path.kind == "chain" else "Cover of the timeline", where=In.POSTED)
    yield Rows(e.path.tables()["table"], markdown=POSTED_KERNELS, where=In.POSTED)
    yield Heading("Scheduling", where=In.POSTED)
    yield Rows(e.scheduling.facts().facts(), where=In.POSTED)
    for name in ("threads", "spmd"):
        if scheduling[name].frame.height:
            yield Rows(scheduling[name], markdown=POSTED_KERNELS, where=In.POSTED)
    yield Heading("Fan-out", where=In.POSTED)
    yield Rows(e.fan_out.main_table(), where=In.POSTED)
    if e.steps.table.height:
        yield Heading("Steps", where=In.POSTED)
        yield Rows(e.steps.main_table(), markdown=POSTED_KERNELS, where=In.POSTED)
    if e.overlap is not None:
        yield from _overlap("Hidden and exposed", e.overlap)
    yield Notes(e.bubbles.sentences(BLOCKERS), where=In.TEXT)
    if e.notes:
        yield Heading("Notes", where=In.POSTED)
    yield Notes(e.notes, "note: ")


def _captured(e: Explanation, lanes: str) -> list[str]:
    meta = e.trace.meta
    told = [
        f"Capture: {many(meta.records, 'record')} ({meta.format}), {many(e.trace.slices.height, 'slice')} on "
        f"{many(e.trace.lanes.height, 'channel')}; lanes with device work: {lanes or 'none'}.",
        f"Device: {meta.device or 'not recorded'}; window {duration(e.work.wall)}.",
    ]
    return told if e.steps.source == "none" else [*told, f"{e.steps.title()}."]


def _besides_compute(e: Explanation) -> list[str]:
    """Communication and copies, with what of them is exposed."""
    return [str(told) for told in (e.communication, e.copies) if told is not None]


def headline(e: Explanation) -> list[str]:
    """The numbers beside the verdict."""
    units = ", ".join(f"{unit} {percent(share)}" for unit, share in e.busy.units.select("unit", "share").iter_rows())
    running, window, s = percent(e.busy.running), duration(e.work.wall), e.scheduling
    lines = [f"window {window}, any work running {running} of it; busy: {units or 'nothing'}"]
    records = f"{s.tasks:,} task records of " if s.tasks != s.launches else ""
    records += many(s.launches, "task")
    lines.append(f"{records}, one per {duration(s.ns_per_task)}, mean run {duration(s.mean_run_ns)}")
    if s.mean_dispatch_to_finish_ns is not None:
        told = f"dispatch→finish {duration(s.mean_dispatch_to_finish_ns)}"
        told += "" if s.overhead is None else f", overhead {percent(s.overhead)}"
        told += f" ({percent(s.queued)} queued behind a running task)" if s.queued and s.queued > 0.01 else ""
        lines.append(f"{told}; {s.in_flight or 0:.1f} in flight on {s.cores} cores")
    lines += _besides_compute(e)
    if e.steps.source != "none":
        lines.append(e.steps.title())
    return lines


def _overlap(title: str, found: Overlap) -> Iterator[Part]:
    yield Heading(title, where=In.POSTED)
    yield Heading(found.title(), where=In.TEXT)
    for sentence in found.title().splitlines():
        yield Say(sentence, where=In.POSTED)
    yield Rows(found.main_table())


def compare(names: tuple[str, str], c: Comparison, wide: bool = False) -> Iterator[Part]:
    """A against B."""
    a, b = names
    tables, unlike = c.tables(), c.not_like_for_like
    what = "all work" if c.kernels_asked is None else c.kernels_asked
    yield Heading(f"{a} against {b}", 1, In.POSTED)
    yield Say(f"A = {a}, B = {b}; totals are of {what}.", where=In.POSTED)
    yield Say(c.headline(names), strong=True)
    yield Notes([f"A, {a}: {c.a.diagnosis.verdict}", f"B, {b}: {c.b.diagnosis.verdict}"], where=In.TEXT)
    yield Heading("Summary", where=In.POSTED)
    yield Rows(tables["gaps"])
    yield Notes([f"A: {c.a.diagnosis.verdict}", f"B: {c.b.diagnosis.verdict}"], where=In.POSTED)
    yield Heading("Where the gap comes from", where=In.POSTED)
    bars = c.waterfall.bars.filter(pl.col("ns") != 0)
    if bars.height:
        yield Heading(c.waterfall.title(), where=In.TEXT)
        yield Rows(replace(tables["waterfall"], frame=bars))
    yield Say(f"{c.waterfall.title()}; the parts add up exactly.", where=In.POSTED)
    yield Rows(tables["waterfall_kernels"], markdown=POSTED_KERNELS, where=In.POSTED)
    yield Heading("Kernels", where=In.POSTED)
    yield from _kernels(c, wide)
    for letter, found in zip("AB", c.overlaps, strict=True):
        if found is not None:
            yield from _overlap(f"Hidden and exposed in {letter}", found)
    yield Heading("Not like for like", where=In.POSTED)
    yield Heading("not like for like:", where=In.TEXT if unlike else In.MARKDOWN & In.TEXT)
    yield Notes(unlike)
    if not unlike:
        yield Say("Nothing found that differs.", where=In.POSTED)


def _kernels(c: Comparison, wide: bool) -> Iterator[Part]:
    """The kernels that differ; all of them where every column is asked for."""
    shown = c.tables()["kernels"] if wide else c.changed()
    if shown.frame.is_empty():
        yield Say("All kernels have the same count and core time in both.")
        return
    by_name = pl.when(pl.col("rule") != "name").then("rule")  # nearly all are matched by name
    yield Rows(replace(shown, frame=shown.frame.with_columns(rule=by_name)), KERNELS, POSTED_KERNELS, wide=wide)
    if same := c.kernels.height - shown.frame.height:
        yield Say(f"{many(same, 'kernel')} with the same count and core time in both; --wide lists all.")


def trend(table: pl.DataFrame, kernels: str | None) -> Iterator[Part]:
    """Three and more captures."""
    what = "" if kernels is None else f" (core and on-core time of {kernels})"
    yield Heading(f"trend over {table.height} traces{what}")
    yield Rows(Table(TREND, table), table.height)


def gate(result: Gate) -> Iterator[Part]:
    """Whether it passed, and every limit."""
    colour = "warning" if result.passed and result.undecided else "headline" if result.passed else "error"
    yield Say(sentence_start(result.title()), kind=colour, where=In.TEXT)
    yield Heading(result.title(), 3, In.POSTED)
    yield Rows(result.main_table())
