"""Cube work on the cube core, vector work on the vector cores, what they hand to each other, and turns in flight.

A move from Acc to Vec or from Vec to Mat crosses cores: the sender pushes the tile into a ring, the receiver pops it.
The ring's slots lie in the receiver's memory; where the chip has no way between the cores, the bytes pass through GM
as well. All hand-overs of a kernel use slots of one size, that of its largest tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from npuscope.chip.devices import Device
from npuscope.lower.chip import matrix, tile_bytes
from npuscope.lower.model import (
    CoreKind,
    Instruction,
    Items,
    Lowered,
    Pipe,
    Repeat,
    Ring,
    RingWay,
    Value,
    add_value,
    instructions,
    rewritten,
)
from npuscope.ops.dtypes import BY_NAME
from npuscope.ops.spec import OpRole
from npuscope.ops.transfers import POP, PUSH

CROSSING: dict[tuple[str, str], RingWay] = {("Acc", "Vec"): "C2V", ("Vec", "Mat"): "V2C", ("Mat", "Vec"): "C2V"}
SENDER: dict[RingWay, tuple[CoreKind, Pipe]] = {"C2V": ("AIC", "FIXP"), "V2C": ("AIV", "MTE3")}
RECEIVER: dict[RingWay, tuple[CoreKind, Pipe, str]] = {"C2V": ("AIV", "MTE2", "Vec"), "V2C": ("AIC", "MTE2", "Mat")}
PIPES: dict[str, Pipe | None] = {"view": None, "cube": "M", "vector": "V", "load": "MTE2"}


def split_cores(lowered: Lowered, device: Device, ring_slots: int | None = None) -> Lowered:
    """`ring_slots`: depth of a ring that goes one way; one that goes both ways has half, but at least two."""
    values = list(lowered.values)
    mixed = any(_unit(one, values) == "AIV" for one in lowered.instructions if one.plane != "scalar")
    scalar: CoreKind = "AIV" if mixed or not any(one.plane == "cube" for one in lowered.instructions) else "AIC"
    handed: dict[RingWay, int] = {}

    def each(one: Instruction) -> Iterator[Instruction]:
        way = None
        if one.plane == "move" and one.result is not None and one.reads:
            way = CROSSING.get((values[one.reads[0]].space, values[one.result].space))
        if way is None or one.result is None:
            yield one._replace(unit=_unit(one, values) or scalar, pipe=_pipe(one, values))
            return
        source = values[one.reads[0]]
        handed[way] = max(handed.get(way, 0), BY_NAME[source.dtype].size(prod(source.shape)))
        # a copy is into a tile that stays: out of the ring again
        tile = add_value(values, values[one.result]) if one.spec.is_a(OpRole.COPY) else one.result
        values[tile] = values[tile]._replace(in_ring=True)
        attributes = (("way", way), ("tile", tile))
        unit, pipe = SENDER[way]
        yield one._replace(name=PUSH.name, result=None, unit=unit, pipe=pipe, attributes=attributes)
        unit, pipe, _ = RECEIVER[way]
        yield one._replace(name=POP.name, operands=(), result=tile, unit=unit, pipe=pipe, attributes=attributes)
        if tile != one.result:
            copied = one._replace(operands=(tile,))
            yield copied._replace(unit=unit, pipe=_pipe(copied, values))

    items = rewritten(lowered.items, each)
    wanted = lowered.ring_slots or ring_slots or int(device.core["ring_slots"].value)
    depth = wanted if len(handed) < 2 or lowered.ring_slots else max(2, wanted // 2)
    slot = max(handed.values(), default=0)
    kept = dict(zip(("C2V", "V2C"), lowered.ring_bytes, strict=True))
    rings = tuple(Ring(way, RECEIVER[way][2], slot, depth, kept[way]) for way in handed)
    return replace(lowered, items=items, values=tuple(values), rings=rings)


def _unit(one: Instruction, values: list[Value]) -> CoreKind | None:
    """The core that an instruction needs; None where either will do."""
    if one.plane == "cube":
        return "AIC"
    if one.plane == "vector":
        return "AIV"
    places = [values[number].space for number in (one.result, *one.reads) if number is not None]
    if not places or one.plane == "sync":
        return None
    return "AIV" if "Vec" in places else "AIC"


def _pipe(one: Instruction, values: list[Value]) -> Pipe | None:
    """The queue that an instruction goes through; None for what costs nothing."""
    if one.plane in PIPES:
        return PIPES[one.plane]
    if one.plane == "store":
        return "FIXP" if one.reads and values[one.reads[0]].space == "Acc" else "MTE3"
    if one.plane == "move" and one.reads and one.result is not None:
        source, target = values[one.reads[0]].space, values[one.result].space
        if source == "Acc":
            return "FIXP" if target != "Acc" else None
        return "V" if target == "Vec" else "MTE1"
    return "S"


LEAST_AHEAD = 2


def in_flight(loop: Repeat, turns: int, unit: CoreKind) -> int:
    """How many turns of a loop with that many in all are in flight, on each kind of core.

    A pipelined loop runs `stage` turns side by side. Where its turns hand tiles both ways between the cores it does
    not: the core that sends first runs ahead of the other by one turn less than there are stages, the other goes turn
    by turn. (pypto docs/en/dev/passes/26-skew_cross_core_pipeline.md, 28-lower_pipeline_loops.md)
    """
    if loop.kind == "l0":
        return min(loop.stage, turns)
    if loop.kind != "pipeline" or loop.stage < 2:
        return 1
    if not crosses(loop.items):
        return min(loop.stage, turns)
    return _ahead(loop, turns) if _sends_first(loop.items, unit) else 1


def crosses(items: Items) -> bool:
    """Whether tiles go both ways between the cores."""
    return len({one.attribute("way") for one in instructions(items) if one.spec.is_a(OpRole.SEND)}) > 1


def _sends_first(items: Items, unit: CoreKind) -> bool:
    """Whether a core sends one tile, then takes one, and nothing but the tile it takes ties the two halves."""
    handed = [one for one in instructions(items) if one.unit == unit and one.spec.is_a(OpRole.SEND, OpRole.RECEIVE)]
    if len(handed) != 2 or not (handed[0].spec.is_a(OpRole.SEND) and handed[1].spec.is_a(OpRole.RECEIVE)):
        return False
    wanted = set(handed[0].reads)
    before = {id(handed[0])}  # what the sent tile is made by
    for one in reversed(list(instructions(items))):
        if one.result in wanted and one.unit == unit:
            before.add(id(one))
            wanted |= set(one.reads)
    made = {one.result for one in instructions(items) if id(one) in before}
    rest = (one for one in instructions(items) if one.unit == unit and id(one) not in before)
    return not any(made & set(one.reads) for one in rest)


def _ahead(loop: Repeat, turns: int) -> int:
    """Groups of turns must come out even, and be two at least."""
    for depth in range(max(LEAST_AHEAD, loop.stage - 1), 1, -1):
        if turns % depth == 0 and turns >= 2 * depth:
            return depth
    return 1


def order_stages(lowered: Lowered) -> Lowered:
    """Pipelined loops: a turn loads all it needs first and stores last, so that turns in flight overlap.

    An item keeps its place behind those that it depends on: through a tile's storage, through GM, or a barrier.
    """

    def ordered(items: Items) -> Items:
        return tuple(replace(item, items=inside(item)) if isinstance(item, Repeat) else item for item in items)

    def inside(loop: Repeat) -> Items:
        inner = ordered(loop.items)
        staged = loop.kind == "pipeline" and loop.stage > 1 and not crosses(inner)
        return _staged(inner, lowered.values) if staged else inner

    return replace(lowered, items=ordered(lowered.items))


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
    return 1 if isinstance(item, Repeat) else {"load": 0, "store": 2}.get(item.plane, 1)


LEAST_SCRATCH_COLUMNS = 128  # pypto: the scratch of a row reduction is at least this wide


def measure(lowered: Lowered, device: Device) -> Lowered:
    """Bytes of every value in its space, and the scratch that instructions need beside their operands."""
    values = [_measured(value, lowered.split, device) for value in lowered.values]

    def each(one: Instruction) -> Iterator[Instruction]:
        rows = one.spec.scratch_rows if len(one.reads) > 1 else 0
        if (one.spec.scratch or rows) and one.plane == "vector" and one.reads and not one.scratch:
            source, number = values[one.reads[0]], len(values)
            given = dict(one.attributes).get("scratch")  # columns of the program's own
            columns = given if isinstance(given, int) else max(source.shape[-1], LEAST_SCRATCH_COLUMNS)
            shape = (*source.shape[:-1], columns)
            shape = (rows, source.shape[-1]) if rows else shape
            scratch = Value(number, f"scratch of {one.name}", shape, source.dtype, one.site, number, "Vec")
            values.append(_measured(scratch, lowered.split, device))
            one = one._replace(scratch=(number,))
        yield one

    items = rewritten(lowered.items, each)
    return replace(lowered, items=items, values=tuple(values))


def _measured(value: Value, split: str, device: Device) -> Value:
    if value.in_ring or value.bytes:
        return value._replace(bytes=0 if value.in_ring else value.bytes)
    shape = value.shape
    if value.space == "Vec" and split:  # the part that one vector core has
        rows, columns = matrix(shape)
        shape = (-(-rows // 2), columns) if split == "up_down" else (rows, -(-columns // 2))
    return value._replace(bytes=tile_bytes(shape, value.dtype, value.space, device))
