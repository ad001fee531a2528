"""A chip's numbers, and where two chips differ, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from npuscope.analysis.table import aligned, printable, short
from npuscope.device.chip import Device
from npuscope.device.listing import Difference, Row

SOURCE = 72  # characters of a source in a table; JSON has all of it


def device_text(device: Device, rows: Sequence[Row]) -> str:
    """What `npuscope device show` prints."""
    inherits = f", derived from {device.inherits}" if device.inherits else ""
    head = f"{printable(device.name)}: {printable(device.title)}{inherits}, {len(rows)} constants"
    cells = [[row.place, _number(row.value), row.unit, row.confidence, short(row.source, SOURCE)] for row in rows]
    return "\n".join([head, *_table(["place", "value", "unit", "confidence", "source"], cells)])


def diff_text(a: Device, b: Device, found: Sequence[Difference]) -> str:
    """What `npuscope device diff` prints."""
    head = f"{printable(a.name)} and {printable(b.name)} differ in {len(found)} constants"
    cells = [
        [
            one.place,
            *(_number(row.value) if row else "–" for row in (one.a, one.b)),
            f"{one.b.value / one.a.value:.3g}x" if one.a and one.b and one.a.value else "–",
            (one.b or one.a).unit,  # type: ignore[union-attr]
            (one.b or one.a).confidence,  # type: ignore[union-attr]
            short((one.b or one.a).source, SOURCE),  # type: ignore[union-attr]
        ]
        for one in found
    ]
    columns = ["place", printable(a.name), printable(b.name), "ratio", "unit", "confidence", "source"]
    return "\n".join([head, *_table(columns, cells)]) if found else head


def device_dict(device: Device, rows: Sequence[Row]) -> dict[str, Any]:
    """The contract of `npuscope device show --json` (docs/json.md)."""
    return {
        "name": device.name,
        "title": device.title,
        "inherits": device.inherits,
        "aliases": list(device.aliases),
        "constants": [asdict(row) for row in rows],
    }


def diff_dict(a: Device, b: Device, found: Sequence[Difference]) -> dict[str, Any]:
    """The contract of `npuscope device diff --json` (docs/json.md)."""
    return {"a": a.name, "b": b.name, "differences": [asdict(one) for one in found]}


def _table(columns: list[str], cells: list[list[str]]) -> list[str]:
    right = [name not in ("place", "unit", "confidence", "source") for name in columns]
    return aligned([columns, *cells], right)


def _number(value: float) -> str:
    """As short as it is exact to six digits: 1.85e+09, 24, 0.0469."""
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e9 else f"{value:.6g}"
