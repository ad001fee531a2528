"""TraCR bundles, as TraCR's own tools and `npuscope.trace.readers.tracr` read them.

Slices of the runtime's cores reach from dispatch to retired, as the runtime writes them, where both are known.
A channel holds one open slice, so slices that overlap on a lane go to further channels of the same name;
only cores of the simpler runtime may hold a second task, which retires first in, first out.
"""

from __future__ import annotations

import heapq
import re
from pathlib import Path

import numpy as np
import orjson
import polars as pl

from npuscope.base.errors import CannotWrite
from npuscope.trace.core import OWN, Counts, Trace, note_of
from npuscope.trace.formats import Writer
from npuscope.trace.intervals import Ints
from npuscope.trace.names import RUN_LABELS
from npuscope.trace.readers.tracr import FLOW_END, FLOW_START, NO_EXTRA, RECORD, RESET
from npuscope.trace.writers.atomic import whole_folder
from npuscope.trace.writers.timeline import edge_ends, lane_groups, not_drawn

KEPT = {"lane", "start", "dur", "kernel", "kind", "depth", "task", "marker", "extra", "phase"}
_BUNDLE_FILE = re.compile(r"^proc\.\d+/(metadata\.json|thread\.\d+/traces\.bts)$|^perfetto\.json$")
MOST_PROCESSES = 10_000  # a folder each
_MOST = FLOW_END  # channels and markers are 16-bit numbers below the reserved ones


def write(trace: Trace, path: Path) -> Counts:
    """A bundle with one proc.* folder per process of the trace."""
    lanes = _with_processes(trace).filter(pl.col("unit").ne_missing("counter"))  # nothing runs there
    if lanes.is_empty():  # a bundle is at least one process
        schema = {"lane": pl.UInt32, "name": pl.String, "process number": pl.Int64}
        lanes = pl.DataFrame([(0, "Channel_1", 1000)], schema=schema, orient="row")
    shift = -min(0, trace.span[0])  # trace points have no time before zero
    flows = _flow_points(trace)
    with whole_folder(path, _is_ours) as folder:
        processes = lanes["process number"].n_unique()
        if processes > MOST_PROCESSES:
            raise CannotWrite(f"{processes} processes, where a bundle has at most {MOST_PROCESSES}", path=path)
        number = lanes.select("lane", "process number")
        by_process, flow_points = (
            table.join(number, on="lane", maintain_order="left").partition_by("process number", as_dict=True)
            for table in (trace.slices, flows)
        )
        for key, members in lanes.partition_by("process number", as_dict=True, maintain_order=True).items():
            process = key[0]
            slices, points = by_process.get(key, trace.slices.clear()), flow_points.get(key, flows.clear())
            try:
                _write_process(folder / f"proc.{process}", slices, members, points, shift, trace)
            except CannotWrite as error:
                raise CannotWrite(error.what, path=path) from error
    columns = [c for c in trace.slices.columns if c not in KEPT and trace.slices[c].null_count() < trace.slices.height]
    left_out = {f"column {name}, for which a trace point has no room": trace.slices.height for name in columns}
    if trace.counters.height:
        left_out["sample of a counter, for which a bundle has no place"] = trace.counters.height
    return {**left_out, **not_drawn(trace, int(flows["begins"].not_().sum()))}


def _is_ours(folder: Path) -> bool:
    """True for a folder that holds a bundle and nothing else."""
    files = [child.relative_to(folder).as_posix() for child in folder.rglob("*") if not child.is_dir()]
    return bool(files) and all(_BUNDLE_FILE.match(file) for file in files)


def _with_processes(trace: Trace) -> pl.DataFrame:
    """Lanes with the number of their process: TraCR's own pid, else 1000 and up, one per group of lanes."""
    lanes = trace.lanes
    # a bundle joined with a swimlane has lanes that no process of TraCR wrote
    if "channel" in lanes.columns and lanes["channel"].null_count() == 0:
        return lanes.with_columns(pl.col("pid").alias("process number")).sort("process number", "channel")
    number = (pl.col("group") + 1000).cast(pl.Int64).alias("process number")
    return lane_groups(trace).with_columns(number).sort("process number", "lane")


def _write_process(
    folder: Path, slices: pl.DataFrame, lanes: pl.DataFrame, flows: pl.DataFrame, shift: int, trace: Trace
) -> None:
    marker = slices["marker"] if "marker" in slices.columns else slices["kernel"]
    marker = marker.cast(pl.String).fill_null("")
    labels = marker.unique(maintain_order=True)
    channel_of = {lane: number for number, lane in enumerate(lanes["lane"])}
    names = lanes["name"].to_list()
    lane = slices["lane"].replace_strict(channel_of, return_dtype=pl.Int64).to_numpy()
    runs = marker.is_in(list(RUN_LABELS))
    begin, dur = _held(slices, runs)
    begin = begin + shift
    if "channel" not in lanes.columns and runs.any():
        names.append("INVALID")  # the runtime's last channel
    channel = _channels(lane, begin, dur, marker, names)
    if len(names) > _MOST or len(labels) > _MOST:
        what = f"{len(names)} channels and {len(labels)} markers in one process, where TraCR has room for {_MOST}"
        raise CannotWrite(what, path=folder.parent)
    event = marker.replace_strict(labels, pl.Series(range(len(labels)), dtype=pl.Int64)).to_numpy()
    # a RESET follows its SET; the stable sort by time keeps that where a slice has no length
    order = _channel_order(channel, begin, dur)
    sets = _points(channel[order], event[order], _extras(slices)[order], begin[order])
    resets = _points(channel[order], RESET, NO_EXTRA, (begin + dur)[order])
    lane_of_flow = flows["lane"].replace_strict(channel_of, return_dtype=pl.UInt16).to_numpy()
    begins = np.where(flows["begins"].to_numpy(), FLOW_START, FLOW_END)
    points = _points(lane_of_flow, begins, flows["flow"].to_numpy(), flows["time"].to_numpy() + shift)
    records = np.concatenate([np.stack([sets, resets], axis=1).ravel(), points])
    records = records[np.argsort(records["time"], kind="stable")]
    process = trace.meta.notes.get("processes", {}).get(folder.name, {})
    first, last = (int(records["time"][i]) if len(records) else 0 for i in (0, -1))
    start_time, end_time = process.get("start_time"), process.get("end_time")
    metadata = {
        "markerLabels": labels.to_list(),
        "markerColorIds": list(range(1, len(labels) + 1)),
        "markerTypes": {str(n): label for n, label in enumerate(labels, 1)},
        "channel_names": names,
        "num_channels": len(names),
        "pid": int(folder.name[5:]),
        "start_time": first if start_time is None else start_time,
        "end_time": last if end_time is None else end_time,
    }
    if note := note_of(trace, shift):
        metadata[OWN] = note
    if functions := _names(slices, runs):
        metadata["extraIdLabels"] = functions
    thread = folder / f"thread.{metadata['pid']}"
    thread.mkdir(parents=True)
    (folder / "metadata.json").write_bytes(orjson.dumps(metadata, option=orjson.OPT_INDENT_2))
    records.tofile(thread / "traces.bts")


def _points(channel: np.ndarray, event: np.ndarray | int, extra: np.ndarray | int, time: Ints) -> np.ndarray:
    records = np.empty(len(time), dtype=RECORD)
    records["channel"], records["event"], records["extra"], records["time"] = channel, event, extra, time
    return records


def _channels(lane: Ints, begin: Ints, dur: Ints, marker: pl.Series, names: list[str]) -> Ints:
    """A channel per slice, such that each channel can be read back; further channels are added to `names`."""
    order = _channel_order(lane, begin, dur)
    same = lane[order][1:] == lane[order][:-1]
    overlaps = same & (begin[order][1:] < (begin + dur)[order][:-1])
    crowded = np.unique(lane[order][1:][overlaps])
    channel = lane.copy()
    runs = marker.is_in(list(RUN_LABELS)).to_numpy()
    for number in crowded:
        rows = order[lane[order] == number]
        ends = (begin + dur)[rows]
        if runs[rows].all() and np.all(ends[1:] >= ends[:-1]):
            continue  # a core's queue: read back first in, first out
        busy: list[tuple[int, int]] = [(0, int(number))]  # when each channel is free again
        for row in rows:
            if busy[0][0] <= begin[row]:
                _, free = heapq.heappop(busy)
            else:
                free = len(names)
                names.append(f"{names[number]} #{len(busy) + 1}")
            channel[row] = free
            heapq.heappush(busy, (int(begin[row] + dur[row]), free))
    return channel


def _held(slices: pl.DataFrame, runs: pl.Series) -> tuple[Ints, Ints]:
    """Begin and length of every slice; of a task of the runtime's how long it held its slot."""
    known = runs & slices["dispatch"].is_not_null() & slices["finish"].is_not_null()
    begin = slices["dispatch"].zip_with(known, slices["start"]).to_numpy()
    end = slices["finish"].zip_with(known, slices["start"] + slices["dur"]).to_numpy()
    return begin, np.maximum(end - begin, 0)


def _names(slices: pl.DataFrame, runs: pl.Series) -> dict[str, str]:
    """Of the functions that cores ran, by number; without those that are named by their number anyway."""
    if "extra" not in slices.columns:
        return {}
    functions = slices.filter(runs).select("extra", pl.col("kernel").cast(pl.String)).drop_nulls().unique()
    return {str(n): name for n, name in functions.sort("extra").iter_rows() if name != f"func_{n}"}


def _channel_order(channel: Ints, begin: Ints, dur: Ints) -> Ints:
    """By channel, then time; of slices that begin together those of no length come first, as only then all fit."""
    return np.lexsort((dur, begin, channel))


def _extras(slices: pl.DataFrame) -> np.ndarray:
    column = slices["extra"] if "extra" in slices.columns else slices["task"]
    fits = (column >= 0) & (column < NO_EXTRA)
    return column.set(~fits, None).fill_null(NO_EXTRA).cast(pl.UInt32).to_numpy()


def _flow_points(trace: Trace) -> pl.DataFrame:
    """lane, time, flow, begins: as recorded where the edges know it, else drawn from slice to slice."""
    columns = ["lane", "time", "flow", "begins"]
    if {"src_lane", "src_time", "dst_lane", "dst_time", "flow"} <= set(trace.edges.columns):
        begins, ends = (
            trace.edges.select(
                pl.col(f"{side}_lane").alias("lane"),
                pl.col(f"{side}_time").alias("time"),
                "flow",
                pl.lit(side == "src").alias("begins"),
                lonely=pl.col("dst_lane").is_null(),
            ).drop_nulls("lane")
            for side in ("src", "dst")
        )
        # a beginning with several ends stands in several edges and is one trace point
        begins = pl.concat([begins.filter(~pl.col("lonely")).unique(maintain_order=True), begins.filter("lonely")])
        sides = [begins.select(columns), ends.select(columns)]
        both = pl.concat(sides)
        if both.is_empty() or both.select(pl.col("flow").is_between(0, NO_EXTRA).all()).item():
            return both.select(columns)
    ends = edge_ends(trace).with_row_index("flow")
    rows = trace.slices.select("lane", pl.col("start").alias("time")).with_row_index("row")
    drawn = [
        ends.join(rows, left_on=side, right_on="row").select("lane", "time", "flow", pl.lit(begins).alias("begins"))
        for side, begins in (("src_row", True), ("dst_row", False))
    ]
    return pl.concat(drawn)


WRITER = Writer("tracr", "TraCR bundle (a folder whose name ends in tracr)", write, ("tracr",))
