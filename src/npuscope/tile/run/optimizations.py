"""The entries of `optimizations=[…]`: how a mixed task is laid out on its cube core and its two vector cores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from npuscope.tile.enums import SplitMode
from npuscope.tile.fault import fault
from npuscope.tile.record.model import Half
from npuscope.tile.values.checks import index, shown

_HALVES: dict[SplitMode, Half] = {SplitMode.UP_DOWN: "up_down", SplitMode.LEFT_RIGHT: "left_right"}


class Split:
    """pl.split(mode): each vector core takes half of every tile, by rows or by columns."""

    def __init__(self, mode: object = None, *, slot_num: object = None) -> None:
        self.mode, self.slot_num = mode, slot_num


class CrossCoreSlot:
    """pl.cross_core_slot(slot_num=n): depth of the ring between cube and vector cores."""

    def __init__(self, *, slot_num: object) -> None:
        self.slot_num = slot_num


class Layout(NamedTuple):
    """What a task records of its optimizations."""

    split: Half | Literal[""] = ""
    ring_slots: int = 0


def half_of(mode: object) -> Half | None:
    """The axis that a split halves."""
    return _HALVES.get(mode) if isinstance(mode, SplitMode) else None


def laid_out(entries: Sequence[object]) -> Layout:
    layout = Layout()
    for entry in entries:
        if isinstance(entry, Split):
            layout = layout._replace(split=half_of(entry.mode) or layout.split)
        slots = entry.slot_num if isinstance(entry, Split | CrossCoreSlot) else None
        if slots is not None:
            count = int(index(slots, "pl.cross_core_slot", "slot_num="))
            if count < 1:
                raise fault(f"pl.cross_core_slot: slot_num={shown(slots)}; a ring has at least 1 slot")
            layout = layout._replace(ring_slots=count)
    return layout
