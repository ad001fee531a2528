"""Is a program safe to schedule: accesses to GM that conflict and that nothing orders, and what they change."""

from __future__ import annotations

from npuscope.check.races.detect import ChangedOutput, Race, Side, block_races, host_races, task_races
from npuscope.check.rule import once
from npuscope.lower.program import Program
from npuscope.check.races.detect import ChangedOutput, Race, Side, races

__all__ = ["ChangedOutput", "Race", "Side", "races"]
