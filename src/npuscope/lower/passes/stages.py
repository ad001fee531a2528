"""Pipelined loops: a turn loads all it needs first and stores last, so that turns in flight overlap.

An item keeps its place behind those that it depends on: through a tile's storage, through GM, or a barrier.
"""

from __future__ import annotations

from dataclasses import replace

from npuscope.lower.flight import crosses
from npuscope.lower.model import Instruction, Items, Lowered, Repeat, Value, instructions


def order_stages(lowered: Lowered) -> Lowered:
    return replace(lowered, items=_ordered(lowered.items, lowered.values))


def _ordered(items: Items, values: tuple[Value, ...]) -> Items:
    made: list[Instruction | Repeat] = []
    for item in items:
        if isinstance(item, Instruction):
            made.append(item)
            continue
        inner = _ordered(item.items, values)
        if item.kind == "pipeline" and item.stage > 1 and not crosses(inner):
            inner = _staged(inner, values)
        made.append(replace(item, items=inner))
    return tuple(made)


def _staged(items: Items, values: tuple[Value, ...]) -> Items:
    """The items by rank, each as early as those that it must follow allow."""
    touches = [_touches(item, values) for item in items]
    waits = [{k for k in range(n) if _conflict(touches[k], touches[n])} for n in range(len(items))]
    left = sorted(range(len(items)), key=lambda n: (_rank(items[n]), n))
    done: list[int] = []
    while left:
        ready = next(n for n in left if waits[n] <= set(done))
        left.remove(ready)
        done.append(ready)
    return tuple(items[n] for n in done)


Touched = tuple[set[object], set[object]]  # what is read, what is written: storages, arguments, everything


def _touches(item: Instruction | Repeat, values: tuple[Value, ...]) -> Touched:
    read: set[object] = set()
    written: set[object] = set()
    for one in instructions((item,)):
        read |= {values[number].storage for number in one.reads}
        read |= {("GM", access.argument) for access in one.accesses if access.mode == "read"}
        written |= {("GM", access.argument) for access in one.accesses if access.mode != "read"}
        if one.result is not None and one.plane != "view":
            written.add(values[one.result].storage)
        if one.plane == "sync":
            written.add("all")
    return read, written


def _conflict(one: Touched, other: Touched) -> bool:
    if "all" in one[1] or "all" in other[1]:
        return True
    return bool(one[1] & (other[0] | other[1]) or one[0] & other[1])


def _rank(item: Instruction | Repeat) -> int:
    """Loads, then everything that computes, then stores; within each the order of the program."""
    if isinstance(item, Repeat):
        return 1
    return {"load": 0, "store": 2}.get(item.plane, 1)
