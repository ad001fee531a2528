"""What a capture says: what it is and what is wrong with it, then why it took so long, alone or rank by rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npuscope.base.errors import NpuscopeError
from npuscope.explain.diagnosis import Cause, Diagnosis, Gain, Together
from npuscope.explain.explanation import Explanation
from npuscope.explain.hidden_exposed import Overlap
from npuscope.explain.ranks import Ranks
from npuscope.explain.rings import rings_of
from npuscope.table.formats import TIMES, duration, estimate_text, fitting, many, percent, sentence_start, significant
from npuscope.table.parts import Chart, Heading, In, Notes, Part, Rows, Say
from npuscope.trace.clocks import COLLECTIVES, clock_notes, not_aligned
from npuscope.trace.core import Meta

if TYPE_CHECKING:
    from npuscope.explain.doctor import Symptoms
    from npuscope.explain.step import StepWaterfall
    from npuscope.explain.summary import Summary

OTHERS = 3  # causes after the first, in text
WORTH_A_LINE = 0.02  # of the wall
WORTH_A_BAR = 0.005  # of a step
KERNELS, POSTED_KERNELS, BLOCKERS = 6, 15, 3
RANKS, RANK_BLOCKERS = 64, 2
COUNTERS = 10
ACCOUNT = (
    ("merged", "joined"),
    ("marked", "marked"),
    ("repaired", "repaired"),
    ("dropped", "left out"),
    ("unknown", "not understood"),
)


def causes(diagnosis: Diagnosis) -> Iterator[Part]:
    """What text, Markdown and pages say of a run's causes."""
    first = diagnosis.verdict
    yield Say(first.sentence, strong=True)
    yield Notes([*worth(first), *first.evidence, *([first.remedy] if first.remedy else [])])
    others = diagnosis.causes[1:]
    shown = [cause for cause in others if _worth_a_line(cause, diagnosis.wall_ns)][:OTHERS]
    if shown:
        yield Heading("Also:", where=In.TEXT)
        yield Notes([line for cause in shown for line in _cause_lines(cause)], where=In.TEXT)
    if diagnosis.together is not None:
        yield Say(together(diagnosis.together))
    if others:
        yield Heading("Other causes", where=In.POSTED)
        yield Notes([" ".join((*_cause_lines(cause), *cause.evidence)) for cause in others], where=In.POSTED)


def together(found: Together) -> str:
    """What all findings that save time would save at once."""
    all_of_them = "Both" if found.findings == 2 else f"All {found.findings}"
    return f"{all_of_them} findings that save time, taken out together: {_saved(found.gain)} less, simulated."


def _worth_a_line(cause: Cause, wall_ns: int) -> bool:
    """A cause of little, or one whose mending saves little at best, is left to Markdown and JSON."""
    saves = cause.gain is None or cause.gain.high_ns >= WORTH_A_LINE * wall_ns
    return saves and cause.share >= WORTH_A_LINE


def worth(cause: Cause) -> list[str]:
    """What mending a cause is worth, as a sentence; nothing where nobody knows."""
    gain = cause.gain
    if gain is None:
        return []
    if gain.high_ns <= 0:
        return ["Mending it would save nothing."]
    return [f"Mending it would save {_saved(gain)}."]


def _saved(gain: Gain) -> str:
    unit = fitting(gain.high_ns, TIMES)
    if gain.ns <= 0:
        return f"at most {significant(gain.high_ns / unit.worth)} {unit.name}"
    value, low, high = (significant(max(ns, 0) / unit.worth) for ns in (gain.ns, gain.low_ns, gain.high_ns))
    return f"{value} {unit.name} ({low} to {high})"


def _cause_lines(cause: Cause) -> list[str]:
    saved = f" Worth {_saved(cause.gain)}." if cause.gain is not None else ""
    return [f"{cause.sentence}{saved}", *([f"  {cause.remedy}"] if cause.remedy else [])]


def report(path: str, name: str, e: Explanation, wide: bool = False) -> Iterator[Part]:
    """The capture at `path`, called `name` where it is posted."""
    if e.trace.slices.is_empty() and (found := rings_of(e.trace.meta)) is not None:
        yield from causes(e.diagnosis)
        yield Rows(found.main_table())
        return
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
    yield Notes([f"{path}: {e.trace.meta.format}, {slices}", *simulated(e), *headline(e)], where=In.TEXT)
    yield Heading("Busy and idle", where=In.POSTED)
    yield Rows(tables["units"], where=In.POSTED)
    yield Notes(_besides_compute(e), where=In.POSTED)
    yield Heading("Where the core time went", where=In.POSTED)
    yield Rows(scheduling["ledger"], where=In.POSTED)
    path_is = "the critical path" if e.path.kind == "chain" else "a cover of the timeline, without dependencies"
    yield Say(f"The path is {path_is}; both columns add up.", where=In.POSTED)
    yield Heading("Kernels", where=In.POSTED)
    yield Rows(tables["kernels"], KERNELS, POSTED_KERNELS, wide=wide, where=In.ALL if e.leaves is None else In.POSTED)
    if e.leaves is not None:
        yield Heading("Leaves", where=In.POSTED)
        yield Rows(e.leaves.main_table(), KERNELS, POSTED_KERNELS, wide=wide)
        yield Notes(e.leaves.sentences)
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
        yield from overlap("Hidden and exposed", e.overlap)
    yield Notes(e.bubbles.sentences(BLOCKERS), where=In.TEXT)
    yield from rings(e.trace.meta)
    if e.notes:
        yield Heading("Notes", where=In.POSTED)
    yield Notes(e.notes, "note: ")


def rings(meta: Meta) -> Iterator[Part]:
    """How full the runtime's rings were, where a run kept count of it."""
    if (found := rings_of(meta)) is not None:
        yield Heading("Rings of the runtime")
        yield Notes(found.sentences)
        yield Rows(found.main_table())


def _captured(e: Explanation, lanes: str) -> list[str]:
    meta = e.trace.meta
    lines = [
        f"Capture: {many(meta.records, 'record')} ({meta.format}), {many(e.trace.slices.height, 'slice')} on "
        f"{many(e.trace.lanes.height, 'channel')}; lanes with device work: {lanes or 'none'}.",
        f"Device: {meta.device or 'not recorded'}; window {duration(e.work.wall)}.",
    ]
    lines += [f"{sentence_start(line)}." for line in simulated(e)]
    return lines if e.steps.source == "none" else [*lines, f"{e.steps.title()}."]


def simulated(e: Explanation) -> list[str]:
    """Whether the run was simulated: with its interval, or that the capture does not say how sure it is."""
    if e.predicted_wall is not None:
        return [f"simulated: {estimate_text(e.predicted_wall)}; its causes are those that the simulation found"]
    less = "this file does not say how sure it is, and what causes are worth is replayed from the trace"
    return [f"simulated; {less}"] if e.is_simulated else []


def _besides_compute(e: Explanation) -> list[str]:
    """Communication and copies, with what of them is exposed."""
    return [str(one) for one in (e.communication, e.copies) if one is not None]


def headline(e: Explanation) -> list[str]:
    """The numbers beside the verdict."""
    units = ", ".join(f"{unit} {percent(share)}" for unit, share in e.busy.units.select("unit", "share").iter_rows())
    running, window, s = percent(e.busy.running), duration(e.work.wall), e.scheduling
    lines = [f"window {window}, any work running {running} of it; busy: {units or 'nothing'}"]
    records = f"{s.tasks:,} task records of " if s.tasks != s.launches else ""
    records += many(s.launches, "task")
    lines.append(f"{records}, one per {duration(s.ns_per_task)}, mean run {duration(s.mean_run_ns)}")
    if s.mean_dispatch_to_finish_ns is not None:
        text = f"dispatch→finish {duration(s.mean_dispatch_to_finish_ns)}"
        text += "" if s.overhead is None else f", overhead {percent(s.overhead)}"
        text += f" ({percent(s.queued)} queued behind a running task)" if s.queued and s.queued > 0.01 else ""
        lines.append(f"{text}; {s.in_flight or 0:.1f} in flight on {s.cores} cores")
    lines += _besides_compute(e)
    if e.steps.source != "none":
        lines.append(e.steps.title())
    return lines


def overlap(title: str, found: Overlap) -> Iterator[Part]:
    yield Heading(title, where=In.POSTED)
    yield Heading(found.title(), where=In.TEXT)
    for sentence in found.title().splitlines():
        yield Say(sentence, where=In.POSTED)
    yield Rows(found.main_table())


def ranks(path: str, name: str, found: Ranks, wide: bool = False) -> Iterator[Part]:
    """The capture at `path`, called `name` where it is posted."""
    trace, many = found.trace, f"{len(found.parts)} {found.what}"
    yield Say(f"{path}: {trace.meta.format}, {trace.slices.height:,} slices of {many}", where=In.TEXT)
    yield Heading(f"Profiling report: {name}", 1, In.POSTED)
    yield Say(f"{trace.meta.format}, {trace.slices.height:,} slices of {many}, each explained alone.", where=In.POSTED)
    yield Heading("Key finding", where=In.POSTED)
    yield Notes(found.absent)
    yield from causes(found.diagnosis)
    yield Notes([found.overview, found.waits.title()])
    yield Heading(found.what.capitalize(), where=In.POSTED)
    yield Rows(found.together(), RANKS, RANKS, wide=wide)
    if found.waits.table.height:
        yield Heading("Who waits for whom", where=In.POSTED)
        yield Rows(found.waits.main_table(), RANK_BLOCKERS * 3, RANKS)
    for part, e in zip(found.parts[:RANKS], found.explained, strict=False):
        yield Heading(part.name)
        yield Notes([str(e.diagnosis.verdict), *headline(e), *e.bubbles.sentences(RANK_BLOCKERS)])
    yield from rings(trace.meta)
    offsets, apart = found.clocks
    measured = {rank: offset.as_note() for rank, offset in offsets.items()}
    yield Notes(clocks(trace.meta) or _clock_lines(measured, apart), "note: ")
    yield Say("`--rank N` explains one of them in full.", where=In.TEXT)


def clocks(meta: Meta) -> list[str]:
    """How clocks of ranks were brought together by their reader, and which were not."""
    return _clock_lines(clock_notes(meta), not_aligned(meta))


def _clock_lines(notes: Mapping[int, Mapping[str, Any]], apart: Mapping[int, str]) -> list[str]:
    lines = []
    by: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
    for rank, clock in notes.items():
        by.setdefault(str(clock["by"]), []).append((rank, clock))
    for how, ranks in by.items():
        errors = [int(clock["error_ns"]) for _, clock in ranks]
        if len(ranks) == 1:
            rank, clock = ranks[0]
            offset, least, spread = (int(clock.get(name, 0)) / 1000 for name in ("offset_ns", "least_ns", "spread_ns"))
            several = f" ({least:,.2f} to {least + spread:,.2f})" if how == COLLECTIVES and clock["pairs"] > 1 else ""
            lines.append(
                f"The clock of rank {rank} is {offset:,.2f} µs behind the first one's{several}, by {clock['pairs']} × "
                f"{how}, within {duration(errors[0])}."
            )
        else:
            lines.append(f"The clocks of {len(ranks)} ranks are aligned by {how}, within {duration(max(errors))}.")
    why = {
        reason: [rank for rank, other in apart.items() if other == reason] for reason in dict.fromkeys(apart.values())
    }
    for reason, those in why.items():
        who = f"clock of rank {those[0]} is" if len(those) == 1 else f"clocks of {len(those)} ranks are"
        lines.append(f"The {who} not aligned: {reason}.")
    return lines


def info(path: str, summary: Summary, symptoms: Symptoms) -> Iterator[Part]:
    """What `npuscope info` prints of the capture at `path`."""
    lanes = ", ".join(f"{n} {unit}" for unit, n in summary.lanes.items())
    tasks = f"{summary.slices:,} from {many(summary.meta.records, 'record')}, {summary.tasks:,} of them device tasks"
    samples = many(summary.samples, "sample")
    rows = {
        "device": summary.meta.device or "not recorded",
        "lanes": lanes or "none",
        "ranks": f"{len(summary.ranks)}" if len(summary.ranks) > 1 else "",
        "slices": tasks,
        "window": duration(summary.window_ns),
        "kernels": f"{summary.kernels:,}",
        "steps": f"{summary.steps} ({_range(summary.step_ids)})" if summary.steps else "none marked",
        "links": f"{summary.edges:,} from one slice to another (dependencies, launches)" if summary.edges else "none",
        "counters": f"{summary.counters.height:,} with {samples}" if summary.counters.height else "",
    }
    yield Heading(f"{path}: {summary.meta.format}, {duration(summary.window_ns)} with {many(summary.slices, 'slice')}")
    yield Notes([f"{name:<8} {value}" for name, value in rows.items() if value])
    if summary.top_kernels.height:
        yield Rows(summary.tables()["top_kernels"])
        if summary.kernels > summary.top_kernels.height:
            yield Notes([f"… and {summary.kernels - summary.top_kernels.height:,} more kernels"])
    if summary.counters.height:
        yield Rows(summary.tables()["counters"], COUNTERS)
    account = [
        f"{word:<15} {count:>9,}  {reason}"
        for name, word in ACCOUNT
        for reason, count in getattr(summary.meta, name).items()
    ]
    yield Notes(account)
    yield from rings(summary.meta)
    yield Notes(clocks(summary.meta))
    yield Say(f"doctor: {symptoms.verdict}")
    for symptom in symptoms.symptoms:
        if symptom.id == "instrumented":
            yield Say(f"recording: {symptom.effect}")


def doctor(path: str, format: str, slices: int, symptoms: Symptoms) -> Iterator[Part]:
    """What `npuscope doctor` prints of the capture at `path`."""
    yield Say(sentence_start(symptoms.verdict), strong=True)
    yield Say(f"{path}: {format}, {many(slices, 'slice')}")
    for symptom in symptoms.symptoms:
        yield Heading(f"{symptom.severity}: {symptom.count:,} × {symptom.what}  [{symptom.id}]")
        yield Notes([*([f"e.g. {symptom.example}"] if symptom.example else []), symptom.effect])


def _range(steps: tuple[int, ...]) -> str:
    return str(steps[0]) if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"


def _bars(found: StepWaterfall) -> dict[str, object]:
    """The parts of a step from its begin to its end, small ones together."""
    from npuscope.explain.step_parts import CAPTURING

    rows = list(found.parts.select("part", "level", "slowest_ns").iter_rows())
    after = [level for _, level, _ in rows[1:]] + [0]
    leaves = [(part.strip(), ns) for (part, level, ns), below in zip(rows, after, strict=True) if below <= level]
    whole = rows[0][2] - found.capturing_ns
    shown = [(name, ns) for name, ns in leaves if ns >= WORTH_A_BAR * whole and name != CAPTURING]
    small = whole - sum(ns for _, ns in shown)
    steps = [*shown, *([("smaller parts", small)] if small else [])]
    last = "step without capturing" if found.capturing_ns else "whole step"
    return {
        "chart": "waterfall", "title": "From begin to end, on the slowest rank", "names": ["begin", last],
        "from": 0, "to": whole, "steps": [{"name": name, "ns": ns} for name, ns in steps],
    }  # fmt: skip


def step_parts(path: str, name: str) -> list[Part] | None:
    """The waterfall of a step of a run over ranks; None where no log of the host lies there."""
    from npuscope.explain.step import steps_at
    from npuscope.trace.readers.dispatches import is_run_over_ranks, logs_of

    if not is_run_over_ranks(Path(path)) or not logs_of(Path(path)):
        return None
    try:
        return list(step(name, steps_at(Path(path))))
    except NpuscopeError:  # no call of the log is whole, which says nothing against the ranks
        return None


def step(name: str, found: StepWaterfall) -> Iterator[Part]:
    """What `npuscope step` prints."""
    tables = found.tables()
    yield Heading(f"{name}: {found.title()}")
    yield Chart(_bars(found))
    yield Rows(tables["parts"], found.parts.height)
    notes = ["parts of one level add up to the part above; the device has its own clock, so only lengths are compared"]
    if found.cut_off:
        notes.append(f"{many(found.cut_off, 'call')} without an end in the log, left out")
    if found.drops:
        notes.append(f"the log says {many(found.drops, 'time')} that it lost records")
    if found.cut_parts:
        notes.append(f"{many(found.cut_parts, 'span')} that stick out of the span around them, cut")
    yield Notes(notes)
    if found.causes:
        yield Heading("What the host takes:")
        yield Notes([line for cause in found.causes for line in _cause_lines(cause)])
    if found.per_token_ns is not None:
        mean, tail = (duration(found.per_token_ns[one]) for one in ("mean", "tail"))
        yield Say(f"A token takes {mean} in the mean, nine of ten at most {tail}.")
        yield Rows(tables["steps"])
    if found.calls:
        yield Rows(tables["runs"])
