"""The newest runs held against a history: each time against the runs since its last change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from npuscope.base.errors import NpuscopeError
from npuscope.explain.many.gate import SCHEMA, Gate
from npuscope.explain.many.history import WALL, History
from npuscope.explain.many.ratio import CONFIDENCE, Ratio, holm, ratio_of
from npuscope.explain.many.runs import Run

ALLOWED = 0.01  # a slowdown up to this share is nobody's trouble


def hold_against(history: History, runs: Sequence[Run], allowed: float = ALLOWED) -> Gate:
    """A row for the wall time, and one for every kernel that is not as it was. All are corrected together (Holm)."""
    found: list[tuple[str, float, float, Ratio]] = []
    count = 0
    for series in history.series:
        times = [run.wall_ns if series.name == WALL else run.kernels.get(series.name, 0.0) for run in runs]
        if min(times, default=0) <= 0:
            continue  # a kernel that is gone is not slower
        usual = series.stretches[-1].times
        count = max(count, len(usual))
        noise = 0.0 if history.exact else None
        ratio = ratio_of(usual[-1:] if history.exact else usual, times, noise)
        found.append((series.name, float(np.median(times)), float(np.median(usual)), ratio))
    if not found:
        raise NpuscopeError("nothing in the run is in the history")
    rows = []
    for (name, value, usual_ns, ratio), p in zip(found, holm([one[3].p for one in found]), strict=True):
        beyond = value / usual_ns - 1 > allowed
        sure = ratio.has_interval and p <= 1 - CONFIDENCE and ratio.low > 1
        status = "ok" if not beyond else "FAIL" if sure else "undecided"
        if status == "ok" and name != WALL:
            continue
        label = "wall_us" if name == WALL else f"core_us of {name}"
        change, more = value / usual_ns - 1, ratio.more_runs if status == "undecided" else None
        noise_told = ratio.high / ratio.value - 1 if ratio.has_interval else None
        rows.append((label, value / 1e3, f"at most {allowed:+.1%}", usual_ns / 1e3, change, noise_told, status, more))
    return Gate(pl.DataFrame(rows, schema=SCHEMA, orient="row"), (len(runs), count), len(found))
