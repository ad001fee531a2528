"""One program under both runtimes: which is faster on the device, why, and what the host pays.

both = both_runtimes(Request("layer.py"))
both.ratio, both.steps, both.host
"""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.base.errors import BadInput
from npuscope.base.frozen import dataclass
from npuscope.base.interval import Against
from npuscope.chip.runtimes import HBG, TMR, Mode, runtime_named
from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import TEXT, TIME
from npuscope.time.change_job import TINY, submitted_in
from npuscope.time.chip.host_graph import HostCost, host_cost, mode_of
from npuscope.time.chip.job import ENDLESS
from npuscope.time.uncertainty import against

UNDECIDED = "undecided"
STEPS = Columns(
    "compare.steps",
    "A step from tmr to hbg; each is simulated on top of those before, so the changes add up.",
    Column("step", TEXT, "what changes", title="from tmr to hbg"),
    Column("wall_ns", TIME, "device wall of a call with this and all before it", title="device wall", scale="wall"),
    Column("change_ns", TIME, "more than in the row before", title="change", scale="wall", more_is="worse"),
)


@dataclass(frozen=True)
class BothRuntimes:
    """`refused`: why host_build_graph cannot run the program, if it cannot."""

    tmr: Prediction
    hbg: Prediction
    refused: BadInput | None = None

    def device_wall_ns(self, name: str) -> float:
        """A call's device wall: the run and what every call pays around it."""
        one = self.tmr if name == TMR else self.hbg
        return one.simulated.wall + runtime_named(name).around_ns

    @property
    def ratio(self) -> float:
        """The device wall under hbg over that under tmr."""
        return self.device_wall_ns(HBG) / self.device_wall_ns(TMR)

    @property
    def faster(self) -> str:
        """Undecided where the runs differ by less than what every call pays around them does: that was fitted on graphs
        of about 1,000 tasks, and comes and goes by more than this between calls of one program."""
        if self.refused:
            return TMR
        runs = self.hbg.simulated.wall - self.tmr.simulated.wall
        if abs(runs) <= abs(runtime_named(HBG).around_ns - runtime_named(TMR).around_ns):
            return UNDECIDED
        return HBG if runs < 0 else TMR

    @cached_property
    def against(self) -> Against:
        """How sure that is, as of any change; nothing of it is learnt from pairs of runtimes."""
        regimes = self.tmr.simulated.bound.regime, self.hbg.simulated.bound.regime
        return against(self.device_wall_ns(TMR), self.device_wall_ns(HBG), *regimes)

    @property
    def host(self) -> HostCost:
        return host_cost(self.hbg.program)

    @property
    def mode(self) -> Mode:
        prepared = self.hbg.simulated.prepared
        return mode_of(prepared.program, prepared.job)

    @cached_property
    def steps(self) -> Table:
        """The way from one to the other."""
        base, other = self.tmr.simulated, self.hbg.simulated
        around = runtime_named(TMR).around_ns
        free = submitted_in(base.prepared.job, TINY)._replace(rings=ENDLESS)
        late = free._replace(early=np.zeros_like(free.early))
        machine, job = other.prepared.machine, other.prepared.job
        at_once = other.trials.wall(job, machine._replace(attach=0.0, scan=machine.scan * TINY))
        walls = [
            ("under tmr", base.wall + around),
            ("no task waits until the device has submitted it", base.trials.wall(free) + around),
            ("no task is staged early", base.trials.wall(late) + around),
            ("wake lists and a resolver make tasks ready", at_once + around),
            ("the threads look at all tasks before the first runs", other.wall + around),
            ("what every call pays around its run: hbg", self.device_wall_ns(HBG)),
        ]
        rounded = [(step, round(wall)) for step, wall in walls]
        later = [(step, wall, wall - before) for (_, before), (step, wall) in pairwise(rounded)]
        return STEPS.table([(*rounded[0], 0), *later])

    def as_dict(self) -> dict[str, object]:
        """The contract of `npuscope compare --runtimes --json` (docs/reference/json.md)."""
        common = {
            "file": self.tmr.request.file,
            "program": self.tmr.recording.program,
            "device": self.tmr.chip.name,
            "tasks": len(self.tmr.recording.tasks),
            "faster": self.faster,
            "tmr": self._one(TMR),
        }
        if self.refused:
            return {**common, "hbg": None, "refused": str(self.refused)}
        return {
            **common,
            "hbg": self._one(HBG) | {"scheduled_by": self.mode},
            "ratio": self.ratio,
            "against": self.against.as_dict(),
            "host": asdict(self.host),
            "refused": None,
            "steps": self.steps.rows(),
        }

    def _one(self, name: str) -> dict[str, object]:
        one = self.tmr if name == TMR else self.hbg
        return {"run_ns": one.simulated.wall_ns, "device_wall_ns": round(self.device_wall_ns(name))}


def both_runtimes(request: Request) -> BothRuntimes:
    """The script runs once; what it does is simulated under both."""
    tmr = Prediction(replace(request, runtime=TMR))
    hbg = Prediction(replace(request, runtime=HBG), tmr.ran, chip=tmr.chip)
    _ = tmr.simulated
    try:
        _ = hbg.simulated
    except BadInput as refused:
        return BothRuntimes(tmr, hbg, refused)
    return BothRuntimes(tmr, hbg)
