"""What the server asks its pool for, by name: the work itself is loaded in the pool's processes, not in the server."""

from __future__ import annotations

from npuscope.lab.made import Job, Made, Pair, Perfetto


def perform(job: Job) -> Made:
    """Runs a program."""
    from npuscope.lab import job as worker

    return worker.perform(job)


def compared(pair: Pair) -> bytes:
    """Compares two runs."""
    from npuscope.lab import job as worker

    return worker.compared(pair)


def written(order: Perfetto) -> str:
    """Writes a trace for the Perfetto UI."""
    from npuscope.lab import job as worker

    return worker.written(order)
