"""A device file's constants fitted to captures of one's own machine.

Every constant of [timing] that is a time or a rate may move, by a factor. What counts against a set of factors: how far
kernels' blocks, the scheduler's costs and the wall then are from what was measured, each in units of what a model and
a measurement are off by anyway; and how far each constant is from what it was, in units of how sure that was. So a
constant that the capture says nothing of stays where it is, and one that it says little of stays near.

Each turn tries every constant a step away, and then moves all of them to where the errors would be least if they went
on as they began (Gauss and Newton), no further than allowed and only if that is better. Recording, lowering, planning
and the graph are the program's, made once; a constant of the scheduler does not time blocks again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from npuscope.base import progress
from npuscope.base.errors import BadInput
from npuscope.chip.devices import PLAUSIBLE, Constant, Device, with_values
from npuscope.lower.program import Program
from npuscope.time.chip.job import Floats
from npuscope.time.chip.prepare import prepare, retimed
from npuscope.time.measured.observed import KernelPair, KernelTime, Observed, observed_of, paired, walls
from npuscope.time.run import run

UNITS = ("s", "B/s", "cycles")  # of constants that a factor can move
KEPT = {"measured": 0.3, "documented": 0.3, "fitted": 0.5, "guessed": 0.8}  # how far in the logarithm one may well be
FARTHEST = math.log(4)  # of a constant from what it was
STEP = 0.15  # in the logarithm, to see what a constant does
MOST = 0.5  # of a constant in one turn
TURNS = 6
ENOUGH = 0.05  # of the loss; a turn that gains less is the last
MATTERS = 0.05  # of an error's unit: a constant that moves none of them so far does not matter
MOVED = 0.02  # in the logarithm; less is not worth a line in the file
MODEL, WALL, COST = 0.05, 0.03, 0.1  # what a kernel, the wall and a scheduler's cost are off by anyway
FAR = 3.0  # units of an error
STAMP = 200.0  # nanoseconds that the mean of a kernel is off by anyway
ASKED = 0.5  # of the loss: a constant that makes up for less need not have moved
WORSE = 3.0  # of the loss that fewer constants may cost in all
UNDECIDED = 0.7  # of what a constant may be off by: less was learnt of one that may still be off by this much


@dataclass(frozen=True)
class Error:
    """Something measured: `off` is the logarithm of simulated over measured, `unit` what it may well be."""

    what: str
    measured: float
    simulated: float
    unit: float

    @property
    def off(self) -> float:
        return math.log(self.simulated / self.measured)


@dataclass(frozen=True)
class FittedConstant:
    """A constant of [timing]: `log` is the logarithm of its factor, `unsure` how far that may be off afterwards."""

    name: str
    before: Constant
    log: float = 0.0
    unsure: float = math.inf
    matters: bool = True

    @property
    def kept(self) -> float:
        return KEPT[self.before.confidence]

    @property
    def factor(self) -> float:
        return math.exp(self.log)

    @property
    def value(self) -> float:
        """Three digits."""
        return float(f"{self.before.value * self.factor:.3g}")

    @property
    def moved(self) -> bool:
        return self.matters and abs(self.log) >= MOVED

    @property
    def decided(self) -> bool:
        """Whether the captures say more of it than was known."""
        return self.matters and self.unsure < UNDECIDED * self.kept


@dataclass(frozen=True)
class Calibrated:
    """`before` and `after`: the errors of the device as it was and as it is now."""

    device: Device
    knobs: tuple[FittedConstant, ...]
    before: tuple[Error, ...]
    after: tuple[Error, ...]
    runs: int  # simulated

    def constants(self, program: str, captures: Sequence[str]) -> dict[str, Constant]:
        """What moved, by name, with where it comes from."""
        told = f"npuscope calibrate {program} with {', '.join(captures)}"
        found = {}
        for one in self.knobs:
            if one.moved:
                was = f"{one.before.value:g} of {self.device.name} ({one.before.confidence})"
                source = f"{one.factor:.3g} times the {was}: {told}"
                found[one.name] = Constant(one.value, one.before.unit, source, "fitted")
        return found


def knobs_of(device: Device) -> list[FittedConstant]:
    """What may move: by rule, so that a new constant is among them."""
    return [FittedConstant(name, c) for name, c in device.timing.items() if c.unit in UNITS and c.value > 0]


def pooled(runs: Sequence[Observed]) -> Observed:
    """Several captures of a program as one: means of what they say."""
    kernels = {}
    for name in dict.fromkeys(name for one in runs for name in one.kernels):
        have = [one.kernels[name] for one in runs if name in one.kernels]
        sums: dict[str, tuple[float, float]] = {}
        for unit, count, time in (row for one in have for row in one.units):
            before = sums.get(unit, (0.0, 0.0))
            sums[unit] = (before[0] + count / len(have), before[1] + time / len(have))
        kernels[name] = KernelTime(tuple((unit, *sums[unit]) for unit in sorted(sums)))
    told = dict.fromkeys(cost for one in runs for cost in one.costs)
    costs = {cost: fmean(one.costs[cost] for one in runs if cost in one.costs) for cost in told}
    whole = all(one.wall_ns is not None for one in runs)
    spans = [one.span_ns for one in runs if one.span_ns is not None]
    wall = fmean(one.wall_ns for one in runs if one.wall_ns is not None) if whole else None
    return Observed(kernels, costs, wall, fmean(spans) if spans else None)


class Bench:
    """A program timed with other constants, against what was measured of it."""

    def __init__(self, program: Program, measured: Observed, captures: str = "") -> None:
        self.program, self.measured, self.runs = program, measured, 0
        self.prepared = prepare(program)
        first = self._seen(program.device)
        self.pairs: list[KernelPair] = [
            p for p in paired(first.kernels, measured.kernels) if p.simulated and p.measured
        ]
        if not self.pairs:
            own, other = (", ".join(list(names)[:8]) for names in (first.kernels, measured.kernels))
            raise BadInput(
                "none of its kernels is the program's",
                path=captures or None,
                remedy=f"The program has {own}; the capture {other}.",
            )

    def _seen(self, device: Device) -> Observed:
        self.runs += 1
        return observed_of(run(retimed(self.prepared, device)))

    def errors(self, device: Device) -> tuple[Error, ...]:
        seen = self._seen(device)
        found: list[Error] = []
        for pair in self.pairs:
            there, here = self.measured.kernel(pair.measured), seen.kernel(pair.simulated)
            if there and here and there.ns > 0 and here.ns > 0:
                unit = math.hypot(MODEL, STAMP / there.ns)
                found.append(Error(pair.name, there.ns, here.ns, unit))
        for cost, ns in self.measured.costs.items():
            if cost in seen.costs:
                found.append(Error(f"scheduler: {cost}", ns, seen.costs[cost], COST))
        wall, own = walls(self.measured, seen)
        if wall and own:
            found.append(Error("wall", wall, own, WALL))
        return tuple(found)


class ConstantFit:
    """Where the constants are, and what that costs."""

    def __init__(self, bench: Bench, knobs: Sequence[FittedConstant]) -> None:
        self.bench, self.knobs = bench, list(knobs)
        self.logs: Floats = np.zeros(len(knobs))
        self.kept: Floats = np.array([knob.kept for knob in knobs])
        ends = [_ends(knob.before) for knob in knobs]
        self.low, self.high = (np.array([end[n] for end in ends]) for n in range(2))
        self.errors = bench.errors(bench.program.device)
        self.free = list(range(len(knobs)))

    def tried(self, logs: Floats) -> tuple[Error, ...]:
        moved = ((knob, by) for knob, by in zip(self.knobs, logs.tolist(), strict=True) if by)
        values = {f"timing.{knob.name}": knob.before.value * math.exp(by) for knob, by in moved}
        return self.bench.errors(with_values(self.bench.program.device, values))

    def loss(self, logs: Floats, errors: Sequence[Error]) -> float:
        """Squares up to FAR units, then in proportion (Huber): what the model lacks should not lead."""
        sizes = [abs(one.off / one.unit) for one in errors]
        told = sum(size**2 if size <= FAR else FAR * (2 * size - FAR) for size in sizes)
        return told + float(np.sum((logs / self.kept) ** 2))

    def slopes(self, told: str) -> Floats:
        """How far every error moves, in its units, with every free constant, per logarithm."""
        found = np.zeros((len(self.errors), len(self.free)))
        for column, n in enumerate(self.free):
            progress.report(told, column, len(self.free))
            logs = self.logs.copy()
            step = STEP if logs[n] + STEP <= self.high[n] else -STEP
            logs[n] += step
            moved = {one.what: one for one in self.tried(logs)}
            for row, one in enumerate(self.errors):
                if one.what in moved:
                    found[row, column] = (moved[one.what].off - one.off) / one.unit / step
        return found

    def weighed(self) -> tuple[Floats, Floats]:
        """How far everything is off, in its units, and what that weighs."""
        off = np.array([one.off / one.unit for one in self.errors])
        return off, FAR / np.maximum(np.abs(off), FAR)

    def bend(self, slopes: Floats) -> Floats:
        """How the loss grows around where the free constants are."""
        found: Floats = slopes.T @ (self.weighed()[1][:, None] * slopes) + np.diag(self.kept[self.free] ** -2.0)
        return found

    def step(self, slopes: Floats) -> bool:
        """All free constants at once to where the errors, if they went on as they began, would be least."""
        free, prior = self.free, self.kept[self.free] ** -2.0
        off, weight = self.weighed()
        way = -np.linalg.solve(self.bend(slopes), slopes.T @ (weight * off) + prior * self.logs[free])
        way *= min(1.0, MOST / float(np.max(np.abs(way), initial=MOST)))
        before = self.loss(self.logs, self.errors)
        for share in (1.0, 0.5, 0.25):
            logs = self.logs.copy()
            logs[free] = np.clip(logs[free] + share * way, self.low[free], self.high[free])
            errors = self.tried(logs)
            if self.loss(logs, errors) < before:
                self.logs, self.errors = logs, errors
                return self.loss(logs, errors) < before - ENOUGH
        return False


def _ends(constant: Constant) -> tuple[float, float]:
    """How far a constant may go: a factor of four, and what a device file may say."""
    least, most = PLAUSIBLE.get(constant.unit, (0.0, math.inf))
    low = math.log(least / constant.value) + 1e-6 if least else -FARTHEST
    high = math.log(most / constant.value) - 1e-6 if most < math.inf else FARTHEST
    return max(low, -FARTHEST), min(high, FARTHEST)


def calibrate(program: Program, captures: Sequence[Observed], told: str = "") -> Calibrated:
    """Fits the program's device to captures of the program."""
    bench = Bench(program, pooled(captures), told)
    knobs = knobs_of(program.device)
    fit = ConstantFit(bench, knobs)
    nothing = fit.errors
    slopes = fit.slopes("which constants matter")
    matters = np.max(np.abs(slopes), axis=0, initial=0.0) * STEP > MATTERS
    slopes, fit.free = slopes[:, matters], np.flatnonzero(matters).tolist()
    for turn in range(TURNS):
        if not fit.free or not fit.step(slopes):
            break
        slopes = fit.slopes(f"fitting constants, turn {turn + 1} of at most {TURNS}")
    unsure = _unsure(fit, slopes)
    _only_what_is_asked(fit, slopes)
    found = tuple(
        replace(knob, log=float(fit.logs[n]), matters=bool(matters[n]), unsure=unsure.get(n, math.inf))
        for n, knob in enumerate(knobs)
    )
    device = with_values(program.device, {f"timing.{knob.name}": knob.value for knob in found if knob.moved})
    return Calibrated(device, found, nothing, bench.errors(device), bench.runs)


def _only_what_is_asked(fit: ConstantFit, slopes: Floats) -> None:
    """Constants that need not have moved go back, one after another, and the others are fitted once more without them.

    The next to go back is the one that the loss grows least by, with the others moved to make up for it.
    """
    all_moved = fit.logs.copy(), fit.errors
    bend, logs, asked = fit.bend(slopes), fit.logs[fit.free], list(range(len(fit.free)))
    while asked:
        spread = np.linalg.inv(bend[np.ix_(asked, asked)])
        grows = logs[asked] ** 2 / np.diag(spread)
        least = int(np.argmin(grows))
        if grows[least] > ASKED:
            break
        logs[asked] -= spread[:, least] / spread[least, least] * logs[asked[least]]
        logs[asked.pop(least)] = 0.0
    fit.logs[fit.free] = np.clip(logs, fit.low[fit.free], fit.high[fit.free])
    fit.free, fit.errors = [fit.free[n] for n in asked], fit.tried(fit.logs)
    for _ in range(TURNS):
        if not fit.free or not fit.step(fit.slopes("fitting what the captures ask for")):
            break
    if fit.loss(fit.logs, fit.errors) > fit.loss(*all_moved) + WORSE:  # together they made up for more
        fit.logs, fit.errors = all_moved


def _unsure(fit: ConstantFit, slopes: Floats) -> dict[int, float]:
    """How far each constant may be off now, with others that could have moved in its place."""
    spread: Floats = np.sqrt(np.diag(np.linalg.inv(fit.bend(slopes))))
    return dict(zip(fit.free, spread.tolist(), strict=True))
