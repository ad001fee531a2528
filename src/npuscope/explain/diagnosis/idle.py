"""Why the device stands still: the host launches slowly or stops, launched work waits, or kernels have gaps between
them. For streams, where nobody tells who waits for whom; a stream that is idle while another runs waits for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from npuscope.explain.diagnosis.known import SHORT, STALL, Known, gain_of_gaps, quantile, spans
from npuscope.explain.diagnosis.shape import Cause
from npuscope.explain.work import NEVER
from npuscope.table.formats import duration, many, percent, short

LOOKED_AT = 20  # of the longest pauses
INSIDE = 0.8  # of a pause lies in the host's call that is to blame
AROUND = 4  # times as long as the pause: a longer call holds much else
NAMED_FROM = 0.3  # of the time looked at, from which a call is named
NOT_LAUNCHED, LAUNCHED = "dispatch", "dependency+pickup"  # parts of a path over streams (analysis/waits.py)
NO_LAUNCHES = "the capture has no launches; pauses this long are usually the host's"
FASTER_HOST = "Record the pass into a graph and replay it, fuse small kernels, or give each kernel more work."


class _Told(NamedTuple):
    """A cause without what all causes of idle time have alike."""

    kind: str
    sentence: str
    evidence: list[str]
    remedy: str
    sure: bool = True


def idle(known: Known) -> Iterator[Cause]:
    """Every idle moment of the device with one reason."""
    waits = known.segments.filter(pl.col("part") != "run")
    launched, late = pl.col("part") == LAUNCHED, pl.col("part") == NOT_LAUNCHED
    brief = pl.col("ns") < SHORT
    rest = waits.filter(late | (~brief & ~launched))
    for tell, found in (
        (_gaps, waits.filter(brief & ~late)),
        (_unrecorded, waits.filter(~brief & launched)),
        (_launches, rest.filter(pl.col("ns") < STALL)),
        (_stalls, rest.filter(pl.col("ns") >= STALL)),
    ):
        if ns := int(found["ns"].sum()):
            told = tell(known, found, ns)
            gain, where = gain_of_gaps(found["ns"].to_numpy()), spans(found.select("start", "end"))
            sure = "sure" if told.sure else "likely"
            yield Cause(told.kind, told.sentence, known.share(ns), tuple(told.evidence), gain, where, told.remedy, sure)


def _gaps(known: Known, found: pl.DataFrame, ns: int) -> _Told:
    usual = duration(quantile(found["ns"].to_numpy(), 0.5))
    return _Told(
        "gap",
        f"The device stands still about {usual} between one kernel and the next: {known.told(ns)} in all.",
        [f"{many(found.height, 'gap')} shorter than {duration(SHORT)}"],
        "Fewer and longer kernels have fewer gaps: fuse small ones.",
    )


def _unrecorded(known: Known, found: pl.DataFrame, ns: int) -> _Told:
    start, end, kernel = found.sort("ns", descending=True).select("start", "end", "kernel").row(0)
    return _Told(
        "unrecorded",
        f"Launched kernels wait for {known.told(ns)} although nothing that was recorded runs.",
        [f"{many(found.height, 'wait')}, the longest {duration(end - start)} before `{short(str(kernel), 48)}`"],
        "Look for events, copies or AI CPU work that the profiler leaves out; record it at a higher level.",
        sure=False,
    )


def _launches(known: Known, found: pl.DataFrame, ns: int) -> _Told:
    work, sure = known.work, _sure(known)
    each = float(np.mean(work.end - work.start))
    told = "The device waits for the host's next launch" if sure else "The device has nothing to run"
    usual, every = quantile(found["ns"].to_numpy(), 0.5), known.scope_ns / max(len(work.lane), 1)
    evidence = [
        f"half of the pauses are longer than {duration(usual)}",
        f"a kernel runs {duration(each)} on average, and one begins every {duration(every)}",
        *([] if sure else [NO_LAUNCHES]),
        *_host_was_in(known, found),
    ]
    return _Told(
        "launch", f"{told} for {known.told(ns)}, in {many(found.height, 'pause')}.", evidence, FASTER_HOST, sure
    )


def _stalls(known: Known, found: pl.DataFrame, ns: int) -> _Told:
    longest, kernel = found.sort("ns", descending=True).select("ns", "kernel").row(0)
    sure = _sure(known)
    before = "the end" if kernel is None else f"`{short(str(kernel), 48)}`"
    return _Told(
        "host",
        f"The device stands still for {known.told(ns)}, in {many(found.height, 'long pause')} "
        f"{'in which the host launches nothing' if sure else 'without any kernel'}.",
        [
            f"the longest takes {duration(longest)}, before {before}",
            *([] if sure else [NO_LAUNCHES]),
            *_host_was_in(known, found),
        ],
        "Let the host run ahead: no waiting for results, data loaded and inputs prepared beforehand.",
        sure,
    )


def _sure(known: Known) -> bool:
    """Whether the capture tells when work was launched."""
    return bool((known.ready.dispatch != NEVER).any())


def _host_was_in(known: Known, found: pl.DataFrame) -> list[str]:
    """What the host did in the longest pauses: the innermost of its calls that spans each."""
    longest = found.sort("ns", descending=True).head(LOOKED_AT)
    least = int(INSIDE * int(longest["ns"].min() or 0))  # type: ignore[arg-type]
    host = known.work.trace.slices.lazy().filter((pl.col("kind") == "host") & (pl.col("dur") >= least))
    calls = host.select("start", (pl.col("start") + pl.col("dur")).alias("end"), "kernel").collect()
    if calls.is_empty():
        return []
    start, end = calls["start"].to_numpy(), calls["end"].to_numpy()
    spent: dict[str, int] = {}
    for begin, stop, ns in longest.select("start", "end", "ns").iter_rows():
        covered = np.minimum(end, stop) - np.maximum(start, begin)
        around = np.flatnonzero((covered >= INSIDE * ns) & (end - start <= AROUND * ns))
        if len(around):
            innermost = around[np.argmin((end - start)[around])]
            name = str(calls["kernel"][int(innermost)])
            spent[name] = spent.get(name, 0) + ns
    looked = int(longest["ns"].sum())
    name = max(spent, key=lambda one: spent[one], default="")
    if spent.get(name, 0) < NAMED_FROM * looked:
        return []
    return [f"in {percent(spent[name] / looked)} of the longest pauses' time the host is in `{short(name, 60)}`"]
