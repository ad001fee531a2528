"""Captures against one another: two in detail, several runs told from noise, a trend, a budget, a history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from npuscope.base.interval import Against, chance_text
from npuscope.explain.comparison import TREND, Comparison
from npuscope.explain.many.gate import Gate
from npuscope.explain.many.history import COMMITS, WALL, History, Series
from npuscope.explain.many.ratio import ENOUGH, Ratio
from npuscope.explain.many.runs import SeveralRuns
from npuscope.report.captures import KERNELS, POSTED_KERNELS, overlap
from npuscope.table.columns import Table
from npuscope.table.formats import duration, many, percent, sentence_start, significant
from npuscope.table.parts import Chart, Heading, In, Notes, Part, Rows, Say, Spec, axis

if TYPE_CHECKING:
    from npuscope.answer.runtimes import BothRuntimes

CHANGED_KERNELS = 12
CHANGES, SERIES, DRAWN = 15, 10, 8  # of a history


SCHEDULED = {  # who schedules under hbg, where it is not the AICPU as ever
    "vector cores": "Under hbg vector cores schedule: every task is one block on one kind of core.",
    "LEGACY_GRAPH": "Under hbg the AICPU schedules (LEGACY_GRAPH): recorded graphs are not for vector cores.",
    "LEGACY_UNSUPPORTED_SHAPE": "Under hbg the AICPU schedules (LEGACY_UNSUPPORTED_SHAPE): mixed tasks, several blocks "
    "and blocks that start together are not for vector cores.",
}


def runtimes(both: BothRuntimes, wide: bool = False) -> Iterator[Part]:
    """One program under both runtimes."""
    run = both.tmr.simulated
    what = f"{both.tmr.recording.program} on {both.tmr.chip.name}, {many(run.tasks, 'task')}, simulated"
    yield Heading(f"{both.tmr.request.file}: {what}")
    if (peers := run.prepared.peers) is not None:
        yield Say(f"Times are of rank {peers.own[0]} of {len(peers.ranks)}, which is launched last.")
    tmr = duration(both.device_wall_ns("tmr"))
    if both.refused:
        yield Say(f"Only tmr runs it, in {tmr} of device wall: {both.refused}", strong=True)
        return
    cost, wall = both.host, both.device_wall_ns("hbg")
    hbg, less = duration(wall), percent(abs(1 - both.ratio))
    than = f"{less} {'less' if both.ratio < 1 else 'more'}"
    runs = [duration(one.simulated.wall_ns) for one in (both.hbg, both.tmr)]
    if both.faster == "undecided":
        said = f"Undecided: the run itself takes {runs[0]} under hbg and {runs[1]} under tmr, and what every call pays"
        yield Say(f"{said} around it, which is not known so well, makes that {hbg} and {tmr} ({than}).", True)
    else:
        said = f"{both.faster} is faster on the device"
        yield Say(f"{said}: a call takes {hbg} under hbg and {tmr} under tmr ({than}).", True)
    yield Rows(both.steps, wide=wide)
    if both.mode in SCHEDULED:
        yield Say(SCHEDULED[both.mode])
    graphs = f", {many(cost.recorded, 'task')} recorded, {many(cost.replays, 'replay')}" if cost.recorded else ""
    yield Heading("What the host pays under hbg, before the device begins:")
    hidden = (
        "less than the device takes: hidden where calls follow one another"
        if cost.total_ns < wall
        else ("more than the device takes: calls that follow one another wait for the host")
    )
    yield Notes(
        [
            f"{duration(cost.total_ns)} per call, {hidden}",
            f"{duration(cost.build_ns)} to build the graph: {many(cost.submits, 'submission')}{graphs}",
            f"{duration(cost.upload_ns)} to upload it: {cost.upload_bytes / 1e6:.3g} MB",
            "in five pairs measured in August 2026 a call's whole host time was 9.4 to 19 ms longer under hbg",
        ]
    )


def compare(names: tuple[str, str], c: Comparison, wide: bool = False) -> Iterator[Part]:
    """A against B."""
    a, b = names
    tables, unlike = c.tables(), c.not_like_for_like
    what = "all work" if c.kernels_asked is None else c.kernels_asked
    yield Heading(f"{a} against {b}", 1, In.POSTED)
    yield Say(f"A = {a}, B = {b}; totals are of {what}.", where=In.POSTED)
    yield Say(c.headline(names), strong=True)
    if (versus := simulated_change(c)) is not None:
        from npuscope.time.uncertainty import versus_text

        yield Say(versus_text(versus))
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
            yield from overlap(f"Hidden and exposed in {letter}", found)
    yield Heading("Not like for like", where=In.POSTED)
    yield Heading("not like for like:", where=In.TEXT if unlike else In.MARKDOWN & In.TEXT)
    yield Notes(unlike)
    if not unlike:
        yield Say("Nothing found that differs.", where=In.POSTED)


def simulated_change(c: Comparison) -> Against | None:
    """B against A as every command tells it, where both were simulated and say so; of what was measured once nobody
    knows how sure it is."""
    if not (c.a.regime and c.b.regime and c.a.work.wall and c.b.work.wall):
        return None
    from npuscope.time.uncertainty import against

    return against(c.a.work.wall, c.b.work.wall, c.a.regime, c.b.regime)


def compare_data(c: Comparison) -> dict[str, object]:
    """The contract of `npuscope compare --json` (docs/reference/json.md)."""
    versus = simulated_change(c)
    return {**c.as_dict(), "versus": versus and versus.as_dict()}


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


def several(
    names: tuple[str, str], found: SeveralRuns, middle: Comparison | None = None, wide: bool = False
) -> Iterator[Part]:
    """`middle` compares the run in the middle of each side, which says where a difference comes from."""
    yield Heading(f"{names[0]} against {names[1]}, several runs of each", 1, In.POSTED)
    yield Say(_several_headline(found), strong=True)
    yield Notes(_several_basis(names, found))
    table = found.tables()["changed"]
    if table.frame.height:
        yield Heading("Kernels that changed", where=In.POSTED)
        yield Heading(f"{many(table.frame.height, 'kernel')} changed (core time, medians):", where=In.TEXT)
        yield Rows(table, CHANGED_KERNELS, wide=wide)
    yield Notes(_unlisted_kernels(found))
    if middle is not None:
        decided = found.total.verdict != "undecided"
        yield Heading("Where the difference comes from", where=In.POSTED)
        if decided:
            yield Heading(f"in the middle run of each side, {middle.waterfall.title()}", where=In.TEXT)
        yield Say(f"In the middle run of each side, {middle.waterfall.title()}.", where=In.POSTED)
        yield Rows(middle.tables()["waterfall"], where=In.ALL if decided else In.POSTED)


def _several_headline(found: SeveralRuns) -> str:
    """The one sentence to read."""
    total, (a, b) = found.total, found.medians_ns
    medians = f"{duration(b)} against {duration(a)}"
    if not total.has_interval:
        return (
            f"Undecided: {medians} in {found.what}, {significant(total.value)}x, but fewer than {ENOUGH} "
            f"{_samples(found)} of each side do not show how much they differ by themselves."
        )
    if total.verdict == "undecided":
        return (
            f"Undecided: B takes {significant(total.low)}x to {significant(total.high)}x the time of A "
            f"({_sure(total)}); {found.what} {medians}, medians."
        )
    return (
        f"B is {faster_or_slower(total.value)}: {found.what} {medians}, medians. "
        f"{_sure(total)}, it takes {significant(total.low)}x to {significant(total.high)}x the time of A."
    )


def faster_or_slower(ratio: float) -> str:
    """`1.34x slower`, `1.2x faster`; small differences in per cent."""
    word = "slower" if ratio > 1 else "faster"
    if 0.9 < ratio < 1.1:
        return f"{significant(abs(ratio - 1) * 100)}% {word}"
    return f"{significant(max(ratio, 1 / ratio))}x {word}"


def _sure(total: Ratio) -> str:
    return f"{total.confidence * 100:.0f}% sure"


def _samples(found: SeveralRuns) -> str:
    return "steps" if found.steps else "runs"


def _several_basis(names: tuple[str, str], found: SeveralRuns) -> list[str]:
    """What was compared, and what would decide it."""
    of = _samples(found)
    counts = [many(len(side), of.removesuffix("s")) for side in (found.a, found.b)]
    lines = [f"A = {names[0]} ({counts[0]}), B = {names[1]} ({counts[1]})"]
    total = found.total
    if not total.has_interval:
        lines.append(f"give at least {ENOUGH} {of} of each side")
    elif total.verdict == "undecided":
        ruled_out = f"a difference above {percent(total.largest_difference)} is ruled out"
        if total.more_runs is None:
            lines.append(f"{ruled_out}; the difference seen is so small that no number of {of} worth trying decides it")
        else:
            more = f"about {total.more_runs:,} more {of} of each side would decide it"
            lines.append(f"{ruled_out}; {more}, if the difference is as large as it looks")
    if found.steps:
        lines.append(
            "steps of one capture share its clock rates, neighbours and memory layout: what differs from run to run "
            "only several captures show"
        )
    return lines


def _unlisted_kernels(found: SeveralRuns) -> list[str]:
    """What is not in the table."""
    same = found.tested - sum(verdict in ("faster", "slower") for verdict in found.changed["verdict"].to_list())
    lines = []
    if found.tested and found.total.has_interval:
        lines.append(
            f"{many(same, 'other kernel')} of {found.tested} compared: no change that noise would not explain. "
            f"The list is corrected for looking at {found.tested} (Holm): 95 times in 100 nothing in it is noise"
        )
    if found.small:
        lines.append(f"{many(found.small, 'kernel')} below 0.1% of the time not compared")
    return lines


def history(name: str, found: History, wide: bool = False) -> Iterator[Part]:
    """The history kept at `name`."""
    tables = found.tables()
    yield Heading(f"History: {name}", 1, In.POSTED)
    yield Say(_history_headline(found), strong=True)
    yield Notes(_history_basis(found))
    yield Chart(_history_chart(found))
    if tables["changes"].frame.height:
        yield Heading("Changes", where=In.POSTED)
        yield Rows(tables["changes"], CHANGES, wide=wide)
    yield Heading("Since their last change", where=In.POSTED)
    yield Heading("since their last change:", where=In.TEXT)
    yield Rows(tables["series"], SERIES, wide=wide)
    broken = tables["commits"].frame.drop_nulls("error")
    if broken.height:
        yield Heading("Commits without a run", where=In.POSTED)
        yield Heading("commits without a run:", where=In.TEXT)
        yield Rows(Table(COMMITS, broken.drop("wall_ns", "runs")), SERIES)
    yield Heading("Commits", where=In.POSTED)
    yield Rows(tables["commits"], where=In.POSTED)


def _history_headline(found: History) -> str:
    """The one sentence to read."""
    changes = found.changes()
    if changes.is_empty():
        return f"Nothing changed over {many(len(found.commits), 'commit')}{_ruled_out(found)}."
    wall = [one for one in found.series if one.name == WALL and one.changes]
    if wall:
        first, last = wall[0].stretches[0], wall[0].stretches[-1]
        commits = ", ".join(dict.fromkeys(found.commits[change.at].revision for change in wall[0].changes))
        moved = f"{duration(first.typical_ns)} → {duration(last.typical_ns)}"
        ratio = last.typical_ns / first.typical_ns
        last_change = changes.filter(pl.col("series") == WALL).to_dicts()[-1]
        chance = last_change.get("probability_faster")
        sure = "" if chance is None else f"; the last change: {chance_text(chance, last_change['verdict'])}"
        return f"The wall time is {faster_or_slower(ratio)} than at first ({moved}), changed by {commits}{sure}."
    row = changes.to_dicts()[0]
    more = f", and {changes.height - 1} more" if changes.height > 1 else ""
    if row["ratio"] is None:
        return f"{row['series']} is {row['verdict']} since {row['commit']}{more}."
    blame = "" if not row["or_one_of"] else f" ({percent(row['sure'])} sure it is this commit)"
    return f"{row['series']} is {faster_or_slower(row['ratio'])} since {row['commit']}{blame}{more}."


def _ruled_out(found: History) -> str:
    if found.exact:
        return f" by more than {percent(found.threshold)}"
    return " that noise would not explain"


def _history_basis(found: History) -> list[str]:
    runs = sum(len(one.runs) for one in found.commits) or sum(len(one.times) for one in found.series)
    lines = [f"{many(len(found.commits), 'commit')}, {many(runs, 'run')}, {len(found.series)} times followed"]
    if found.exact:
        lines.append(f"all simulated, so without noise: every change above {percent(found.threshold)} is listed")
    else:
        lines.append(
            f"corrected for following {len(found.series)} (Holm): 95 times in 100 no listed change is noise; "
            "a change needs two runs on either side to be seen"
        )
    if found.small:
        lines.append(f"{many(found.small, 'kernel')} below 0.1 % of the time not followed")
    return lines


def _history_chart(found: History) -> Spec:
    """Those that changed, then the largest, each as a multiple of its first typical time, with its noise band."""
    order = sorted(found.series, key=lambda one: (one.name != WALL, not one.changes))
    return {
        "chart": "lines",
        "title": "Times over commits, each against what it took at first",
        "x": {"title": "commit", "labels": [one.revision for one in found.commits]},
        "y": axis("times what it took at first", "number"),
        "series": [_history_line(one, found) for one in order[:DRAWN]],
        "note": "" if found.exact else "Bars are noise bands: 95 of 100 single runs lie in them until the next change.",
    }


def _history_line(one: Series, found: History) -> dict[str, object]:
    stretches = one.stretches
    first = stretches[0].typical_ns
    began = [change.at for change in one.changes]
    points = []
    for place, time in zip(one.at, one.times, strict=True):
        stretch = next(s for s in stretches if s.first <= place <= s.last)
        known = stretch.high_ns > stretch.low_ns
        commit = found.commits[place]
        text = [f"{one.name}: {duration(time)}", *filter(None, (commit.subject,))]
        text += [f"{one.name} changed with {commit.revision}"] if place in began else []
        points.append({
            "x": place, "y": time / first, "low": stretch.low_ns / first if known else None,
            "high": stretch.high_ns / first if known else None, "name": commit.revision, "text": text,
        })  # fmt: skip
    return {"name": one.name, "points": points, "joined": True}
