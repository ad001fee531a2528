"""What is wrong with a capture, and which numbers that touches. One check per function."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from npuscope.explain.doctor import gaps, instrumentation, rows, times
from npuscope.explain.doctor.symptom import Symptom, Symptoms
from npuscope.trace.core import Trace

__all__ = ["CHECKS", "Symptom", "Symptoms", "symptoms_of"]

CHECKS: list[Callable[[Trace], Iterator[Symptom]]] = [
    rows.empty,
    rows.unread_device,
    rows.overlapping_slices,
    rows.duplicates,
    times.text_times,
    times.below_nanosecond,
    times.coarse_times,
    times.unordered,
    times.bad_durations,
    rows.idle_cores,
    rows.no_streams,
    gaps.steps,
    times.clocks_of_processes,
    times.clocks_of_cores,
    gaps.full_buffers,
    gaps.shared_channels,
    gaps.dropped_records,
    gaps.lost_tasks,
    gaps.cut_off,
    gaps.graphs_of_ascend,
    gaps.graph_replays,
    gaps.recorded_graphs,
    rows.noted,
    rows.not_understood,
    rows.files_not_read,
    rows.ranks,
    instrumentation.instrumentation,
]


def symptoms_of(trace: Trace) -> Symptoms:
    """Every check, on any Trace. A check that needs what the capture lacks stays silent."""
    found = [finding for check in CHECKS for finding in check(trace)]
    return Symptoms(tuple(sorted(found, key=lambda f: f.severity != "warning")))
