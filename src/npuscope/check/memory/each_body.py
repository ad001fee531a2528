"""What is wrong with lowered bodies: looked for in each, told once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from npuscope.check.findings import Finding
from npuscope.check.rule import Rule
from npuscope.lower.program import PlannedBody, Program

Problem = tuple[int, str, str]  # site, message, fix


def problems(rule: Rule, program: Program, found: Callable[[PlannedBody], Iterator[Problem]]) -> Iterator[Finding]:
    """A finding for every problem of every body; equal ones of several bodies once."""
    seen = set()
    for body in program.planned.values():
        for site, message, fix in found(body):
            if (site, message) not in seen:
                seen.add((site, message))
                yield rule.at(program.site(site), message, fix, body.kernel)
