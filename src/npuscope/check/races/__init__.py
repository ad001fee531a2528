"""Is a program safe to schedule: accesses to GM that conflict and that nothing orders, and what they change."""

from __future__ import annotations

from npuscope.check.races.detect import ChangedOutput, Race, Side, block_races, host_races, task_races
from npuscope.check.rule import once
from npuscope.lower.program import Program

__all__ = ["ChangedOutput", "Race", "Side", "races"]


@once
def races(program: Program) -> tuple[Race, ...]:
    """Every race of a program, in the order of the later task; equal ones of many tasks counted together."""
    found = [*task_races(program), *block_races(program), *host_races(program)]
    return tuple(sorted(found, key=lambda race: (race.sides[1].task, race.sides[0].task)))
