"""From a table of events to a Trace: what every JSON dialect does after it has decided what things are.

Flow ends become edges between the slices they fall into; what a reader has no meaning for is counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base.process_memory import give_back
from npuscope.chip.kernels import kind_of
from npuscope.trace import schema
from npuscope.trace.core import WHOLE_DEVICE, Ledger, Trace
from npuscope.trace.event_table import EventTable
from npuscope.trace.intervals import Enclosing, Ints
from npuscope.trace.names import ON_DEVICE, numbered, step_mark

_KIND_NUMBER = {name: number for number, name in enumerate(schema.KINDS.categories)}


def kind_numbers(kinds: Sequence[str]) -> NDArray[np.uint8]:
    """Kinds as numbers, to be indexed by a table's category or name numbers."""
    return np.array([_KIND_NUMBER[kind] for kind in kinds], dtype=np.uint8)


def recast(table: EventTable, kinds: NDArray[np.uint8], names: re.Pattern[str], of: str, to: str) -> NDArray[np.uint8]:
    """The kinds of the slices, where those of one kind and a certain name become another kind."""
    before, after = kind_numbers([of, to])
    named = np.array([bool(names.search(name)) for name in table.names], dtype=bool)
    return np.where((kinds == before) & named[table.slices["name"].to_numpy()], after, kinds)


def by_kernels(table: EventTable, kinds: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The kinds of the slices, where tasks whose kernel is communication or a copy by its name become that."""
    tasks = kinds == _KIND_NUMBER["task"]
    names = table.slices["name"].to_numpy()
    of_name = np.full(len(table.names), _KIND_NUMBER["task"], dtype=np.uint8)
    for name in np.unique(names[tasks]).tolist():  # host functions have far more names
        of_name[name] = _KIND_NUMBER[kind_of(table.names[name])]
    return np.where(tasks, of_name[names], kinds) if tasks.any() else kinds


def build_trace(
    table: EventTable,
    format: str,
    *,
    kind: NDArray[np.uint8] | None = None,
    lanes: pl.DataFrame | None = None,
    task: pl.Series | None = None,
    kernel: pl.Series | None = None,
    epoch_ns: int = 0,
    device: str | None = None,
    clock: str | None = None,
) -> Trace:
    """The Trace of a table. What a dialect does not decide stays plain: host slices on host lanes,
    the record's number as `task`, the event's name as `kernel`."""
    names = pl.Series(table.names, dtype=pl.String)
    # in this order, and letting go of what is done, because a large trace is mostly temporary memory here
    edges, depth = _edges_and_depths(table, names, task, epoch_ns)
    step = _steps(table)
    kernel = names.gather(table.slices["name"]) if kernel is None else kernel
    table.slices = events = table.slices.drop("name")
    give_back()
    kind = np.full(events.height, _KIND_NUMBER["host"], dtype=np.uint8) if kind is None else kind
    slices = events.select(
        "lane",
        pl.col("start") + epoch_ns if epoch_ns else "start",
        "dur",
        kernel.alias("kernel"),
        pl.Series(schema.KINDS.categories).cast(schema.KINDS).gather(kind).alias("kind"),
        depth,
        (pl.int_range(events.height, dtype=pl.Int64, eager=True) if task is None else task).alias("task"),
        step.alias("step"),
        pl.Series([c or None for c in table.categories], dtype=pl.Categorical).gather(events["category"]).alias("cat"),
        *[c for c in ("args", "other") if c in events.columns],
    )
    table.slices = table.slices.clear()
    counters = _counters(table, epoch_ns)
    lanes = _used(plain_lanes(table) if lanes is None else lanes, slices, counters)
    meta = table.ledger.close(format, (str(table.path),), device=device, clock=clock)
    return Trace.of(slices, lanes, meta, edges, counters)


def _counters(table: EventTable, epoch_ns: int) -> pl.DataFrame | None:
    """The samples; those of a process that stands for the whole device are on no lane."""
    if table.counters.is_empty():
        return None
    device = [n for n, process in enumerate(table.lane_processes()) if process == WHOLE_DEVICE]
    lane = pl.when(~pl.col("lane").is_in(device)).then("lane").alias("lane")
    return table.counters.with_columns(lane, pl.col("time") + epoch_ns)


def _used(lanes: pl.DataFrame, slices: pl.DataFrame, counters: pl.DataFrame | None) -> pl.DataFrame:
    """Lanes that things ran on, and those that only counters have; lanes that only flows mention are neither."""
    ran = pl.col("lane").is_in(slices["lane"].unique().implode())
    if counters is None:
        return lanes.filter(ran)
    lanes = lanes.filter(ran | pl.col("lane").is_in(counters["lane"].drop_nulls().unique().implode()))
    nameless = pl.col("name") == pl.col("tid")  # counters belong to processes, which then name them
    return lanes.with_columns(
        pl.when(ran).then(pl.col("unit").cast(pl.String)).otherwise(pl.lit("counter")).alias("unit"),
        pl.when(ran | ~nameless).then("name").otherwise("process").alias("name"),
        *(pl.when(ran).then(c).alias(c) for c in ("core", "role") if c in lanes.columns),
    )


def _edges_and_depths(
    table: EventTable, names: pl.Series, task: pl.Series | None, epoch_ns: int
) -> tuple[pl.DataFrame, pl.Series]:
    """Flow ends as edges between tasks, and how deep each slice lies; the table's flows are used up."""
    enclosing = Enclosing(*(table.slices[c].to_numpy() for c in ("lane", "start", "dur")))
    give_back()
    edges = edges_of(table.flows, enclosing, table.ledger, task)
    table.flows = table.flows.clear()
    give_back()
    categories = pl.Series(table.categories, dtype=pl.String).gather(edges["category"])
    edges = edges.drop("category").with_columns(
        pl.when(categories.is_in(OWN_SOURCES)).then(categories).otherwise("source").alias("source"),
        names.gather(edges["name"]).alias("name"),
        *([pl.col("src_time", "dst_time") + epoch_ns] if epoch_ns else []),
    )
    return edges, pl.Series("depth", enclosing.depths(), dtype=pl.UInt32)


def plain_lanes(table: EventTable) -> pl.DataFrame:
    """One lane per (pid, tid), named as the file names them."""
    pids, tids = ([str(key[i]) for key in table.lane_keys] for i in (0, 1))
    return pl.DataFrame(
        {
            "lane": pl.Series(range(len(table.lane_keys)), dtype=pl.UInt32),
            "name": pl.Series(table.lane_names(), dtype=pl.String),
            "unit": pl.Series(["host"] * len(pids), dtype=pl.String),
            "process": pl.Series(table.lane_processes(), dtype=pl.String),
            "pid": pl.Series(pids, dtype=pl.String),
            "tid": pl.Series(tids, dtype=pl.String),
        }
    )


def _steps(table: EventTable) -> pl.Series:
    """The step whose annotation a slice begins in, if any."""
    names = [number for number, name in enumerate(table.names) if step_mark(name)]
    none = pl.Series([None], dtype=pl.Int64).new_from_index(0, table.slices.height)
    if not names:
        return none
    on_device = [n for n, category in enumerate(table.categories) if category == ON_DEVICE]
    marks = table.slices.select("name", "start", "dur", "category").filter(pl.col("name").is_in(names))
    marks = marks.filter(~pl.col("category").is_in(on_device)).sort("start", maintain_order=True)
    number = pl.Series("step", numbered([table.names[n] for n in marks["name"]]), dtype=pl.Int64)
    marks = marks.with_columns(number).drop_nulls("step").unique("step", keep="first", maintain_order=True)
    return none if marks.is_empty() else steps_at(table.slices["start"], marks)


def steps_at(moments: pl.Series, marks: pl.DataFrame) -> pl.Series:
    """The step of the last mark that began before each moment, null where that is over; marks are sorted by start."""
    begin, stop = marks["start"].to_numpy(), (marks["start"] + marks["dur"]).to_numpy()
    blocks = [pl.Series([], dtype=pl.Int64)]
    for block in moments.to_frame("moment").iter_slices(1 << 18):  # in blocks, to need little memory
        moment = block["moment"].to_numpy()
        at = np.searchsorted(begin, moment, side="right") - 1
        inside = (at >= 0) & (moment < stop[at])
        blocks.append(marks["step"].gather(np.where(inside, at, 0)).set(pl.Series(~inside), None))
    return pl.concat(blocks)


def step_windows(marks: pl.DataFrame) -> pl.DataFrame:
    """One stretch per step, from its first mark's start to its last one's end, in order."""
    end = (pl.col("start") + pl.col("dur")).max()
    return marks.group_by("step").agg(pl.col("start").min(), dur=end - pl.col("start").min()).sort("start")


OWN_SOURCES = ["tensormap", "creator", "explicit", "correlation"]  # categories of edges in files that we write
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
            "category": flows["category"].to_numpy()[either],
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


# what any Chrome-style file may have beside its events
CHROME_HEADER = {
    "displayTimeUnit", "otherData", "metadata", "systemTraceEvents", "powerTraceAsString", "stackFrames", "samples",
    "controllerTraceDataKey", "traceName", "schemaVersion", "beginningOfTime",
}  # fmt: skip


def count_unknown_header(table: EventTable, known: Iterable[str] = ()) -> None:
    """Keys beside the list of events; a list counts as its entries."""
    for key in table.header.keys() - CHROME_HEADER - set(known):
        value = table.header[key]
        table.ledger.count_unknown("header key", key, max(len(value), 1) if isinstance(value, list) else 1)


def count_unknown_categories(table: EventTable, known: Collection[str]) -> None:
    """Categories of slices, by how many slices have them; no category is none."""
    for number, slices in table.slices["category"].value_counts().iter_rows():
        if table.categories[number] and table.categories[number] not in known:
            table.ledger.count_unknown("category", table.categories[number], slices)


def count_unknown_processes(table: EventTable, known: Collection[str]) -> None:
    """Named processes, by how many slices and samples they hold."""
    names = table.lane_processes()
    held: Counter[str] = Counter()
    for rows in (table.slices, table.counters):
        if rows.height:
            for lane, entries in rows["lane"].value_counts().iter_rows():
                held[names[lane]] += entries
    for name in set(table.process_names.values()) - set(known):
        if held[name]:
            table.ledger.count_unknown("process", name, held[name])
