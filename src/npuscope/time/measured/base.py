"""A prediction that stands on a capture: the program before the change is simulated, too, and made as long as measured.

Kernel by kernel the simulation is compared with the capture; what it was off by, it is taken to be off by again. That
holds best for kernels that the change leaves alone. For those that it changes it is the best guess there is. A block
takes its factor longer at the rate of memory traffic that it has, so that its time is the factor's multiple whatever
else runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median

import numpy as np
import polars as pl

from npuscope.base.errors import BadInput
from npuscope.base.interval import Against, Interval
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import COUNT, MEAN_TIME, RATIO, TEXT
from npuscope.time.chip.job import Job
from npuscope.time.chip.prepare import Prepared
from npuscope.time.measured.observed import COSTS, KernelPair, KernelTime, Observed, observed_of, paired, walls
from npuscope.time.run import Simulated, run
from npuscope.time.uncertainty import against, kernel_quantity, time_after, time_estimate

ROUNDS = 8  # of making the simulation as long as the capture; blocks that take longer also meet others
CLOSE = 0.002  # a logarithm of measured over simulated that ends it
LEAST, MOST = 0.1, 10.0  # of a factor on a cost of the scheduler: its waits also come from what it waits behind
ENOUGH = 3  # measured kernels whose median speaks for one that nobody measured
MACHINE = {  # of `observed.COSTS` -> what of the machine grows with it; `submit` is the job's
    "pickup": ("pickup", "pickup_first", "visible"),
    "switch": ("switch",),
    "finish": ("fin", "poll", "complete", "complete_turn", "resolve"),
    "dispatch": ("dispatch", "dispatch_turn", "stage"),
}
UNCHANGED, CHANGED, NEW, GONE = "unchanged", "changed", "new", "gone"
KERNELS = Columns(
    "simulate.anchor.kernels",
    "A kernel, of the capture, of the simulated program before the change and of the program itself; the one with most "
    "measured core time first. Times are means of a block; a mixed block takes as long as the longer of its parts.",
    
        Column("kernel", TEXT, "its name"),
        Column("state", TEXT, "whether the change leaves its blocks as they were: unchanged, changed, new or gone"),
        Column("measured_blocks", COUNT, "blocks in a run of the capture", title="blocks"),
        Column("simulated_blocks", COUNT, "blocks before the change", title="simulated blocks", wide=True),
        Column("measured_ns", MEAN_TIME, "in the capture", title="measured"),
        Column("simulated_ns", MEAN_TIME, "simulated, before the change", title="simulated"),
        Column("ratio", RATIO, "measured over simulated", title="off by"),
        Column("factor", RATIO, "on its blocks' time, so that the simulation takes as long", wide=True),
        Column("anchored_ns", MEAN_TIME, "simulated again with the factors", title="anchored"),
        Column("new_blocks", COUNT, "blocks after the change"),
        Column("new_simulated_ns", MEAN_TIME, "after it, without the capture", title="new simulated", wide=True),
        Column("new_ns", MEAN_TIME, "after the change, on top of the capture", title="new"),
)  # fmt: skip
COST_TABLE = Columns(
    "simulate.anchor.costs",
    "A wait or a cost of the scheduler that a run shows.",
    Column("cost", TEXT, "which"),
    Column("what", TEXT, "how it is read from a run"),
    Column("measured_ns", MEAN_TIME, "in the capture; none where it does not record that", title="measured"),
    Column("simulated_ns", MEAN_TIME, "simulated, before the change", title="simulated"),
    Column("factor", RATIO, "on the scheduler's constants behind it"),
    Column("anchored_ns", MEAN_TIME, "simulated again with the factors", title="anchored"),
)
WALLS = Columns(
    "simulate.anchor.walls",
    "The run before the change and the run after it: from the first hand-out to the last block seen done, or from the "
    "first start to the last end where the capture has no more.",
    Column("run", TEXT, "before or after"),
    Column("measured_ns", MEAN_TIME, "the capture", title="measured"),
    Column("simulated_ns", MEAN_TIME, "without the capture", title="simulated"),
    Column("anchored_ns", MEAN_TIME, "with its factors", title="anchored"),
    Column("off", RATIO, "anchored over measured", title="anchored/measured"),
)


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
        pairs = paired(kernels, self.kernels)
        return {name: self.kernels[p.measured[0]] if p.measured else None for p in pairs for name in p.simulated}

    @property
    def key(self) -> str:
        """Equal where they are."""
        return repr((sorted(self.kernels.items()), sorted(self.costs.items())))


def anchored(prepared: Prepared, factors: Factors) -> Simulated:
    """The program run as measured ones run: blocks and costs of the scheduler take their factors longer."""
    known = factors.of(task.kernel for task in prepared.program.recording.tasks)
    each = {kernel: factors.typical if factor is None else factor for kernel, factor in known.items()}
    costs = [(name, factors.costs[cost]) for cost in MACHINE if cost in factors.costs for name in MACHINE[cost]]
    machine = prepared.machine._replace(**{name: getattr(prepared.machine, name) * factor for name, factor in costs})
    return run(prepared, slower(prepared, each, factors.costs.get("submit", 1.0)), machine)


def slower(prepared: Prepared, kernels: Mapping[str, float], submit: float = 1.0) -> Job:
    """Blocks of these kernels take so many times as long, at the rate of memory traffic that they have."""
    job = prepared.job
    factor = np.ones((len(job.run), 1))
    of_task = np.array([kernels.get(task.kernel, 1.0) for task in prepared.program.recording.tasks])
    factor[job.block_class, 0] = of_task[job.task_of]  # a class is of one kernel
    return job._replace(run=job.run * factor, submit=job.submit * submit)


@dataclass(frozen=True)
class KernelFit:
    """A kernel, measured against simulated; what a side does not have is None. `factor` is what it was anchored by."""

    kernel: str
    measured: KernelTime | None = None
    simulated: KernelTime | None = None
    anchored: KernelTime | None = None
    factor: float | None = None

    def row(self) -> dict[str, object]:
        both = self.measured is not None and self.simulated is not None
        return {
            "kernel": self.kernel,
            "measured_blocks": self.measured and self.measured.blocks,
            "simulated_blocks": self.simulated and self.simulated.blocks,
            "measured_ns": self.measured and self.measured.ns,
            "simulated_ns": self.simulated and self.simulated.ns,
            "ratio": self.measured.ns / self.simulated.ns if both and self.measured and self.simulated else None,
            "factor": self.factor,
            "anchored_ns": self.anchored and self.anchored.ns,
        }


@dataclass(frozen=True)
class MeasuredBase:
    """A capture and the simulation of its program, as it is (`simulated`) and with the factors (`anchored`).

    Walls are from the first hand-out to the last finish, or by starts and ends where the capture has only those.
    `kernels`: the one with most core time first.
    """

    kernels: tuple[KernelFit, ...]
    factors: Factors
    prepared: Prepared  # the program before the change, as it is
    old: Simulated  # it, anchored
    measured: Observed
    simulated: Observed
    anchored: Observed

    @property
    def measured_ns(self) -> float | None:
        """None where the capture is a table without a wall."""
        return walls(self.measured, self.simulated)[0]

    @property
    def simulated_ns(self) -> float:
        return self._wall(self.simulated)

    @property
    def anchored_ns(self) -> float:
        return self._wall(self.anchored)

    def _wall(self, run: Observed) -> float:
        return walls(run, self.measured)[0] or 0.0

    def wall_of(self, run: Simulated) -> float:
        """The wall of a simulated run by the clock of the capture's."""
        return self._wall(observed_of(run))

    @property
    def matched(self) -> tuple[KernelFit, ...]:
        return tuple(one for one in self.kernels if one.factor is not None)

    @property
    def only_measured(self) -> tuple[KernelFit, ...]:
        return tuple(one for one in self.kernels if one.simulated is None)

    @property
    def only_simulated(self) -> tuple[KernelFit, ...]:
        return tuple(one for one in self.kernels if one.measured is None)

    @property
    def other_blocks(self) -> tuple[KernelFit, ...]:
        """Kernels with another number of blocks than the capture: it may be of other arguments."""
        both = [(one, one.measured, one.simulated) for one in self.matched]
        return tuple(one for one, a, b in both if a and b and a.blocks != b.blocks)

    def tables(self, after: tuple[float, float] | None = None) -> dict[str, Table]:
        """The capture against its program. `after`: the wall of the changed program, simulated and anchored."""
        sides = {"measured_ns": self.measured, "simulated_ns": self.simulated, "anchored_ns": self.anchored}
        costs = [
            {"cost": cost, "what": COSTS[cost], "factor": self.factors.costs.get(cost)}
            | {key: side.costs.get(cost) for key, side in sides.items()}
            for cost in dict.fromkeys([*self.simulated.costs, *self.measured.costs])
        ]
        measured, times = self.measured_ns, (self.simulated_ns, self.anchored_ns)
        rows = [("before", measured, *times, None if measured is None else self.anchored_ns / measured)]
        rows += [("after", None, *after, None)] if after is not None else []
        return {
            "kernels": Table(KERNELS, pl.DataFrame([one.row() for one in self.kernels], infer_schema_length=None)),
            "costs": Table(COST_TABLE, pl.DataFrame(costs, schema=_schema(COST_TABLE, 2))),
            "walls": Table(WALLS, pl.DataFrame(rows, schema=_schema(WALLS, 1), orient="row")),
        }


def _schema(columns: Columns, words: int) -> dict[str, type[pl.DataType]]:
    """Columns of which the first are words and the others numbers."""
    return {key: pl.String if n < words else pl.Float64 for n, key in enumerate(columns.keys)}


def anchor(prepared: Prepared, measured: Observed, capture: str = "") -> MeasuredBase:
    """Compares the simulation of a program with what was measured of it, and makes it as long."""
    last = run(prepared)
    first = now = observed_of(last)
    pairs = paired(first.kernels, measured.kernels)
    both = [pair for pair in pairs if pair.simulated and pair.measured]
    if not both:
        raise BadInput(
            f"none of its kernels is the program's: it has {_some(measured.kernels)}; "
            f"the program has {_some(first.kernels)}",
            path=capture or None,
            remedy="Give the program that the capture is of; names of a swimlane come from name_map*.json beside it.",
        )
    factors, nearest, kept = Factors(), math.inf, (Factors(), last, now)
    for _ in range(ROUNDS):
        better, off = _nearer(factors, both, measured, now)
        if off < nearest:  # a turn of a scheduler more or less may make the next run worse
            nearest, kept = off, (factors, last, now)
        if off < CLOSE:
            break
        factors = better
        last = anchored(prepared, factors)
        now = observed_of(last)
    factors, last, now = kept
    kernels = [
        KernelFit(
            pair.name,
            measured.kernel(pair.measured),
            first.kernel(pair.simulated),
            now.kernel(pair.simulated),
            factors.kernels.get(pair.simulated[0]) if pair.simulated else None,
        )
        for pair in pairs
    ]
    kernels.sort(key=lambda one: -max(side.core_ns for side in (one.measured or one.simulated,) if side))
    return MeasuredBase(tuple(kernels), factors, prepared, last, measured, first, now)


def _nearer(factors: Factors, both: list[KernelPair], measured: Observed, now: Observed) -> tuple[Factors, float]:
    """Factors that bring the next run nearer to what was measured, and how far off this one is: the kernel that is
    furthest off and the costs of the scheduler in the mean, as logarithms.
    """
    kernels, costs = dict(factors.kernels), dict(factors.costs)
    kernels_off, costs_off = [0.0], [0.0]
    for pair in both:
        there, here = measured.kernel(pair.measured), now.kernel(pair.simulated)
        if there is None or here is None or not (there.ns > 0 and here.ns > 0):
            continue
        kernels_off.append(abs(math.log(there.ns / here.ns)))
        kernels |= {name: kernels.get(name, 1.0) * there.ns / here.ns for name in pair.simulated}
    for cost in sorted(now.costs.keys() & measured.costs.keys()):
        ratio = measured.costs[cost] / now.costs[cost]
        costs_off.append(abs(math.log(ratio)))
        costs[cost] = min(max(costs.get(cost, 1.0) * ratio, LEAST), MOST)
    return Factors(kernels, costs), max(kernels_off) + sum(costs_off) / len(costs_off)


def _some(kernels: Mapping[str, KernelTime]) -> str:
    names = list(kernels)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def states(old: Prepared, new: Prepared) -> dict[str, str]:
    """Of every kernel of the new program whether its blocks are those of the old one."""
    before, after = _blocks(old), _blocks(new)
    found = {}
    for pair in paired(after, before):
        alike = sorted(one for name in pair.measured for one in before[name])
        for name in pair.simulated:
            same = len(alike) == len(after[name]) and np.allclose(alike, after[name], rtol=1e-9, atol=1e-6)
            found[name] = NEW if not pair.measured else UNCHANGED if same else CHANGED
    return found


def _blocks(prepared: Prepared) -> dict[str, list[tuple[float, float]]]:
    """Of every kernel each block's time alone on the chip and the bytes it takes of HBM, in order."""
    job = prepared.job
    names = [task.kernel for task in prepared.program.recording.tasks]
    found: dict[str, list[tuple[float, float]]] = {}
    for number, task in zip(job.block_class.tolist(), job.task_of.tolist(), strict=True):
        run, draws = float(job.run[number, 0]), float(job.draws[number, 0])
        found.setdefault(names[task], []).append((run, run * draws))
    return {name: sorted(blocks) for name, blocks in found.items()}


@dataclass(frozen=True, eq=False, repr=False)
class MeasuredChange(Tabular):
    """A changed program, simulated by itself (`plain`) and with the factors of a capture of the one before (`run`)."""

    anchor: MeasuredBase
    plain: Simulated
    run: Simulated

    @cached_property
    def change(self) -> Against:
        """The run against the one before the change, both anchored."""
        old, new = self.anchor.old, self.run
        return against(self.anchor.anchored_ns, self.anchor.wall_of(new), old.bound.regime, new.bound.regime)

    @property
    def wall(self) -> Interval:
        """The wall of the program, as sure as a change is."""
        return time_after(self.run.wall_ns, self.change)

    @property
    def expected(self) -> Interval | None:
        """What the measured wall becomes."""
        measured = self.anchor.measured_ns
        return None if measured is None else time_after(measured * self.change.ratio.value, self.change)

    @cached_property
    def states(self) -> dict[str, str]:
        return states(self.anchor.prepared, self.plain.prepared)

    @property
    def unmeasured(self) -> list[str]:
        """Kernels of the program that the capture says nothing of."""
        return [kernel for kernel, factor in self.anchor.factors.of(self._after[1].kernels).items() if factor is None]

    @cached_property
    def _after(self) -> tuple[Observed, Observed]:
        return observed_of(self.plain), observed_of(self.run)

    def spread(self) -> dict[str, tuple[float, float]]:
        """Of each kernel where 80% of measured means lie, as multiples of the mean that is said here.

        A measured kernel is as sure as its change is small; one that nobody measured as sure as any prediction.
        """
        found: dict[str, tuple[float, float]] = {}
        bounds = self.anchor.old.bound.regime, self.run.bound.regime
        known = {one.kernel: one.measured for one in self.anchor.kernels if one.measured is not None}
        cores: dict[str, set[str]] = {}
        for task in self.run.prepared.program.recording.tasks:
            cores.setdefault(task.kernel, set()).add(task.core)
        for pair in paired(self._after[1].kernels, known):
            now = self._after[1].kernel(pair.simulated)
            there = known[pair.measured[0]] if pair.measured else None
            quantity = kernel_quantity(set().union(*(cores[name] for name in pair.simulated)))
            if there is not None and now is not None and there.ns > 0 and now.ns > 0:
                likely = time_after(1.0, against(there.ns, now.ns, *bounds, quantity=quantity))
            else:
                likely = time_estimate(1.0, quantity, bounds[1])
            found |= dict.fromkeys(pair.simulated, (likely.low, likely.high))
        return found

    def tables(self) -> dict[str, Table]:
        base, (plain, run) = self.anchor, self._after
        before = {one.kernel: one for one in base.kernels}
        rows = []
        for pair in paired(run.kernels, before):
            now, unaided = run.kernel(pair.simulated), plain.kernel(pair.simulated)
            known = {self.states[name] for name in pair.simulated} or {GONE}
            after = {
                "state": NEW if not pair.measured else known.pop() if len(known) == 1 else CHANGED,
                "new_blocks": now and now.blocks,
                "new_simulated_ns": unaided and unaided.ns,
                "new_ns": now and now.ns,
            }
            nobody = KernelFit(pair.name, factor=base.factors.typical)
            rows += [one.row() | after for one in [before[name] for name in pair.measured] or [nobody]]
        order = {name: n for n, name in enumerate(before)}
        rows.sort(key=lambda row: order.get(str(row["kernel"]), len(order)))
        kernels = Table(KERNELS, pl.DataFrame(rows, infer_schema_length=None))
        return base.tables((base.wall_of(self.plain), base.wall_of(self.run))) | {"kernels": kernels}


def predict(anchor: MeasuredBase, plain: Simulated) -> MeasuredChange:
    """A changed program on top of the capture of the one before."""
    return MeasuredChange(anchor, plain, anchored(plain.prepared, anchor.factors))
