"""A run without one of its limits: what the diagnosis and `whatif` both simulate, so that both name one price."""

from __future__ import annotations

from collections.abc import Sequence

from npuscope.time.change_job import with_pairs
from npuscope.time.chip.job import Job, Machine
from npuscope.time.chip.prepare import Prepared

TINY = 1e-6  # share of a cost that counts as nothing: the engine's steps take time
ENDLESS = 1e9  # times the bandwidth
COSTS = {  # the scheduler's costs by what waits for them
    "dispatch": ("dispatch", "stage", "dummy"),
    "FIN": ("fin", "poll", "complete", "resolve", "release"),
    "pickup": ("pickup", "pickup_first", "switch", "visible"),
}
SCHEDULER = tuple(name for names in COSTS.values() for name in names)


def cheaper(machine: Machine, names: Sequence[str], share: float) -> Machine:
    """The machine with these costs at a share of what they are."""
    return machine._replace(**{name: getattr(machine, name) * share for name in names})


def submitted_in(job: Job, share: float) -> Job:
    """The job with the orchestrator's time per task at a share of what it is."""
    return job._replace(submit=job.submit * share)


REMOVABLE = ("memory", "scheduler", "orchestrator", "dependency")  # full cores no constant takes away


def without_limit(prepared: Prepared, limit: str) -> tuple[Job, Machine]:
    """The job and the machine without one of the REMOVABLE limits."""
    job, machine = prepared.job, prepared.machine
    if limit == "memory":
        return job, machine._replace(limit=machine.limit * ENDLESS)
    if limit == "scheduler":
        return job, cheaper(machine, SCHEDULER, TINY)
    if limit == "orchestrator":
        return submitted_in(job, TINY), machine
    return with_pairs(job, ()), machine
