"""Runs rules over a program: equal findings added up, ignored ones dropped, the rest placed in scopes and ranked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from npuscope import progress
from npuscope.check.findings import SEVERITIES, Finding
from npuscope.check.ignores import silenced
from npuscope.check.program import Program
from npuscope.check.rule import Rule
from npuscope.check.shared.estimate import cost_seconds
from npuscope.check.shared.scopes import Scope, scope_of
from npuscope.device.chip import Device


@dataclass(frozen=True)
class Found:
    """A finding in its scope; `seconds` is an estimate for ranking, see `estimate`."""

    finding: Finding
    scope: Scope
    seconds: float

    @property
    def crosses(self) -> bool:
        """Whether it lies in several scopes."""
        return any(not self.scope.has(file, line) for file, line in self.finding.also) and self.scope.first > 0


@dataclass(frozen=True)
class Lint:
    """What rules found, the costliest first; `ignored` counts what comments in the source silenced."""

    found: tuple[Found, ...]
    ignored: int = 0


def lint(program: Program, rules: Sequence[Rule]) -> Lint:
    """Every rule over the program."""
    raised: list[Finding] = []
    for done, rule in enumerate(rules):
        progress.report(f"{program.recording.program}: rules", done, len(rules))
        raised += rule.check(program)
    together = added_up(raised)
    kept = [finding for finding in together if not silenced(finding.id, finding.file, finding.line)]
    return Lint(ranked(kept, program.device), len(together) - len(kept))


def added_up(findings: Iterable[Finding]) -> list[Finding]:
    """One finding per rule, place and kernel: costs and counts summed, told as the costliest of them tells it."""
    together: dict[tuple[str, str, int, str], list[Finding]] = {}
    for finding in findings:
        together.setdefault((finding.id, finding.file, finding.line, finding.kernel), []).append(finding)
    return [_sum(equal) for equal in together.values()]


def _sum(equal: list[Finding]) -> Finding:
    first, *others = equal
    cost = first.cost
    for other in others:
        cost = cost + other.cost
    told = max(equal, key=lambda f: (f.cost.bytes, f.cost.flops, f.cost.tasks, f.cost.waits))
    places = dict.fromkeys(place for finding in equal for place in finding.also)
    return replace(told, cost=cost, count=sum(f.count for f in equal), also=tuple(places))


def ranked(findings: Iterable[Finding], device: Device) -> tuple[Found, ...]:
    """Placed in their scopes; the costliest first, then the worst, then in the order of the source."""
    found = [
        Found(f, scope_of(f.file, f.line, short_name(f.kernel), short_name(f.function)), cost_seconds(f.cost, device))
        for f in findings
    ]

    def rank(one: Found) -> tuple[float, int, str, int, str]:
        f = one.finding
        return (-one.seconds, SEVERITIES.index(f.severity), f.file, f.line, f.id)

    return tuple(sorted(found, key=rank))


def short_name(name: str) -> str:
    """A kernel's or function's name without the factory it was made in."""
    return name.rpartition("<locals>.")[2]
