"""An alignment drawn: both passes as ribbons on one time axis, matched calls coloured by error."""

from __future__ import annotations

import numpy as np
import polars as pl

from npuscope.analysis.forms import duration
from npuscope.forward.align.alignment import Alignment
from npuscope.report.document import html
from npuscope.report.drawings.legend import legend

WIDTH, ROW, GAP = 1600, 46, 70
MOST = 20_000  # rectangles of a ribbon; beyond it neighbours of one colour are drawn as one
# predicted / measured, up to -> colour and words; blue is too short, red too long
STEPS = ((0.5, "#2b6cb0", "less than half"), (0.8, "#63a4dd", "half to 0.8"), (0.95, "#b7d7f0", "0.8 to 0.95"),
         (1.05, "#8bc48a", "within 5 %"), (1.25, "#f6c9a8", "1.05 to 1.25"), (2.0, "#e58b5b", "1.25 to 2"),
         (np.inf, "#c0392b", "more than double"))  # fmt: skip
ALONE = "#3d3d3d"


def ribbons(a: Alignment) -> str:
    """Both sides, and what the colours say."""
    keys = [*((words, colour) for _, colour, words in STEPS), ("only on this side", ALONE)]
    return _drawing(a) + legend(keys, "predicted over measured")


def _drawing(a: Alignment) -> str:
    longest = max(a.predicted.span_ns, a.measured.span_ns, 1)
    ratio = (a.pairs["predicted_ns"] / a.pairs["measured_ns"].replace(0, None)).fill_null(np.inf).to_numpy()
    edges = np.array([limit for limit, *_ in STEPS[:-1]])
    colour = np.searchsorted(edges, ratio, side="left")
    rows = []
    for row, (name, times, column, alone) in enumerate(
        (("predicted", a.times[0], "predicted", a.extra), ("measured", a.times[1], "measured", a.missing))
    ):
        kinds = np.full(times.height, len(STEPS))
        kinds[a.pairs[column].to_numpy()] = colour
        kernels = _kernels(a, column, alone, times.height)
        top = 24 + row * GAP
        rows.append(f'<text x="4" y="{top - 6}" font-size="13">{name}, {duration(int(times["dur"].sum()))}</text>')
        rows += _ribbon(times, kinds, kernels, longest, top)
    height = 24 + GAP + ROW + 8
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="both passes">{"".join(rows)}</svg>'


def _kernels(a: Alignment, column: str, alone: pl.DataFrame, calls: int) -> list[str]:
    """What a tooltip says of each call."""
    told = [""] * calls
    pairs = a.pairs.select(column, "kernel", "predicted_ns", "measured_ns")
    for place, kernel, ours, theirs in pairs.iter_rows():
        told[place] = f"{kernel}: predicted {duration(ours)}, measured {duration(theirs)}"
    ns = "measured_ns" if "measured_ns" in alone.columns else "predicted_ns"
    for place, kernel, dur in alone.select("index", "kernel", ns).iter_rows():
        told[place] = f"{kernel}: {duration(dur)}, only here"
    return told


def _ribbon(times: pl.DataFrame, kinds: np.ndarray, kernels: list[str], longest: int, top: int) -> list[str]:
    start = (times["start"] - times["start"].min()).to_numpy() * (WIDTH / longest)
    end = start + times["dur"].to_numpy() * (WIDTH / longest)
    if len(start) > MOST:  # one drawing per colour and pixel column
        keep = np.unique(np.stack([start.astype(np.int64) * (len(STEPS) + 1) + kinds]), return_index=True)[1]
        keep = np.sort(keep)
    else:
        keep = np.arange(len(start))
    colours = [colour for _, colour, _ in STEPS] + [ALONE]
    return [
        f'<rect x="{start[n]:.2f}" y="{top}" width="{max(end[n] - start[n], 0.25):.2f}" height="{ROW}" '
        f'fill="{colours[int(kinds[n])]}"><title>{html(kernels[n])}</title></rect>'
        for n in keep.tolist()
    ]
