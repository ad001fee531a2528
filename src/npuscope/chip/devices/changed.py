"""A device with other values at some places of its file: `timing.load_fixed`, `core.l0_right`, `op.vgather.row`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from npuscope.chip.devices.chip import Device


def with_values(device: Device, values: Mapping[str, float]) -> Device:
    for place, value in values.items():
        table, key, *part = place.split(".")
        costs = dict(getattr(device, table))
        costs[key] = msgspec.structs.replace(costs[key], **{part[0] if part else "value": value})
        device = msgspec.structs.replace(device, **{table: costs})
    return device


def value_at(device: Device, place: str) -> float:
    table, key, *part = place.split(".")
    return float(getattr(getattr(device, table)[key], part[0] if part else "value"))
