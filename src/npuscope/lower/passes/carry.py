"""Loops carry tiles in one place where they can: the turn's new value overwrites the one it found.

They cannot where the turn still reads the old value after the new one is made, or reads one from two turns ago. Then
the new one is copied over at the end of the turn. A value from before the loop that is still needed is copied before
it. Accumulators cannot be copied, which `legal` reports.
"""

from __future__ import annotations

from dataclasses import replace

from npuscope.lower.model import Instruction, Items, Lowered, Repeat, Value, instructions
from npuscope.lower.passes.needs import Needs
from npuscope.lower.passes.storages import Storages
from npuscope.ops.transfers import COPY


def settle_carries(lowered: Lowered) -> Lowered:
    """Joins what is carried in place, inserts a copy for the rest."""
    values = list(lowered.values)
    items = _begun(lowered.items, values, Needs(lowered.items))
    storages = Storages(values)
    makers = {one.result: one for one in instructions(items) if one.result is not None}
    items = _settled(items, storages, values, Needs(items), makers)
    return replace(lowered, items=items, values=storages.applied())


def _begun(items: Items, values: list[Value], needs: Needs) -> Items:
    """Loops begin with a copy of what they will write over though it is still needed."""
    made: list[Instruction | Repeat] = []
    for item in items:
        if isinstance(item, Instruction):
            made.append(item)
            continue
        carries = []
        for carry in item.carries:
            if carry.first is not None and needs.after(carry.first, item):
                value = values[carry.first]._replace(id=len(values), storage=len(values))
                values.append(value)
                made.append(Instruction(COPY.name, COPY.plane, item.site, (carry.first,), value.id))
                carry = carry._replace(first=value.id)
            carries.append(carry)
        made.append(replace(item, items=_begun(item.items, values, needs), carries=tuple(carries)))
    return tuple(made)


def _settled(
    items: Items, storages: Storages, values: list[Value], needs: Needs, makers: dict[int, Instruction]
) -> Items:
    made: list[Instruction | Repeat] = []
    for item in items:
        if isinstance(item, Instruction):
            made.append(item)
            continue
        inner = _settled(item.items, storages, values, needs, makers)
        own = {one.result for one in instructions(inner)}
        copies = []
        taken: set[int] = set()
        for carry in item.carries:
            if carry.first is not None:
                storages.join(carry.first, carry.value)
            fresh = carry.next in own and not needs.after(carry.value, makers[carry.next])
            if carry.next in taken or not fresh:
                value = values[carry.next]
                copies.append(Instruction(COPY.name, COPY.plane, value.site, (carry.next,), carry.value))
            else:
                storages.join(carry.value, carry.next)
                taken.add(carry.next)
        made.append(replace(item, items=(*inner, *copies)))
    return tuple(made)
