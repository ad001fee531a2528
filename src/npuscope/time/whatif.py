"""What each kernel, each cost of the scheduler and each finding is worth: changed, and simulated again.

A kernel at half moves half the bytes in half the time; at nothing its tasks are still submitted and handed out. How a
finding is taken away: `without_finding`.
"""

from __future__ import annotations

import polars as pl

from npuscope.base import progress
from npuscope.check.checked import CheckOptions, check
from npuscope.explain.changes import EVERY_PRODUCER, GAINS, Gains, OneChange, WhatIf, ranked
from npuscope.explain.diagnosis import Diagnosis
from npuscope.table.columns import Column, Table
from npuscope.time.change_job import scaled
from npuscope.time.chip.job import Job, Machine
from npuscope.time.diagnosis import diagnosis_of
from npuscope.time.estimate_forms import COMPARED
from npuscope.time.priced import Prices, prices_of
from npuscope.time.run import Simulated, run
from npuscope.time.uncertainty import Against, against
from npuscope.time.without_finding import Owners
from npuscope.time.without_limit import COSTS, SCHEDULER, TINY, cheaper, submitted_in, without_limit

SIMULATED = GAINS.plus(
    Column(
        "against",
        COMPARED,
        "of a program: the run at nothing against the run as it is; where 80% of measured ratios lie, and the "
        "probability that it is faster",
        title="80%, faster",
    )
)
THREADS = "all of the scheduler's threads"
HOW = {
    THREADS: "dispatch, FIN and pickup",
    "dispatch": "handing out a block",
    "FIN": "from a block's end to its consumers' being ready",
    "pickup": "from handed out to started",
}


def likely_gains(gains: Gains, bound: str) -> Table:
    """The gains with how sure they are. What limits a changed run is taken to be what limits the run as it is."""
    walls = [gain.nothing_ns for gain in gains.gains]
    found = [
        against(gains.wall_ns, wall, bound, bound).as_dict() if min(wall, gains.wall_ns) > 0 else None for wall in walls
    ]
    return Table(SIMULATED, gains.frame().with_columns(pl.Series("against", found)))


def whatif_program(base: Simulated) -> tuple[Gains, Diagnosis]:
    """Every change and every finding of a program, and its verdict with what the findings are worth."""
    found = check(base.prepared.program, CheckOptions(races=False)).findings
    prices = prices_of(base, [one.finding for one in found], halves=True)
    return whatif_each(base, prices), diagnosis_of(base, prices)


def replay_against(found: WhatIf, bound: str) -> Against | None:
    """How sure a change is that was replayed in the trace of a simulated run; `bound` is what limits that run."""
    return against(found.measured_ns, found.new_ns, bound, bound) if min(found.measured_ns, found.new_ns) > 0 else None


def whatif_each(base: Simulated, prices: Prices | None = None) -> Gains:
    """Every change alone, and every finding that was priced."""
    prepared = base.prepared
    job, machine = prepared.job, prepared.machine
    owner = Owners(prepared)
    gains: list[OneChange] = []
    cannot: list[tuple[str, str]] = []

    def wall(changed: Job | None = None, other: Machine | None = None) -> int:
        return run(prepared, changed, other).wall_ns

    for done, (kernel, classes) in enumerate(owner.classes.items()):
        progress.report("simulating kernels", done, len(owner.classes))
        half, nothing = (wall(scaled(job, classes, share, share)) for share in (0.5, 0.0))
        gains.append(OneChange("kernel", kernel, "its blocks; tasks are still submitted and handed out", half, nothing))
    for what, names in {**COSTS, THREADS: SCHEDULER}.items():
        half, nothing = (wall(other=cheaper(machine, names, share)) for share in (0.5, TINY))
        gains.append(OneChange("dispatch", what, HOW[what], half, nothing))
    half, nothing = (wall(submitted_in(job, share)) for share in (0.5, TINY))
    gains.append(OneChange("dispatch", "submit", "the orchestrator's time per task", half, nothing))
    half, nothing = (wall(submitted_in(job, share), cheaper(machine, SCHEDULER, share)) for share in (0.5, TINY))
    gains.append(
        OneChange(
            "dispatch",
            "all of the scheduler",
            "submitting, handing out, starting and noticing the end of tasks",
            half,
            nothing,
        )
    )
    alone, unlimited = (wall(*without_limit(prepared, limit)) for limit in ("dependency", "memory"))
    gains.append(OneChange("dependency", EVERY_PRODUCER, "a bound: nothing waits for data", None, alone))
    half = wall(other=machine._replace(limit=machine.limit * 2.0))
    gains.append(OneChange("bandwidth", "HBM shared by blocks", "twice the bandwidth; no limit", half, unlimited))
    for price in prices.each if prices else ():
        if price.wall_ns is None:
            cannot.append((price.name, price.how))
        else:
            gains.append(OneChange("finding", price.name, price.how, price.half_ns, price.wall_ns))
    return Gains(base.wall_ns, ranked(gains), tuple(cannot))
