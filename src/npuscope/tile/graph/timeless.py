"""The graph as a Trace without times: edges and no slices.

A slice is an interval on a lane, and nothing here has run on one; slices of no length would tell every analysis that
the work took none. So `slices` and `lanes` are empty, `edges` has a row per reason with the kernels at both ends, and
the tasks stand in `meta.notes`. Analyses of time say that there is nothing to analyse; a simulation fills in the
slices.
"""

from __future__ import annotations

import polars as pl

from npuscope.tile.graph.edges import Graph, Origin
from npuscope.tile.record.model import Recording
from npuscope.trace.core import Trace
from npuscope.trace.meta import Meta
from npuscope.trace.schema import LANES, SLICES

FORMAT = "task graph"
_SOURCES: dict[Origin, str] = {"creator": "creator", "raw": "tensormap", "waw": "tensormap", "explicit": "explicit"}


def timeless_trace(recording: Recording, graph: Graph) -> Trace:
    """Edges between tasks, one row per pair and origin; allocations, which run nowhere, have negative ids."""
    rows = [(src, dst, origin) for (src, dst), origins in graph.pairs.items() for origin in origins]
    kernels = [task.kernel for task in recording.tasks]
    edges = pl.DataFrame(
        {
            "src": [src for src, _, _ in rows],
            "dst": [dst for _, dst, _ in rows],
            "source": [_SOURCES[origin] for _, _, origin in rows],
            "origin": [origin for _, _, origin in rows],
            "src_kernel": [kernels[src] if src >= 0 else None for src, _, _ in rows],
            "dst_kernel": [kernels[dst] for _, dst, _ in rows],
        },
        schema={
            "src": pl.Int64,
            "dst": pl.Int64,
            **dict.fromkeys(("source", "origin", "src_kernel", "dst_kernel"), pl.String),
        },
    )
    tasks = [
        {"task": task.id, "kernel": task.kernel, "unit": task.core, "blocks": task.blocks} for task in recording.tasks
    ]
    notes = {"program": recording.program, "mode": recording.mode, "tasks": tasks}
    return Trace.of(pl.DataFrame(schema=SLICES), pl.DataFrame(schema=LANES), Meta(FORMAT, notes=notes), edges)
