"""Why a device does not do more whose captures are of streams: what it computes, collectives and copies that nothing
hides, and why it stands still: the host launches slowly or stops, launched work waits, or kernels have gaps between
them. Nobody says who waits for whom there; a stream that is idle while another runs waits for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import polars as pl

from npuscope.base.interval import Gain
from npuscope.explain.diagnosis.cause import (
    ANY,
    STREAMS,
    THREADS,
    Cause,
    CauseKind,
    RunFacts,
    found_in,
    gain_between,
    gain_of_gaps,
    quoted,
    spans,
    top_kernel,
)
from npuscope.explain.diagnosis.on_cores import BANDWIDTH, GAP, core_or_bandwidth, faster_kernels
from npuscope.explain.waits import Readiness
from npuscope.explain.work import NEVER, NONE, Work
from npuscope.table.formats import duration, many, percent, short
from npuscope.trace.core import overlaps
from npuscope.trace.intervals import self_times
from npuscope.trace.names import PREFIXES

COMMUNICATION = CauseKind("communication", "communication that no compute hides", of_work="comm")
COPY = CauseKind("copy", "copies that neither compute nor communication hides", of_work="copy")
LAUNCH = CauseKind("launch", "the host launches kernels more slowly than the device runs them", of_work="idle")
HOST = CauseKind("host", "the host stands still, or does something else, and the device with it", of_work="idle")
UNRECORDED = CauseKind("unrecorded", "work that was launched waits although nothing recorded runs", beside=True)
UNKNOWN = CauseKind("unknown", "the capture does not tell")

SHORT = 10_000  # ns; a shorter gap lies between two kernels that were both launched, a longer one has another reason
STALL = 1_000_000  # ns; a host that launches slowly leaves shorter gaps than this, one that does something else longer
LATE = 5  # times the usual: a collective that takes longer waits for a rank that is late
RARE = 0.05  # of the collectives of a kind are late; where more are, they differ in size
FEWEST = 3  # collectives of a kind, to say what is usual for it
MOSTLY = 0.8  # of something: enough to name only this
NAMED_FROM = 0.3  # of the time looked at, from which a host's call is named
LOOKED_AT = 20  # of the longest pauses
INSIDE = 0.5  # of a pause lies in the host's call that is to blame
AROUND = 4  # times as long as the pause: a longer call holds much else
# families of idle time on streams, in the words of comparisons
GAPS, WAITING = "gaps between one kernel and the next", "launched kernels that wait"
LAUNCHES, STALLS = "pauses until the host's next launch", "long pauses of the device"
NOT_LAUNCHED, LAUNCHED = "launch", "dependency+pickup"  # parts of a path over streams (explain/waits.py)
NO_LAUNCHES = "the capture has no launches; pauses this long are usually the host's"
NAMED_CALLS = 3
WAITS = (  # calls in which a thread waits
    r"(?i)wait|(^|[^a])sync|\bjoin\b|poll|recv|sleep|acquire|\block\b|futex|select$|barrier|"
    r"DataLoader|_next_data|Queue.get"
)
# what to do about a capture that has no device work, by its format
NO_DEVICE = {
    "kineto": "Record the device, too: activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] (or NPU, XPU).",
    "nsys": "Record the device, too: nsys profile --trace=cuda,nvtx.",
    "trace_view": "Record the device, too: activities with NPU, and wait for it before the profiler stops.",
    "": "Export the device's timeline (kernels on streams or cores), if the tool has recorded one.",
}
LATE_RANK = "Find the rank that comes late: give `npuscope report` the folder with all ranks."


@found_in(STREAMS)
def compute(run: RunFacts) -> Iterator[Cause]:
    """The device computes."""
    segments = run.running("task")
    ns = int(segments["ns"].sum())
    if ns == 0:
        return
    name, longest = top_kernel(segments)
    share = ns / max(run.scope_ns, 1)
    kind, counted = core_or_bandwidth(run.work)
    what = ", mostly moving data" if kind is BANDWIDTH else f"; {name} takes most, {duration(longest)}"
    yield kind(
        run,
        ns,
        f"The device computes {percent(share)} of the time ({duration(ns)}){what}.",
        f"{name} takes most of it: {duration(longest)}, {percent(longest / ns)}",
        *counted,
        remedy=faster_kernels(share),
        where=spans(segments),
    )


@found_in(STREAMS)
def idle(run: RunFacts) -> Iterator[Cause]:
    """Every idle moment of the device with one reason."""
    explain = {GAPS: _gaps, WAITING: _unrecorded, LAUNCHES: _launches, STALLS: _stalls}
    for family, pauses in idle_families(run.segments).items():
        if ns := int(pauses["ns"].sum()):
            yield explain[family](run, pauses, ns)


def idle_families(segments: pl.DataFrame, by_launch: bool = True) -> dict[str, pl.DataFrame]:
    """The idle segments of a path over streams, with their `ns`, by what they are: the longest of each first,
    but of short gaps, which are many and alike.
    `by_launch`: whether it counts what was launched when; else their lengths alone tell."""
    waits = (
        segments.lazy().filter(pl.col("part") != "run").select("start", "end", "part", "kernel", "row", "ns").collect()
    )
    if not by_launch:  # a launch does not cut a pause in two
        pause = (pl.col("start") != pl.col("end").shift(1)).fill_null(True).cum_sum()
        waits = (
            waits.sort("start")
            .group_by(pause.alias("pause"), maintain_order=True)
            .agg(pl.col("start").first(), pl.col("end", "part", "kernel", "row").last(), pl.col("ns").sum())
        )
    known = pl.lit(by_launch)
    launched, late = known & (pl.col("part") == LAUNCHED), known & (pl.col("part") == NOT_LAUNCHED)
    brief = pl.col("ns") < SHORT
    rest = waits.filter(late | (~brief & ~launched))
    return {
        GAPS: waits.filter(brief & ~late),
        WAITING: _longest_first(waits.filter(~brief & launched)),
        LAUNCHES: _longest_first(rest.filter(pl.col("ns") < STALL)),
        STALLS: _longest_first(rest.filter(pl.col("ns") >= STALL)),
    }


def _longest_first(pauses: pl.DataFrame) -> pl.DataFrame:
    return pauses.sort("ns", descending=True, maintain_order=True)


def _idle(
    kind: CauseKind,
    run: RunFacts,
    pauses: pl.DataFrame,
    sentence: str,
    evidence: list[str],
    remedy: str,
    sure: bool = True,
) -> Cause:
    """With what all causes of idle time have alike."""
    gain, where = gain_of_gaps(pauses["ns"].to_numpy()), spans(pauses.select("start", "end"))
    confidence = "sure" if sure else "likely"
    return kind(
        run, int(pauses["ns"].sum()), sentence, *evidence, remedy=remedy, gain=gain, where=where, confidence=confidence
    )


def _gaps(run: RunFacts, pauses: pl.DataFrame, ns: int) -> Cause:
    usual = duration(float(np.median(pauses["ns"].to_numpy())))
    sentence = f"The device stands still about {usual} between one kernel and the next: {run.in_words(ns)} in all."
    evidence = [f"{many(pauses.height, 'gap')} shorter than {duration(SHORT)}"]
    return _idle(GAP, run, pauses, sentence, evidence, "Fewer and longer kernels have fewer gaps: fuse small ones.")


def _unrecorded(run: RunFacts, pauses: pl.DataFrame, ns: int) -> Cause:
    longest, kernel = pauses.select("ns", "kernel").row(0)
    sentence = f"Launched kernels wait for {run.in_words(ns)} although nothing that was recorded runs."
    evidence = [f"{many(pauses.height, 'wait')}, the longest {duration(longest)} before {quoted(kernel)}"]
    remedy = "Look for events, copies or AI CPU work that the profiler leaves out; record it at a higher level."
    return _idle(UNRECORDED, run, pauses, sentence, evidence, remedy, sure=False)


def _launches(run: RunFacts, pauses: pl.DataFrame, ns: int) -> Cause:
    work, sure = run.work, _not_launched(pauses)
    each, every = float(np.mean(work.end - work.start)), run.scope_ns / max(len(work.lane), 1)
    what = "The device waits for the host's next launch" if sure else "The device has nothing to run"
    sentence = f"{what} for {run.in_words(ns)}, in {many(pauses.height, 'pause')}."
    evidence = [
        f"half of the pauses are longer than {duration(float(np.median(pauses['ns'].to_numpy())))}",
        f"a kernel runs {duration(each)} on average, and one begins every {duration(every)}",
        *([] if sure else _no_launches(run)),
        *host_was_in(run.work, run.ready, pauses)[2],
    ]
    remedy = "Record the pass into a graph and replay it, fuse small kernels, or give each kernel more work."
    return _idle(LAUNCH, run, pauses, sentence, evidence, remedy, sure)


def _stalls(run: RunFacts, pauses: pl.DataFrame, ns: int) -> Cause:
    longest, kernel, begin = pauses.select("ns", "kernel", "start").row(0)
    call, inside, named = host_was_in(run.work, run.ready, pauses)
    at_edge = int(pauses.filter(pl.col("kernel").is_null())["ns"].sum())
    # after the last of kernels whose launches are all known nothing was launched
    sure = _not_launched(pauses, edges=bool((run.ready.dispatch != NEVER).all()))
    what = " in which the host launches nothing" if sure else " without any kernel"
    if inside >= INSIDE:
        what = f", {'' if inside >= MOSTLY else 'most of it '}while the host is in `{short(call, 60)}`"
    sentence = f"The device stands still for {run.in_words(ns)}, in {many(pauses.height, 'long pause')}{what}."
    edge = "before the first kernel" if begin <= run.work.window[0] else "after the last kernel"
    evidence = [
        f"the longest takes {duration(longest)}, {edge if kernel is None else f'before {quoted(kernel)}'}",
        *([] if sure else _no_launches(run)),
        *named,
    ]
    remedy = "Let the host run ahead: no waiting for results, data loaded and inputs prepared beforehand."
    if 2 * at_edge > ns:
        remedy = "See what the host does there: the profiler's start and end belong to no step; else cut the window."
    return _idle(HOST, run, pauses, sentence, evidence, remedy, sure)


def _not_launched(pauses: pl.DataFrame, edges: bool = False) -> bool:
    """Whether the capture says of most of the time that what comes next was not launched yet; with `edges`, of times
    before the first kernel and after the last one, too."""
    late = pauses.filter((pl.col("part") == NOT_LAUNCHED) | (pl.lit(edges) & pl.col("kernel").is_null()))
    return int(late["ns"].sum()) >= MOSTLY * int(pauses["ns"].sum())


def _no_launches(run: RunFacts) -> list[str]:
    known = int((run.ready.dispatch != NEVER).sum())
    if known == 0:
        return [NO_LAUNCHES]
    return [f"of {known:,} of {len(run.work.lane):,} kernels the capture says when they were launched, not of these"]


def host_was_in(work: Work, ready: Readiness, pauses: pl.DataFrame) -> tuple[str, float, list[str]]:
    """What the host did in the longest pauses, which come first: the call that launched what ends the pause where it
    spans it, else the innermost of its calls, or of the user's ranges, that spans it. Its name, the part of their time
    that lies in it, and the words; no words where it is little."""
    longest = pauses.head(LOOKED_AT)
    least = int(INSIDE * int(longest["ns"].min() or 0))  # type: ignore[arg-type]
    slices = work.trace.slices.lazy().filter(pl.col("dur") >= least)
    is_call = pl.col("kind") == "host"
    if "cat" in work.trace.slices.columns:
        is_call |= pl.col("cat") == "user_annotation"
    calls = slices.filter(is_call).select("start", (pl.col("start") + pl.col("dur")).alias("end"), "kernel").collect()
    calls = calls.filter(~pl.col("kernel").str.starts_with(prefix) for prefix in PREFIXES)  # a step is no call
    if calls.is_empty():
        return "", 0.0, []
    start, end = calls["start"].to_numpy(), calls["end"].to_numpy()
    spent: dict[str, int] = {}
    for begin, stop, ns, row in longest.select("start", "end", "ns", "row").iter_rows():
        covered = np.minimum(end, stop) - np.maximum(start, begin)
        launched = ready.dispatch[row] if row != NONE else NEVER
        around = np.flatnonzero((covered >= INSIDE * ns) & ((end - start <= AROUND * ns) | (end == launched)))
        if len(around):
            innermost = around[np.argmin((end - start)[around])]
            name = str(calls["kernel"][int(innermost)])
            spent[name] = spent.get(name, 0) + int(covered[innermost])
    name = max(spent, key=lambda one: spent[one], default="")
    share = spent.get(name, 0) / max(int(longest["ns"].sum()), 1)
    if share < NAMED_FROM:
        return "", 0.0, []
    return name, share, [f"in {percent(share)} of the longest pauses' time the host is in `{short(name, 60)}`"]


@found_in(THREADS)
def threads(run: RunFacts) -> Iterator[Cause]:
    """A capture without a device: what it lacks, and in which calls its threads waited or spent their time."""
    work = run.work
    sentence = (
        f"This capture has no device work: it says what {many(work.lanes.height, 'thread')} called, not what ran on a "
        "device."
    )
    evidence = [f"some thread is in a call {percent(run.share(run.ran.length))} of the {duration(run.wall)}"]
    waits, calls = _own_time(work)
    for what, spent in (("waits longest", waits), ("spends most time", calls)):
        named = [f"`{short(name, 60)}` {duration(ns)} in {many(count, 'call')}" for name, ns, count in spent]
        evidence += [f"the host {what} in {', '.join(named)}"] if named else []
    remedy = NO_DEVICE.get(work.trace.meta.format, NO_DEVICE[""])
    yield UNKNOWN(run, 0, sentence, *evidence, remedy=remedy)


def _own_time(work: Work) -> tuple[list[tuple[str, int, int]], list[tuple[str, int, int]]]:
    """The calls with most time of their own, without what is called inside: those that wait, and the others."""
    slices = work.trace.slices.filter((pl.col("kind") != "derived") & overlaps(*work.window))
    own = self_times(*(slices[name].to_numpy() for name in ("lane", "start", "dur")))
    spent = slices.select("kernel", pl.Series("ns", own)).group_by("kernel").agg(pl.col("ns").sum(), count=pl.len())
    spent = spent.filter(pl.col("ns") > 0).sort("ns", "kernel", descending=[True, False])
    waits = pl.col("kernel").str.contains(WAITS)
    first, second = (spent.filter(which).head(NAMED_CALLS).rows() for which in (waits, ~waits))
    return first, second


@found_in(ANY)
def exposed_communication(run: RunFacts) -> Iterator[Cause]:
    """Collectives that no compute hides."""
    segments = run.running("comm")
    exposed = int(segments["ns"].sum())
    if exposed == 0 or run.communication is None:
        return
    name, longest = top_kernel(segments)
    free = run.communication.compute_ns - run.communication.hidden_ns  # compute that nothing communicates beside
    late, words = _late_collectives(run.work)
    hideable = min(exposed, free)
    words = words or f", nearly all of it in {name}" if longest > MOSTLY * exposed else words
    # tasks that others wait for may run beside compute, which then does not hide them
    on_path = exposed > run.communication.exposed_ns
    where, of = ("on the critical path", "it") if on_path else ("that no compute hides", "what is not hidden")
    beside = 1 - (run.communication.exposed_ns if on_path else exposed) / max(run.communication.on_core_ns, 1)
    how = "runs beside compute, which does not hide it" if on_path else "is hidden by compute"
    remedy = "Overlap communication with compute, or send less."
    if late > exposed / 2:
        remedy = LATE_RANK
    elif hideable < exposed / 2:
        least = f"only {duration(free)} of compute" if free > 0 else "no compute"
        remedy = f"Send less or less often: there is {least} to hide it behind."
    yield COMMUNICATION(
        run,
        exposed,
        f"Communication {where} takes {run.in_words(exposed)}{words}.",
        f"{percent(beside)} of all communication {how}",
        f"{name} is {percent(longest / exposed)} of {of}",
        f"it is {percent(exposed / run.ran.length)} of the time in which anything runs",
        remedy=remedy,
        gain=Gain.around(min(max(late, (hideable + exposed) / 2), exposed), hideable, exposed),
        where=spans(segments),
        confidence="likely" if late else "sure",
    )


def _late_collectives(work: Work) -> tuple[int, str]:
    """What collectives take beyond LATE times the usual of their kind, and the longest of them in words. A simulation
    says itself who waited (`signals.py`)."""
    if work.trace.meta.clock == "simulated":
        return 0, ""
    comm = np.flatnonzero((work.slices["kind"] == "comm").to_numpy())
    # profilers number their collectives
    kinds = pl.Series([re.sub(r"(_+\d+)+$", "", name) for name in work.kernels], dtype=pl.Categorical)
    table = pl.DataFrame({"kind": kinds.gather(work.kernel[comm]), "ns": (work.end - work.start)[comm]})
    if table.height < FEWEST:
        return 0, ""
    several = pl.len().over("kind") >= FEWEST  # a kind of its own is judged by all collectives
    usual = pl.when(several).then(pl.col("ns").median().over("kind")).otherwise(pl.col("ns").median())
    late = table.with_columns(usual=usual).filter(pl.col("ns") > LATE * pl.col("usual")).sort("ns", descending=True)
    if late.is_empty() or late.height > max(RARE * table.height, 1):
        return 0, ""
    name, ns, typical = late.select("kind", "ns", "usual").row(0)
    others = f" ({many(late.height - 1, 'other')} as well)" if late.height > 1 else ""
    words = f": one `{short(str(name), 40)}` takes {duration(ns)} where {duration(typical)} is usual{others}"
    return round((late["ns"] - late["usual"]).sum()), f"{words}, as if it waited for another rank"


@found_in(ANY)
def exposed_copies(run: RunFacts) -> Iterator[Cause]:
    """Copies that nothing hides."""
    segments = run.running("copy")
    exposed = int(segments["ns"].sum())
    if exposed == 0 or run.copies is None:
        return
    name, longest = top_kernel(segments)
    hidden = 1 - exposed / max(run.copies.on_engine_ns, exposed)
    hideable = min(exposed, int(run.running("task")["ns"].sum()))
    yield COPY(
        run,
        exposed,
        f"Copies that nothing hides take {run.in_words(exposed)}; {name} is most of it.",
        f"{percent(hidden)} of all copying is hidden by compute or communication",
        f"{name} is {percent(longest / exposed)} of what is not hidden",
        remedy="Copy ahead on a stream of its own, from pinned memory, or keep the data on the device.",
        gain=gain_between(hideable, exposed),
        where=spans(segments),
    )
