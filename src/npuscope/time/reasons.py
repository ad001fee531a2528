"""How the time of a kernel came about: the chain of instructions that decides it, each with the constant behind it.

A block of the kernel is taken as in `inside`, and its chain: every moment belongs to one instruction, or to entering
the block. Instructions of one line and one constant are one link. Then every constant that the block is made of is
taken a fifth smaller and larger, and with those that move the block most the run is simulated anew: what moves such
blocks most in it is what the answer depends on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import polars as pl

from npuscope.chip.devices import OP_PARTS, Device, OpCost, ReduceCost
from npuscope.ops.table import spec_of
from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import CHANGE, COUNT, MEAN_TIME, SHARE, TEXT
from npuscope.time.chip.prepare import retimed
from npuscope.time.core.costs import NS, at_place, confidence
from npuscope.time.core.pipes import time_block
from npuscope.time.inside import ARRIVING, ISSUED, PLACES, Inside, chain_of, inside
from npuscope.time.run import Simulated, run

CONSTANT = Column("constant", TEXT, "its place in the device file")
VALUE = Column("value", TEXT, "and value there")
CONFIDENCE = Column("confidence", TEXT, "measured, documented, fitted or guessed")
ORIGIN = Column("origin", TEXT, "where that is from")
CHAIN_TABLE = Columns(
    "simulate.chain",
    "Instructions that decide how long a block takes, those of one line and one constant together, the longest first.",
    Column("name", TEXT, "the instruction, or what else takes the time"),
    Column("where", TEXT, "unit and pipe; issue and arrival are before and after it"),
    Column("source", TEXT, "file and line"),
    Column("times", COUNT, "so often on the chain"),
    Column("time_ns", MEAN_TIME, "of the block", title="time"),
    Column("share", SHARE, "of the block"),
    CONSTANT,
    VALUE,
    CONFIDENCE,
    ORIGIN,
)
DEPENDS_TABLE = Columns(
    "simulate.depends",
    "Constants that the block's time depends on, the strongest first.",
    CONSTANT,
    VALUE,
    CONFIDENCE,
    Column("less", CHANGE, "of such blocks' mean time in the run, with the constant a fifth smaller", title="-20%"),
    Column("more", CHANGE, "of such blocks' mean time in the run, with the constant a fifth larger", title="+20%"),
    ORIGIN,
)
FIFTH, LEAST, MOST = 0.2, 0.0005, 12
TOGETHER = "timing.hbm_rate"  # no block feels it alone
START = "timing.block_start"
ISSUE = "timing.scalar_step"


@dataclass(frozen=True)
class Reasons:
    """Of a block of a kernel, as long as it takes with entering it."""

    block: Inside
    whole_ns: float
    chain: pl.DataFrame
    depends: pl.DataFrame

    def tables(self) -> dict[str, Table]:
        return {"chain": Table(CHAIN_TABLE, self.chain), "depends": Table(DEPENDS_TABLE, self.depends)}


def reasons(simulated: Simulated, kernel: str) -> Reasons:
    """How the time of a block of a kernel came about."""
    block, device = inside(simulated, kernel), simulated.prepared.program.device
    start = device.timing["block_start"].value * NS
    whole = block.timing.duration + start
    return Reasons(block, whole, _chain(block, device, start), _depends(simulated, block))


def _chain(block: Inside, device: Device, start: float) -> pl.DataFrame:
    links: dict[tuple[str, str, str, str], tuple[int, float]] = {("entering the block", "", "", START): (1, start)}
    found = chain_of(block.stream, block.timing, block.lane)
    pieces = zip(found.start.tolist(), found.end.tolist(), found.site.tolist(), found.place.tolist(), strict=True)
    for (begin, end, site, place), row in zip(pieces, found.instruction.tolist(), strict=True):
        number = -1 if row < 0 else int(block.lane.row[row])
        name = "waiting" if number < 0 else block.stream.names[number]
        constant = ISSUE if place == ISSUED or number < 0 else block.stream.places[number][place == ARRIVING]
        if block.share > 0.5:  # what it loads comes out of HBM
            constant = re.sub(r"^(timing\.load_\w+)_l2$", r"\1_hbm", constant)
        key = name, PLACES[place], block.sites[site], constant
        times, ns = links.get(key, (0, 0.0))
        links[key] = times + 1, ns + end - begin
    whole = sum(ns for _, ns in links.values()) or 1.0
    rows = [
        (*key[:3], times, ns, ns / whole, key[3], *_known(key[3], key[0].split(" ")[0], device))
        for key, (times, ns) in sorted(links.items(), key=lambda one: -one[1][1])
        if ns > 0
    ]
    return _frame(CHAIN_TABLE, rows)


def _frame(columns: Columns, rows: Sequence[tuple[object, ...]]) -> pl.DataFrame:
    numbers = {"times": pl.Int64, "time_ns": pl.Float64, "share": pl.Float64, "less": pl.Float64, "more": pl.Float64}
    return pl.DataFrame(rows, schema={key: numbers.get(key, pl.String) for key in columns.keys}, orient="row")


def _known(place: str, op: str, device: Device) -> tuple[str, str, str]:
    """A constant's value in words, how sure it is, and its source."""
    if not place:
        return "", "", ""
    cost = at_place(place, device)
    spec = spec_of(op) if op and place.startswith(("op.", "reduce.")) else None
    like = f"as {place}: {spec.like}" if spec and spec.like and place == spec.cost else cost.source
    return _value_text(cost), confidence(spec, place, device), like


def _value_text(cost: object) -> str:
    if isinstance(cost, OpCost):
        parts = {"a 256 B": cost.slope, "a row": cost.row, "an element": cost.element}
        more = "".join(f" + {value:g} {what}" for what, value in parts.items() if value)
        return f"{cost.head + cost.tail:g}{more} cycles"
    if isinstance(cost, ReduceCost):
        return f"{cost.slope[0]:g} to {cost.slope[-1]:g} an element, by width"
    return f"{cost.value:.4g} {cost.unit}"  # type: ignore[attr-defined]


def _depends(simulated: Simulated, block: Inside) -> pl.DataFrame:
    """The constants that move the block alone most, with what the whole run makes of them: where cores share a memory
    at its limit, one that is faster by itself waits for the others."""
    prepared = simulated.prepared
    classes, device, job = prepared.classes, prepared.program.device, prepared.job
    number = next(n for n, stream in enumerate(classes.streams) if stream is block.stream)
    mine = job.block_class == block.kind

    def alone(place: str, factor: float) -> float:
        other = _scaled(device, place, factor)
        timing = time_block(classes.stream_on(number, other), block.slow, share=block.share)
        return timing.duration + other.timing["block_start"].value * NS

    def in_the_run(place: str, factor: float) -> float:
        again = run(retimed(prepared, _scaled(device, place, factor)))
        return float(np.mean((again.times.end - again.times.start)[mine]))

    time_with = alone if prepared.peers is not None else in_the_run
    base = alone(START, 1.0)
    moves = {place: max(abs(alone(place, 1 + by) / base - 1) for by in (-FIFTH, FIFTH)) for place in _of(block, device)}
    strongest = sorted((place for place, move in moves.items() if move > LEAST), key=lambda place: -moves[place])
    rows: list[tuple[object, ...]] = []
    before = time_with(START, 1.0)
    for place in (*strongest[:MOST], TOGETHER):
        less, more = (time_with(place, 1 + by) / before - 1 for by in (-FIFTH, FIFTH))
        if max(abs(less), abs(more)) > LEAST:
            value, sure, origin = _known(place, "", device)
            rows.append((place, value, sure, less, more, origin))
    rows.sort(key=lambda row: -max(abs(row[3]), abs(row[4])))  # type: ignore[arg-type]
    return _frame(DEPENDS_TABLE, rows)


def _of(block: Inside, device: Device) -> Iterator[str]:
    """Constants of blocks: those of [timing], and the costs of the ops that it is made of."""
    yield from (f"timing.{name}" for name, constant in device.timing.items() if constant.unit != "flag")
    spent = {place for _, place in block.stream.spent}
    yield from sorted(place for place in spent if not place.startswith("timing."))


def _scaled(device: Device, place: str, factor: float) -> Device:
    """The device with a constant, or all parts of an op's cost, so many times as large."""
    table, key = place.split(".")
    cost = at_place(place, device)
    if isinstance(cost, OpCost):
        parts = {name: getattr(cost, name) * factor for name in OP_PARTS}
        other: object = msgspec.structs.replace(cost, **parts)
    elif isinstance(cost, ReduceCost):
        curves = {name: tuple(value * factor for value in getattr(cost, name)) for name in ("slope", "bias")}
        other = msgspec.structs.replace(cost, **curves)
    else:
        other = msgspec.structs.replace(cost, value=cost.value * factor)
    return msgspec.structs.replace(device, **{table: {**getattr(device, table), key: other}})
