"""What a calibration moved, how far kernels are off before and after, and what the captures cannot tell."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

import polars as pl

from npuscope.report.device import EXACT
from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import CHANGE, MEAN_TIME, RATIO, SHARE, TEXT, many
from npuscope.table.parts import Heading, Notes, Part, Rows
from npuscope.time.measured.calibrate import Calibrated, Error, FittedConstant

MOST = 60  # rows of text
MOVED, KEPT, OPEN, NO_MATTER = "moved", "kept", "undecided", "does not matter"
CONSTANTS = Columns(
    "calibrate.constants",
    "A constant of [timing] that a factor can move; those that moved most first.",
    (
        Column("place", TEXT, "in the device file"),
        Column("state", TEXT, f"{MOVED}, {KEPT} (the captures agree), {OPEN} (they say too little), {NO_MATTER}"),
        Column("before", EXACT, "as the device had it"),
        Column("after", EXACT, "as the new file has it"),
        Column("factor", RATIO, "the new one over the old one"),
        Column("unsure", SHARE, "a standard deviation of the new one; none where it does not matter", title="±"),
        Column("unit", TEXT, "of the value"),
        Column("confidence", TEXT, "how sure the device was of it", title="was"),
    ),
)  # fmt: skip
ERRORS = Columns(
    "calibrate.errors",
    "Something that the captures tell: the mean block of a kernel, a cost of the scheduler, the wall.",
    (
        Column("what", TEXT, "which"),
        Column("measured_ns", MEAN_TIME, "in the captures", scale="time", title="measured"),
        Column("before_ns", MEAN_TIME, "simulated with the device as it was", scale="time", title="before"),
        Column("after_ns", MEAN_TIME, "simulated with the new file", scale="time", title="after"),
        Column("before", CHANGE, "simulated over measured, less one", title="off before"),
        Column("after", CHANGE, "the same afterwards", title="off after"),
    ),
)


def state_of(knob: FittedConstant) -> str:
    if knob.moved:
        return MOVED
    if not knob.matters:
        return NO_MATTER
    return KEPT if knob.decided else OPEN


def constants(found: Calibrated) -> Table:
    rows = [
        {
            "place": f"timing.{one.name}",
            "state": state_of(one),
            "before": one.before.value,
            "after": one.value if one.moved else one.before.value,
            "factor": one.value / one.before.value if one.moved else 1.0,
            "unsure": math.expm1(one.unsure) if one.matters else None,
            "unit": one.before.unit,
            "confidence": one.before.confidence,
        }
        for one in sorted(found.knobs, key=lambda one: (not one.matters, -abs(one.log)))
    ]
    return Table(CONSTANTS, pl.DataFrame(rows, infer_schema_length=None))


def errors(found: Calibrated) -> Table:
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


def typical(some: Sequence[Error]) -> float:
    """The median of how far things are off, either way."""
    return math.expm1(median(abs(one.off) for one in some))


def calibrate(file: str, captures: Sequence[str], found: Calibrated) -> Iterator[Part]:
    """What `npuscope calibrate` prints."""
    table = constants(found)
    moved = [one for one in found.knobs if one.moved]
    before, after = typical(found.before), typical(found.after)
    yield Heading(
        f"{file} with {', '.join(captures)} on {found.device.name}: {many(len(moved), 'constant')} moved, "
        f"typical error {before:.1%} before, {after:.1%} after, {found.runs} runs simulated"
    )
    yield Rows(Table(CONSTANTS, table.frame.filter(pl.col("factor") != 1)), MOST)
    yield Rows(errors(found), MOST)
    by_state: dict[str, list[str]] = {}
    for one in found.knobs:
        by_state.setdefault(state_of(one), []).append(one.name)
    told = {
        KEPT: "the captures agree with",
        OPEN: "the captures say too little of",
        NO_MATTER: "nothing in the captures depends on",
    }
    yield Notes([f"{words} {', '.join(by_state[state])}" for state, words in told.items() if state in by_state])


def calibrate_dict(file: str, captures: Sequence[str], written: str, found: Calibrated) -> dict[str, object]:
    """The contract of `npuscope calibrate --json` (docs/reference/json.md)."""
    return {
        "file": file,
        "captures": list(captures),
        "device": found.device.name,
        "written": written,
        "runs": found.runs,
        "typical_error": [typical(found.before), typical(found.after)],
        "constants": constants(found).rows(),
        "errors": errors(found).rows(),
    }
