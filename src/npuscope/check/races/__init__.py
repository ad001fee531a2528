"""Is a program safe to schedule: accesses to GM that conflict and that nothing orders, and what they change."""

from npuscope.check.races.detect import ChangedOutput, Race, Side, races

__all__ = ["ChangedOutput", "Race", "Side", "races"]
