"""Loops carry tiles in one place where they can: the turn's new value overwrites the one it found.

They cannot where the turn still reads the old value after the new one is made, or reads one from two turns ago. Then
the new one is copied over at the end of the turn; accumulators cannot be copied, which `legal` reports.
"""

from __future__ import annotations

from dataclasses import replace

from npuscope.lower.model import Carry, Instruction, Items, Lowered, Repeat, instructions
from npuscope.lower.storages import Storages


def settle_carries(lowered: Lowered) -> Lowered:
    """Joins what is carried in place, inserts a copy for the rest."""
    storages = Storages(lowered.values)
    items = _settled(lowered.items, storages, lowered)
    return replace(lowered, items=items, values=storages.applied())


def _settled(items: Items, storages: Storages, lowered: Lowered) -> Items:
    made: list[Instruction | Repeat] = []
    for item in items:
        if isinstance(item, Instruction):
            made.append(item)
            continue
        inner = _settled(item.items, storages, lowered)
        order = list(instructions(inner))
        copies = []
        taken: set[int] = set()
        for carry in item.carries:
            if carry.first is not None:
                storages.join(carry.first, carry.value)
            if carry.next in taken or not _in_place(carry, order):
                value = lowered.values[carry.next]
                copies.append(Instruction("copy", "move", value.site, (carry.next,), carry.value))
            else:
                storages.join(carry.value, carry.next)
                taken.add(carry.next)
        made.append(replace(item, items=(*inner, *copies)))
    return tuple(made)


def _in_place(carry: Carry, order: list[Instruction]) -> bool:
    """Nothing reads the old value after the new one is made."""
    made = next((n for n, one in enumerate(order) if one.result == carry.next), None)
    last = max((n for n, one in enumerate(order) if carry.value in one.reads), default=-1)
    return made is not None and last <= made
