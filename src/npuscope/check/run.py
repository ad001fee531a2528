"""Checks a program: rules run, equal findings are added up, ignored ones dropped, the rest placed and ranked."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from npuscope.base import progress
from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.check.gm_traffic import seconds_of
from npuscope.check.memory_use import Usage, usages
from npuscope.check.races import Race, races
from npuscope.check.races.replay import Replayed
from npuscope.check.rule import SEVERITIES, Finding, Rule, Severity, Waste
from npuscope.check.rules import all_rules
from npuscope.check.rules.memory import buffer_overflow
from npuscope.check.rules.safety import RACE
from npuscope.check.source_text import section_of, silenced
from npuscope.chip.devices import Device
from npuscope.explain.diagnosis import Diagnosis
from npuscope.lower.program import PlannedBody, Program
from npuscope.tile.record.model import short_name


class MemoryLine(NamedTuple):
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
    findings: tuple[Finding, ...]
    memory: tuple[MemoryLine, ...] = ()
    races: tuple[Race, ...] = ()
    errors: tuple[Finding, ...] = ()
    ignored: int = 0
    replayed: Replayed | None = None
    diagnosis: Diagnosis | None = None  # of the program simulated as it is, where findings are priced
    unpriced: str = ""  # why they are not
    notes: tuple[str, ...] = ()  # on what was read of the compiler's assembly
    costly: int = 0  # found, and left out: mended, the program would take longer
    device: str = ""
    ranks: int = 0  # that were simulated together, where the program is one of several ranks


def check(program: Program, rules: Sequence[Rule] | None = None) -> Checked:
    """Checks one recorded program, by all rules unless some are given."""
    rules = rules_of() if rules is None else rules
    found, ignored = findings_of(program, [rule for rule in rules if rule.id != RACE.id])
    racing = races(program) if RACE in rules else ()
    unsilenced = tuple(one for one in racing if not any(silenced(RACE.id, s.file, s.line) for s in one.sides))
    ordered = ranked(found, program.device)
    return Checked(
        program.recording.program,
        tuple(one for one in ordered if one.severity != "error"),
        tuple(
            MemoryLine(one.function, one.space.space, one.space.used, one.space.limit)
            for one in usages(program.in_memory.values())
        ),
        unsilenced,
        tuple(one for one in ordered if one.severity == "error"),
        ignored + len(racing) - len(unsilenced),
        notes=program.assembly_notes,
        device=program.device.name,
    )


def reaches(checks: Sequence[Checked], level: Severity) -> bool:
    """Whether there is something as bad as `level` or worse."""
    bad = SEVERITIES[: SEVERITIES.index(level) + 1]
    return any(
        checked.errors
        or checked.races
        or (checked.replayed is not None and checked.replayed.is_unsafe)
        or any(one.severity in bad for one in checked.findings)
        for checked in checks
    )


def findings_of(program: Program, rules: Sequence[Rule]) -> tuple[list[Finding], int]:
    """What rules find, not yet ranked, and how much of it comments in the source silence."""
    together: list[Finding] = []
    for done, rule in enumerate(rules):
        progress.report(f"{program.recording.program}: rules", done, len(rules))
        # what keeps a program from running is reported in full, however much of it there is at one line
        together += rule.check(program) if rule.about == "chip" else added_up(rule.check(program))
    unsilenced = _unsilenced(together)
    return unsilenced, len(together) - len(unsilenced)


def unfit(program: Program) -> tuple[Finding, ...]:
    """What keeps a program from running on the chip, but for what comments in the source silence."""
    return tuple(_unsilenced(error for rule in all_rules() if rule.about == "chip" for error in rule.check(program)))


def _unsilenced(findings: Iterable[Finding]) -> list[Finding]:
    return [one for one in findings if not silenced(one.id, one.file, one.line)]


def added_up(findings: Iterable[Finding]) -> list[Finding]:
    """One finding per rule, place and kernel: costs and counts summed, in the words of the costliest of them."""
    together: dict[tuple[str, str, int, str], list[Finding]] = {}
    for finding in findings:
        together.setdefault((finding.id, finding.file, finding.line, finding.kernel), []).append(finding)
    return [_sum(equal) for equal in together.values()]


def _sum(equal: list[Finding]) -> Finding:
    waste = sum((finding.waste for finding in equal), Waste())
    costliest = max(equal, key=lambda f: (f.waste.bytes, f.waste.flops, f.waste.tasks, f.waste.waits))
    places = dict.fromkeys(place for finding in equal for place in finding.also)
    return replace(costliest, waste=waste, count=sum(f.count for f in equal), also=tuple(places))


def ranked(findings: Iterable[Finding], device: Device) -> tuple[Finding, ...]:
    """Placed in their sections; the costliest first, then the worst, then in the order of the source."""
    placed = [
        replace(
            one,
            section=section_of(one.file, one.line, short_name(one.kernel), short_name(one.function)),
            seconds=seconds_of(one.waste, device),
        )
        for one in findings
    ]
    return tuple(
        sorted(placed, key=lambda f: (-f.seconds, SEVERITIES.index(f.severity), f.file, f.line, f.id)),
    )


def rules_of(select: Sequence[str] = (), ignore: Sequence[str] = (), races: bool = True) -> tuple[Rule, ...]:
    """The rules to run, in order: `--select` and `--ignore` name them by id or by `prefix*`.

    Rules that run on request only are among them where they are selected.
    """
    rules = all_rules()
    wanted = _matching(rules, select, "--select") if select else {rule.id for rule in rules if not rule.on_request}
    dropped = _matching(rules, ignore, "--ignore") | (set() if races else {RACE.id})
    return tuple(rule for rule in rules if rule.id in wanted - dropped)


def _matching(rules: Sequence[Rule], given: Sequence[str], option: str) -> set[str]:
    known = [rule.id for rule in rules]
    found: set[str] = set()
    for name in (part.strip() for text in given for part in text.split(",")):
        matched = {id for id in known if id == name or (name.endswith("*") and id.startswith(name[:-1]))}
        if not matched:
            near = difflib.get_close_matches(name, known, 1)
            asked = f"Did you mean {near[0]}? " if near else ""
            raise NpuscopeError(f"{option}: no rule '{name}'", remedy=f"{asked}--list-rules lists them.")
        found |= matched
    return found


@dataclass(frozen=True)
class Fit:
    """The memory of one program: its bodies, the fullest of each function and space, what does not fit."""

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
    bodies = tuple(program.in_memory.values())
    return Fit(program, bodies, usages(bodies), tuple(buffer_overflow.check(program)))
