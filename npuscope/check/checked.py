"""Everything that is checked of one program: does it fit, is it legal, is it safe, what does it waste."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from npuscope.check.all_rules import ALL_RULES
from npuscope.check.findings import SEVERITIES, Finding, Severity
from npuscope.check.ignores import ignores_in, silenced
from npuscope.check.limits import LIMITS, broken
from npuscope.check.memory import usages
from npuscope.check.program import Program
from npuscope.check.races import Race, races
from npuscope.check.races.replay import Replayed, replay_races
from npuscope.check.rule import Rule
from npuscope.check.run import Found, lint
from npuscope.check.select import chosen, nearest
from npuscope.device.chip import Device
from npuscope.errors import NpuscopeError
from npuscope.lower.passes import Options as Lowering
from npuscope.tile.graph.outputs import the_one
from npuscope.tile.record.model import Mode
from npuscope.tile.script.run import ScriptRun, run_script


@dataclass(frozen=True)
class Options:
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
    findings: tuple[Found, ...]
    memory: tuple[MemoryLine, ...]
    races: tuple[Race, ...]
    errors: tuple[Finding, ...]
    ignored: int = 0
    replayed: Replayed | None = None


RACE = Rule(
    "race",
    "error",
    "two accesses of global memory that nothing orders",
    "The runtime makes readers wait for writers, and writers for writers, but no writer for readers, and opt-outs "
    "silence even that. Which of the two comes first is then chance.",
    lambda program: map(race_finding, races(program)),
)


def _unknown_ignores(program: Program) -> Iterator[Finding]:
    known = {rule.id for rule in EVERY}
    for file in dict.fromkeys(site.file for site in program.recording.sites):
        for ignore in ignores_in(file):
            for id in sorted(ignore.rules - known):
                meant = nearest(id, known)
                yield Finding(
                    UNKNOWN_IGNORE.id,
                    "hint",
                    file,
                    ignore.line,
                    f"this comment silences nothing: there is no rule '{id}'",
                    f"Write {meant}." if meant else "npuscope check --list-rules lists the rules.",
                )


UNKNOWN_IGNORE = Rule(
    "unknown-ignore",
    "hint",
    "a comment that silences a rule there is not",
    "A finding that someone meant to silence will come back, or was never there.",
    _unknown_ignores,
    "quality",
)
LINT: tuple[Rule, ...] = (*ALL_RULES, UNKNOWN_IGNORE)
EVERY: tuple[Rule, ...] = (*LIMITS, RACE, *LINT)


def rules_of(options: Options) -> tuple[Rule, ...]:
    """All that is looked for."""
    return chosen(EVERY, options.select, (*options.ignore, *(() if options.races else (RACE.id,))))


def check_all(
    file: str, argv: Sequence[str], device: Device, options: Options = Options(), number: int | None = None
) -> tuple[Checked, ...]:
    """Runs a script and checks each program it ran, or the one with this number.

    A program that ran several times with the same result is told once.
    """
    run = run_script(file, argv, options.mode)
    recordings = run.recordings
    wanted = range(len(recordings)) if number is None else (the_one(recordings, number, file),)
    programs = _programs(run, device, options)
    found = {n: check(programs[n], options) for n in wanted if recordings[n].tasks}
    if not found:
        raise NpuscopeError("no tile program ran, so there is nothing to check", path=file)
    if options.replay:
        sought = [found[n].races if n in found else () for n in range(len(recordings))]
        replayed = replay_races(file, argv, sought, device, options.seed)
        found = {n: replace(one, races=replayed[n].races, replayed=replayed[n]) for n, one in found.items()}
    return tuple(dict.fromkeys(found.values()))


def _programs(run: ScriptRun, device: Device, options: Options) -> list[Program]:
    goldens: dict[int, Callable[..., object] | None] = {id(result.run): result.golden_fn for result in run.results}
    lowering = Lowering(ring_slots=options.ring_slots)
    return [Program(one.recording, device, goldens.get(id(one)), lowering) for one in run.runs]


def check(program: Program, options: Options = Options()) -> Checked:
    """Checks one recorded program."""
    wanted = {rule.id for rule in rules_of(options)}
    found = lint(program, [rule for rule in LINT if rule.id in wanted])
    errors = [error for error in broken(program) if error.id in wanted]
    racing = races(program) if RACE.id in wanted else ()
    kept_errors = [error for error in errors if not silenced(error.id, error.file, error.line)]
    kept_races = tuple(race for race in racing if not any(silenced(RACE.id, s.file, s.line) for s in race.sides))
    return Checked(
        program.recording.program,
        tuple(one for one in found.found if one.finding.severity != "error"),
        tuple(_memory(program)),
        kept_races,
        (*kept_errors, *(one.finding for one in found.found if one.finding.severity == "error")),
        found.ignored + len(errors) - len(kept_errors) + len(racing) - len(kept_races),
    )


def _memory(program: Program) -> Iterator[MemoryLine]:
    for usage in usages(program.kernels):
        yield MemoryLine(usage.function, usage.space.space, usage.space.used, usage.space.limit)


def race_finding(race: Race) -> Finding:
    """A race as a finding: at the later access, with the earlier one beside it."""
    first, second = race.sides
    message = (
        f"{second.region} of {second.kernel} and {first.region} of {first.kernel}: nothing orders them; {race.why}"
    )
    return Finding(
        RACE.id, "error", second.file, second.line, message, race.fix, second.kernel, count=race.count,
        also=((first.file, first.line),),
    )  # fmt: skip


def reaches(checks: Sequence[Checked], level: Severity) -> bool:
    """Whether there is something as bad as `level` or worse."""
    bad = SEVERITIES[: SEVERITIES.index(level) + 1]
    return any(
        checked.errors or checked.races or any(one.finding.severity in bad for one in checked.findings)
        for checked in checks
    )
