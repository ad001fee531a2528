"""What a rule is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from npuscope.lower.findings import Finding, Severity
from npuscope.lower.program import Program


@dataclass(frozen=True)
class Rule:
    """`check` yields a finding per place and launch; the runner adds up equal ones, drops ignored ones and ranks."""

    id: str
    severity: Severity
    title: str
    why: str
    check: Callable[[Program], Iterable[Finding]]
