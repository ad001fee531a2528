"""A roofline as a report: the answer first, then the kernels, the families, and what has no price."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.forward.roofline import Roofline
from npuscope.report.charts.roofline import roofline_chart
from npuscope.table.formats import many, percent, sentence_start
from npuscope.table.parts import Chart, Heading, In, Notes, Part, Rows, Say

MOST = 12
NEEDS = {
    "context not given": "--context N (tokens in the cache per sequence)",
    "number of ranks not given": "--ranks N",
    "tokens per expert not given": "--tokens-per-expert N",
}


def roofline(path: str, r: Roofline, wide: bool = False) -> Iterator[Part]:
    """The capture at `path`."""
    per = "times are per step" if r.steps else "the capture marks no steps: times are of the whole of it"
    chosen = "--device" if r.chosen_by == "given" else r.chosen_by
    counted = f"{many(int(r.calls['count'].sum()), 'call')} of {many(r.calls.height, 'kind')}"
    steps = f" in {many(r.steps, 'step')}" if r.steps else ""
    tables = r.tables()
    yield Heading(f"Roofline: {path}", 1, In.POSTED)
    yield Say(sentence_start(r.sentence()), strong=True)
    yield Say(f"{path}: {counted}{steps}; device by {chosen}")
    drawing = roofline_chart(r)
    yield Chart(drawing)
    if drawing is None:
        yield Say("No kernel with FLOPs has a price, so there is nothing to plot.", where=In.PAGE)
    yield Heading(f"Farthest from the chip's limits ({per}; mean and limit are of one call)")
    yield Rows(r.of_priced(), MOST, MOST, wide=wide)
    yield Heading("By family")
    yield Rows(tables["families"], wide=wide, legend=False)
    if tables["unknown"].frame.height:
        yield Heading(f"No known limit: {percent(1 - r.priced_share)} of the time")
        yield Rows(tables["unknown"], wide=wide)
    yield Notes(_remarks(r), "note: ")


def _remarks(r: Roofline) -> list[str]:
    """What a reader should know of the numbers."""
    reasons = r.unknown()["why"].to_list()
    found = [
        f"{need} gives more kernels a limit" for why, need in NEEDS.items() if any(w.startswith(why) for w in reasons)
    ]
    if not r.above.is_empty():
        names = ", ".join(r.above["kernel"].unique(maintain_order=True).head(4))
        found.append(
            f"{many(r.above.height, 'kind')} of calls ran faster than memory allows ({names}): their bytes came from "
            "L2, or the work is less than the shapes say"
        )
    if r.left_out:
        found.append(f"{r.left_out:,} rows that list another row's work a second time are left out")
    return found
