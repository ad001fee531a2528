"""Runs rules over a program: equal findings added up, ignored ones dropped, the rest placed in sections and ranked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from npuscope.base import progress
from npuscope.check.findings import SEVERITIES, Finding, Waste
from npuscope.check.gm_traffic import seconds_of
from npuscope.check.rule import Rule
from npuscope.check.rules import all_rules
from npuscope.check.source_text import Section, section_of, silenced
from npuscope.chip.devices import Device
from npuscope.lower.program import Program
from npuscope.tile.record.model import short_name


@dataclass(frozen=True)
class RankedFinding:
    """A finding in its section.

    `seconds` by the chip's peak rates ranks findings that were not priced and is never shown (`estimate`). `saves_ns`:
    what the program takes less, simulated without the finding; None where that was not tried, below 0 where it takes
    more.
    """

    finding: Finding
    section: Section
    seconds: float
    saves_ns: int | None = None

    @property
    def crosses(self) -> bool:
        """Whether it lies in several sections."""
        return any(not self.section.has(file, line) for file, line in self.finding.also) and self.section.first > 0


@dataclass(frozen=True)
class Lint:
    """What rules found, the costliest first; `ignored` counts what comments in the source silenced."""

    found: tuple[RankedFinding, ...]
    ignored: int = 0


def lint(program: Program, rules: Sequence[Rule]) -> Lint:
    """Every rule over the program."""
    kept, ignored = looked_for(program, rules)
    return Lint(ranked(kept, program.device), ignored)


def looked_for(program: Program, rules: Sequence[Rule]) -> tuple[list[Finding], int]:
    """What rules find, not yet ranked, and how much of it comments in the source silence."""
    together: list[Finding] = []
    for done, rule in enumerate(rules):
        progress.report(f"{program.recording.program}: rules", done, len(rules))
        # what keeps a program from running is told in full, however much of it there is at one line
        together += rule.check(program) if rule.about == "chip" else added_up(rule.check(program))
    kept = [finding for finding in together if not silenced(finding.id, finding.file, finding.line)]
    return kept, len(together) - len(kept)


def unfit(program: Program) -> tuple[Finding, ...]:
    """What keeps a program from running on the chip, but for what comments in the source silence."""
    errors = (error for rule in all_rules() if rule.about == "chip" for error in rule.check(program))
    return tuple(error for error in errors if not silenced(error.id, error.file, error.line))


def added_up(findings: Iterable[Finding]) -> list[Finding]:
    """One finding per rule, place and kernel: costs and counts summed, told as the costliest of them tells it."""
    together: dict[tuple[str, str, int, str], list[Finding]] = {}
    for finding in findings:
        together.setdefault((finding.id, finding.file, finding.line, finding.kernel), []).append(finding)
    return [_sum(equal) for equal in together.values()]


def _sum(equal: list[Finding]) -> Finding:
    waste = sum((finding.waste for finding in equal), Waste())
    told = max(equal, key=lambda f: (f.waste.bytes, f.waste.flops, f.waste.tasks, f.waste.waits))
    places = dict.fromkeys(place for finding in equal for place in finding.also)
    return replace(told, waste=waste, count=sum(f.count for f in equal), also=tuple(places))


def _section(finding: Finding) -> Section:
    return section_of(finding.file, finding.line, short_name(finding.kernel), short_name(finding.function))


def with_savings(found: Iterable[RankedFinding], saved: Mapping[Finding, int | None]) -> tuple[RankedFinding, ...]:
    """The findings with what a simulation says that each saves, the one that saves most first."""
    priced = [replace(one, saves_ns=saved.get(one.finding)) for one in found]
    return tuple(sorted(priced, key=lambda one: -max(one.saves_ns or 0, 0)))


def ranked(findings: Iterable[Finding], device: Device) -> tuple[RankedFinding, ...]:
    """Placed in their sections; the costliest first, then the worst, then in the order of the source."""
    found = [RankedFinding(f, _section(f), seconds_of(f.waste, device)) for f in findings]

    def rank(one: RankedFinding) -> tuple[float, int, str, int, str]:
        f = one.finding
        return (-one.seconds, SEVERITIES.index(f.severity), f.file, f.line, f.id)

    return tuple(sorted(found, key=rank))
