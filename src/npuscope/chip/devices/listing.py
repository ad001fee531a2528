"""Every number of a chip in rows, with its unit, its source and how sure it is; and where two chips differ."""

from __future__ import annotations

from dataclasses import dataclass

from npuscope.chip.devices.chip import Device, constants


@dataclass(frozen=True)
class Row:
    """`place` is where the file has it, such as timing.hbm_rate."""

    place: str
    value: float
    unit: str
    confidence: str
    source: str


@dataclass(frozen=True)
class Difference:
    """A place where two chips differ in value or unit; None where one has no such number."""

    place: str
    a: Row | None
    b: Row | None


def listed(device: Device, prefix: str = "") -> list[Row]:
    """All numbers in the order of the file's tables, or those whose place begins so."""
    rows = [Row(place, c.value, c.unit, c.confidence, c.source) for place, c in constants(device)]
    for name, cost in device.op.items():
        parts = (("head", cost.head), ("slope", cost.slope), ("tail", cost.tail))
        rows += [
            Row(
                f"op.{name}.{part}",
                value,
                "cycles/256 B" if part == "slope" else "cycles",
                cost.confidence,
                cost.source,
            )
            for part, value in parts
        ]
    for name, curve in device.reduce.items():
        for n, columns in enumerate(curve.columns):
            place = f"reduce.{name}.{columns:g}"
            known = (curve.confidence, curve.source)
            rows.append(Row(f"{place}.slope", curve.slope[n], "cycles/element", *known))
            rows.append(Row(f"{place}.bias", curve.bias[n], "cycles", *known))
    return [row for row in rows if row.place.startswith(prefix)]


def differences(a: Device, b: Device) -> list[Difference]:
    """In the order of `a`, then what only `b` has."""
    mine, theirs = ({row.place: row for row in listed(device)} for device in (a, b))
    found = [Difference(place, mine.get(place), theirs.get(place)) for place in dict.fromkeys([*mine, *theirs])]
    return [one for one in found if _key(one.a) != _key(one.b)]


def _key(row: Row | None) -> tuple[float, str] | None:
    return None if row is None else (row.value, row.unit)
