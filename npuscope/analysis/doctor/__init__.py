"""What is wrong with a capture, and which numbers that touches. One check per function."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from npuscope.analysis.doctor import gaps, rows, times
from npuscope.analysis.doctor.finding import Diagnosis, Finding
from npuscope.trace.core import Trace

__all__ = ["CHECKS", "Diagnosis", "Finding", "diagnose"]

CHECKS: list[Callable[[Trace], Iterator[Finding]]] = [
    rows.overlapping_slices,
    rows.twins,
    times.time_resolution,
    times.unordered,
    times.bad_durations,
    rows.missing_lanes,
    gaps.steps,
    times.clocks,
    gaps.full_buffers,
    gaps.graph_replays,
    rows.refused_companions,
]


def diagnose(trace: Trace) -> Diagnosis:
    """Every check, on any Trace. A check that needs what the capture lacks stays silent."""
    found = [finding for check in CHECKS for finding in check(trace)]
    return Diagnosis(tuple(sorted(found, key=lambda f: f.severity != "warning")))
