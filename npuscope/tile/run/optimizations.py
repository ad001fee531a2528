"""The entries of `optimizations=[…]`: how a mixed task is laid out on its cube core and its two vector cores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npuscope.tile.enums import SplitMode
from npuscope.tile.fault import fault
from npuscope.tile.values.checks import index, shown


class Split:
    """pl.split(mode): each vector core takes half of every tile, by rows or by columns."""

    def __init__(self, mode: Any = None, *, slot_num: Any = None) -> None:
        self.mode, self.slot_num = mode, slot_num


class CrossCoreSlot:
    """pl.cross_core_slot(slot_num=n): depth of the ring between cube and vector cores."""

    def __init__(self, *, slot_num: Any) -> None:
        self.slot_num = slot_num


def laid_out(entries: Sequence[Any]) -> dict[str, Any]:
    """What a task records of its optimizations."""
    found: dict[str, Any] = {}
    for entry in entries:
        if isinstance(entry, Split) and isinstance(entry.mode, SplitMode) and entry.mode is not SplitMode.NONE:
            found["split"] = entry.mode.value
        slots = getattr(entry, "slot_num", None)
        if slots is not None:
            found["ring_slots"] = int(index(slots, "pl.cross_core_slot", "slot_num="))
            if found["ring_slots"] < 1:
                raise fault(f"pl.cross_core_slot: slot_num={shown(slots)}; a ring has at least 1 slot")
    return found
