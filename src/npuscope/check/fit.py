"""Whether a program fits on chip: the memory of every function, and an error for each that is too small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npuscope.base.errors import NpuscopeError
from npuscope.check.findings import Finding
from npuscope.check.memory_use import Usage, usages
from npuscope.check.rules.memory import BUFFER_OVERFLOW
from npuscope.chip.devices import Device
from npuscope.lower.lowering import LoweringOptions
from npuscope.lower.program import PlannedBody, Program
from npuscope.tile.graph.outputs import the_one
from npuscope.tile.record.model import Mode
from npuscope.tile.script.run import run_script


@dataclass(frozen=True)
class Fit:
    """One program: its bodies, the fullest of each function and space, what does not fit."""

    program: Program
    bodies: tuple[PlannedBody, ...]
    used: tuple[Usage, ...]
    errors: tuple[Finding, ...]

    def only(self, name: str) -> Fit:
        """One kernel of it, by its name or that of one of its functions."""
        used = tuple(usage for usage in self.used if name in (usage.body.kernel, usage.function))
        names = {name, *(usage.body.kernel for usage in used)}
        bodies = tuple(body for body in self.bodies if body.kernel in names)
        return Fit(self.program, bodies, used, tuple(error for error in self.errors if error.kernel in names))


def fit(program: Program) -> Fit:
    bodies = tuple(program.planned.values())
    return Fit(program, bodies, usages(bodies), tuple(BUFFER_OVERFLOW.check(program)))


def fits_of(
    file: str,
    argv: Sequence[str],
    device: Device,
    lowering: LoweringOptions = LoweringOptions(),
    number: int | None = None,
    mode: Mode = "shapes",
    kernel: str | None = None,
) -> tuple[Fit, ...]:
    """Runs a script and plans each program it ran, or the one with this number; equal programs once.

    With `kernel` only that of programs that have it; it is refused where none has.
    """
    recordings = run_script(file, argv, mode, golden=False).recordings
    wanted = range(len(recordings)) if number is None else (the_one(recordings, number, file),)
    found: dict[object, Fit] = {}
    for n in wanted:
        if recordings[n].tasks:
            one = fit(Program(recordings[n], device, lowering))
            told = tuple((usage.function, usage.space.space, usage.space.used) for usage in one.used)
            found.setdefault((recordings[n].program, told), one)
    if not found:
        raise NpuscopeError("no tile program ran, so there is no memory to plan", path=file)
    fits = tuple(found.values())
    if kernel is None:
        return fits
    chosen = tuple(part for part in (one.only(kernel) for one in fits) if part.bodies)
    if not chosen:
        known = dict.fromkeys(body.kernel for one in fits for body in one.bodies)
        raise NpuscopeError(f"no kernel '{kernel}' ran", path=file, remedy=f"Those that did: {', '.join(known)}.")
    return chosen
