"""Counters over time as tracks below a timeline: a value holds until the next sample."""

from __future__ import annotations

import polars as pl

from npuscope.lab.payload.packed import packed, rising
from npuscope.trace.core import Trace
from npuscope.trace.counters import READY_QUEUES, SERIES, by_time, within

MOST_TRACKS = 100
NAMES = {name: f"ready queue {name.split()[-1]}" for name in READY_QUEUES}  # what people read
MOST_SAMPLES = 500_000  # of one track


def counter_tracks(trace: Trace, window: tuple[int, int]) -> list[dict[str, object]]:
    """One per lane and name; times are nanoseconds from the window's start."""
    if trace.counters.is_empty():
        return []
    samples = by_time(within(trace.counters.lazy(), *window).collect()).drop_nulls("value")
    names = dict(trace.lanes.select("lane", "name").iter_rows())
    tracks: list[dict[str, object]] = []
    for (lane, name), track in samples.group_by(*SERIES, maintain_order=True):
        if len(tracks) == MOST_TRACKS:
            break
        every = max(-(-track.height // MOST_SAMPLES), 1)
        thinned = track.gather_every(every)
        where = "" if lane is None else f" on {names.get(lane, lane)}"
        tracks.append(
            {
                "name": f"{NAMES.get(str(name), name)}{where}",
                "time": rising((thinned["time"] - window[0]).clip(0)),
                "value": packed(thinned["value"].cast(pl.Float64), "f64"),
                "most": float(track["value"].max() or 0),  # type: ignore[arg-type]
                "note": f"every {every}th sample" if every > 1 else "",
            }
        )
    return tracks
