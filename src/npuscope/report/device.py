"""Chips: their constants, where two differ, and what a calibration moved."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from statistics import median
from textwrap import wrap
from typing import TYPE_CHECKING

import polars as pl

from npuscope.chip.devices import ConstantDifference, ConstantRow, Device
from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import CHANGE, MEAN_TIME, NUMBER, RATIO, SHARE, TEXT, many, percent
from npuscope.table.parts import Heading, Notes, Part, Rows, Say

if TYPE_CHECKING:  # `npuscope device` need not know how to simulate
    from npuscope.time.measured.calibrate import Calibrated, FittedConstant

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
    Column("name", TEXT, "what --device takes"),
    Column("title", TEXT, "its name in words", title="chip"),
    Column(
        "programs",
        replace(TEXT, json="bool", show=lambda value: "tile programs" if value else "kernels of captures"),
        "whether tile programs can be checked and simulated on it",
        title="for",
    ),
)
CONSTANTS = Columns("device show.constants", "A constant of a chip.", PLACE, Column("value", EXACT, "it"), *KNOWN)
DIFFERENCES = Columns(
    "device compare.differences",
    "A place where two chips differ. JSON has both constants whole, `a` and `b`, null where a chip has none.",
    PLACE,
    Column("a", EXACT, "of the one"),
    Column("b", EXACT, "of the other"),
    Column("ratio", replace(RATIO, show=lambda value: f"{value:.3g}x"), "the other over the one"),
    *KNOWN,
)


def chip_table(devices: Sequence[Device]) -> Table:
    rows = [{"name": c.name, "title": c.title, "programs": bool(c.space and c.timing)} for c in devices]
    return Table(CHIPS, pl.DataFrame(rows))


def constants_of(rows: Sequence[ConstantRow]) -> Table:
    return Table(CONSTANTS, pl.DataFrame([asdict(row) for row in rows]))


def device(chip: Device, rows: Sequence[ConstantRow]) -> Iterator[Part]:
    """What `npuscope device show` prints."""
    inherits = f", derived from {chip.inherits}" if chip.inherits else ""
    numbers, sources = _sources([row.source for row in rows])
    table = constants_of(rows)
    yield Heading(f"{chip.name}: {chip.title}{inherits}, {len(rows)} constants")
    yield Rows(replace(table, frame=table.frame.with_columns(source=pl.Series(numbers))), len(rows))
    yield Say(sources)


def device_diff(a: Device, b: Device, found: Sequence[ConstantDifference]) -> Iterator[Part]:
    """What `npuscope device compare` prints."""
    yield Heading(f"{a.name} and {b.name} differ in {many(len(found), 'constant')}")
    if not found:
        return
    either = [(one, one.b or one.a) for one in found]
    numbers, sources = _sources([row.source for _, row in either if row])
    rows = [
        {
            "place": one.place, "a": one.a and one.a.value, "b": one.b and one.b.value,
            "ratio": one.b.value / one.a.value if one.a and one.b and one.a.value else None,
            "unit": row and row.unit, "confidence": row and row.confidence, "source": number,
        }
        for (one, row), number in zip(either, numbers, strict=True)
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


CALIBRATED_ROWS = 60  # of text
MOVED, KEPT, OPEN, NO_MATTER = "moved", "kept", "undecided", "does not matter"
STATES = {
    KEPT: "the captures agree with",
    OPEN: "the captures say too little of",
    NO_MATTER: "nothing in the captures depends on",
}
MOVED_CONSTANTS = Columns(
    "calibrate.constants",
    "A constant of [timing] that a factor can move; those that moved most first.",
    
        Column("place", TEXT, "in the device file"),
        Column("state", TEXT, f"{MOVED}, {KEPT} (the captures agree), {OPEN} (they say too little), {NO_MATTER}"),
        Column("before", EXACT, "as the device had it"),
        Column("after", EXACT, "as the new file has it"),
        Column("factor", RATIO, "the new one over the old one"),
        Column("unsure", SHARE, "a standard deviation of the new one; none where it does not matter", title="±"),
        Column("unit", TEXT, "of the value"),
        Column("confidence", TEXT, "how sure the device was of it", title="was"),
)  # fmt: skip
ERRORS = Columns(
    "calibrate.errors",
    "Something that the captures tell: the mean block of a kernel, a cost of the scheduler, the wall.",
    Column("what", TEXT, "which"),
    Column("measured_ns", MEAN_TIME, "in the captures", scale="time", title="measured"),
    Column("before_ns", MEAN_TIME, "simulated with the device as it was", scale="time", title="before"),
    Column("after_ns", MEAN_TIME, "simulated with the new file", scale="time", title="after"),
    Column("before", CHANGE, "simulated over measured, less one", title="off before"),
    Column("after", CHANGE, "the same afterwards", title="off after"),
)


def _state_of(knob: FittedConstant) -> str:
    if knob.moved:
        return MOVED
    if not knob.matters:
        return NO_MATTER
    return KEPT if knob.decided else OPEN


def constant_table(found: Calibrated) -> Table:
    rows = [
        {
            "place": f"timing.{one.name}",
            "state": _state_of(one),
            "before": one.before.value,
            "after": one.value if one.moved else one.before.value,
            "factor": one.value / one.before.value if one.moved else 1.0,
            "unsure": math.expm1(one.unsure) if one.matters else None,
            "unit": one.before.unit,
            "confidence": one.before.confidence,
        }
        for one in sorted(found.fitted, key=lambda one: (not one.matters, -abs(one.log)))
    ]
    return Table(MOVED_CONSTANTS, pl.DataFrame(rows, infer_schema_length=None))


def error_table(found: Calibrated) -> Table:
    after = {one.what: one for one in found.after}
    rows = [
        {
            "what": one.what,
            "measured_ns": one.measured,
            "before_ns": one.simulated,
            "after_ns": after[one.what].simulated if one.what in after else None,
            "before": math.expm1(one.off),
            "after": math.expm1(after[one.what].off) if one.what in after else None,
        }
        for one in found.before
    ]
    return Table(ERRORS, pl.DataFrame(rows, infer_schema_length=None))


def typical_errors(found: Calibrated) -> list[float]:
    """The median of how far things are off, either way, before and after."""
    return [math.expm1(median(abs(one.off) for one in some)) for some in (found.before, found.after)]


def calibrate(file: str, captures: Sequence[str], found: Calibrated) -> Iterator[Part]:
    """What `npuscope calibrate` prints."""
    table = constant_table(found)
    moved = table.frame.filter(pl.col("factor") != 1)
    before, after = map(percent, typical_errors(found))
    yield Heading(
        f"{file} with {', '.join(captures)} on {found.device.name}: {many(moved.height, 'constant')} moved, "
        f"typical error {before} before, {after} after, {found.runs} runs simulated"
    )
    yield Rows(replace(table, frame=moved), CALIBRATED_ROWS)
    yield Rows(error_table(found), CALIBRATED_ROWS)
    by_state: dict[str, list[str]] = {}
    for one in found.fitted:
        by_state.setdefault(_state_of(one), []).append(one.name)
    yield Notes([f"{words} {', '.join(by_state[state])}" for state, words in STATES.items() if state in by_state])
