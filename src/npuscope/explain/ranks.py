"""Every rank of a run explained on its own, then all together: mean, worst, spread, and who waits for whom."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from npuscope.base import progress
from npuscope.explain.apart import Part, apart
from npuscope.explain.collective_waits import CollectiveWaits, collective_waits
from npuscope.explain.diagnosis import Diagnosis, diagnose_ranks
from npuscope.explain.explanation import Explanation, explain
from npuscope.table.columns import Column, Columns, Table, Tabular, all_rows
from npuscope.table.formats import COUNT, SHARE, TEXT, TIME, percent
from npuscope.trace.core import Trace

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
    parts: tuple[Part, ...]
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
        return diagnose_ranks(names, [e.diagnosis for e in self.explained], self.waits)

    @property
    def overview(self) -> str:
        """All ranks in a sentence."""
        table = self.table
        bounds = Counter(table["bound"].to_list())
        if len(bounds) == 1:
            told = [f"{table.height} {self.what}, all limited by {_bound(next(iter(bounds)))}"]
        else:
            told = [
                f"{table.height} {self.what}, limited by: "
                + ", ".join(f"{_bound(name)} ({n})" for name, n in bounds.most_common())
            ]
        told.append(f"busy {self._mean_and_worst('running')}")
        if int(table["comm_ns"].sum()):
            told.append(f"exposed communication {self._mean_and_worst('exposed')}")
        return "; ".join(told) + "."

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
        return f"{self.diagnosis.verdict}\n{self.overview}\n{self.waits.title()}"

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
            "ranks": {
                **all_rows(self.tables()),
                "each": [{"rank": part.rank, "device_number": part.device, **e.as_dict()} for part, e in each],
            },
            "waits": self.waits.as_dict(),
        }


def _bound(bound: str) -> str:
    return "something unknown" if bound == "unknown" else bound


def _row(part: Part, e: Explanation, waits: CollectiveWaits) -> dict[str, object]:
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
    parts = apart(trace)
    explained = []
    for number, part in enumerate(parts):
        progress.report("explaining ranks", number, len(parts))
        explained.append(explain(part.trace, kernels, areas, cores))
    waits = collective_waits([(part.name, e.work) for part, e in zip(parts, explained, strict=True)])
    return Ranks(trace, tuple(parts), tuple(explained), waits)
