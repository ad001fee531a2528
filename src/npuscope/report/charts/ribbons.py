"""An alignment: both passes as ribbons on one time axis, matched calls coloured by error."""

from __future__ import annotations

import numpy as np
import polars as pl

from npuscope.forward.align.alignment import Alignment
from npuscope.table.formats import duration
from npuscope.table.parts import Spec
from npuscope.trace.intervals import Ints

MOST = 20_000  # calls of a ribbon; beyond it one per colour and thousandth of the axis
# predicted / measured, up to -> words; from too short to too long
STEPS = (
    (0.5, "less than half"), (0.8, "half to 0.8"), (0.95, "0.8 to 0.95"), (1.05, "within 5%"), (1.25, "1.05 to 1.25"),
    (2.0, "1.25 to 2"), (np.inf, "more than double"),
)  # fmt: skip


def ribbons_chart(a: Alignment) -> Spec:
    """Both sides; kind len(STEPS) has no partner."""
    ratio = (a.pairs["predicted_ns"] / a.pairs["measured_ns"].replace(0, None)).fill_null(np.inf).to_numpy()
    colour = np.searchsorted(np.array([limit for limit, _ in STEPS[:-1]]), ratio, side="left")
    longest = max(a.predicted.span_ns, a.measured.span_ns, 1)
    sides = (("predicted", a.times[0], "predicted", a.extra), ("measured", a.times[1], "measured", a.missing))
    rows = []
    for name, times, column, alone in sides:
        kinds = np.full(times.height, len(STEPS))
        kinds[a.pairs[column].to_numpy()] = colour
        rows.append(_row(f"{name}, {duration(int(times['dur'].sum()))}", times, kinds, longest))
        rows[-1]["told"] = _told(a, column, alone, times.height, rows[-1].pop("kept"))
    return {
        "chart": "ribbons",
        "title": "Both passes, matched calls coloured by predicted over measured",
        "rows": rows,
        "kinds": [*(words for _, words in STEPS), "only on this side"],
        "span": longest,
        "note": "",
    }


def _row(name: str, times: pl.DataFrame, kinds: Ints, longest: int) -> Spec:
    start = (times["start"] - times["start"].min()).to_numpy()
    kept = np.arange(len(start))
    if len(start) > MOST:
        column = start * 1000 // longest
        kept = np.sort(np.unique(column * (len(STEPS) + 1) + kinds, return_index=True)[1])
    dur = times["dur"].to_numpy()
    return {
        "name": name,
        "start": start[kept].tolist(),
        "dur": dur[kept].tolist(),
        "kind": kinds[kept].tolist(),
        "kept": kept.tolist(),
    }


def _told(a: Alignment, column: str, alone: pl.DataFrame, calls: int, kept: object) -> list[str]:
    """What is said of each call that is drawn."""
    told = [""] * calls
    for place, kernel, ours, theirs in a.pairs.select(column, "kernel", "predicted_ns", "measured_ns").iter_rows():
        told[place] = f"{kernel}: predicted {duration(ours)}, measured {duration(theirs)}"
    ns = "measured_ns" if "measured_ns" in alone.columns else "predicted_ns"
    for place, kernel, dur in alone.select("index", "kernel", ns).iter_rows():
        told[place] = f"{kernel}: {duration(dur)}, only here"
    assert isinstance(kept, list)
    return [told[place] for place in kept]
