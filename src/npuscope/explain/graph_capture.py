"""Captures of recording a graph (a CUDA or HIP graph): the host launches, nothing runs, it is replayed later.

Frameworks write such a capture beside that of the run. What it says of the device is next to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from npuscope.trace.core import Trace
from npuscope.trace.schema import is_work

_BEGIN, _END = "StreamBeginCapture", "StreamEndCapture"


@dataclass(frozen=True)
class GraphCapture:
    """Launches that were recorded into a graph, and the device tasks that the capture has."""

    recorded: int
    tasks: int

    @property
    def is_all(self) -> bool:
        """True where more was recorded than ran: what ran is the little that comes before a recording."""
        return self.recorded > self.tasks

    def __str__(self) -> str:
        return f"{self.recorded:,} launches were recorded into a graph and not run, {self.tasks:,} device tasks ran"


def graph_capture(trace: Trace) -> GraphCapture | None:
    """What of the capture was recorded into a graph; None where it records none."""
    host = trace.slices.lazy().filter(pl.col("kind") == "host")
    name = pl.col("kernel")
    begins = host.filter(name.str.contains(_BEGIN, literal=True)).select("start").collect()["start"].sort()
    if begins.is_empty():
        return None
    ends = host.filter(name.str.contains(_END, literal=True)).select("start").collect()["start"].sort()
    work = trace.slices.select(pl.col("task").filter(is_work())).to_series()
    ran = trace.edges.filter(pl.col("dst").is_in(work.implode()))["src"].drop_nulls()
    calls = host.filter(name.str.contains("Launch", literal=True) & ~name.str.contains("GraphLaunch", literal=True))
    alone = calls.filter(~pl.col("task").is_in(ran.implode())).select("start").collect()["start"]
    recording = (begins.search_sorted(alone, side="right") > ends.search_sorted(alone, side="right")).sum()
    return GraphCapture(int(recording), len(work)) if recording else None
