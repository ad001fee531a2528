"""Flow ends stamped on lanes -> edges between the slices they fall into."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.trace.intervals import Enclosing, Ints
from npuscope.trace.meta import Ledger

NO_OTHER_END = "flow end without its other end"


def edges_of(flows: pl.DataFrame, enclosing: Enclosing, ledger: Ledger, task: pl.Series | None = None) -> pl.DataFrame:
    """One edge per flow end that has a beginning, and one with a null side per end that has none.

    `flows` has lane, time, begins, ends, and category, name and flow, which together name one flow;
    `enclosing` finds the slice a moment falls into and `task` has each slice's task (its position if not
    given). An end belongs to the last beginning of its flow not after it; an end stamped before every
    beginning (clocks of two processes differ) belongs to the first one. Ends without the other are counted.
    """
    lane, time, name, flow = (flows[column].to_numpy() for column in ("lane", "time", "name", "flow"))
    slice_of = enclosing.find(lane, time)  # first, while nothing else takes memory
    key = flows.select(_key(flows).alias("key"))["key"].to_numpy()
    begins, ends = (np.flatnonzero(flows[side].to_numpy()) for side in ("begins", "ends"))
    begins = begins[np.lexsort((time[begins], key[begins]))]
    origin = _origins(key[begins], time[begins], key[ends], time[ends])
    # a step both ends and begins its flow, and does not follow itself
    follows = (origin < 0) | (begins[origin] != ends if len(begins) else True)
    ends, origin = ends[follows], origin[follows]
    unanswered = np.ones(len(begins), dtype=bool)
    unanswered[origin[origin >= 0]] = False
    lonely = np.sort(begins[unanswered])
    none = np.full(len(lonely), -1)
    src = np.concatenate([np.where(origin >= 0, begins[origin], -1) if len(begins) else origin, lonely])
    dst = np.concatenate([ends, none])
    either = np.where(dst >= 0, dst, src)
    ledger.marked[NO_OTHER_END] += int(((src < 0) | (dst < 0)).sum())
    return pl.DataFrame(
        {
            "src": _tasks(src, slice_of, task),
            "dst": _tasks(dst, slice_of, task),
            "source": pl.Series(["flow"]).new_from_index(0, len(src)),
            "name": name[either],
            "flow": flow[either],
            "src_lane": _at(lane, src),
            "src_time": _at(time, src),
            "dst_lane": _at(lane, dst),
            "dst_time": _at(time, dst),
        }
    )


def _key(flows: pl.DataFrame) -> pl.Expr:
    """Category, name and flow as one number."""
    category, name = pl.col("category").cast(pl.Int64), pl.col("name").cast(pl.Int64)
    names = int(flows["name"].to_numpy().max(initial=0)) + 1
    kinds = (int(flows["category"].to_numpy().max(initial=0)) + 1) * names
    if int(np.abs(flows["flow"].to_numpy()).max(initial=0)) * kinds < 2**62:
        return pl.col("flow") * kinds + category * names + name
    return pl.struct("category", "name", "flow").rank("dense").cast(pl.Int64)


def _origins(begin_key: Ints, begin_time: Ints, end_key: Ints, end_time: Ints) -> Ints:
    """Per end, the place of its beginning among those sorted by key and time; -1 where there is none."""
    first, last = (np.searchsorted(begin_key, end_key, side=side) for side in ("left", "right"))
    origin = np.where(last > first, first, -1)
    for end in np.flatnonzero(last > first + 1):  # flows with several beginnings are rare
        not_after = np.searchsorted(begin_time[first[end] : last[end]], end_time[end], side="right")
        origin[end] += max(int(not_after) - 1, 0)
    return origin


def _tasks(points: Ints, slice_of: Ints, task: pl.Series | None) -> pl.Series:
    inside = np.where(points >= 0, slice_of[points], -1) if len(slice_of) else points
    rows = pl.Series(inside).set(pl.Series(inside < 0), None)
    return rows if task is None else task.gather(rows)


def _at(values: NDArray[np.generic], places: Ints) -> pl.Series:
    """The values at the places, null where the place is -1."""
    known = places >= 0
    taken = pl.Series(values[np.where(known, places, 0)] if len(values) else np.zeros(len(places), dtype=values.dtype))
    return taken if known.all() else taken.set(pl.Series(~known), None)
