"""What each kernel, each cost of the scheduler and each finding is worth: changed, and simulated again.

A kernel at half moves half the bytes in half the time; at nothing its tasks are still submitted and handed out. How a
finding is taken away: `without_finding`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from npuscope import progress
from npuscope.analysis.each_change import PRODUCERS
from npuscope.analysis.gains import GAINS, Gain, Gains, ranked
from npuscope.analysis.table import Column, Table
from npuscope.check.findings import Finding, Waste
from npuscope.simulate.change_job import scaled, with_pairs
from npuscope.simulate.chip.job import Job, Machine
from npuscope.simulate.estimate_forms import COMPARED
from npuscope.simulate.run import Simulated, run
from npuscope.simulate.uncertainty import against
from npuscope.simulate.without_finding import Owners, without
from npuscope.tile.record.names import short_name

SIMULATED = GAINS.plus(
    Column(
        "against",
        COMPARED,
        "of a program: the run at nothing against the run as it is; where 80 % of measured ratios lie, and the "
        "probability that it is faster",
        title="80 %, faster",
    )
)
TINY = 1e-6  # share of a scheduler's cost that counts as nothing
COSTS = {
    "dispatch": ("dispatch", "stage", "dummy"),
    "FIN": ("fin", "poll", "complete", "resolve", "release"),
    "pickup": ("pickup", "pickup_first", "switch", "visible"),
}
HOW = {
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


def whatif_each(base: Simulated, findings: Sequence[Finding] = ()) -> Gains:
    """Every change alone."""
    prepared = base.prepared
    job, machine = prepared.job, prepared.machine
    owner = Owners(prepared)
    gains: list[Gain] = []
    cannot: list[tuple[str, str]] = []

    def wall(changed: Job | None = None, other: Machine | None = None) -> int:
        return run(prepared, changed, other).wall_ns

    for done, (kernel, classes) in enumerate(owner.classes.items()):
        progress.report("simulating kernels", done, len(owner.classes))
        half, nothing = (wall(scaled(job, classes, share, share)) for share in (0.5, 0.0))
        gains.append(Gain("kernel", kernel, "its blocks; tasks are still submitted and handed out", half, nothing))
    for what, names in COSTS.items():
        half, nothing = (wall(other=_cheaper(machine, names, share)) for share in (0.5, TINY))
        gains.append(Gain("scheduler", what, HOW[what], half, nothing))
    half, nothing = (wall(job._replace(submit=job.submit * share)) for share in (0.5, TINY))
    gains.append(Gain("scheduler", "submit", "the orchestrator's time per task", half, nothing))
    half, nothing = (
        wall(job._replace(submit=job.submit * share), _cheaper(machine, sum(COSTS.values(), ()), share))
        for share in (0.5, TINY)
    )
    gains.append(Gain("scheduler", "all of the scheduler", "dispatch, FIN, pickup and submit", half, nothing))
    gains.append(Gain("dependency", PRODUCERS, "a bound: nothing waits for data", None, wall(with_pairs(job, ()))))
    half, nothing = (wall(other=machine._replace(limit=machine.limit * factor)) for factor in (2.0, 1e9))
    gains.append(Gain("memory", "HBM shared by blocks", "twice the bandwidth; no limit", half, nothing))
    for done, finding in enumerate(findings):
        progress.report("simulating findings", done, len(findings))
        told = f"{finding.id} {finding.file.rpartition('/')[2]}:{finding.line} {short_name(finding.kernel)}".strip()
        how, changed = without(finding, owner)
        if changed is None:
            cannot.append((told, how))
        else:
            part = _halved(finding)
            gains.append(Gain("finding", told, how, wall(without(part, owner)[1]) if part else None, wall(changed)))
    return Gains(base.wall_ns, ranked(gains), tuple(cannot))


def _cheaper(machine: Machine, names: Sequence[str], share: float) -> Machine:
    return machine._replace(**{name: getattr(machine, name) * share for name in names})


def _halved(finding: Finding) -> Finding | None:
    """The finding at half its cost; None where it costs tasks or waits, half of which would be which?"""
    cost = finding.waste
    if cost.tasks or cost.waits:
        return None
    return replace(finding, waste=Waste(bytes=cost.bytes // 2, flops=cost.flops // 2))
