"""Ranks of one model wait for each other in collectives: who waits for whom, and how long.

In the nth collective of a pass the rank that came last waits least. What a rank spends above the shortest of all is
its wait; the rank others wait for is the slow one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.explain.passes.columns import PASSES, SKEW
from npuscope.explain.passes.statistics import Statistics
from npuscope.table.columns import Table, Tabular, all_rows

MOST_SHIFTS = 2000  # passes that captures of ranks may begin apart


@dataclass(frozen=True)
class RankPasses:
    """One rank's passes without its trace; `collectives` holds the durations of each pass's collectives in order."""

    rank: int | None
    device: int | None  # where one capture holds several
    path: str
    about: Mapping[str, object]  # rule, anchor and what else is told of all passes together
    every: pl.DataFrame  # all passes, as PASSES tells
    collectives: tuple[NDArray[np.int64], ...]
    shown: tuple[int, ...]  # numbers of the passes to show
    statistics: Statistics | None = None
    written: tuple[str, ...] = ()

    @property
    def passes(self) -> Table:
        """The passes to show."""
        return Table(PASSES, self.every[list(self.shown)])


@dataclass(frozen=True, repr=False)
class Skew(Tabular):
    """A row per rank: device, compute and collective time per pass, its wait for others, how often it was last."""

    table: pl.DataFrame
    passes: int  # that every rank has
    left_out: int  # of them, passes whose collectives differ in number

    def tables(self) -> dict[str, Table]:
        return {"table": Table(SKEW, self.table)}

    def title(self) -> str:
        if not self.passes or self.table.is_empty():
            return "ranks: no pass that all of them have"
        if self.left_out == self.passes:
            return f"ranks over {self.passes} common passes: their collectives differ in number, so waits are unknown"
        slow = self.table.sort("wait_ns", "rank")["rank"][0]
        widest = max(self.table["wait_ns"].fill_null(0).to_list()) / 1000
        if widest < 1:
            return f"ranks over {self.passes} common passes: no rank waits for another"
        told = f"ranks over {self.passes} common passes: the others wait for rank {slow}, up to {widest:,.1f} µs a pass"
        return told + (f"; {self.left_out} passes whose collectives differ in number left out" if self.left_out else "")

    def as_dict(self) -> dict[str, object]:
        return {"passes": self.passes, "left_out": self.left_out, **all_rows(self.tables())}


def skew(ranks: Iterable[RankPasses]) -> Skew:
    """How much each rank waits for the others, over the passes all of them have."""
    ranks = list(ranks)
    common = _common([rank.every for rank in ranks])
    rows: list[dict[str, float | None]] = []
    waits, last, counted = np.zeros(len(ranks)), np.zeros(len(ranks), dtype=np.int64), 0
    for numbers in common:
        each = [rank.collectives[number] for rank, number in zip(ranks, numbers, strict=True)]
        if len({len(durations) for durations in each}) > 1:
            continue
        counted += 1
        above = np.stack(each) - np.min(np.stack(each), axis=0)
        waited = above.sum(axis=1)
        waits += waited
        last[int(np.argmin(waited))] += 1
    for place, rank in enumerate(ranks):
        mine = rank.every[[numbers[place] for numbers in common]]
        mean = {name: float(mine[name].to_numpy().mean()) if len(mine) else None for name in ("union_ns", "comm_ns")}
        compute = None if mean["union_ns"] is None else mean["union_ns"] - (mean["comm_ns"] or 0.0)
        wait = float(waits[place]) / counted if counted else None
        rows.append({"rank": rank.rank, **mean, "compute_ns": compute, "wait_ns": wait, "last": int(last[place])})
    return Skew(pl.DataFrame(rows, infer_schema_length=None), len(common), len(common) - counted)


def _common(of_ranks: list[pl.DataFrame]) -> list[list[int]]:
    """Numbers of passes that belong together: of one step where steps are marked, else in order and overlapping."""
    if all(passes["step"].null_count() == 0 for passes in of_ranks):
        keyed = [passes.select("step", "phase", "index").reverse() for passes in of_ranks]
        by_step = [{(step, phase): index for step, phase, index in passes.iter_rows()} for passes in keyed]
        return [[numbers[key] for numbers in by_step] for key in by_step[0] if all(key in n for n in by_step)][::-1]
    spans = [passes.select("start_ns", "end_ns").to_numpy() for passes in of_ranks]
    sizes = [passes["attentions"].to_list() for passes in of_ranks]
    # ranks that ran the same passes met in order, whatever their clocks say
    shifts = [0 if own == sizes[0] else _shift(spans[0], span) for own, span in zip(sizes, spans, strict=True)]
    groups = []
    for number, first in enumerate(sizes[0]):
        group = [number + shift for shift in shifts]
        there = all(0 <= n < len(own) for n, own in zip(group, sizes, strict=True))
        if there and all(own[n] == first for n, own in zip(group, sizes, strict=True)):
            groups.append(group)
    return groups


def _shift(first: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """How many passes earlier or later another rank's capture began: the shift at which passes overlap longest."""
    best, most = 0, -1
    for shift in sorted(range(-len(first) + 1, len(other)), key=abs)[:MOST_SHIFTS]:
        low, high = max(0, -shift), min(len(first), len(other) - shift)
        a, b = first[low:high], other[low + shift : high + shift]
        shared = int(np.maximum(np.minimum(a[:, 1], b[:, 1]) - np.maximum(a[:, 0], b[:, 0]), 0).sum())
        if shared > most:
            best, most = shift, shared
    return best
