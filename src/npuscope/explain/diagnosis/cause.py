"""A cause: one reason why a run took as long as it did. The same objects for measured and for simulated runs.

`CAUSES` has every kind of cause, declared where it is recognised: adding one is one file of this folder, in which a
`CauseKind` says what it is and `found_in` how captures of some kind show it (docs/howto/extend.md). Whoever shows a
diagnosis shows these objects: nothing else decides what bounds a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from npuscope.base.frozen import dataclass
from npuscope.base.interval import Gain
from npuscope.explain.hidden_exposed import Communication, Copies
from npuscope.explain.ledger import Scheduling
from npuscope.explain.path import CriticalPath
from npuscope.explain.repetition import Steps
from npuscope.explain.waits import Readiness
from npuscope.explain.work import NONE, Work
from npuscope.table.formats import duration, percent, short
from npuscope.trace.intervals import Intervals, Ints, inside, one_group, union

MOST_SPANS = 200  # of a cause, the longest
WORTH_A_WORD = 0.01  # of the wall: smaller causes are left out
TUNABLE = 0.25  # of the time of kernels: they get faster, they do not vanish
MAIN = 3  # kernels that a cause is mostly about
FEWER, MORE = "fewer and longer tasks", "more and shorter blocks"  # what a remedy asks for
ANY, CHAIN, CORES, STREAMS, THREADS = "any", "chain", "cores", "streams", "threads"  # kinds of captures


class Span(NamedTuple):
    """A stretch of the timeline that shows a cause, in nanoseconds; `lane` is None where it is of all lanes."""

    start: int
    end: int
    lane: int | None = None


@dataclass(frozen=True)
class Together:
    """What mending all at once is worth that was priced alone, of so many findings of `check`."""

    findings: int
    gain: Gain


@dataclass(frozen=True)
class Cause:
    """`kind` is one of CAUSES; `share` of the wall that it accounts for; `confidence` is sure, likely or a guess.

    `rows` are those of the ledger whose time on the critical path it is, or shares with other causes of the same rows;
    `kernels` those it is mostly about, the first most."""

    kind: str
    sentence: str
    share: float
    evidence: tuple[str, ...] = ()
    gain: Gain | None = None
    where: tuple[Span, ...] = ()
    remedy: str = ""
    confidence: str = "sure"
    rows: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    wants: str = ""  # FEWER or MORE, where another cause may ask for the opposite

    def __str__(self) -> str:
        return self.sentence

    def worth_ns(self, wall: int) -> float:
        """By which causes are ranked: the likely gain, or of what cannot be taken away TUNABLE of its time."""
        if self.gain is not None:
            return self.gain.ns
        return self.share * wall * (0.0 if CAUSES[self.kind].beside else TUNABLE if CAUSES[self.kind].tunable else 1.0)

    def without(self, ns: int, wall: int, where: str) -> Cause:
        """The cause less time that counts elsewhere."""
        taken = min(ns, round(self.share * wall))
        left = self.share * wall - taken
        sentence = f"{self.sentence.removesuffix('.')}; {duration(taken)} of it counts {where}."
        gain = self.gain
        if gain is not None:
            gain = Gain.around(*(min(part, left) for part in (gain.ns, gain.low_ns, gain.high_ns)))
        return replace(self, sentence=sentence, share=left / wall if wall else 0.0, gain=gain)


def ranked(causes: Iterable[Cause], wall: int) -> list[Cause]:
    """Those worth most first, those not worth a word left out. A remedy is said once, and one that asks for the
    opposite of an earlier one says so: only one of both can be had."""
    held = (replace(one, gain=one.gain and one.gain.within(wall)) for one in causes)
    by_worth = sorted(held, key=lambda cause: (-cause.worth_ns(wall), -cause.share))
    listed: list[Cause] = []
    for cause in [one for one in by_worth if one.share >= WORTH_A_WORD] or by_worth[:1]:
        against = [n for n, one in enumerate(listed, 1) if {one.wants, cause.wants} == {FEWER, MORE}]
        if against:
            other = listed[against[0] - 1].wants
            told_so = f"This asks for {cause.wants}, cause {against[0]} for {other}: only one of both can be mended."
            cause = replace(cause, remedy=told_so)
        elif any(one.remedy == cause.remedy for one in listed):
            cause = replace(cause, remedy="")
        listed.append(cause)
    return listed


@dataclass(frozen=True)
class Diagnosis:
    """The causes of one run, the weightiest first, over one window with one wall time."""

    causes: tuple[Cause, ...]
    wall_ns: int
    window: tuple[int, int]
    together: Together | None = None

    @property
    def verdict(self) -> Cause:
        return self.causes[0]

    @property
    def bound(self) -> str:
        """The kind of the first cause."""
        return self.verdict.kind

    def as_dict(self) -> dict[str, object]:
        """The part of every JSON output that diagnoses (docs/reference/json.md)."""
        return {
            "verdict": self.verdict.sentence,
            "bound": self.bound,
            "wall_ns": self.wall_ns,
            "window": list(self.window),
            "causes": [asdict(cause) | {"where": [list(span) for span in cause.where]} for cause in self.causes],
            "together": None if self.together is None else asdict(self.together),
        }

    def moved(self, ns: int, lanes: int) -> Diagnosis:
        """The same by a clock that is so much ahead, in a trace that has so many lanes before its own."""

        def moved(one: Span) -> Span:
            return Span(one.start + ns, one.end + ns, None if one.lane is None else one.lane + lanes)

        causes = tuple(replace(cause, where=tuple(map(moved, cause.where))) for cause in self.causes)
        return replace(self, causes=causes, window=(self.window[0] + ns, self.window[1] + ns))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Diagnosis:
        """What `as_dict` made."""
        causes = tuple(
            Cause(**{**one, "gain": one["gain"] and Gain(**one["gain"]), "where": tuple(map(Span._make, one["where"])),
                     **{name: tuple(one[name]) for name in ("evidence", "rows", "kernels")}})
            for one in data["causes"]
        )  # fmt: skip
        both = data["together"]
        together = both and Together(both["findings"], Gain(**both["gain"]))
        return cls(causes, data["wall_ns"], (data["window"][0], data["window"][1]), together)


@dataclass(frozen=True)
class RunFacts:
    """What is known of one run when its causes are looked for."""

    work: Work
    ready: Readiness
    scheduling: Scheduling
    path: CriticalPath
    steps: Steps
    communication: Communication | None
    copies: Copies | None
    scope: tuple[int, int]  # the window without what lies outside the run
    replays: bool = True  # whether gains come from replaying it: a simulation knows better

    @property
    def wall(self) -> int:
        """Nanoseconds of the window, without pauses between runs, which belong to none."""
        return self.work.wall - self.ready.apart.length

    @property
    def scope_ns(self) -> int:
        apart = inside(one_group(*(np.array([moment]) for moment in self.scope)), self.ready.apart)
        return self.scope[1] - self.scope[0] - int((apart.end - apart.start).sum())

    @cached_property
    def capture(self) -> str:
        """Which kind of capture it is, which decides what can be recognised."""
        if self.path.kind == "chain":
            return CHAIN
        if self.work.on_cores:
            return CORES
        return STREAMS if np.isin(self.work.units, ("stream", "link")).any() else THREADS

    def share(self, ns: float) -> float:
        """Of the wall."""
        return ns / self.wall if self.wall else 0.0

    def in_words(self, ns: float) -> str:
        """A time and its share of the stretch that counts."""
        return f"{duration(ns)} ({percent(ns / max(self.scope_ns, 1))} of the time)"

    @cached_property
    def segments(self) -> pl.DataFrame:
        """The path within the scope, with the kind of the slice that each segment runs or comes before."""
        segments = self.path.coded
        row = segments["row"]
        kind = self.work.slices["kind"].gather(row.set(row == NONE, None))
        there = segments.with_columns(kind.alias("kind"), ns=pl.col("end") - pl.col("start"))
        first, last = self.scope
        if first <= self.work.window[0] and last >= self.work.window[1]:
            return there
        return there.filter((pl.col("end") > first) & (pl.col("start") < last))

    def running(self, kind: str) -> pl.DataFrame:
        """Where a kind of work runs on the path."""
        there = self.segments.lazy().filter((pl.col("part") == "run") & (pl.col("kind") == kind))
        return there.select("start", "end", "lane", "kernel", "ns").collect()

    @cached_property
    def ran(self) -> Intervals:
        """When anything ran."""
        return union(one_group(self.work.start, self.work.end))


Finder = Callable[[RunFacts], Iterator[Cause]]
Refine = Callable[[Cause], Cause]  # by who knows more of it than the trace
CAUSES: dict[str, CauseKind] = {}
FINDERS: list[tuple[tuple[str, ...], Finder]] = []


@dataclass(frozen=True)
class CauseKind:
    """A kind of cause: its word in tables and JSON, what it means, and how it counts beside others."""

    kind: str
    meaning: str
    tunable: bool = False  # work that can only get faster
    beside: bool = False  # what the capture lacks, or what is no part of the run: comes last
    of_work: str = ""  # an odd step that is long by this (comm, copy, task, idle) lost its time to this cause

    def __post_init__(self) -> None:
        CAUSES[self.kind] = self

    def __call__(
        self,
        run: RunFacts,
        ns: float,
        sentence: str,
        *evidence: str,
        remedy: str = "",
        gain: Gain | None = None,
        where: tuple[Span, ...] = (),
        confidence: str = "sure",
        rows: Iterable[str] = (),
        kernels: Iterable[str] = (),
        wants: str = "",
    ) -> Cause:
        """The cause in a run, which took so many nanoseconds of it."""
        about = (tuple(rows), tuple(kernels), wants)
        return Cause(self.kind, sentence, run.share(ns), evidence, gain, where, remedy, confidence, *about)


def found_in(*captures: str) -> Callable[[Finder], Finder]:
    """Marks a function that recognises causes in captures of some kinds, in the order in which they are looked for."""

    def add(finder: Finder) -> Finder:
        FINDERS.append((captures, finder))
        return finder

    return add


def gain_between(low: float, high: float) -> Gain:
    """A gain of which only bounds are known: the middle stands for it."""
    return Gain.around((low + high) / 2, low, high)


def gain_of_gaps(gaps: Ints, lanes: int = 1) -> Gain:
    """What shorter gaps are worth: at least if long ones were as short as the usual one, at most if there were none.
    Gaps of several lanes count as their mean."""
    if len(gaps) == 0:
        return Gain(0, 0, 0)
    return gain_between(*(float(np.maximum(gaps - floor, 0).sum()) / lanes for floor in (np.median(gaps), 0)))


def gain_of_kernels(ns: float) -> Gain:
    """What faster kernels are worth that take so long: at most twice as fast."""
    return Gain.around(TUNABLE * ns, 0, ns / 2)


def tuned_text(kernels: Iterable[str]) -> str:
    """What such a gain stands for."""
    first, *others = map(quoted, kernels)
    names = f"{', '.join([first, *others[:-1]])} and {others[-1]}" if others else first
    return f"what it is worth: {names} {percent(TUNABLE)} faster; at most: twice as fast"


def spans(table: pl.DataFrame) -> tuple[Span, ...]:
    """The longest rows of a table of start, end and lane, in the order of time."""
    longest = table[_longest((table["end"] - table["start"]).to_numpy(), MOST_SPANS)]
    lane = pl.col("lane") if "lane" in table.columns else pl.lit(None)
    rows = longest.sort("start").select("start", "end", lane)
    return tuple(Span(int(start), int(end), lane) for start, end, lane in rows.iter_rows())


def _longest(lengths: Ints, most: int) -> Ints:
    """The places of the longest, of equal ones the first, as a whole sort would give them."""
    if len(lengths) > most:
        candidates = np.flatnonzero(lengths >= np.partition(lengths, len(lengths) - most)[len(lengths) - most])
    else:
        candidates = np.arange(len(lengths))
    order: Ints = candidates[np.argsort(-lengths[candidates], kind="stable")][:most]
    return order


def spans_of(run: RunFacts, pieces: Intervals) -> tuple[Span, ...]:
    """The longest of some intervals of lanes."""
    lane = run.work.lanes["lane"].gather(pieces.group)
    return spans(pl.DataFrame({"start": pieces.start, "end": pieces.end, "lane": lane}))


def quoted(kernel: object) -> str:
    """A kernel's name in a sentence."""
    return f"`{short(str(kernel), 48)}`"


def top_kernel(run: pl.DataFrame) -> tuple[str, int]:
    """The kernel that runs longest in segments of the path, and for how long."""
    if run.is_empty():
        return "", 0
    name, ns = next(by_kernel(run).iter_rows())
    return quoted(name), int(ns)


def by_kernel(segments: pl.DataFrame) -> pl.DataFrame:
    """The time of each kernel in segments of the path, the longest first."""
    spent = segments.lazy().group_by("kernel").agg(pl.col("ns").sum()).with_columns(pl.col("kernel").cast(pl.String))
    return spent.sort("ns", "kernel", descending=[True, False]).collect()
