"""All ranks below each other on one clock: the host's lanes first, then rank by rank, with an arrow from every wait in
a collective to the rank that came last. Ranks whose clocks could not be brought together stay apart, and that is said.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from npuscope.chip.kernels import area_of
from npuscope.explain.ranks import Ranks
from npuscope.lab.document import Run
from npuscope.lab.payload.packed import packed, rising, whole_numbers
from npuscope.lab.payload.timeline import (
    MOST_LANES,
    MOST_SLICES,
    UNITS,
    Drawn,
    counter_tracks,
    drawn_together,
    packed_edges,
    reason_words,
    row_numbers,
    slice_columns,
    slice_facts,
)
from npuscope.table.formats import many
from npuscope.trace.core import Trace
from npuscope.trace.schema import counts_once

LATE = "late peer"  # the kind of an edge that leads from the rank that came last to one that waited for it
BEFORE = 1  # times the length of the device's window: so much of what the host did before is shown


def all_ranks(found: Ranks, id: str) -> Run | None:
    """The run of all ranks that share a clock; None where fewer than two do."""
    offsets, apart = found.clocks
    names = [part.name for part in found.parts if part.rank is not None and part.rank not in apart]
    if len(names) < 2:
        return None
    ranks = [part.rank for part in found.parts if part.name in names]
    shifts = {rank: offsets[rank].offset_ns if rank in offsets else 0 for rank in ranks if rank is not None}
    trace = _on_one_clock(found.trace, shifts)
    timeline, wall = _timeline(trace, found)
    timeline["notes"] = [*[f"Rank {rank} is drawn apart: {why}." for rank, why in apart.items()],
                         *timeline["notes"]]  # type: ignore[misc]  # fmt: skip
    diagnosis = found.diagnosis.as_dict()
    of_slowest = shifts.get(found.parts[found.shown].rank or 0, 0)
    if of_slowest:
        for cause in diagnosis["causes"]:  # type: ignore[attr-defined]
            cause["where"] = [[start + of_slowest, end + of_slowest, lane] for start, end, lane in cause["where"]]
    return {
        "id": id,
        "name": f"all {len(names)} ranks",
        "text": f"{trace.meta.format}, {many(trace.slices.height, 'slice')} on one clock",
        "measured": not found.is_simulated,
        "wall": wall,
        "diagnosis": diagnosis,
        "timeline": timeline,
        "panels": {},
    }


def _on_one_clock(trace: Trace, shifts: dict[int, int]) -> Trace:
    """The lanes of some ranks and of no rank, each moved onto the first one's clock."""
    lanes = trace.lanes.filter(pl.col("rank").is_in(list(shifts)) | pl.col("rank").is_null())
    chosen = trace.select(lane=lanes["lane"].to_list())
    if not any(shifts.values()):
        return chosen
    by_lane = {lane: shifts.get(rank, 0) for lane, rank in lanes.select("lane", "rank").iter_rows()}
    shift = pl.col("lane").replace_strict(by_lane, default=0, return_dtype=pl.Int64)
    counters = chosen.counters.with_columns(pl.col("time") + shift) if chosen.counters.height else chosen.counters
    return Trace(
        chosen.slices.with_columns(pl.col("start", "dispatch", "finish") + shift), chosen.lanes, chosen.edges, counters,
        chosen.meta,
    )  # fmt: skip


def _timeline(trace: Trace, found: Ranks) -> tuple[dict[str, object], int]:
    work = trace.slices.filter(counts_once())
    first = int(work["start"].min() or 0)  # type: ignore[arg-type]
    last = int((work["start"] + work["dur"]).max() or 0)  # type: ignore[arg-type]
    if found.is_simulated:  # from the launch of the first until the last is done
        first, last = trace.window_ns
    window = _window(trace, first, last)
    origin, wall = window[0], window[1] - window[0]
    lanes, units = _lanes(trace)
    kernels, device = _kernels(trace, work)
    end = pl.col("start") + pl.col("dur")
    table = trace.slices.with_row_index("row").filter(
        (pl.col("kind") != "derived")
        & pl.col("duplicate_of").is_null()
        & (pl.col("start") <= window[1])
        & (end >= origin)
    )
    place = {lane: n for n, lane in enumerate(lanes["lane"].to_list())}
    table = table.filter(pl.col("lane").is_in(list(place))).select(
        pl.col("row").cast(pl.Int64),
        pl.col("lane").replace_strict(place, return_dtype=pl.Int64),
        (pl.col("start") - origin).clip(0, wall).alias("start"),
        (end - origin).clip(0, wall).alias("end"),
        pl.col("kernel").cast(pl.Enum(kernels)).to_physical().cast(pl.Int64),
        pl.col("depth").fill_null(0).cast(pl.Int64),
        "task",
        "block",
    )
    table = table.sort("lane", "depth", "start", maintain_order=True)
    notes: list[str] = []
    if table.height > MOST_SLICES:
        before = table.height
        table = drawn_together(table, wall, MOST_SLICES)
        notes.append(f"{before:,} slices are drawn as {table.height:,}: short neighbours are drawn together.")
    drawn = Drawn(table, lanes, kernels, row_numbers(table, lanes.height), notes)
    edges = pl.concat([trace.edges.select("src", "dst", "source"), _late_peers(found)])
    tasks = pl.concat([table["task"], edges["src"], edges["dst"]]).drop_nulls().unique().sort()
    nothing = np.zeros(0)
    return {
        "window": wall,
        "origin": origin,
        "lanes": lanes.select("lane", "name", "unit", "role", "used").to_dicts(),
        "units": units,
        "rows": [list(row) for row in drawn.rows],
        "kernels": kernels,
        "device_kernels": device,
        "areas": [area_of(name) for name in kernels],
        "core_lanes": [n for n, unit in enumerate(lanes["unit"]) if unit.endswith((" AIC", " AIV", " stream"))],
        "reasons": reason_words(True),
        "parts": [],
        "chain": False,
        "slices": slice_columns(table, drawn, tasks, trace.slices),
        "facts": slice_facts(trace, table["row"]),
        "tasks": rising(tasks),
        "sites": [],
        "bubbles": {
            "begins": whole_numbers(np.zeros(len(drawn.rows) + 1)), "start": rising(nothing),
            "dur": whole_numbers(nothing), "reason": packed(nothing, "u8"), "kernel": packed(nothing, "i32"),
            "blocker": packed(nothing, "i32"),
        },
        "path": {
            "lane": packed(nothing, "i32"), "start": rising(nothing), "end": rising(nothing),
            "part": packed(nothing, "u8"), "kernel": whole_numbers(nothing),
        },
        "edges": packed_edges(edges, tasks),
        "bands": [],
        "counters": counter_tracks(trace, window),
        "notes": notes,
    }, last - first  # fmt: skip


def _window(trace: Trace, first: int, last: int) -> tuple[int, int]:
    """The device's window, and of the host's calls around it what came right before."""
    host = trace.slices.filter(
        (pl.col("kind") == "host") & (pl.col("start") <= first) & (pl.col("start") + pl.col("dur") >= first)
    )
    earliest = first - BEFORE * (last - first)
    began = int(host["start"].min()) if host.height else first  # type: ignore[arg-type]
    return max(began, earliest), last


def _lanes(trace: Trace) -> tuple[pl.DataFrame, dict[str, str]]:
    """The host's lanes, then rank by rank those that ran anything; kinds of lanes of a rank are groups of their own."""
    used = trace.slices["lane"].unique()
    role = pl.col("role") if "role" in trace.lanes.columns else pl.lit(None, dtype=pl.String).alias("role")
    host = pl.col("unit") == "host"
    order = pl.col("unit").cast(pl.String).replace_strict({unit: n for n, unit in enumerate(UNITS)}, default=len(UNITS))
    group = pl.when(host).then(pl.lit("host")).otherwise(
        pl.format("{} {}", pl.col("rank").fill_null(-1), pl.col("unit").cast(pl.String))
    )  # fmt: skip
    lanes = (
        trace.lanes.filter(pl.col("lane").is_in(used.implode()) & (pl.col("unit") != "counter"))
        .sort(~host, pl.col("rank").fill_null(-1), order, pl.col("core").fill_null(-1), maintain_order=True)
        .head(MOST_LANES)
    )
    name = (
        pl.when(pl.col("rank").is_null()).then("name").otherwise(pl.format("{} · {}", pl.col("rank"), pl.col("name")))
    )
    lanes = lanes.select("lane", name.alias("name"), group.alias("unit"), role, used=pl.lit(True))
    units = {"host": "Host"}
    for one in lanes["unit"].unique(maintain_order=True).to_list():
        if one != "host":
            rank, _, unit = one.partition(" ")
            units[one] = f"Rank {rank}: {UNITS.get(unit, unit)}"
    return lanes, units


def _kernels(trace: Trace, work: pl.DataFrame) -> tuple[list[str], int]:
    """The device's kernels, then the others'; and how many are the device's."""
    device = work["kernel"].unique(maintain_order=True).to_list()
    known = set(device)
    return [*device, *(name for name in trace.slices["kernel"].unique(maintain_order=True) if name not in known)], len(
        device
    )


def _late_peers(found: Ranks) -> pl.DataFrame:
    """An edge from the last arriver's task to each task that waited for it."""
    types = {"src": pl.Int64, "dst": pl.Int64, "source": pl.String}
    met = found.waits.meetings
    if met is None or met.is_empty():
        return pl.DataFrame(schema=types)
    late = met.filter(pl.col("rank") == pl.col("waits_for")).select("meeting", src="task")
    waited = met.filter((pl.col("rank") != pl.col("waits_for")) & (pl.col("wait_ns") > 0))
    edges = waited.join(late, on="meeting").select("src", pl.col("task").alias("dst"), pl.lit(LATE).alias("source"))
    return edges.select(pl.col(name).cast(type) for name, type in types.items())
