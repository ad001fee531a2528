"""What each kernel, each cost of the scheduler and each finding is worth: changed, and simulated again.

A kernel at half moves half the bytes in half the time; at nothing its tasks are still submitted and handed out. How a
finding is taken away: `without_finding`.
"""

from __future__ import annotations

import polars as pl

from npuscope.base import progress
from npuscope.base.interval import Against
from npuscope.explain.changes import EVERY_PRODUCER, GAINS, Gains, OneChange, WhatIf, ranked
from npuscope.explain.diagnosis.cause import TUNABLE
from npuscope.table.columns import Column, Table
from npuscope.table.formats import percent
from npuscope.time.change_job import (
    COSTS,
    SCHEDULER,
    TINY,
    cheaper,
    fewer_bytes,
    fewest_tasks,
    scaled,
    submitted_in,
    without_limit,
    without_scheduler,
)
from npuscope.time.priced import NO_PRICE, Owners, Priced, half_ns, named
from npuscope.time.run import Simulated
from npuscope.time.uncertainty import COMPARED, against

SIMULATED = GAINS.plus(
    Column(
        "against",
        COMPARED,
        "of a program: the run at nothing against the run as it is; where 80% of measured ratios lie, and the "
        "probability that it is faster",
        title="80%, likely faster",
    )
)
FEWEST = "as few tasks as can be"
FEWER_BYTES = f"{percent(TUNABLE)} fewer bytes"
THREADS = "all of the scheduler's threads"
HOW = {
    THREADS: "dispatch, FIN and pickup",
    "dispatch": "handing out a block",
    "FIN": "from a block's end to its consumers' being ready",
    "pickup": "from handed out to started",
}


def likely_gains(gains: Gains) -> Table:
    """The gains with how sure they are. What limits a changed run is taken to be what limits the run as it is."""
    regime = gains.regime
    walls = [gain.nothing_ns for gain in gains.gains]
    found = [
        against(gains.wall_ns, wall, regime, regime).as_dict() if min(wall, gains.wall_ns) > 0 else None
        for wall in walls
    ]
    return Table(SIMULATED, gains.frame().with_columns(pl.Series("against", found)))


def replay_against(found: WhatIf, bound: str) -> Against | None:
    """How sure a change is that was replayed in the trace of a simulated run; `bound` is what limits that run."""
    return against(found.measured_ns, found.new_ns, bound, bound) if min(found.measured_ns, found.new_ns) > 0 else None


def whatif_each(base: Simulated, priced: Priced) -> Gains:
    """Every change alone, and every finding that was priced."""
    job, machine = base.prepared.job, base.prepared.machine
    owner = Owners(base.prepared)
    wall = base.trials.wall_ns
    gains: list[OneChange] = []
    cannot: list[tuple[str, str]] = []
    for done, (kernel, classes) in enumerate(owner.classes.items()):
        progress.report("simulating kernels", done, len(owner.classes))
        half, nothing = (wall(scaled(job, classes, share, share)) for share in (0.5, 0.0))
        gains.append(OneChange("kernel", kernel, "its blocks; tasks are still submitted and handed out", half, nothing))
    for what, names in {**COSTS, THREADS: SCHEDULER}.items():
        half, nothing = (wall(machine=cheaper(machine, names, share)) for share in (0.5, TINY))
        gains.append(OneChange("dispatch", what, HOW[what], half, nothing))
    half, nothing = (wall(submitted_in(job, share)) for share in (0.5, TINY))
    gains.append(OneChange("dispatch", "submit", "the orchestrator's time per task", half, nothing))
    half, nothing = (without_scheduler(base, share) for share in (0.5, TINY))
    gains.append(
        OneChange(
            "dispatch",
            "all of the scheduler",
            "submitting, handing out, starting and noticing the end of all tasks but one",
            half,
            nothing,
        )
    )
    least = fewest_tasks(base.prepared)
    fewer = without_scheduler(base, max(least.handing_out, TINY), least.submitting)
    gains.append(OneChange("dispatch", FEWEST, str(least), None, fewer))
    unordered, unlimited = (wall(*without_limit(base.prepared, limit)) for limit in ("dependency", "memory"))
    gains.append(OneChange("dependency", EVERY_PRODUCER, "a bound: nothing waits for data", None, unordered))
    half = wall(machine=machine._replace(limit=machine.limit * 2.0))
    gains.append(OneChange("bandwidth", "HBM shared by blocks", "twice the bandwidth; no limit", half, unlimited))
    quarter = wall(machine=fewer_bytes(machine, TUNABLE))
    gains.append(OneChange("bandwidth", FEWER_BYTES, "as if HBM had as much room for the rest", None, quarter))
    for finding in priced.findings:
        price = finding.price
        if price is None or price.wall_ns is None:
            cannot.append((named(finding), price.how if price else NO_PRICE))
        else:
            gains.append(OneChange("finding", named(finding), price.how, half_ns(base, owner, finding), price.wall_ns))
    return Gains(base.wall_ns, ranked(gains), tuple(cannot), regime=base.bound.regime)
