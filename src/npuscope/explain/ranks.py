"""Every rank of a run explained on its own, then all together: mean, worst, spread, and who waits for whom."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import polars as pl

from npuscope.base import progress
from npuscope.explain.choosing import RankTrace, split_ranks
from npuscope.explain.diagnosis.cause import WORTH_A_WORD, Cause, CauseKind, Diagnosis, gain_between, ranked
from npuscope.explain.diagnosis.on_streams import LATE_RANK as ASK_FOR_RANKS
from npuscope.explain.explanation import Explanation, explain
from npuscope.explain.work import Work
from npuscope.table.columns import Column, Columns, Table, Tabular, all_rows
from npuscope.table.formats import COUNT, SHARE, TEXT, TIME, duration, percent
from npuscope.trace.core import Trace
from npuscope.trace.source import json_field

LATE_RANK = CauseKind("rank", "ranks wait for one that comes late")
LAUNCH_ORDER = CauseKind("launch-order", "the host launches ranks one after the other")
RANKS = Columns(
    "report.ranks.table",
    "A rank, or a device where one capture holds several. Every number is of this rank alone.",
    (
        Column("rank", TEXT, "which"),
        Column("window_ns", TIME, "its window"),
        Column("running", SHARE, "of its window, with any work running"),
        Column("compute_ns", TIME, "when any compute ran"),
        Column("comm_ns", TIME, "when any communication ran", title="communication"),
        Column("exposed_ns", TIME, "communication that no compute of this rank covered", title="exposed"),
        Column("exposed", SHARE, "the same, of its window", title="of window"),
        Column("copies_ns", TIME, "copies that nothing of this rank covered", title="exposed copies", wide=True),
        Column("wait_ns", TIME, "in collectives, for ranks that came later", title="wait"),
        Column("last", COUNT, "collectives in which it came last"),
        Column("bound", TEXT, "the kind of its first cause (docs/reference/json.md)", title="limited by"),
    ),
)
SUMMARY = Columns(
    "report.ranks.summary",
    "Mean, worst and spread (largest minus smallest) over ranks, by the columns of `report.ranks.table`.",
    (Column("rank", TEXT, "mean, worst or spread", json="what"), *RANKS.columns[1:-1]),
)
_BEST_IS_MOST = ("running",)  # of everything else the most is worst


@dataclass(frozen=True, repr=False)
class Ranks(Tabular):
    """The ranks in order, each with its explanation."""

    trace: Trace
    parts: tuple[RankTrace, ...]
    explained: tuple[Explanation, ...]
    waits: CollectiveWaits

    @property
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
        names = [part.name for part in self.parts]
        launched = {f"rank {rank}": ns for rank, ns in self.trace.meta.notes.get("launched_ns", {}).items()}
        each = [e.diagnosis for e in self.explained]
        return diagnose_ranks(names, each, self.waits, bool(self.absent), launched)

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
    def slowest(self) -> int:
        """The place of the part with the longest window."""
        walls = [e.work.wall for e in self.explained]
        return walls.index(max(walls))

    def named(self, name: str) -> str:
        """A name that says which part stands for all where one has to."""
        if len(self.parts) == 1:
            return name
        return f"{name} ({self.parts[self.slowest].name}, the slowest of {len(self.parts)})"

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
        "last": waits.last[part.name],
        "bound": e.diagnosis.bound,
    }


def explain_ranks(
    trace: Trace, kernels: str | None = None, areas: str | Path | None = None, cores: int | None = None
) -> Ranks:
    """Every rank of a trace, or every device, explained on its own; options as those of `explain`."""
    parts = split_ranks(trace)
    explained = []
    for number, part in enumerate(parts):
        progress.report("explaining ranks", number, len(parts))
        explained.append(explain(part.trace, kernels, areas, cores))
    waits = collective_waits([(part.name, e.work) for part, e in zip(parts, explained, strict=True)])
    return Ranks(trace, tuple(parts), tuple(explained), waits)


WAITS = Columns(
    "report.waits.table",
    "A rank that waits in collectives for another, which came last; the longest wait first.",
    (
        Column("rank", TEXT, "that waits"),
        Column("waits_for", TEXT, "that came last", title="waits for"),
        Column("wait_ns", TIME, "in all these collectives", title="wait"),
        Column("collectives", COUNT, "in which it waits for that rank"),
    ),
)
_ONE = ("step", "name", "group")  # what collectives of ranks must share to be the same
# Ascend numbers a collective within its group: hcom_allReduce__868_0_1
_HCOM = r"(?i)^(hcom_?[a-z_]*?[a-z])_+(\d+)_\d+_\d+$"
_POINT_TO_POINT = "(?i)^(i?send|i?recv|coalesced)"


@dataclass(frozen=True, repr=False)
class CollectiveWaits(Tabular):
    """Waits between ranks; `wait_ns` and `last` by rank, over the collectives that several ranks have."""

    table: pl.DataFrame
    wait_ns: dict[str, int]
    last: dict[str, int]  # in how many collectives a rank came last
    matched: int
    left_out: int  # collectives that only one rank has, or ranks have unequally often; sends and receives
    grouped: bool  # whether the captures say which ranks take part
    ranks_named: int = 0  # ranks that the groups list

    in_json = ("matched", "left_out", "grouped", "wait_ns", "last")

    def tables(self) -> dict[str, Table]:
        return {"table": Table(WAITS, self.table)}

    def title(self) -> str:
        if not self.matched:
            return "no collective that several ranks have: who waits for whom is not recorded"
        if self.table.is_empty() or not int(self.table["wait_ns"].sum()):
            return f"no rank waits for another in {self.matched:,} collectives"
        slow = max(self.last, key=lambda rank: sum(self.table.filter(pl.col("waits_for") == rank)["wait_ns"]))
        caused = int(self.table.filter(pl.col("waits_for") == slow)["wait_ns"].sum())
        waits = f"{slow} makes the others wait {duration(caused)} in all"
        left_out = f"; {self.left_out:,} that ranks have unequally often are left out" if self.left_out else ""
        unsure = "" if self.grouped else "; who takes part in which is not recorded, so they are matched by their order"
        return f"{waits}: it comes last in {self.last[slow]:,} of {self.matched:,} collectives{left_out}{unsure}"


def collective_waits(ranks: Sequence[tuple[str, Work]]) -> CollectiveWaits:
    """The waits between ranks, each with its name and its work."""
    everything = pl.concat([_collectives(name, work) for name, work in ranks])
    rows = everything.filter(~pl.col("paired"))
    counts = rows.group_by(*_ONE, "rank").agg(pl.len(), counted=pl.col("counted").all())
    often = (pl.col("len").n_unique() == 1) | pl.col("counted").all()
    alike = counts.group_by(_ONE).agg(alike=often & (pl.len() > 1)).filter("alike")
    met = rows.join(alike.drop("alike"), on=_ONE, how="semi", nulls_equal=True)
    meeting = (*_ONE, "nth")
    met = met.filter(pl.len().over(meeting) > 1)
    met = met.sort("dur", "order").with_columns(
        least=pl.col("dur").first().over(meeting), waits_for=pl.col("rank").first().over(meeting)
    )
    met = met.with_columns(wait_ns=pl.col("dur") - pl.col("least"))
    others = met.filter(pl.col("rank") != pl.col("waits_for"))
    table = others.group_by("rank", "waits_for").agg(pl.col("wait_ns").sum(), collectives=pl.len())
    waited = dict(met.group_by("rank").agg(pl.col("wait_ns").sum()).iter_rows())
    last = dict(met.filter(pl.col("rank") == pl.col("waits_for"))["rank"].value_counts().iter_rows())
    names = [name for name, _ in ranks]
    return CollectiveWaits(
        table.sort("wait_ns", "rank", "waits_for", descending=[True, False, False]),
        {name: int(waited.get(name, 0)) for name in names},
        {name: int(last.get(name, 0)) for name in names},
        met.select(meeting).n_unique() if met.height else 0,
        everything.height - met.height,
        bool(met["group"].is_not_null().all()),
        max(
            (len(set(re.findall(r"\d+", group))) for group in rows["group"].drop_nulls().unique() if "[" in group),
            default=0,
        ),
    )


def _collectives(rank: str, work: Work) -> pl.DataFrame:
    """The collectives of a rank: step, name, the group of ranks where it is recorded, which of its kind, how long;
    `counted` where the capture numbers them itself, `paired` for sends and receives, which ranks see differently."""
    columns = [name for name in ("args", "groupName") if name in work.trace.slices.columns]
    slices = work.with_columns(*columns).with_columns(raw=work.trace.slices["kernel"].gather(work.rows))
    comm = slices.filter(pl.col("kind") == "comm").sort("start", maintain_order=True)

    def told(name: str) -> pl.Expr:
        known = "args" in columns
        return pl.lit(json_field(comm["args"], name) if known else pl.Series([None] * comm.height, dtype=pl.String))

    named = [pl.col("groupName").cast(pl.String)] if "groupName" in columns else []
    group = pl.coalesce(
        told("Process Group Ranks"), told("Process Group Name"), *named, pl.col("raw").str.extract(_HCOM, 2)
    )
    sequence = told("Seq").cast(pl.Int64, strict=False)
    found = comm.select(
        pl.lit(rank).alias("rank"),
        pl.when(sequence.is_null()).then("step").alias("step"),
        pl.coalesce(pl.col("raw").str.extract(_HCOM, 1), "raw").alias("name"),
        group.alias("group"),
        "dur",
        pl.int_range(pl.len()).alias("order"),
        sequence.is_not_null().alias("counted"),
        told("Collective name").str.contains(_POINT_TO_POINT).fill_null(False).alias("paired"),
        sequence.alias("sequence"),
    )
    return found.with_columns(nth=pl.coalesce("sequence", pl.int_range(pl.len()).over(_ONE))).drop("sequence")


def diagnose_ranks(
    names: Sequence[str],
    each: Sequence[Diagnosis],
    waits: CollectiveWaits,
    some_absent: bool = False,
    launched: Mapping[str, int] | None = None,
) -> Diagnosis:
    """The causes of the rank with the longest window, and above them, where it is worth more, the rank that is late.

    `launched`: when the host launched each rank, where its log says.
    """
    slowest = max(range(len(each)), key=lambda number: each[number].wall_ns)
    one = each[slowest]
    if len(each) == 1:
        return one
    given = "The ranks that were given do not show it: " + (
        "it is one that is not here." if some_absent else "look at the host's side of this rank."
    )
    causes = [
        replace(
            cause,
            sentence=f"{names[slowest]}: {cause.sentence}",
            remedy=given if cause.remedy == ASK_FOR_RANKS else cause.remedy,
        )
        for cause in one.causes
    ]
    late = _late(one, waits, some_absent)
    if late is None:
        return replace(one, causes=tuple(causes))
    straggler, wait = late
    straggler = _launched_late(straggler, wait, waits, launched or {}) or straggler
    causes = [cause.without(wait, one.wall_ns, "for the late rank") if cause.kind == "communication" else cause
              for cause in causes] if (waits.wait_ns[names[slowest]] >= wait) else causes  # fmt: skip
    return replace(one, causes=tuple(ranked([straggler, *causes], one.wall_ns)))


def _late(slowest: Diagnosis, waits: CollectiveWaits, some_absent: bool) -> tuple[Cause, int] | None:
    """The rank that makes others wait longest, and how long the one waits that waits most for it."""
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
        remedy=f"Look at what {name} does longer than the others before its collectives: `npuscope report --rank`.",
        confidence="likely" if some_absent or not waits.grouped else "sure",
    )
    return cause, int(most)


def _launched_late(late: Cause, wait: int, waits: CollectiveWaits, launched: Mapping[str, int]) -> Cause | None:
    """The host as the cause of a late rank: it launched that rank later, by at least half of the wait."""
    rank, waits_for = waits.table.sort("wait_ns", descending=True).select("rank", "waits_for").row(0)
    if rank not in launched or waits_for not in launched:
        return None
    lag = launched[waits_for] - launched[rank]
    if 2 * lag < wait:
        return None
    return replace(
        late,
        kind=LAUNCH_ORDER.kind,
        sentence=f"The host launched {waits_for} {duration(lag)} after {rank}, which waits {duration(wait)} for it in "
        f"collectives ({percent(late.share)} of the time).",
        gain=gain_between(min(wait, lag) / 2, wait),
        remedy="Launch the ranks at once: from a thread each, or with every command handed over before one starts.",
    )
