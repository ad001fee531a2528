"""Everything that is checked of one program: does it fit, is it legal, is it safe, what does it waste."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from npuscope.device.chip import Device, load, names
from npuscope.errors import NpuscopeError
from npuscope.lower.findings import SEVERITIES, Finding, Severity
from npuscope.lower.lint.all_rules import ALL_RULES
from npuscope.lower.lint.rule import Rule
from npuscope.lower.lint.run import Found, lint
from npuscope.lower.lint.select import chosen
from npuscope.lower.program import Program
from npuscope.tile.graph.outputs import the_one
from npuscope.tile.script import run_script


@dataclass(frozen=True)
class Options:
    """What to check. `ring_slots`: the depth of the cross-core ring, None for the chip's; `seed` is the replay's."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    races: bool = True
    replay: bool = False
    seed: int = 0
    ring_slots: int | None = None


@dataclass(frozen=True)
class MemoryLine:
    """How much of a space a kernel uses, in bytes."""

    kernel: str
    space: str
    used: int
    limit: int


@dataclass(frozen=True)
class Checked:
    """One program's result; `ignored` counts findings that comments in the source silenced."""

    program: str
    findings: tuple[Found, ...]
    memory: tuple[MemoryLine, ...]
    races: tuple[Any, ...]
    errors: tuple[Finding, ...]
    ignored: int = 0

    @property
    def over(self) -> tuple[MemoryLine, ...]:
        """What does not fit."""
        return tuple(line for line in self.memory if line.used > line.limit)


def check_all(
    file: str, argv: Sequence[str], device: Device, options: Options = Options(), number: int | None = None
) -> tuple[Checked, ...]:
    """Runs a script in shapes mode and checks each program it ran, or the one with this number.

    A program that ran several times with the same result is told once.
    """
    run = run_script(file, argv, "shapes")
    recordings = run.recordings
    goldens = {id(result.run): result.golden_fn for result in run.results if result.run is not None}
    wanted = range(len(recordings)) if number is None else (the_one(recordings, number, file),)
    found = []
    for n in wanted:
        if recordings[n].tasks:
            found.append(check(Program(recordings[n], device, goldens.get(id(run.runs[n]))), options))
    return tuple(dict.fromkeys(found))


def check(program: Program, options: Options = Options()) -> Checked:
    """Checks one recorded program."""
    found = lint(program, rules_of(options))
    memory, errors = _lowered(program, options)
    races = _races(program, options) if options.races else ()
    return Checked(program.recording.program, found.found, memory, races, errors, found.ignored)


def rules_of(options: Options) -> tuple[Rule, ...]:
    """The rules that run."""
    return chosen(ALL_RULES, options.select, options.ignore)


def device_to_check_on(name: str) -> Device:
    """A device whose file says what a core can hold."""
    device = load(name)
    if not device.space or device.rules is None:
        able = [known for known in names() if load(known).space]
        raise NpuscopeError(
            f"the file of {device.name} does not say what a core can hold, so no tile program can be checked on it",
            remedy=f"Take {' or '.join(able)}, or add [space] and [rules] to the file.",
        )
    return device


def reaches(checks: Sequence[Checked], level: Severity) -> bool:
    """Whether there is something as bad as `level` or worse; what does not fit or is not safe is an error."""
    bad = SEVERITIES[: SEVERITIES.index(level) + 1]
    return any(
        checked.errors or checked.races or checked.over or any(one.finding.severity in bad for one in checked.findings)
        for checked in checks
    )


def _lowered(program: Program, options: Options) -> tuple[tuple[MemoryLine, ...], tuple[Finding, ...]]:
    return (), ()


def _races(program: Program, options: Options) -> tuple[Any, ...]:
    return ()
