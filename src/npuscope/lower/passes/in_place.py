"""Ops whose result is the storage of their first operand: a view, a sum in the accumulator, a tile written to."""

from __future__ import annotations

from dataclasses import replace

from npuscope.lower.model import Instruction, Items, Repeat, Value
from npuscope.lower.passes.needs import Needs
from npuscope.ops.spec import Role
from npuscope.ops.transfers import COPY


def in_place(one: Instruction) -> bool:
    """A cast of plane "move" is an accumulator seen in the type that it will leave in."""
    return one.spec.storage == "operand" or (one.spec.is_a(Role.CAST) and one.plane == "move")


def keep_old(items: Items, values: list[Value]) -> Items:
    """A tile that is written to though it is still needed as it was is copied before.

    Sums are left alone: accumulators cannot be copied, which `legal` reports.
    """
    return _kept(items, values, Needs(items))


def _kept(items: Items, values: list[Value], needs: Needs) -> Items:
    made: list[Instruction | Repeat] = []
    for item in items:
        if isinstance(item, Repeat):
            made.append(replace(item, items=_kept(item.items, values, needs)))
            continue
        writes = item.spec.is_a(Role.WRITES_INTO) and item.result is not None and item.operands
        old = item.operands[0] if writes else None
        if old is not None and needs.after(old, item):
            value = values[old]._replace(id=len(values), storage=len(values))
            values.append(value)
            made.append(Instruction(COPY.name, COPY.plane, item.site, (old,), value.id))
            item = item._replace(operands=(value.id, *item.operands[1:]))
        made.append(item)
    return tuple(made)
