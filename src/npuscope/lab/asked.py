"""What the server asks its pool for, by name: the work itself is loaded in the pool's processes, not in the server."""

from __future__ import annotations

from npuscope.lab.made import Again, Job, Made, Pair, Perfetto, Replay


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


def looked_into(again: Again) -> bytes:
    """Looks into one kind of block."""
    from npuscope.lab import questions

    return questions.looked_into(again)


def every_change(again: Again) -> bytes:
    """Tries every change of a program."""
    from npuscope.lab import questions

    return questions.every_change(again)


def replayed(order: Replay) -> bytes:
    """Replays a trace with a change."""
    from npuscope.lab import questions

    return questions.replayed(order)
