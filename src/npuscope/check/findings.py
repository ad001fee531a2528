"""What a check says: one finding per thing to change, with its place, what it wastes and the changed line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "hint"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "hint")  # the worst first


@dataclass(frozen=True, slots=True)
class Waste:
    """What a finding costs over the whole run: GM traffic, cube work, dispatches that need not be, and tasks that wait
    for nothing.
    """

    bytes: int = 0
    flops: int = 0
    tasks: int = 0
    waits: int = 0

    def __add__(self, other: Waste) -> Waste:
        return Waste(
            self.bytes + other.bytes, self.flops + other.flops, self.tasks + other.tasks, self.waits + other.waits
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """`id` is the rule's, stable over versions; `change` is the line as it should be, where a line can say it."""

    id: str
    severity: Severity
    file: str
    line: int
    message: str
    fix: str
    kernel: str = ""
    function: str = ""
    change: str = ""
    waste: Waste = Waste()
    count: int = 1  # times met: loop iterations, layers, tasks
    also: tuple[tuple[str, int], ...] = ()  # other places that belong to it: file, line
