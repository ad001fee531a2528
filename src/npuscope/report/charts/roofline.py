"""The roofline: achieved FLOP/s over FLOP per byte, a point per distinct call, under the chip's roofs."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from npuscope.forward.roofline import Roofline
from npuscope.table.formats import duration, percent
from npuscope.table.parts import Spec, axis

MOST = 3000  # points


def roofline_chart(r: Roofline) -> Spec | None:
    """Both axes logarithmic, roofs of the types that occur; None where no kernel with FLOPs has a price."""
    points = r.priced.filter((pl.col("flops") > 0) & (pl.col("bytes") > 0) & (pl.col("measured_ns") > 0))
    if points.is_empty():
        return None
    points = points.sort("measured_ns", descending=True)
    families = points["family"].unique(maintain_order=True).to_list()
    total = max(int(points["measured_ns"].sum()), 1)
    peaks = sorted({peak for peak in points["peak"].to_list() if peak})
    left = min(float(row["flops"] / row["bytes"]) for row in points.iter_rows(named=True)) / 2
    more = f"the {MOST:,} with most time of {points.height:,} are drawn" if points.height > MOST else ""
    return {
        "chart": "scatter",
        "title": "Roofline",
        "x": axis("FLOP per byte", "si", log=True),
        "y": axis("FLOP/s", "si", log=True),
        "groups": families,
        "points": [
            {
                "x": row["flops"] / row["bytes"],
                "y": row["flops"] / row["mean_ns"] * 1e9,
                "size": row["measured_ns"] / total,
                "group": families.index(row["family"]),
                "name": row["kernel"],
                "told": _told(row, total),
            }
            for row in points.head(MOST).iter_rows(named=True)
        ],
        "lines": [*_roofs(r, peaks, left)],
        "note": "; ".join(filter(None, ["a circle is as large as its share of the time", more])),
    }


def _told(row: dict[str, object], total: int) -> list[str]:
    mean, limit, share, measured = (row[name] for name in ("mean_ns", "limit_ns", "efficiency", "measured_ns"))
    assert isinstance(mean, int | float)
    assert isinstance(limit, int | float)
    assert isinstance(share, int | float)
    assert isinstance(measured, int | float)
    return [
        str(row["shapes"] or ""),
        f"{duration(mean)} a call, the chip's limit is {duration(limit)} ({percent(share)})",
        f"{row['bound']}-bound, {percent(measured / total)} of the time of all points",
    ]


def _roofs(r: Roofline, peaks: list[float], left: float) -> Iterator[Spec]:
    """The slope of memory up to each flat peak."""
    bandwidth = r.device.bandwidth
    names: dict[float | None, list[str]] = {}
    for unit, rates in (("vector", r.device.vector), ("cube", r.device.cube)):
        for dtype in rates:
            names.setdefault(r.device.peak("cube" if unit == "cube" else "vector", dtype), []).append(f"{unit} {dtype}")
    for peak in peaks:
        name = f"{', '.join(names.get(peak, []))} {peak / 1e12:,.0f} TFLOP/s"
        yield {"from": [peak / bandwidth, peak], "to": [None, peak], "name": name}  # to the edge
    if peaks:
        top = peaks[-1] / bandwidth
        yield {"from": [left, left * bandwidth], "to": [top, peaks[-1]], "name": f"memory {bandwidth / 1e12:.3g} TB/s"}
