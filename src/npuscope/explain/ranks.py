"""Every rank of a run explained on its own, then all together: mean, worst, spread, and who waits for whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import polars as pl

from npuscope.base import progress
from npuscope.base.frozen import dataclass
from npuscope.base.interval import Gain
from npuscope.explain.choosing import RankTrace, split_ranks
from npuscope.explain.collectives import collective_waits
from npuscope.explain.diagnosis.cause import (
    WORTH_A_WORD,
    Cause,
    CauseKind,
    Diagnosis,
    Span,
    gain_between,
    quoted,
    ranked,
    spans,
)
from npuscope.explain.diagnosis.on_host import LAUNCH_ORDER, causes_beside
from npuscope.explain.diagnosis.on_streams import LATE_RANK as ASK_FOR_RANKS
from npuscope.explain.explanation import Explanation, explain
from npuscope.explain.meetings import REASONS, CollectiveWaits
from npuscope.explain.signals import signal_waits
from npuscope.explain.work import Work
from npuscope.table.columns import Column, Columns, Table, Tabular, all_rows
from npuscope.table.formats import COUNT, SHARE, TEXT, TIME, duration, percent
from npuscope.trace.clocks import ClockOffset, by_collectives, clock_notes, not_aligned
from npuscope.trace.core import Trace
from npuscope.trace.schema import SIGNAL

LATE_RANK = CauseKind("rank", "ranks wait for one that comes late")
RANKS = Columns(
    "report.ranks.table",
    "A rank, or a device where one capture holds several. Every number is of this rank alone.",
    Column("rank", TEXT, "which"),
    Column("window_ns", TIME, "its window"),
    Column("running", SHARE, "of its window, with any work running"),
    Column("compute_ns", TIME, "when any compute ran"),
    Column("comm_ns", TIME, "when any communication ran", title="communication"),
    Column("exposed_ns", TIME, "communication that no compute of this rank covered", title="exposed"),
    Column("exposed", SHARE, "the same, of its window", title="of window"),
    Column("copies_ns", TIME, "copies that nothing of this rank covered", title="exposed copies", wide=True),
    Column("wait_ns", TIME, "in collectives, for ranks that came later", title="wait"),
    Column("cost_ns", TIME, "what the same collectives took without that", title="collectives"),
    Column("last", COUNT, "collectives in which it came last"),
    Column("bound", TEXT, "the kind of its first cause (docs/reference/json.md)", title="limited by"),
)
SUMMARY = Columns(
    "report.ranks.summary",
    "Mean, worst and spread (largest minus smallest) over ranks, by the columns of `report.ranks.table`.",
    Column("rank", TEXT, "mean, worst or spread", json="what"),
    *RANKS.columns[1:-1],
)
_BEST_IS_MOST = ("running",)  # of everything else the most is worst


@dataclass(frozen=True, repr=False)
class Ranks(Tabular):
    """The ranks in order, each with its explanation."""

    trace: Trace
    parts: tuple[RankTrace, ...]
    explained: tuple[Explanation, ...]

    @cached_property
    def waits(self) -> CollectiveWaits:
        """Who waits for whom in collectives."""
        each = [(part.name, e.work) for part, e in zip(self.parts, self.explained, strict=True)]
        if self.is_simulated and "meeting" in self.trace.slices.columns:
            return signal_waits(each, self.trace.edges.filter(pl.col("source") == SIGNAL))
        return collective_waits(each)

    @cached_property
    def table(self) -> pl.DataFrame:
        rows = [_row(part, e, self.waits) for part, e in zip(self.parts, self.explained, strict=True)]
        return pl.DataFrame(rows, infer_schema_length=None).select(RANKS.keys)

    @property
    def summary(self) -> pl.DataFrame:
        table = self.table.drop("rank", "bound")
        least = [pl.col(c).min() if c in _BEST_IS_MOST else pl.col(c).max() for c in table.columns]
        rows = (("mean", pl.all().mean()), ("worst", least), ("spread", pl.all().max() - pl.all().min()))
        frames = [table.select(how).select(pl.lit(what).alias("rank"), pl.all().cast(pl.Float64)) for what, how in rows]
        return pl.concat(frames)

    def tables(self) -> dict[str, Table]:
        return {"table": Table(RANKS, self.table), "summary": Table(SUMMARY, self.summary)}

    def together(self) -> Table:
        """Ranks, then mean, worst and spread below them."""
        return Table(RANKS, pl.concat([self.table, self.summary], how="diagonal_relaxed"))

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """What all of them suffer from together."""
        return self.among(self.explained[self.shown].diagnosis)

    def among(self, own: Diagnosis, named: bool = True) -> Diagnosis:
        """The diagnosis of the rank that stands for all, with what others do to it; `named`: its causes say whose they
        are. Where ranks are simulated only what it waits for counts: its time is without those that began before."""
        names = [part.name for part in self.parts]
        launched = {f"rank {rank}": runs for rank, runs in self.trace.meta.notes.get("launched_ns", {}).items()}
        works = dict(zip(names, (e.work for e in self.explained), strict=True))
        beside = causes_beside(self.trace, max(e.work.wall for e in self.explained))
        waits = self.waits
        if self.is_simulated:
            waits = replace(waits, table=waits.table.filter(pl.col("rank") == names[self.shown]))
        return diagnose_ranks(names, own, self.shown, waits, bool(self.absent), launched, works, beside, named)

    @cached_property
    def clocks(self) -> tuple[dict[int, ClockOffset], dict[int, str]]:
        """How far each rank's times are to be moved onto the first one's clock, and of those that cannot be why. A
        reader that aligned them already leaves nothing to move, nor does a simulation, which has one clock."""
        meta = self.trace.meta
        ranks = [part.rank for part in self.parts if part.rank is not None]
        if clock_notes(meta) or not_aligned(meta) or len(ranks) < 2 or self.is_simulated:
            return {}, not_aligned(meta)
        met = self.waits.meetings
        if met is None or met.is_empty():
            return {}, dict.fromkeys(ranks[1:], "it shares no collective with the others")
        by_name = {part.name: part.rank for part in self.parts}
        ends = met.select(
            pl.col("rank").replace_strict(by_name, return_dtype=pl.Int64), pl.lit("").alias("run"),
            pl.lit(0, dtype=pl.Int64).alias("older"), pl.col("name").alias("kernel"),
            pl.col("meeting").cast(pl.Int64).alias("task"), pl.col("meeting").cast(pl.Int64).alias("nth"), "start",
            (pl.col("start") + pl.col("dur")).alias("end"),
        )  # fmt: skip
        return by_collectives(ends, ranks)

    @property
    def absent(self) -> list[str]:
        """What is known to be missing: ranks that are not here, files that cannot be read."""
        notes = self.trace.meta.all_notes()
        sizes = [size for note in notes if isinstance(size := note.get("world_size"), int)]
        world, here = max([*sizes, self.waits.ranks_named]), len(self.parts)
        broken = self.trace.meta.notes.get("files_not_read") or {}
        said = []
        if self.what == "ranks" and world > here:
            said.append(f"{here} of {world} ranks are here: one that is not may be the one that all wait for.")
        if broken:
            name, why = next(iter(broken.items()))
            others = f", and {len(broken) - 1} more" if len(broken) > 1 else ""
            said.append(f"{name} cannot be read ({why}){others}: what its rank did is not known.")
        return said

    @property
    def overview(self) -> str:
        """All ranks in a sentence."""
        table = self.table
        bounds = [
            (bound.replace("unknown", "something unknown"), n) for bound, n in Counter(table["bound"]).most_common()
        ]
        each = ", ".join(f"{name} ({n})" for name, n in bounds)
        limits = f", all limited by {bounds[0][0]}" if len(bounds) == 1 else f", limited by: {each}"
        parts = [f"{table.height} {self.what}{limits}", f"busy {self._mean_and_worst('running')}"]
        if int(table["comm_ns"].sum()):
            parts.append(f"exposed communication {self._mean_and_worst('exposed')}")
        return "; ".join(parts) + "."

    @property
    def what(self) -> str:
        """What the parts are."""
        return "devices" if self.parts[0].device is not None else "ranks"

    def _mean_and_worst(self, column: str) -> str:
        table = self.table.sort(column, descending=column not in _BEST_IS_MOST, maintain_order=True)
        mean, worst = float(table[column].to_numpy().mean()), float(table[column][0])
        return f"{percent(mean)} of the window in the mean, worst {percent(worst)} ({table['rank'][0]})"

    @property
    def shown(self) -> int:
        """The place of the part that stands for all where one has to: that with the longest window; of a simulation the
        rank that is launched last, as `simulate` shows it, which is the same one for every variant of a program."""
        walls = [e.work.wall for e in self.explained]
        return len(walls) - 1 if self.is_simulated else walls.index(max(walls))

    @property
    def is_simulated(self) -> bool:
        return self.trace.meta.clock == "simulated"

    def named(self, name: str) -> str:
        """A name that says which part stands for all where one has to."""
        if len(self.parts) == 1:
            return name
        return f"{name} ({self.told})"

    @property
    def told(self) -> str:
        """Which part stands for all where one has to."""
        which = "launched last" if self.is_simulated else "the slowest"
        return f"{self.parts[self.shown].name}, {which} of {len(self.parts)}"

    def title(self) -> str:
        return "\n".join([*self.absent, str(self.diagnosis.verdict), self.overview, self.waits.title()])

    def as_dict(self) -> dict[str, object]:
        """The contract of `npuscope report --json` for several ranks (docs/reference/json.md)."""
        each = zip(self.parts, self.explained, strict=True)
        meta = self.trace.meta
        return {
            "format": meta.format,
            "files": list(meta.files),
            "device": meta.device,
            **self.diagnosis.as_dict(),
            "overview": self.overview,
            "absent": self.absent,
            "ranks": {
                **all_rows(self.tables()),
                "each": [{"rank": part.rank, "device_number": part.device, **e.as_dict()} for part, e in each],
            },
            "waits": self.waits.as_dict(),
        }


def _row(part: RankTrace, e: Explanation, waits: CollectiveWaits) -> dict[str, object]:
    comm, copies, wall = e.communication, e.copies, e.work.wall
    return {
        "rank": part.name,
        "window_ns": wall,
        "running": e.busy.running,
        "compute_ns": e.compute_ns,
        "comm_ns": 0 if comm is None else comm.on_core_ns,
        "exposed_ns": 0 if comm is None else comm.exposed_ns,
        "exposed": 0.0 if comm is None or not wall else comm.exposed_ns / wall,
        "copies_ns": 0 if copies is None else copies.exposed_ns,
        "wait_ns": waits.wait_ns[part.name],
        "cost_ns": waits.cost_ns[part.name],
        "last": waits.last[part.name],
        "bound": e.diagnosis.bound,
    }


def explain_ranks(
    trace: Trace,
    kernels: str | None = None,
    areas: str | Path | None = None,
    cores: int | None = None,
    drawn: bool = True,
) -> Ranks:
    """Every rank of a trace, or every device, explained on its own; options as those of `explain`.

    Not `drawn`: of one rank alone the slices' arguments, which take a third of a trace, are let go; between several
    they tell who takes part in which collective.
    """
    parts = split_ranks(trace)
    if not drawn and len(parts) == 1:
        trace = replace(trace, slices=trace.slices.drop("args", "other", strict=False))
        parts = [parts[0]._replace(trace=trace)]
    explained = []
    for number, part in enumerate(parts):
        progress.report("explaining ranks", number, len(parts))
        explained.append(explain(part.trace, kernels, areas, cores))
    return Ranks(trace, tuple(parts), tuple(explained))


def diagnose_ranks(
    names: Sequence[str],
    one: Diagnosis,
    shown: int,
    waits: CollectiveWaits,
    some_absent: bool = False,
    launched: Mapping[str, Mapping[int, int]] | None = None,
    works: Mapping[str, Work] | None = None,
    beside: Sequence[Cause] = (),
    named: bool = True,
) -> Diagnosis:
    """The causes of the rank that stands for all, `one`, and above them, where it is worth more, the rank that is late.

    `launched`: when the host launched each rank in each run, where its log says; `works`: what each rank did;
    `beside`: what the host takes around the run.
    """
    if len(names) == 1:
        return one
    given = "The ranks that were given do not show it: " + (
        "it is one that is not here." if some_absent else "look at the host's side of this rank."
    )
    causes = [
        replace(
            cause,
            sentence=f"{names[shown]}: {cause.sentence}" if named else cause.sentence,
            remedy=given if cause.remedy == ASK_FOR_RANKS else cause.remedy,
        )
        for cause in one.causes
    ]
    late = _late(one, waits, some_absent)
    if late is None:
        return replace(one, causes=tuple(ranked([*causes, *beside], one.wall_ns) if beside else causes))
    straggler, wait, name = late
    by_host = _launched_late(straggler, wait, waits, launched or {})
    straggler = by_host or _followed_back(straggler, name, waits, works or {})
    waited = min(waits.wait_ns[names[shown]], one.wall_ns)
    causes = [_beside_waits(cause, waited, wait, one.wall_ns) for cause in causes]
    return replace(one, causes=tuple(ranked([straggler, *causes, *beside], one.wall_ns)))


def _beside_waits(cause: Cause, waited: int, wait: int, wall: int) -> Cause:
    """A cause of a rank that waits for others: what waiting takes counts there, and nothing else can mend it."""
    if cause.kind == "communication" and waited >= wait:
        return cause.without(wait, wall, "for the late rank")
    if cause.gain is None or cause.gain.high_ns <= wall - waited:
        return cause
    gain = cause.gain
    return replace(cause, gain=Gain.around(*(min(ns, wall - waited) for ns in (gain.ns, gain.low_ns, gain.high_ns))))


def _late(slowest: Diagnosis, waits: CollectiveWaits, some_absent: bool) -> tuple[Cause, int, str] | None:
    """The rank that makes others wait longest, how long the one waits that waits most for it, and its name."""
    if waits.table.is_empty():
        return None
    caused = waits.table.group_by("waits_for").agg(
        pl.col("wait_ns").sum(), most=pl.col("wait_ns").max(), least=pl.col("wait_ns").min()
    )
    name, total, most, least = caused.sort("wait_ns", "waits_for", descending=[True, False]).row(0)
    share = most / slowest.wall_ns if slowest.wall_ns else 0.0
    if share < WORTH_A_WORD:
        return None
    here = "Of the ranks that are here, " if some_absent else ""
    cause = Cause(
        LATE_RANK.kind,
        f"{here}{name} comes late to {waits.last[name]:,} of {waits.matched:,} collectives, and another rank waits "
        f"{duration(most)} for it ({percent(share)} of the time).",
        min(share, 1.0),
        (f"all others together wait {duration(total)} for it",),
        gain_between(least, most),
        _waits_of(waits, str(name)),
        remedy=f"Look at what {name} does longer than the others before its collectives: `npuscope report --rank`.",
        confidence="likely" if some_absent or not waits.grouped else "sure",
    )
    return cause, int(most), str(name)


def _waits_of(waits: CollectiveWaits, late: str) -> tuple[Span, ...]:
    """The longest waits for a rank."""
    if waits.meetings is None:
        return ()
    rows = waits.meetings.filter((pl.col("waits_for") == late) & (pl.col("rank") != late))
    return spans(rows.select("start", (pl.col("start") + pl.col("wait_ns")).alias("end"), "lane"))


def _followed_back(late: Cause, name: str, waits: CollectiveWaits, works: Mapping[str, Work]) -> Cause:
    """The late rank's cause with what made it late: its own compute, idle time before its tasks, or a later begin."""
    pair = waits.table.filter(pl.col("waits_for") == name).row(0, named=True)
    rank, wait = pair["rank"], pair["wait_ns"]
    parts = {reason: int(pair[reason]) for reason in REASONS}
    most = max(parts, key=lambda one: parts[one])
    recorded = name in works and "meeting" in works[name].trace.slices.columns
    if 2 * parts[most] < wait or (most == "began_ns" and not recorded):  # a profiler may begin anywhere
        return late
    words = {
        "began_ns": f"it began {duration(parts['began_ns'])} later",
        "compute_ns": f"it computes {duration(parts['compute_ns'])} longer before them",
        "idle_ns": f"it stands idle {duration(parts['idle_ns'])} longer before them",
    }
    remedies = {
        "began_ns": f"Find what delays the launch of {name}: keep the host's logs beside the ranks.",
        "compute_ns": f"Give {name} less work, or make it even over the ranks.",
        "idle_ns": f"Look at what {name}'s cores wait for: its scheduler, its host, or data: `npuscope report --rank`.",
    }
    why = words[most]
    if most == "compute_ns" and (kernel := _longer_kernel(works.get(name), works.get(rank))):
        why += f", most of it in {kernel}"
    return replace(late, sentence=f"{late.sentence.removesuffix('.')}: {why}.", remedy=remedies[most])


def _longer_kernel(late: Work | None, other: Work | None) -> str:
    """The kernel that takes the late rank most more than the other one."""
    if late is None or other is None:
        return ""
    spent = []
    for work in (late, other):
        rows = work.slices.filter(pl.col("kind") != "comm").group_by("kernel").agg(pl.col("dur").sum())
        spent.append(rows)
    both = spent[0].join(spent[1], on="kernel", how="left", suffix="_other")
    more = both.with_columns(more=pl.col("dur") - pl.col("dur_other").fill_null(0))
    more = more.sort("more", "kernel", descending=[True, False])
    return quoted(more["kernel"][0]) if more.height and int(more["more"][0]) > 0 else ""


def _launched_late(
    late: Cause, wait: int, waits: CollectiveWaits, launched: Mapping[str, Mapping[int, int]]
) -> Cause | None:
    """The host as the cause of a late rank: it launched that rank's runs later, by at least half of the wait."""
    rank, waits_for = waits.table.sort("wait_ns", descending=True).select("rank", "waits_for").row(0)
    if rank not in launched or waits_for not in launched or waits.meetings is None:
        return None
    pair = waits.meetings.filter((pl.col("rank") == rank) & (pl.col("waits_for") == waits_for))
    runs = set(pair["in_step"].drop_nulls().to_list()) & set(launched[rank]) & set(launched[waits_for])
    lags = [launched[waits_for][run] - launched[rank][run] for run in runs]
    if not lags or 2 * sum(lags) < wait:
        return None
    lag = sum(lags) / len(lags)
    mean = f" in the mean of {len(lags)} runs" if len(lags) > 1 else ""
    return replace(
        late,
        kind=LAUNCH_ORDER.kind,
        sentence=f"The host launched {waits_for} {duration(lag)} after {rank}{mean}, which waits {duration(wait)} for "
        f"it in collectives ({percent(late.share)} of the time).",
        gain=gain_between(min(wait, sum(lags)) / 2, wait),
        remedy="Launch the ranks at once: from a thread each, or with every command handed over before one starts.",
    )
