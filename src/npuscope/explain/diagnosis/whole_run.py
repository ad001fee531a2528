"""All causes of a run, ranked by what each is worth; and those that are of the run as a whole: what of its window does
not belong to it, and steps that take much longer than the others.

What is not of the run (`extent`) is a cause of its own, and everything else is judged without it.
Two causes never claim the same time: what an odd step lost is taken off the family that made it long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from npuscope.base.interval import Gain
from npuscope.explain.diagnosis.cause import (
    ANY,
    CAUSES,
    CHAIN,
    CORES,
    FINDERS,
    Cause,
    CauseKind,
    Diagnosis,
    Refine,
    RunFacts,
    Span,
    found_in,
    gain_of_gaps,
    quoted,
    ranked,
    spans,
)
from npuscope.explain.diagnosis.on_streams import (
    HOST,
    INSIDE,
    LATE_RANK,
    MOSTLY,
    NOT_LAUNCHED,
    UNKNOWN,
    UNRECORDED,
    host_was_in,
)
from npuscope.explain.extent import extent
from npuscope.explain.hidden_exposed import Communication, Copies
from npuscope.explain.ledger import Scheduling
from npuscope.explain.path import CriticalPath
from npuscope.explain.repetition import OUTLIER, Steps
from npuscope.explain.rings import rings_of
from npuscope.explain.summary import graph_capture
from npuscope.explain.waits import Readiness, no_dependencies
from npuscope.explain.work import NEVER, Work
from npuscope.table.formats import duration, many, percent, significant

STEP = CauseKind("step", "some steps take much longer than the others")
OUTSIDE = CauseKind("outside", "idle time that belongs to no pass: a stray kernel stretches the window", beside=True)

ALIKE = 0.2  # steps whose numbers of slices differ by more do other work
FEWEST = 3  # steps, to say what is usual
ONE_RUN = "`npuscope step` has what the host does there, and what capturing takes; `--step N` looks at one dispatch."
CUT_THE_WINDOW = "Cut the window to the run, so that shares are of it."


def diagnose(
    work: Work,
    ready: Readiness,
    scheduling: Scheduling,
    path: CriticalPath,
    steps: Steps,
    communication: Communication | None = None,
    copies: Copies | None = None,
    refine: Refine | None = None,
) -> Diagnosis:
    """The causes of a run, the one worth most first. `refine` is for who knows more of each than the trace says."""
    if (only := _nothing_to_judge(work)) is not None:
        return Diagnosis((only,), work.wall, work.window)
    on_device = work.on_cores or np.isin(work.units, ("stream", "link")).any()
    scope = work.window
    if on_device and work.trace.meta.clock != "simulated":  # a simulation has nothing before and after its run
        scope = extent(work.start, work.end, ready.dispatch, work.window)
    run = RunFacts(work, ready, scheduling, path, steps, communication, copies, scope, replays=refine is None)
    cut = list(outside(run))
    causes = [
        cause for captures, finder in FINDERS if run.capture in captures or ANY in captures for cause in finder(run)
    ]
    if refine is not None:
        causes = [refine(cause) for cause in causes]
    causes = ranked(_with_odd_steps(run, causes), run.wall)
    if causes and run.scope != work.window:
        causes[0] = _within(run, causes[0])
    if not causes and not cut:
        what = f"Work runs {percent(run.share(run.ran.length))} of the window"
        why = f"the capture has {no_dependencies(work.trace)} to say why not more"
        causes = [UNKNOWN(run, 0, f"{what}; {why}.")]
    return Diagnosis((*causes, *cut), run.wall, work.window)


def _nothing_to_judge(work: Work) -> Cause | None:
    if work.trace.slices.is_empty():
        if (rings := rings_of(work.trace.meta)) is not None:
            return Cause(UNKNOWN.kind, f"This file has no times. {rings.title()}", 0.0, tuple(rings.sentences[1:]))
        sentence = "This capture is empty: it has no slice of a device or of a thread."
        return Cause(UNKNOWN.kind, sentence, 0.0, remedy="Record again; `npuscope info` lists what the file has.")
    if len(work.lane) == 0 or work.wall == 0:
        return Cause(UNKNOWN.kind, "Nothing ran in this window.", 0.0)
    recording = graph_capture(work.trace)
    if recording is not None and recording.is_all:
        sentence = f"This capture does not tell what bounds the run: {recording}."
        return Cause(UNKNOWN.kind, sentence, 0.0, remedy="Capture the run that replays the graph.")
    return None


def _within(run: RunFacts, cause: Cause) -> Cause:
    """The verdict with what it is about, where that is less than the window."""
    sentence = cause.sentence[:1].lower() + cause.sentence[1:]
    return replace(cause, sentence=f"In the {duration(run.scope_ns)} of the run itself: {sentence}")


def _launched(ready: Readiness, row: int) -> int | None:
    at = int(ready.dispatch[row])
    return None if at == NEVER else at


def outside(run: RunFacts) -> Iterator[Cause]:
    """What was cut off, as a cause each side."""
    (first, last), (start, end) = run.work.window, run.scope
    if start > first:
        yield _before(run, first, start)
    if end < last:
        ns = last - end
        stray = int((run.work.start >= end).sum())
        what = f"{stray:,} stray kernels" if stray != 1 else "a stray kernel"
        until = f"{what} after it" if stray else "the end of the window"
        sentence = f"The run is over after {duration(end - first)}; the window goes on for {duration(ns)} to {until}."
        yield OUTSIDE(run, ns, sentence, where=(Span(end, last),), remedy=CUT_THE_WINDOW)

    if ns := run.ready.apart.length:
        every = many(len(run.ready.apart.start) + 1, "run")
        sentence = f"The capture has {every}; the {duration(ns)} between them count for none of them."
        where = tuple(Span(*pause) for pause in zip(*(one.tolist() for one in run.ready.apart[1:]), strict=True))
        yield OUTSIDE(run, ns, sentence, where=where, remedy=ONE_RUN)


@found_in(CHAIN, CORES)
def between_dispatches(run: RunFacts) -> Iterator[Cause]:
    """A card that waits for the host's next dispatch of the run."""
    pauses = run.segments.filter(pl.col("part") == NOT_LAUNCHED).sort("ns", descending=True, maintain_order=True)
    if ns := int(pauses["ns"].sum()):
        call, inside, named = host_was_in(run.work, run.ready, pauses)
        what = f", {'' if inside >= MOSTLY else 'most of it '}while the host is in `{call}`" if inside >= INSIDE else ""
        yield HOST(
            run,
            ns,
            f"Nothing runs between one dispatch and the next for {run.in_words(ns)}, in "
            f"{many(pauses.height, 'pause')}{what}.",
            f"the longest takes {duration(pauses['ns'][0])}, before {quoted(pauses['kernel'][0])}",
            *named,
            remedy="Launch the next dispatch while this one runs (two slots), or make one program of several.",
            gain=gain_of_gaps(pauses["ns"].to_numpy()),
            where=spans(pauses.select("start", "end")),
        )


def _before(run: RunFacts, first: int, start: int) -> Cause:
    work, ns = run.work, start - first
    row = int(np.flatnonzero(work.start == start)[0])
    stray = int((work.start < start).sum())
    what = {0: "nothing runs", 1: "one stray kernel runs"}.get(stray, f"{stray:,} stray kernels run")
    part = f"{percent(ns / max(work.wall, 1))} of the window"
    launched = _launched(run.ready, row)
    where = (Span(first, start),)
    if launched is None or start - launched <= ns / 2:
        sentence = f"The run begins only after {duration(ns)} ({part}), in which {what}."
        return OUTSIDE(run, ns, sentence, where=where, remedy=CUT_THE_WINDOW)
    return UNRECORDED(
        run,
        ns,
        f"{quoted(work.kernels[int(work.kernel[row])])} was launched {duration(start - launched)} before it began, and "
        f"nothing that was recorded ran meanwhile: it waited for work that this capture lacks ({part}).",
        f"{what} in the {duration(ns)} before the run begins",
        where=where,
        remedy="Start the profiler a step earlier, or wait for the device before it starts; then cut the window.",
        confidence="likely",
    )


def _with_odd_steps(run: RunFacts, causes: list[Cause]) -> list[Cause]:
    """Odd steps as a cause; what they lost is taken off the family that made them long."""
    if (odd := odd_steps(run)) is None:
        return causes
    step, of_work = odd
    blamed = [n for n, cause in enumerate(causes) if of_work and CAUSES[cause.kind].of_work == of_work]
    if blamed:
        most = max(blamed, key=lambda n: causes[n].share)
        causes[most] = causes[most].without(round(step.share * run.wall), run.wall, "with the long step")
    return [*causes, step]


def odd_steps(run: RunFacts) -> tuple[Cause, str] | None:
    """One cause for all steps that take longer than 1.5 times the median of their phase, and what makes the difference:
    comm, copy or task, idle time, or "" where nothing stands out."""
    table = run.steps.table
    if table.height < FEWEST:
        return None
    usual_slices = float(np.median(table["slices"].to_numpy()))
    phase = pl.col("phase").fill_null("")
    if "run" in run.work.trace.slices.columns:  # dispatches of other programs do other work
        kernels = run.work.slices.group_by("step").agg(kernels=pl.col("kernel").unique().sort().str.join(","))
        table, phase = table.join(kernels, on="step", how="left", maintain_order="left"), pl.col("kernels")
    table = table.filter((pl.col("slices") - usual_slices).abs() <= ALIKE * usual_slices)
    table = table.with_columns(usual=pl.col("span_ns").median().over(phase), of=pl.len().over(phase))
    odd = table.filter(pl.col("outlier") & (pl.col("span_ns") > OUTLIER * pl.col("usual")) & (pl.col("of") >= FEWEST))
    if odd.is_empty() or odd.height > table.height / 3:
        return None
    odd = odd.sort("span_ns", descending=True)
    others = table.filter(~pl.col("step").is_in(odd["step"].implode()))
    spans = others["span_ns"].to_numpy()
    usual = float(np.median(spans))
    lost, least = (max(float((odd["span_ns"] - floor).sum()), 0.0) for floor in (usual, float(spans.max())))
    worst = odd.row(0, named=True)
    kernel, kind, why = _difference(run, worst, others)
    takes = f"{duration(worst['span_ns'])}, {significant(worst['span_ns'] / usual)} times the usual {duration(usual)}"
    more = f" ({odd.height - 1:,} others are long, too)" if odd.height > 1 else ""
    evidence = [why] if why else []
    if worst["step"] == run.steps.table["step"][0]:
        evidence.append(
            "it is the first step of the capture: what warms up, and the start of the profiler, fall into it"
        )
    cause = STEP(
        run,
        lost,
        f"Step {worst['step']} takes {takes}{more}{f': {kernel}' if kernel else ''}.",
        *evidence,
        gain=Gain.around(lost, least, lost),
        where=tuple(Span(start, start + ns) for start, ns in odd.sort("start").select("start", "span_ns").iter_rows()),
        remedy=LATE_RANK if kind == "comm" else "Look into this step alone: `npuscope report --step` explains it.",
        confidence="likely",
    )
    return cause, kind


def _difference(run: RunFacts, worst: dict[str, int], others: pl.DataFrame) -> tuple[str, str, str]:
    """The kernel, or the idle time, that makes the longest step longer: in words for the sentence, its kind, and as
    evidence."""
    spans, ran = others["span_ns"].to_numpy(), others["on_core_ns"].to_numpy()
    idle = (worst["span_ns"] - worst["on_core_ns"]) - float(np.median(spans - ran))
    excess = worst["span_ns"] - float(np.median(spans))
    if run.steps.source == "column":
        spent = run.work.slices.group_by("step", "kernel", "kind").agg(
            ns=pl.col("dur").sum(), longest=pl.col("dur").max()
        )
        usual = spent.filter(pl.col("step").is_in(others["step"].implode()))
        usual = usual.group_by("kernel").agg(usual=pl.col("ns").sum() / others.height)
        here = spent.filter(pl.col("step") == worst["step"]).join(usual, on="kernel", how="left")
        here = here.with_columns(more=pl.col("ns") - pl.col("usual").fill_null(0)).sort("more", descending=True)
        if here.height and float(here["more"][0]) > max(idle, excess / 3):
            kernel, kind, longest, more = here.select("kernel", "kind", "longest", "more").row(0)
            name = quoted(kernel)
            waits = ", so this rank waited for another" if kind == "comm" else ""
            words = f"{name} takes {duration(more)} more in it, the longest {duration(longest)}{waits}"
            return words, str(kind), f"{name} makes up {percent(more / excess)} of the difference"
    if idle > excess / 3:
        return f"the device is idle {duration(idle)} longer in it", "idle", ""
    return "", "", ""
