"""What a rule is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from npuscope.check.findings import Finding, Severity
from npuscope.check.program import Program


@dataclass(frozen=True)
class Rule:
    """`check` yields a finding per place and launch; the runner adds up equal ones, drops ignored ones and ranks.

    `about` says under which heading of a review a finding belongs.
    """

    id: str
    severity: Severity
    title: str
    why: str
    check: Callable[[Program], Iterable[Finding]]
    about: Literal["performance", "quality"] = "performance"
