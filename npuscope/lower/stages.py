"""Pipelined loops: a turn loads all it needs first and stores last, so that turns in flight overlap."""

from __future__ import annotations

from dataclasses import replace

from npuscope.lower.model import Instruction, Items, Lowered, Repeat


def order_stages(lowered: Lowered) -> Lowered:
    return replace(lowered, items=_ordered(lowered.items))


def _ordered(items: Items) -> Items:
    made: list[Instruction | Repeat] = []
    for item in items:
        if isinstance(item, Instruction):
            made.append(item)
            continue
        inner = _ordered(item.items)
        if item.kind == "pipeline" and item.stage > 1 and item.count > 1:
            inner = tuple(sorted(inner, key=_rank))
        made.append(replace(item, items=inner))
    return tuple(made)


def _rank(item: Instruction | Repeat) -> int:
    """Loads, then everything that computes, then stores; within each the order of the program."""
    if isinstance(item, Repeat):
        return 1
    return {"load": 0, "store": 2}.get(item.plane, 1)
