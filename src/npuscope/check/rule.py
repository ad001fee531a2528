"""What a rule is. One lies in each file of `rules/`, as RULE; lying there makes it run, documented and selectable."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from npuscope.check.findings import Finding, Severity, Waste
from npuscope.lower.program import Program
from npuscope.tile.record.model import Site


class Example(NamedTuple):
    """The shortest Python that breaks a rule and the same mended; `costs`: what is counted as waste."""

    before: str
    after: str
    costs: str = ""


@dataclass(frozen=True)
class Rule:
    """`check` yields a finding per place and launch; the runner adds up equal ones, drops ignored ones and ranks.

    `about` says under which heading of a review a finding belongs; "chip" is what keeps a program from running at all.
    """

    id: str
    severity: Severity
    title: str
    why: str
    check: Callable[[Program], Iterable[Finding]]
    example: Example
    about: Literal["chip", "performance", "quality"] = "performance"

    def at(
        self,
        site: Site,
        message: str,
        fix: str,
        kernel: str = "",
        severity: Severity | None = None,
        change: str = "",
        waste: Waste = Waste(),
        count: int = 1,
        also: Iterable[Site] = (),
    ) -> Finding:
        """A finding of this rule at a place; `severity` where it is another than the rule's."""
        return Finding(
            id=self.id,
            severity=severity or self.severity,
            file=site.file,
            line=site.line,
            message=message,
            fix=fix,
            kernel=kernel,
            function=site.function,
            change=change,
            waste=waste,
            count=count,
            also=tuple((place.file, place.line) for place in also),
        )
