"""Everything that is checked of one program: does it fit, is it legal, is it safe, what does it waste."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from npuscope.base.errors import NpuscopeError
from npuscope.check.findings import SEVERITIES, Finding, Severity
from npuscope.check.memory_use import usages
from npuscope.check.races import Race, races
from npuscope.check.races.replay import Replayed, replay_races
from npuscope.check.rule import Rule
from npuscope.check.rules import all_rules
from npuscope.check.rules.safety import RACE
from npuscope.check.run import RankedFinding, lint
from npuscope.check.select import chosen
from npuscope.check.source_text import silenced
from npuscope.chip.devices import Device
from npuscope.explain.diagnosis import Diagnosis
from npuscope.lower.lowering import LoweringOptions
from npuscope.lower.program import Program
from npuscope.tile.graph.outputs import the_one
from npuscope.tile.record.model import Mode
from npuscope.tile.script.run import ScriptRun, run_script


@dataclass(frozen=True)
class CheckOptions:
    """What to check. `ring_slots`: the depth of the cross-core ring, None for the chip's; `seed` is the replay's.

    `mode`: "values" computes, for programs whose control flow depends on more than lengths and tables.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    races: bool = True
    replay: bool = False
    seed: int = 0
    ring_slots: int | None = None
    mode: Mode = "shapes"


@dataclass(frozen=True)
class MemoryLine:
    """How much of a space a function of a kernel uses, in bytes."""

    kernel: str
    space: str
    used: int
    limit: int


@dataclass(frozen=True)
class Checked:
    """One program's result: `errors` is all that will not work, `findings` the rest of what rules say.

    `ignored` counts what comments in the source silenced.
    """

    program: str
    findings: tuple[RankedFinding, ...]
    memory: tuple[MemoryLine, ...]
    races: tuple[Race, ...]
    errors: tuple[Finding, ...]
    ignored: int = 0
    replayed: Replayed | None = None
    diagnosis: Diagnosis | None = None  # of the program simulated as it is, where findings are priced
    unpriced: str = ""  # why they are not


Pricing = Callable[[Program, Checked], Checked]


def rules_of(options: CheckOptions) -> tuple[Rule, ...]:
    """All that is looked for."""
    return chosen(all_rules(), options.select, (*options.ignore, *(() if options.races else (RACE.id,))))


def check_all(
    file: str,
    argv: Sequence[str],
    device: Device,
    options: CheckOptions = CheckOptions(),
    number: int | None = None,
    price: Pricing | None = None,
) -> tuple[Checked, ...]:
    """Runs a script and checks each program it ran, or the one with this number.

    A program that ran several times with the same result is told once. `price` says what findings are worth: a
    simulation's business, which stands below checks.
    """
    run = run_script(file, argv, options.mode, golden=False)
    recordings = run.recordings
    wanted = range(len(recordings)) if number is None else (the_one(recordings, number, file),)
    programs = _programs(run, device, options)
    found = {n: check(programs[n], options) for n in wanted if recordings[n].tasks}
    if not found:
        raise NpuscopeError("no tile program ran, so there is nothing to check", path=file)
    if price is not None:
        found = {n: price(programs[n], one) for n, one in found.items()}
    if options.replay:
        sought = [found[n].races if n in found else () for n in range(len(recordings))]
        replayed = replay_races(file, argv, sought, device, options.seed)
        found = {n: replace(one, races=replayed[n].races, replayed=replayed[n]) for n, one in found.items()}
    return tuple(dict.fromkeys(found.values()))


def _programs(run: ScriptRun, device: Device, options: CheckOptions) -> list[Program]:
    goldens: dict[int, Callable[..., object] | None] = {id(result.run): result.golden_fn for result in run.results}
    lowering = LoweringOptions(ring_slots=options.ring_slots)
    return [Program(one.recording, device, lowering, goldens.get(id(one))) for one in run.runs]


def check(program: Program, options: CheckOptions = CheckOptions()) -> Checked:
    """Checks one recorded program."""
    rules = rules_of(options)
    found = lint(program, [rule for rule in rules if rule.id != RACE.id])
    racing = races(program) if RACE in rules else ()
    kept = tuple(one for one in racing if not any(silenced(RACE.id, s.file, s.line) for s in one.sides))
    used = usages(program.planned.values())
    return Checked(
        program.recording.program,
        tuple(one for one in found.found if one.finding.severity != "error"),
        tuple(MemoryLine(u.function, u.space.space, u.space.used, u.space.limit) for u in used),
        kept,
        tuple(one.finding for one in found.found if one.finding.severity == "error"),
        found.ignored + len(racing) - len(kept),
    )


def reaches(checks: Sequence[Checked], level: Severity) -> bool:
    """Whether there is something as bad as `level` or worse."""
    bad = SEVERITIES[: SEVERITIES.index(level) + 1]
    return any(
        checked.errors or checked.races or any(one.finding.severity in bad for one in checked.findings)
        for checked in checks
    )
