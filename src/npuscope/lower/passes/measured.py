"""Bytes of every value in its space, and the scratch that instructions need beside their operands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from npuscope.chip.devices.chip import Device
from npuscope.lower.model import Instruction, Items, Lowered, Repeat, Value
from npuscope.lower.sizes import matrix, tile_bytes

LEAST_SCRATCH_COLUMNS = 128  # pypto: the scratch of a row reduction is at least this wide


def measure(lowered: Lowered, device: Device) -> Lowered:
    values = [_measured(value, lowered.split, device) for value in lowered.values]
    items = tuple(_with_scratch(lowered.items, values, lowered.split, device))
    return replace(lowered, items=items, values=tuple(values))


def _measured(value: Value, split: str, device: Device) -> Value:
    if value.in_ring:
        return value._replace(bytes=0)
    return value._replace(bytes=value.bytes or tile_bytes(_halved(value, split), value.dtype, value.space, device))


def _halved(value: Value, split: str) -> tuple[int, ...]:
    """The part of a tile that one vector core has."""
    if value.space != "Vec" or not split:
        return value.shape
    rows, columns = matrix(value.shape)
    if split == "up_down":
        return (-(-rows // 2), columns)
    return (rows, -(-columns // 2))


def _with_scratch(items: Items, values: list[Value], split: str, device: Device) -> Iterator[Instruction | Repeat]:
    for item in items:
        if isinstance(item, Repeat):
            yield replace(item, items=tuple(_with_scratch(item.items, values, split, device)))
        elif item.spec.scratch and item.plane == "vector" and item.reads and not item.scratch:
            source = values[item.reads[0]]
            shape = (*source.shape[:-1], max(source.shape[-1], LEAST_SCRATCH_COLUMNS))
            number = len(values)
            name = f"scratch of {item.name}"
            scratch = Value(number, name, shape, source.dtype, item.site, number, "Vec")
            values.append(_measured(scratch, split, device))
            yield item._replace(scratch=(number,))
        else:
            yield item
