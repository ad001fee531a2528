"""A trace of several ranks, or of several devices, as one trace each: no number may mix them."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from npuscope.base.errors import NpuscopeError
from npuscope.trace.core import RANK_WINDOWS, SIMULATED, WINDOW, Trace
from npuscope.trace.schema import is_work


class RankTrace(NamedTuple):
    """What one rank, or one device of several, has of a trace."""

    rank: int | None
    device: int | None  # where one capture holds several
    trace: Trace

    @property
    def name(self) -> str:
        words = [f"{word} {n}" for word, n in (("rank", self.rank), ("device", self.device)) if n is not None]
        return ", ".join(words) or "the capture"


def divided_by(lanes: pl.DataFrame) -> tuple[str | None, list[int]]:
    """By what some lanes are of several, rank or else device, and its values; none where all are one."""
    for column in ("rank", "device"):
        values = lanes[column].drop_nulls().unique().sort().to_list()
        if len(values) > 1:
            return column, values
    return None, []


def split_ranks(trace: Trace) -> list[RankTrace]:
    """A trace by rank, or else by device where it has several. Threads of no device stay with each."""
    work = trace.slices.lazy().filter(is_work()).select(pl.col("lane").unique()).collect()["lane"]
    used = trace.lanes.filter(pl.col("lane").is_in(work.implode()))
    column, values = divided_by(used)
    ranks = used["rank"].drop_nulls().unique().to_list()
    rank = ranks[0] if len(ranks) == 1 else None
    if column is None:
        return [RankTrace(rank, None, trace)]
    if column == "rank" and (alone := _by_rank(trace, values)) is not None:
        return [RankTrace(value, None, one) for value, one in alone.items()]
    parts = []
    for value in values:
        here = (pl.col(column) == value) | (pl.col(column).is_null() & (column == "device"))
        one = trace.select(lane=trace.lanes.filter(here.fill_null(False))["lane"].to_list())
        parts.append(RankTrace(value, None, one) if column == "rank" else RankTrace(rank, value, one))
    return parts


def _by_rank(trace: Trace, values: list[int]) -> dict[int, Trace] | None:
    """A trace by rank in one pass, where every task is of one rank: a selection each would look at all for each."""
    lanes = trace.lanes.select("lane", pl.col("rank").cast(pl.Int64))
    slices = trace.slices.join(lanes.rename({"rank": "_rank"}), on="lane", how="left", maintain_order="left")
    tasks = slices.select("task", "_rank").drop_nulls().unique()
    if tasks["task"].n_unique() != tasks.height:
        return None
    edges = trace.edges
    for side in ("src", "dst"):
        renamed = tasks.rename({"task": side, "_rank": f"_{side}"})
        edges = edges.join(renamed, on=side, how="left", maintain_order="left")
    counters = trace.counters.join(lanes.rename({"rank": "_rank"}), on="lane", how="left", maintain_order="left")
    by_rank = {key[0]: part.drop("_rank") for key, part in slices.partition_by("_rank", as_dict=True).items()}
    found = {}
    for value in values:
        here = by_rank.get(value, trace.slices.clear())
        # an edge from or to a task without a slice, a barrier, stays
        own = edges.filter((pl.col("_src") == value).fill_null(True) & (pl.col("_dst") == value).fill_null(True)).drop(
            "_src", "_dst"
        )
        counted = counters.filter((pl.col("_rank") == value) | pl.col("lane").is_null()).drop("_rank")
        meta = trace.meta_of_part(here, counted, "not selected")
        if (window := trace.meta.notes.get(RANK_WINDOWS, {}).get(str(value))) is not None:
            meta = meta.plus(notes={WINDOW: window})
        if (known := trace.meta.notes.get(SIMULATED, {})).get("rank") == value:
            meta = meta.plus(notes={SIMULATED: known})
        found[value] = Trace(here, trace.lanes.filter(pl.col("rank") == value), own, counted, meta)
    return found


def choose_rank(trace: Trace, number: int | None) -> Trace:
    """The part of one rank or device; the trace itself where no number is given."""
    if number is None:
        return trace
    parts = {part.device if part.device is not None else part.rank: part for part in split_ranks(trace)}
    if number not in parts:
        known = ", ".join(map(str, parts)) if None not in parts else "none that it tells"
        raise NpuscopeError(f"no rank or device {number}", remedy=f"The trace has {known}.")
    return parts[number].trace


def choose_one(trace: Trace, number: int | None) -> Trace:
    """The same for who can look at one only: of ranks that were simulated the one that `simulate` tells of."""
    return choose_rank(trace, rank_told(trace) if number is None else number)


def rank_told(trace: Trace) -> int | None:
    """The rank that `simulate` tells of; None where ranks are not simulated, or it is one alone."""
    known: int | None = trace.meta.notes.get(SIMULATED, {}).get("rank")
    return known if len(trace.lanes["rank"].drop_nulls().unique()) > 1 else None


def check_one_rank(lanes: pl.DataFrame) -> None:
    """Refuse lanes of several ranks or devices: what one computes must not hide what another waits for."""
    column, values = divided_by(lanes)
    if column is not None:
        listed = ", ".join(map(str, values[:10])) + (", …" if len(values) > 10 else "")
        remedy = "`npuscope report` explains each, --rank N chooses one; in Python, explain_ranks and choose_rank."
        raise NpuscopeError(f"it holds {len(values)} {column}s ({listed}), and this is about one", remedy=remedy)
