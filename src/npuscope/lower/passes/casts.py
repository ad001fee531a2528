"""Casts that the chip cannot do in one instruction become the shortest chain that it can."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace

from npuscope.chip.devices.chip import Device
from npuscope.lower.model import Instruction, Items, Lowered, Repeat, Value
from npuscope.ops.spec import Role


def chain(source: str, target: str, casts: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """The types on the shortest way from one type to another, the last included; () where there is none.

    Types in small letters. Of chains of equal length the one through the widest types, which round last.
    """
    if target in casts.get(source, ()):
        return (target,)
    ways: deque[tuple[str, ...]] = deque([(source,)])
    seen = {source}
    while ways:
        way = ways.popleft()
        for step in sorted(casts.get(way[-1], ()), key=_width, reverse=True):
            if step == target:
                return (*way[1:], step)
            if step not in seen:
                seen.add(step)
                ways.append((*way, step))
    return ()


def _width(dtype: str) -> tuple[int, str]:
    return int("".join(c for c in dtype if c.isdigit()) or 0), dtype


def expand_casts(lowered: Lowered, device: Device) -> Lowered:
    """Every vector cast as the instructions that do it."""
    casts = device.rules.casts if device.rules else {}
    values = list(lowered.values)
    items = tuple(_expanded(lowered.items, values, casts))
    return replace(lowered, items=items, values=tuple(values))


def _expanded(items: Items, values: list[Value], casts: Mapping[str, frozenset[str]]) -> Iterator[Instruction | Repeat]:
    for item in items:
        if isinstance(item, Repeat):
            yield replace(item, items=tuple(_expanded(item.items, values, casts)))
            continue
        if item.spec.is_a(Role.CAST) and item.plane == "vector" and item.result is not None and item.reads:
            source, target = values[item.reads[0]].dtype.lower(), values[item.result].dtype.lower()
            for step in chain(source, target, casts)[:-1]:
                number = len(values)
                values.append(values[item.result]._replace(id=number, storage=number, dtype=step.upper()))
                yield item._replace(result=number)
                item = item._replace(operands=(number,))
        yield item
