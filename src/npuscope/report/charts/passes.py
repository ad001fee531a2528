"""Forward passes: every pass as a column, every layer as a point with its spread."""

from __future__ import annotations

import polars as pl

from npuscope.table.formats import duration
from npuscope.table.parts import Spec, axis

MOST = 400  # columns


def passes_chart(passes: pl.DataFrame) -> Spec:
    """A column per pass: what the device computed, what only communication ran, and what of the span nothing did."""
    shown = passes.head(MOST).rows(named=True)
    columns = []
    for p in shown:
        span, union, comm = p["span_ns"], p["union_ns"], p["comm_ns"]
        wrong = [word for word, there in (("incomplete", not p["complete"]), ("disturbed", p["disturbed"])) if there]
        columns.append(
            {
                "name": f"pass {p['index']}, {p['phase']}",
                "values": [max(union - comm, 0), max(comm, 0), max(span - union, 0)],
                "told": [duration(span), *wrong],
                "marked": bool(wrong),
            }
        )
    more = f"the first {MOST} of {passes.height}" if passes.height > MOST else ""
    return {
        "chart": "columns",
        "title": "Passes",
        "y": axis("time of a pass", "ns"),
        "groups": ["compute", "communication", "nothing ran"],
        "columns": columns,
        "note": more,
    }


def layers_chart(layers: pl.DataFrame) -> Spec | None:
    """The median of each layer, and up to where 95% of the passes are."""
    if layers.is_empty():
        return None
    points = []
    for number, (layer, p50, p95, cv) in enumerate(layers.select("layer", "p50_ns", "p95_ns", "cv").iter_rows()):
        told = [f"median {duration(p50)}, 95% of passes below {duration(p95)}", f"spread {cv or 0:.2f} of the mean"]
        points.append({"x": number, "y": p50, "low": p50, "high": p95, "name": f"layer {layer}", "told": told})
    return {
        "chart": "lines",
        "title": "Layers",
        "x": {"title": "layer", "labels": [str(layer) for layer in layers["layer"].to_list()]},
        "y": axis("time of a layer", "ns"),
        "series": [{"name": "median, and up to p95", "points": points, "joined": False}],
        "note": "",
    }
