"""What a lane is, told by the names that NPU tools give lanes."""

from __future__ import annotations

import re
from typing import NamedTuple


class LaneUnit(NamedTuple):
    """The unit of a lane, its core number where the name has one, and the kind of its slices."""

    unit: str
    core: int | None
    kind: str


_PATTERNS = [
    (re.compile(r"^(?:AICube|AIC)[_ ]?([0-9]{1,9})$"), "AIC", "task"),
    (re.compile(r"^(?:AIVector|AIV)[_ ]?([0-9]{1,9})$"), "AIV", "task"),
    (re.compile(r"^AIC \(core([0-9]{1,9})\)$"), "AIC", "task"),
    (re.compile(r"^AIV[0-9]* \(core([0-9]{1,9})\)$"), "AIV", "task"),
    (re.compile(r"^(?:Fake )?Core_([0-9]{1,9})$"), "AIC", "task"),
    (re.compile(r"^(?:AICPU|Sched|Orch)[_ ]?([0-9]{1,9})$"), "AICPU", "schedule"),
]


def unit_of_lane(name: str) -> LaneUnit:
    """AIC, AIV or AICPU where the name says so, else a host lane."""
    for pattern, unit, kind in _PATTERNS:
        if match := pattern.match(name):
            return LaneUnit(unit, int(match[1]), kind)
    return LaneUnit("host", None, "host")
