"""A chip's numbers, and where two chips differ, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from textwrap import wrap
from typing import Any

from npuscope.analysis.table import aligned, printable
from npuscope.device.chip import Device
from npuscope.device.listing import Difference, Row
from npuscope.report.check_text import many

WIDTH = 100  # characters of a line


def device_text(device: Device, rows: Sequence[Row]) -> str:
    """What `npuscope device show` prints."""
    inherits = f", derived from {device.inherits}" if device.inherits else ""
    head = f"{printable(device.name)}: {printable(device.title)}{inherits}, {len(rows)} constants"
    numbers, sources = _sources([row.source for row in rows])
    cells = [
        [row.place, _number(row.value), row.unit, row.confidence, number]
        for row, number in zip(rows, numbers, strict=True)
    ]
    return "\n".join([head, *_table(["place", "value", "unit", "confidence", "source"], cells), *sources])


def diff_text(a: Device, b: Device, found: Sequence[Difference]) -> str:
    """What `npuscope device diff` prints."""
    head = f"{printable(a.name)} and {printable(b.name)} differ in {many(len(found), 'constant')}"
    told = [(one, one.b or one.a) for one in found]
    numbers, sources = _sources([row.source for _, row in told if row])
    cells = [
        [
            one.place,
            *(_number(row.value) if row else "–" for row in (one.a, one.b)),
            f"{one.b.value / one.a.value:.3g}x" if one.a and one.b and one.a.value else "–",
            row.unit if row else "–",
            row.confidence if row else "–",
            number,
        ]
        for (one, row), number in zip(told, numbers, strict=True)
    ]
    columns = ["place", printable(a.name), printable(b.name), "ratio", "unit", "confidence", "source"]
    return "\n".join([head, *_table(columns, cells), *sources]) if found else head


def _sources(given: Sequence[str]) -> tuple[list[str], list[str]]:
    """Sources by number, and the list of them: what says `same` is the one above it."""
    numbers: list[str] = []
    listed: dict[str, int] = {}
    lines: list[str] = []
    for source in given:
        if source == "same" and numbers:
            numbers.append(numbers[-1])
            continue
        known = None if source.startswith("same") else listed.get(source)
        if known is None:
            known = listed[source] = len(lines) + 1
            lines.append(f"[{known}] {printable(source)}")
        numbers.append(f"[{known}]")
    wrapped = [part for line in lines for part in wrap(line, WIDTH, initial_indent="  ", subsequent_indent="      ")]
    return numbers, ["sources, each of the constants that have its number; `same` is the one above it", *wrapped]


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
