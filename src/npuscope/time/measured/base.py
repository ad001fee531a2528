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
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import COUNT, MEAN_TIME, RATIO, TEXT
from npuscope.time.chip.job import Floats, Job, Machine
from npuscope.time.chip.prepare import Prepared
from npuscope.time.measured.observed import COSTS, KernelPair, KernelTime, Observed, observed_of, paired, walls
from npuscope.time.run import Simulated, run
from npuscope.time.uncertainty import Against, Estimate, against, time_after, time_estimate

ROUNDS = 8  # of making the simulation as long as the capture; blocks that take longer also meet others
CLOSE = 0.002  # a logarithm of measured over simulated that ends it
LEAST, MOST = 0.1, 10.0  # of a factor on a cost of the scheduler: its waits also come from what it waits behind


@dataclass(frozen=True)
class KernelFit:
    """A kernel, measured against simulated; what a side does not have is None. `factor` is what it was anchored by."""

    kernel: str
    measured: KernelTime | None
    simulated: KernelTime | None
    anchored: KernelTime | None = None
    factor: float | None = None

    @property
    def ratio(self) -> float | None:
        """Measured over simulated."""
        return None if self.measured is None or self.simulated is None else self.measured.ns / self.simulated.ns


@dataclass(frozen=True)
class CostFit:
    """A cost of the scheduler in nanoseconds (`observed.COSTS`), None where a run does not tell it."""

    cost: str
    measured: float | None
    simulated: float | None
    anchored: float | None
    factor: float | None


@dataclass(frozen=True)
class MeasuredBase:
    """A capture and the simulation of its program; walls are from the first hand-out to the last finish, or by starts
    and ends where the capture has only those."""

    kernels: tuple[KernelFit, ...]
    costs: tuple[CostFit, ...]
    factors: Factors
    measured_ns: float | None  # wall; None where the capture is a table without one
    simulated_ns: float
    anchored_ns: float
    prepared: Prepared  # the program before the change, as it is
    old: Simulated  # it, anchored
    measured: Observed
    simulated: Observed

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
        return tuple(
            one
            for one in self.matched
            if one.measured and one.simulated and one.measured.blocks != one.simulated.blocks
        )

    def wall_of(self, run: Simulated) -> float:
        """The wall of a simulated run by the clock of the capture's."""
        found = walls(observed_of(run), self.measured)[0]
        return run.wall if found is None else found


def anchor(prepared: Prepared, measured: Observed, capture: str = "") -> MeasuredBase:
    """Holds the simulation of a program against what was measured of it, and makes it as long."""
    plain = run(prepared)
    first = observed_of(plain)
    pairs = paired(first.kernels, measured.kernels)
    both = [pair for pair in pairs if pair.simulated and pair.measured]
    if not both:
        raise BadInput(
            f"none of its kernels is the program's: it has {_some(measured.kernels)}; "
            f"the program has {_some(first.kernels)}",
            path=capture or None,
            remedy="Give the program that the capture is of; names of a swimlane come from name_map*.json beside it.",
        )
    factors, seen, last = Factors(), first, plain
    for done in range(ROUNDS):
        better, off = _nearer(factors, both, measured, seen)
        if off < CLOSE and done:
            break
        factors = better
        last = anchored(prepared, factors)
        seen = observed_of(last)
    return MeasuredBase(
        tuple(_held(pair, measured, first, seen, factors) for pair in pairs),
        tuple(_held_cost(cost, measured, first, seen, factors) for cost in _costs(measured, first)),
        factors,
        walls(measured, first)[0],
        walls(measured, first)[1] or plain.wall,
        walls(measured, seen)[1] or last.wall,
        prepared,
        last,
        measured,
        first,
    )


def _nearer(factors: Factors, both: list[KernelPair], measured: Observed, seen: Observed) -> tuple[Factors, float]:
    """Factors that bring the next run nearer to what was measured, and how far a kernel's blocks were off at most."""
    kernels, costs, off = dict(factors.kernels), dict(factors.costs), 0.0
    for pair in both:
        there, here = measured.kernel(pair.measured), seen.kernel(pair.simulated)
        if there is None or here is None or not (there.ns > 0 and here.ns > 0):
            continue
        off = max(off, abs(math.log(there.ns / here.ns)))
        for name in pair.simulated:
            kernels[name] = kernels.get(name, 1.0) * there.ns / here.ns
    for cost in _costs(measured, seen):
        if cost in measured.costs and cost in seen.costs:
            ratio = measured.costs[cost] / seen.costs[cost]
            costs[cost] = min(max(costs.get(cost, 1.0) * ratio, LEAST), MOST)
    return Factors(kernels, costs), off


def _costs(a: Observed, b: Observed) -> list[str]:
    return list(dict.fromkeys([*b.costs, *a.costs]))


def _held(pair: KernelPair, measured: Observed, first: Observed, seen: Observed, factors: Factors) -> KernelFit:
    factor = factors.kernels.get(pair.simulated[0]) if pair.simulated else None
    sides = measured.kernel(pair.measured), first.kernel(pair.simulated), seen.kernel(pair.simulated)
    return KernelFit(pair.name, *sides, factor)


def _held_cost(cost: str, measured: Observed, first: Observed, seen: Observed, factors: Factors) -> CostFit:
    there, here, again = (one.costs.get(cost) for one in (measured, first, seen))
    return CostFit(cost, there, here, again, factors.costs.get(cost))


def _some(kernels: Mapping[str, KernelTime]) -> str:
    names = list(kernels)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


UNCHANGED, CHANGED, NEW = "unchanged", "changed", "new"


def states(old: Prepared, new: Prepared) -> dict[str, str]:
    """Of every kernel of the new program whether its blocks are those of the old one."""
    before, after = _blocks(old), _blocks(new)
    found = {}
    for pair in paired(after, before):
        alike = sorted(one for name in pair.measured for one in before[name])
        for name in pair.simulated:
            found[name] = NEW if not pair.measured else UNCHANGED if _equal(alike, after[name]) else CHANGED
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


def _equal(a: list[tuple[float, float]], b: list[tuple[float, float]]) -> bool:
    return len(a) == len(b) and bool(np.allclose(np.array(a), np.array(b), rtol=1e-9, atol=1e-6))


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


GONE = "gone"
KERNELS = Columns(
    "simulate.anchor.kernels",
    "A kernel, of the capture, of the simulated program before the change and of the program itself; the one with most "
    "measured core time first. Times are means of a block; a mixed block takes as long as the longer of its parts.",
    (
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
    ),
)  # fmt: skip
COST_TABLE = Columns(
    "simulate.anchor.costs",
    "A wait or a cost of the scheduler that a run tells.",
    (
        Column("cost", TEXT, "which"),
        Column("what", TEXT, "how it is told from a run"),
        Column("measured_ns", MEAN_TIME, "in the capture; none where it does not record that", title="measured"),
        Column("simulated_ns", MEAN_TIME, "simulated, before the change", title="simulated"),
        Column("factor", RATIO, "on the scheduler's constants behind it"),
        Column("anchored_ns", MEAN_TIME, "simulated again with the factors", title="anchored"),
    ),
)
WALLS = Columns(
    "simulate.anchor.walls",
    "The run before the change and the run after it: from the first hand-out to the last block seen done, or from the "
    "first start to the last end where the capture has no more.",
    (
        Column("run", TEXT, "before or after"),
        Column("measured_ns", MEAN_TIME, "the capture", title="measured"),
        Column("simulated_ns", MEAN_TIME, "without the capture", title="simulated"),
        Column("anchored_ns", MEAN_TIME, "with its factors", title="anchored"),
        Column("off", RATIO, "anchored over measured", title="anchored/measured"),
    ),
)


def kernel_table(anchor: MeasuredBase) -> Table:
    """The capture against the simulation of its own program."""
    rows = [_row(one) for one in _ordered(anchor)]
    return Table(KERNELS, pl.DataFrame(rows, infer_schema_length=None))


def cost_table(anchor: MeasuredBase) -> Table:
    rows = [
        {
            "cost": one.cost,
            "what": COSTS[one.cost],
            "measured_ns": one.measured,
            "simulated_ns": one.simulated,
            "factor": one.factor,
            "anchored_ns": one.anchored,
        }
        for one in anchor.costs
    ]
    schema = {"cost": pl.String, "what": pl.String, **dict.fromkeys(COST_TABLE.keys[2:], pl.Float64)}
    return Table(COST_TABLE, pl.DataFrame(rows, schema=schema))


def wall_table(anchor: MeasuredBase, after: tuple[float, float] | None = None) -> Table:
    """`after`: the wall of the changed program, simulated and anchored."""
    measured = anchor.measured_ns
    off = None if measured is None else anchor.anchored_ns / measured
    rows: list[tuple[str, float | None, float, float, float | None]] = [
        ("before", measured, anchor.simulated_ns, anchor.anchored_ns, off)
    ]
    if after is not None:
        rows.append(("after", None, *after, None))
    schema = {"run": pl.String, **dict.fromkeys(WALLS.keys[1:], pl.Float64)}
    return Table(WALLS, pl.DataFrame(rows, schema=schema, orient="row"))


def _ordered(anchor: MeasuredBase) -> list[KernelFit]:
    return sorted(anchor.kernels, key=lambda one: -_core_time(one))


def _core_time(one: KernelFit) -> float:
    found = one.measured or one.simulated
    return found.core_ns if found else 0.0


def _row(one: KernelFit) -> dict[str, object]:
    return {
        "kernel": one.kernel,
        "measured_blocks": one.measured and one.measured.blocks,
        "simulated_blocks": one.simulated and one.simulated.blocks,
        "measured_ns": one.measured and one.measured.ns,
        "simulated_ns": one.simulated and one.simulated.ns,
        "ratio": one.ratio,
        "factor": one.factor,
        "anchored_ns": one.anchored and one.anchored.ns,
    }


@dataclass(frozen=True, eq=False, repr=False)
class MeasuredChange(Tabular):
    """A program simulated by itself (`plain`) and with the factors of a capture (`run`)."""

    anchor: MeasuredBase
    plain: Simulated
    run: Simulated

    @cached_property
    def change(self) -> Against:
        """The run against the one before the change, both anchored."""
        old, new = self.anchor.old, self.run
        return against(self.anchor.anchored_ns, self.anchor.wall_of(new), old.bound.kind, new.bound.kind)

    @property
    def wall(self) -> Estimate:
        """The wall of the program, as sure as a change is."""
        return time_after(self.run.wall_ns, self.change)

    @property
    def expected(self) -> Estimate | None:
        """What the measured wall becomes."""
        measured = self.anchor.measured_ns
        return None if measured is None else time_after(measured * self.change.ratio.value, self.change)

    @cached_property
    def states(self) -> dict[str, str]:
        return states(self.anchor.prepared, self.plain.prepared)

    @property
    def unmeasured(self) -> list[str]:
        """Kernels of the program that the capture says nothing of."""
        known = self.anchor.factors.of(self._after[1].kernels)
        return [kernel for kernel, factor in known.items() if factor is None]

    @cached_property
    def _after(self) -> tuple[Observed, Observed]:
        return observed_of(self.plain), observed_of(self.run)

    def spread(self) -> dict[str, tuple[float, float]]:
        """Of each kernel where 80% of measured means lie, as multiples of the mean that is said here.

        A measured kernel is as sure as its change is small; one that nobody measured as sure as any prediction.
        """
        found: dict[str, tuple[float, float]] = {}
        bounds = self.anchor.old.bound.kind, self.run.bound.kind
        known = {one.kernel: one.measured for one in self.anchor.kernels if one.measured is not None}
        for pair in paired(self._after[1].kernels, known):
            now = self._after[1].kernel(pair.simulated)
            there = known[pair.measured[0]] if pair.measured else None
            if now is None:
                continue
            if there is None or not (there.ns > 0 and now.ns > 0):
                likely = time_estimate(1.0, "kernel", bounds[1])
            else:
                likely = time_after(1.0, against(there.ns, now.ns, *bounds, quantity="kernel"))
            found |= dict.fromkeys(pair.simulated, (likely.low, likely.high))
        return found

    def tables(self) -> dict[str, Table]:
        after = self.anchor.wall_of(self.plain), self.anchor.wall_of(self.run)
        return {
            "kernels": Table(KERNELS, pl.DataFrame(self._rows(), infer_schema_length=None)),
            "costs": cost_table(self.anchor),
            "walls": wall_table(self.anchor, after),
        }

    def _rows(self) -> list[dict[str, object]]:
        plain, run = self._after
        held = {one.kernel: one for one in _ordered(self.anchor)}
        rows = []
        for pair in paired(run.kernels, held):
            now, alone = run.kernel(pair.simulated), plain.kernel(pair.simulated)
            known = {self.states[name] for name in pair.simulated}
            state = GONE if now is None else next(iter(known)) if len(known) == 1 else "changed"
            after = {
                "state": state,
                "new_blocks": now and now.blocks,
                "new_simulated_ns": alone and alone.ns,
                "new_ns": now and now.ns,
            }
            before = [held[name] for name in pair.measured]
            rows += [{**_row(one), **after} for one in before]
            if not before:
                unknown = KernelFit(pair.name, None, None, factor=self.anchor.factors.typical)
                rows.append({**_row(unknown), **after, "state": NEW})
        order = {name: n for n, name in enumerate(held)}
        return sorted(rows, key=lambda row: order.get(str(row["kernel"]), len(order)))


def predict(anchor: MeasuredBase, plain: Simulated) -> MeasuredChange:
    """A changed program on top of the capture of the one before."""
    return MeasuredChange(anchor, plain, anchored(plain.prepared, anchor.factors))
