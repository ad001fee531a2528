"""A chip's numbers, and where two chips differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from textwrap import wrap

import polars as pl

from npuscope.chip.devices import ConstantDifference, ConstantRow, Device
from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import NUMBER, RATIO, TEXT, many
from npuscope.table.parts import Heading, Part, Rows, Say

WIDTH = 100  # characters of a line
SOURCES = "sources, each of the constants that have its number; `same` is the one above it"


def _exact(value: object) -> str:
    """As short as it is exact to six digits: 1.85e+09, 24, 0.0469."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e9 else f"{value:.6g}"


EXACT = replace(NUMBER, show=_exact)
PLACE = Column("place", TEXT, "where the file has it, such as timing.hbm_rate")
KNOWN = (
    Column("unit", TEXT, "of the value"),
    Column("confidence", TEXT, "how sure it is"),
    Column("source", TEXT, "where it comes from; people read its number and the list below the table"),
)
CHIPS = Columns(
    "device list",
    "A chip.",
    (
        Column("name", TEXT, "what --device takes"),
        Column("title", TEXT, "its name in words", title="chip"),
        Column(
            "programs",
            replace(TEXT, json="bool", show=lambda value: "tile programs" if value else "kernels of captures"),
            "whether tile programs can be checked and simulated on it",
            title="for",
        ),
    ),
)
CONSTANTS = Columns("device show.constants", "A constant of a chip.", (PLACE, Column("value", EXACT, "it"), *KNOWN))
BOTH = "an object with the constant of each chip, null where it has none; people read its columns"
DIFFERENCES = Columns(
    "device diff.differences",
    "A place where two chips differ. JSON has both constants whole, `a` and `b`, null where a chip has none.",
    (
        PLACE,
        Column("a", EXACT, "of the one"),
        Column("b", EXACT, "of the other"),
        Column("ratio", replace(RATIO, show=lambda value: f"{value:.3g}x"), "the other over the one"),
        *KNOWN,
    ),
)


def chips(devices: Sequence[Device]) -> Table:
    rows = [{"name": c.name, "title": c.title, "programs": bool(c.space and c.timing)} for c in devices]
    return Table(CHIPS, pl.DataFrame(rows))


def device(chip: Device, rows: Sequence[ConstantRow]) -> Iterator[Part]:
    """What `npuscope device show` prints."""
    inherits = f", derived from {chip.inherits}" if chip.inherits else ""
    numbers, sources = _sources([row.source for row in rows])
    told = [{**asdict(row), "source": number} for row, number in zip(rows, numbers, strict=True)]
    yield Heading(f"{chip.name}: {chip.title}{inherits}, {len(rows)} constants")
    yield Rows(Table(CONSTANTS, pl.DataFrame(told)), len(told))
    yield Say(sources)


def diff(a: Device, b: Device, found: Sequence[ConstantDifference]) -> Iterator[Part]:
    """What `npuscope device diff` prints."""
    yield Heading(f"{a.name} and {b.name} differ in {many(len(found), 'constant')}")
    if not found:
        return
    told = [(one, one.b or one.a) for one in found]
    numbers, sources = _sources([row.source for _, row in told if row])
    rows = [
        {
            "place": one.place, "a": one.a and one.a.value, "b": one.b and one.b.value,
            "ratio": one.b.value / one.a.value if one.a and one.b and one.a.value else None,
            "unit": row and row.unit, "confidence": row and row.confidence, "source": number,
        }
        for (one, row), number in zip(told, numbers, strict=True)
    ]  # fmt: skip
    columns = DIFFERENCES.titled(a=a.name, b=b.name)
    yield Rows(Table(columns, pl.DataFrame(rows, infer_schema_length=None)), len(rows))
    yield Say(sources)


def _sources(given: Sequence[str]) -> tuple[list[str], str]:
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
            lines.append(f"[{known}] {source}")
        numbers.append(f"[{known}]")
    wrapped = [part for line in lines for part in wrap(line, WIDTH, initial_indent="  ", subsequent_indent="      ")]
    return numbers, "\n".join([SOURCES, *wrapped])


def device_dict(chip: Device, rows: Sequence[ConstantRow]) -> dict[str, object]:
    """The contract of `npuscope device show --json` (docs/reference/json.md)."""
    constants = Table(CONSTANTS, pl.DataFrame([asdict(row) for row in rows])).rows()
    told = {"name": chip.name, "title": chip.title, "inherits": chip.inherits, "aliases": list(chip.aliases)}
    return {**told, "constants": constants}


def diff_dict(a: Device, b: Device, found: Sequence[ConstantDifference]) -> dict[str, object]:
    """The contract of `npuscope device diff --json` (docs/reference/json.md)."""
    return {"a": a.name, "b": b.name, "differences": [asdict(one) for one in found]}
