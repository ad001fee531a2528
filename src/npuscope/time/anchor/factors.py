"""How many times as long as simulated what was measured took, and a job and a machine on which it does.

A block takes its factor longer and asks the memory for as many bytes per nanosecond as before: then its time is the
factor's multiple whatever else runs, and a run that HBM limits becomes as long as it was measured to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from npuscope.time.anchor.names import paired
from npuscope.time.chip.job import Floats, Job, Machine
from npuscope.time.chip.prepare import Prepared
from npuscope.time.run import Simulated, run

MACHINE = {  # of `observed.COSTS` -> what of the machine grows with it; `submit` is the job's
    "pickup": ("pickup", "pickup_first", "visible"),
    "switch": ("switch",),
    "finish": ("fin", "poll", "complete", "complete_turn", "resolve"),
    "dispatch": ("dispatch", "dispatch_turn", "stage"),
}
ENOUGH = 3  # measured kernels whose median speaks for one that nobody measured


@dataclass(frozen=True)
class Factors:
    """Measured over simulated, by kernel and by cost of the scheduler."""

    kernels: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)

    @property
    def typical(self) -> float:
        """Of a kernel that was not measured: the median of the others, 1 where they are few."""
        return median(self.kernels.values()) if len(self.kernels) >= ENOUGH else 1.0

    def of(self, kernels: Iterable[str]) -> dict[str, float | None]:
        """By name of a program's kernels; None for those that were not measured."""
        found: dict[str, float | None] = {}
        for pair in paired(kernels, self.kernels):
            known = self.kernels[pair.measured[0]] if pair.measured else None
            found |= dict.fromkeys(pair.simulated, known)
        return found

    @property
    def key(self) -> str:
        """Equal where they are."""
        return repr((sorted(self.kernels.items()), sorted(self.costs.items())))


def anchored(prepared: Prepared, factors: Factors) -> Simulated:
    """The program run as measured ones run: blocks and costs of the scheduler take their factors longer."""
    known = factors.of(task.kernel for task in prepared.program.recording.tasks)
    each = {kernel: factors.typical if factor is None else factor for kernel, factor in known.items()}
    return run(prepared, slower(prepared, each, factors.costs.get("submit", 1.0)), _machine(prepared.machine, factors))


def slower(prepared: Prepared, kernels: Mapping[str, float], submit: float = 1.0) -> Job:
    """Blocks of these kernels take so many times as long, at the rate of memory traffic that they have."""
    job = prepared.job
    factor: Floats = np.ones((len(job.run), 1))
    names = [task.kernel for task in prepared.program.recording.tasks]
    for number, task in zip(job.block_class.tolist(), job.task_of.tolist(), strict=True):
        factor[number] = kernels.get(names[task], 1.0)  # a class is of one kernel
    return job._replace(run=job.run * factor, submit=job.submit * submit)


def _machine(machine: Machine, factors: Factors) -> Machine:
    changed = {
        name: getattr(machine, name) * factors.costs[cost]
        for cost, names in MACHINE.items()
        if cost in factors.costs
        for name in names
    }
    return machine._replace(**changed)
