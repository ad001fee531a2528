"""Cube work on the cube core, vector work on the vector cores, and what they hand to each other.

A move from Acc to Vec or from Vec to Mat crosses cores: the sender pushes the tile into a ring, the receiver pops it.
The ring's slots lie in the receiver's memory; where the chip has no way between the cores, the bytes pass through GM
as well. All hand-overs of a kernel use slots of one size, that of its largest tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from npuscope.chip.devices.chip import Device
from npuscope.lower.model import CoreKind, Instruction, Items, Lowered, Pipe, Repeat, Ring, RingWay, Value
from npuscope.ops.dtypes import BY_NAME
from npuscope.ops.spec import Role
from npuscope.ops.transfers import POP, PUSH

CROSSING: dict[tuple[str, str], RingWay] = {("Acc", "Vec"): "C2V", ("Vec", "Mat"): "V2C", ("Mat", "Vec"): "C2V"}
SENDER: dict[RingWay, tuple[CoreKind, Pipe]] = {"C2V": ("AIC", "FIXP"), "V2C": ("AIV", "MTE3")}
RECEIVER: dict[RingWay, tuple[CoreKind, Pipe, str]] = {"C2V": ("AIV", "MTE2", "Vec"), "V2C": ("AIC", "MTE2", "Mat")}


def split_cores(lowered: Lowered, device: Device, ring_slots: int | None = None) -> Lowered:
    """`ring_slots`: depth of a ring that goes one way; one that goes both ways has half, but at least two."""
    values = list(lowered.values)
    mixed = any(_unit(one, values) == "AIV" for one in lowered.instructions if one.plane != "scalar")
    scalar: CoreKind = "AIV" if mixed or not any(one.plane == "cube" for one in lowered.instructions) else "AIC"
    handed: dict[RingWay, int] = {}
    items = tuple(_split(lowered.items, values, scalar, handed))
    wanted = lowered.ring_slots or ring_slots or int(device.core["ring_slots"].value)
    depth = wanted if len(handed) < 2 or lowered.ring_slots else max(2, wanted // 2)
    slot = max(handed.values(), default=0)
    rings = tuple(Ring(way, RECEIVER[way][2], slot, depth) for way in handed)
    return replace(lowered, items=items, values=tuple(values), rings=rings)


def crossing(one: Instruction, values: list[Value] | tuple[Value, ...]) -> RingWay | None:
    """Which way an instruction hands a tile to the other core, if it does."""
    if one.plane != "move" or one.result is None or not one.reads:
        return None
    return CROSSING.get((values[one.reads[0]].space, values[one.result].space))


def _split(
    items: Items, values: list[Value], scalar: CoreKind, handed: dict[RingWay, int]
) -> Iterator[Instruction | Repeat]:
    for item in items:
        if isinstance(item, Repeat):
            yield replace(item, items=tuple(_split(item.items, values, scalar, handed)))
            continue
        way = crossing(item, values)
        if way is None:
            yield item._replace(unit=_unit(item, values) or scalar, pipe=_pipe(item, values))
            continue
        source = values[item.reads[0]]
        assert item.result is not None
        handed[way] = max(handed.get(way, 0), prod(source.shape) * BY_NAME[source.dtype].bytes)
        kept, tile = item.result, item.result
        if item.spec.is_a(Role.COPY):  # into a tile that stays: out of the ring again
            tile = len(values)
            values.append(values[kept]._replace(id=tile, storage=tile))
        values[tile] = values[tile]._replace(in_ring=True)
        attributes = (("way", way), ("tile", tile))
        unit, pipe = SENDER[way]
        yield item._replace(name=PUSH.name, result=None, unit=unit, pipe=pipe, attributes=attributes)
        unit, pipe, _ = RECEIVER[way]
        yield item._replace(name=POP.name, operands=(), result=tile, unit=unit, pipe=pipe, attributes=attributes)
        if tile != kept:
            copied = item._replace(operands=(tile,))
            yield copied._replace(unit=unit, pipe=_pipe(copied, values))


def _unit(one: Instruction, values: list[Value]) -> CoreKind | None:
    """The core that an instruction needs; None where either will do."""
    if one.plane == "cube":
        return "AIC"
    if one.plane == "vector":
        return "AIV"
    places = [values[number].space for number in (one.result, *one.reads) if number is not None]
    if one.plane == "scalar" and not places:
        return None
    if not places or one.plane == "sync":
        return None
    return "AIV" if "Vec" in places else "AIC"


def _pipe(one: Instruction, values: list[Value]) -> Pipe | None:
    """The queue that an instruction goes through; None for what costs nothing."""
    if one.plane == "view":
        return None
    if one.plane == "cube":
        return "M"
    if one.plane in ("vector", "load"):
        return "V" if one.plane == "vector" else "MTE2"
    if one.plane == "store":
        return "FIXP" if one.reads and values[one.reads[0]].space == "Acc" else "MTE3"
    if one.plane == "move" and one.reads and one.result is not None:
        source, target = values[one.reads[0]].space, values[one.result].space
        if source == "Acc":
            return "FIXP" if target != "Acc" else None
        return "V" if target == "Vec" else "MTE1"
    return "S"
