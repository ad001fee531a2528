"""A device file's constants fitted to captures of one's own machine.

Every constant of [timing] that is a time or a rate may move, by a factor. What counts against a set of factors: how far
kernels' blocks, the scheduler's costs and the wall then are from what was measured, each in units of what a model and
a measurement are off by anyway; and how far each constant is from what it was, in units of how sure that was. So a
constant that the capture says nothing of stays where it is, and one that it says little of stays near. SciPy's bounded,
robust least squares finds the factors. Recording, lowering, planning and the graph are the program's, made once; a
constant of the scheduler does not time blocks again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from scipy.optimize import least_squares
from scipy.special import huber

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
TURNS = 8  # trials of all constants at once
ENOUGH = 0.003  # of the loss, as a share; a turn that gains less is the last
MATTERS = 0.05  # of an error's unit: a constant that moves none of them so far does not matter
MOVED = 0.02  # in the logarithm; less is not worth a line in the file
MODEL, WALL, COST = 0.05, 0.03, 0.1  # what a kernel, the wall and a scheduler's cost are off by anyway
FAR = 3.0  # units: errors count by their squares up to here, then in proportion: what the model lacks should not lead
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
    fitted: tuple[FittedConstant, ...]
    before: tuple[Error, ...]
    after: tuple[Error, ...]
    runs: int  # simulated

    def constants(self, program: str, captures: Sequence[str]) -> dict[str, Constant]:
        """What moved, by name, with where it comes from."""
        command = f"npuscope calibrate {program} with {', '.join(captures)}"
        found = {}
        for one in self.fitted:
            if one.moved:
                was = f"{one.before.value:g} of {self.device.name} ({one.before.confidence})"
                source = f"{one.factor:.3g} times the {was}: {command}"
                found[one.name] = Constant(one.value, one.before.unit, source, "fitted")
        return found


def movable(device: Device) -> list[FittedConstant]:
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
    names = dict.fromkeys(cost for one in runs for cost in one.costs)
    costs = {cost: fmean(one.costs[cost] for one in runs if cost in one.costs) for cost in names}
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
    """Where the constants are (`logs`, the logarithms of their factors), and which of them may move (`free`)."""

    def __init__(self, bench: Bench, constants: Sequence[FittedConstant]) -> None:
        self.bench, self.constants = bench, constants
        self.logs: Floats = np.zeros(len(constants))
        self.kept: Floats = np.array([one.kept for one in constants])
        self.low, self.high = np.array([_ends(one.before) for one in constants]).T
        self.free = np.arange(len(constants))
        self._tried: dict[bytes, tuple[Error, ...]] = {}
        self.first = self.errors(self.logs)

    def errors(self, logs: Floats) -> tuple[Error, ...]:
        key = logs.tobytes()
        if key not in self._tried:
            moved = [replace(one, log=by) for one, by in zip(self.constants, logs.tolist(), strict=True) if by]
            values = {f"timing.{one.name}": one.value for one in moved}  # as they will stand in the file
            self._tried[key] = self.bench.errors(with_values(self.bench.program.device, values))
        return self._tried[key]

    def at(self, free: Floats) -> Floats:
        """All logarithms, with these of the free ones."""
        logs = self.logs.copy()
        logs[self.free] = free
        return logs

    def residuals(self, free: Floats) -> Floats:
        """How far errors, then constants are off, in their units. An error that a trial does not have is as before."""
        logs = self.at(free)
        off = {one.what: one.off / one.unit for one in (*self.first, *self.errors(logs))}
        return np.array([*(off[one.what] for one in self.first), *(logs / self.kept)])

    def slopes(self, free: Floats, what: str = "fitting constants") -> Floats:
        """How far every residual moves with every free constant, per logarithm."""
        base = self.residuals(free)
        found = np.zeros((len(base), len(free)))
        for column, n in enumerate(self.free):
            progress.report(what, column, len(free))
            moved = free.copy()
            moved[column] += STEP if free[column] + STEP <= self.high[n] else -STEP
            found[:, column] = (self.residuals(moved) - base) / (moved[column] - free[column])
        return found

    def loss(self) -> float:
        return float(2 * np.sum(huber(FAR, self.residuals(self.logs[self.free]))))

    def minimise(self) -> Floats:
        """Moves the free constants to where the loss is least; how the loss bends there."""
        found = least_squares(
            self.residuals,
            self.logs[self.free],
            self.slopes,
            (self.low[self.free], self.high[self.free]),
            method="dogbox",
            x_scale=self.kept[self.free],
            loss="huber",
            f_scale=FAR,
            ftol=ENOUGH,
            xtol=MOVED,
            max_nfev=TURNS,
        )
        self.logs = self.at(found.x)
        bend: Floats = found.jac.T @ found.jac
        return bend


def _ends(constant: Constant) -> tuple[float, float]:
    """How far a constant may go: a factor of four, and what a device file may say."""
    least, most = PLAUSIBLE.get(constant.unit, (0.0, math.inf))
    low = math.log(least / constant.value) + 1e-6 if least else -FARTHEST
    high = math.log(most / constant.value) - 1e-6 if most < math.inf else FARTHEST
    return max(low, -FARTHEST), min(high, FARTHEST)


def calibrate(program: Program, captures: Sequence[Observed], source: str = "") -> Calibrated:
    """Fits the program's device to captures of the program; `source` names them."""
    bench = Bench(program, pooled(captures), source)
    constants = movable(program.device)
    fit = ConstantFit(bench, constants)
    slopes = fit.slopes(fit.logs, "which constants matter")[: len(fit.first)]
    matters = np.max(np.abs(slopes), axis=0, initial=0.0) * STEP > MATTERS
    fit.free = np.flatnonzero(matters)
    unsure: dict[int, float] = {}
    if len(fit.free):
        bend = fit.minimise()
        unsure = dict(zip(fit.free.tolist(), np.sqrt(np.diag(np.linalg.inv(bend))).tolist(), strict=True))
        _only_what_is_asked(fit, bend)
    fitted = tuple(
        replace(one, log=float(fit.logs[n]), matters=bool(matters[n]), unsure=unsure.get(n, math.inf))
        for n, one in enumerate(constants)
    )
    device = with_values(program.device, {f"timing.{one.name}": one.value for one in fitted if one.moved})
    after = bench.errors(device)
    if misfit(after) >= misfit(fit.first):  # what fits worse, or no better, is not kept
        device, after = program.device, fit.first
        fitted = tuple(replace(one, log=0.0) for one in fitted)
    return Calibrated(device, fitted, fit.first, after, bench.runs)


def misfit(errors: Sequence[Error]) -> float:
    """How far all that was measured is off together, in units of what it may well be."""
    return float(np.sum(huber(FAR, [one.off / one.unit for one in errors])))


def _only_what_is_asked(fit: ConstantFit, bend: Floats) -> None:
    """Constants that need not have moved go back, one after another, and the others are fitted once more without them.

    The next to go back is the one that the loss grows least by, with the others moved to make up for it.
    """
    all_moved, most = fit.logs, fit.loss() + WORSE
    logs, asked = fit.logs[fit.free], list(range(len(fit.free)))
    while asked:
        spread = np.linalg.inv(bend[np.ix_(asked, asked)])
        grows = logs[asked] ** 2 / np.diag(spread)
        least = int(np.argmin(grows))
        if grows[least] > ASKED:
            break
        logs[asked] -= spread[:, least] / spread[least, least] * logs[asked[least]]
        logs[asked.pop(least)] = 0.0
    fit.logs = fit.at(np.clip(logs, fit.low[fit.free], fit.high[fit.free]))
    fit.free = fit.free[asked]
    if asked:
        fit.minimise()
    if fit.loss() > most:  # together they made up for more
        fit.logs = all_moved
