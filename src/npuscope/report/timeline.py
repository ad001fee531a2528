"""What a page draws of a trace: lanes, slices, bubbles and the path as packed columns.

A page holds what a browser draws smoothly. Beyond MOST_SLICES, slices shorter than a bucket of time are drawn
together, lane by lane; beyond MOST_LANES, the busiest lanes are drawn. The page says so.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.analysis.busy_idle import BINS, utilisation_of
from npuscope.analysis.explanation import Explanation
from npuscope.analysis.waits import PARTS, REASONS
from npuscope.analysis.work import NEVER, Work, places
from npuscope.trace.intervals import Ints

MOST_SLICES = 250_000
MOST_LANES = 600
BUCKETS = 20_000  # of the window, to begin with, for slices drawn together
Packed: TypeAlias = dict[str, str]  # a column: its type and its bytes, deflated, as base64
_TYPES = {"u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "i32": np.int32, "f64": np.float64}


def timeline(explained: Explanation, ranks: Mapping[str, int]) -> dict[str, object]:
    """Plain data for the page's script; times are nanoseconds from the window's start. `ranks` orders the colours."""
    work, notes = explained.work, []
    lanes, place = _drawn_lanes(work)
    if len(lanes) < work.lanes.height:
        notes.append(f"The {len(lanes):,} busiest of {work.lanes.height:,} lanes are drawn.")
    slices, drawn = _slices(work, place)
    if drawn < len(work.lane):
        notes.append(f"{len(work.lane):,} slices are drawn as {drawn:,}: short neighbours are drawn together.")
    bubbles, left_out = _bubbles(explained, place)
    if left_out:
        notes.append(f"{left_out:,} short idle times are not coloured.")
    hidden = explained.trace.lanes.height - work.lanes.height
    if hidden:
        notes.append(f"{hidden:,} lanes without device work (host, schedulers) are not drawn here.")
    heat = utilisation_of(work, BINS, lanes)
    named = work.lanes[lanes].select("name", "unit")
    return {
        "window": work.wall,
        "lanes": [{"name": name, "unit": str(unit)} for name, unit in named.iter_rows()],
        "kernels": work.kernels,
        "ranks": [ranks[name] for name in work.kernels],
        "reasons": list(REASONS),
        "parts": list(PARTS),
        "chain": explained.path.kind == "chain",
        "slices": slices,
        "bubbles": bubbles,
        "path": _path(explained, place),
        "heat": {
            "bins": len(heat.bounds) - 1,
            "share": _packed(np.rint(heat.share.ravel() * 255), "u8"),
        },
        "notes": notes,
    }


def _drawn_lanes(work: Work) -> tuple[Ints, Ints]:
    """The lanes drawn, and the row of each lane of the work on the page, -1 for one that is not drawn."""
    busy = work.busy.lengths(work.lanes.height)
    kept = np.arange(work.lanes.height)
    if len(kept) > MOST_LANES:
        kept = np.sort(np.argsort(-busy, kind="stable")[:MOST_LANES])
    # units together, cores by number
    shown = work.lanes[kept].select(pl.col("unit").cast(pl.String), pl.col("core").fill_null(-1)).with_row_index("row")
    kept = kept[shown.sort("unit", "core", "row")["row"].to_numpy()]
    place = np.full(work.lanes.height, -1)
    place[kept] = np.arange(len(kept))
    return kept, place


def _slices(work: Work, place: Ints) -> tuple[dict[str, Packed], int]:
    table = pl.DataFrame(
        {
            "lane": place[work.lane],
            "start": work.start - work.window[0],
            "end": work.end - work.window[0],
            "kernel": work.kernel,
            "depth": work.slices["depth"].fill_null(0).to_numpy(),
            "before": np.where(work.dispatch == NEVER, -1, work.slices["start"].to_numpy() - work.dispatch),
            "after": np.where(work.finish == NEVER, -1, work.finish - work.end),
            "task": work.slices["task"].fill_null(-1).to_numpy(),
        }
    ).filter(pl.col("lane") >= 0)
    table = table.sort("lane", "start").with_columns(pl.lit(1).alias("drawn"))
    bucket = max(work.wall // BUCKETS, 1)
    while table.height > MOST_SLICES and bucket < 2 * work.wall:
        table = _together(table, bucket)
        bucket *= 2
    columns = {
        "lane": _packed(table["lane"], "u16"),
        "start": _packed(table["start"], "f64"),
        "dur": _packed(table["end"] - table["start"], "f64"),
        "kernel": _packed(table["kernel"], "u32"),
    }
    if (table["depth"] > 0).any():
        columns["depth"] = _packed(table["depth"].clip(0, 255), "u8")
    if (work.dispatch != NEVER).any() or (work.finish != NEVER).any():
        columns |= {"before": _packed(table["before"], "f64"), "after": _packed(table["after"], "f64")}
    if table["drawn"].n_unique() > 1:
        columns["drawn"] = _packed(table["drawn"], "u32")
    else:
        columns["task"] = _packed(table["task"], "f64")
    return columns, table.height


def _together(table: pl.DataFrame, bucket: int) -> pl.DataFrame:
    """Slices shorter than a bucket that begin in the same bucket of a lane as one."""
    short = (pl.col("end") - pl.col("start")) < bucket
    key = pl.when(short).then(pl.col("start") // bucket).otherwise(-1 - pl.int_range(pl.len()))
    grouped = table.group_by("lane", key.alias("bucket"), maintain_order=True).agg(
        pl.col("start").min(), pl.col("end").max(), pl.col("kernel", "depth", "before", "after", "task").first(),
        pl.col("drawn").sum(),
    )  # fmt: skip
    return grouped.drop("bucket").sort("lane", "start")


def _bubbles(explained: Explanation, place: Ints) -> tuple[dict[str, Packed], int]:
    work, segments = explained.work, explained.bubbles.segments
    lane = place[places(segments["lane"].to_numpy(), work.lanes["lane"].to_numpy())]
    kernels = pl.Enum(work.kernels)
    table = segments.with_columns(
        pl.Series("lane", lane),
        pl.col("reason").cast(pl.String).replace_strict({r: n for n, r in enumerate(REASONS)}, return_dtype=pl.Int64),
        pl.col("kernel", "blocker").cast(kernels).to_physical().cast(pl.Int64).fill_null(-1),
    ).filter(pl.col("lane") >= 0)
    left_out = max(table.height - MOST_SLICES, 0)
    if left_out:
        table = table.top_k(MOST_SLICES, by=pl.col("end") - pl.col("start"))
    table = table.sort("lane", "start")
    return {
        "lane": _packed(table["lane"], "u16"),
        "start": _packed(table["start"] - work.window[0], "f64"),
        "dur": _packed(table["end"] - table["start"], "f64"),
        "reason": _packed(table["reason"], "u8"),
        "kernel": _packed(table["kernel"], "i32"),
        "blocker": _packed(table["blocker"], "i32"),
    }, left_out


def _path(explained: Explanation, place: Ints) -> dict[str, Packed]:
    work, segments = explained.work, explained.path.segments
    row = segments["row"].to_numpy()
    lane = np.append(place[work.lane], -1)[row]
    kernel = np.append(work.kernel, 0)[row]
    return {
        "lane": _packed(lane, "i32"),
        "start": _packed(segments["start"] - work.window[0], "f64"),
        "end": _packed(segments["end"] - work.window[0], "f64"),
        "part": _packed(segments["part"].to_physical(), "u8"),
        "kernel": _packed(kernel, "u32"),
    }


def _packed(values: pl.Series | Ints | NDArray[np.float64], type: str) -> Packed:
    array = np.ascontiguousarray(np.asarray(values), dtype=np.dtype(_TYPES[type]).newbyteorder("<"))
    return {"type": type, "data": base64.b64encode(zlib.compress(array.tobytes(), 6)).decode()}
