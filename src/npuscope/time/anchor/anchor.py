"""A prediction that stands on a capture: the program before the change is simulated, too, and made as long as measured.

Kernel by kernel the simulation is held against the capture; what it was off by, it is taken to be off by again. That
holds best for kernels that the change leaves alone. For those that it changes it is the best guess there is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from npuscope.base.errors import BadInput
from npuscope.time.anchor.factors import Factors, anchored
from npuscope.time.anchor.names import Pair, paired
from npuscope.time.anchor.observed import KernelTime, Observed, observed_of, walls
from npuscope.time.chip.prepare import Prepared
from npuscope.time.run import Simulated, run

ROUNDS = 8  # of making the simulation as long as the capture; blocks that take longer also meet others
CLOSE = 0.002  # a logarithm of measured over simulated that ends it
LEAST, MOST = 0.1, 10.0  # of a factor on a cost of the scheduler: its waits also come from what it waits behind


@dataclass(frozen=True)
class Held:
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
class HeldCost:
    """A cost of the scheduler in nanoseconds (`observed.COSTS`), None where a run does not tell it."""

    cost: str
    measured: float | None
    simulated: float | None
    anchored: float | None
    factor: float | None


@dataclass(frozen=True)
class Anchor:
    """A capture and the simulation of its program; walls are from the first hand-out to the last finish, or by starts
    and ends where the capture has only those."""

    kernels: tuple[Held, ...]
    costs: tuple[HeldCost, ...]
    factors: Factors
    measured_ns: float | None  # wall; None where the capture is a table without one
    simulated_ns: float
    anchored_ns: float
    prepared: Prepared  # the program before the change, as it is
    old: Simulated  # it, anchored
    measured: Observed
    simulated: Observed

    @property
    def matched(self) -> tuple[Held, ...]:
        return tuple(one for one in self.kernels if one.factor is not None)

    @property
    def only_measured(self) -> tuple[Held, ...]:
        return tuple(one for one in self.kernels if one.simulated is None)

    @property
    def only_simulated(self) -> tuple[Held, ...]:
        return tuple(one for one in self.kernels if one.measured is None)

    @property
    def other_blocks(self) -> tuple[Held, ...]:
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


def anchor(prepared: Prepared, measured: Observed, capture: str = "") -> Anchor:
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
    return Anchor(
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


def _nearer(factors: Factors, both: list[Pair], measured: Observed, seen: Observed) -> tuple[Factors, float]:
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


def _held(pair: Pair, measured: Observed, first: Observed, seen: Observed, factors: Factors) -> Held:
    factor = factors.kernels.get(pair.simulated[0]) if pair.simulated else None
    sides = measured.kernel(pair.measured), first.kernel(pair.simulated), seen.kernel(pair.simulated)
    return Held(pair.name, *sides, factor)


def _held_cost(cost: str, measured: Observed, first: Observed, seen: Observed, factors: Factors) -> HeldCost:
    there, here, again = (one.costs.get(cost) for one in (measured, first, seen))
    return HeldCost(cost, there, here, again, factors.costs.get(cost))


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
