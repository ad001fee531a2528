"""What a fit is held to: published changes, mean run times of blocks, and public measurements, each as a logarithm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log

from published_changes.measures import Measured, NoScope, quantity
from published_changes.rows import Row, Side
from validation import blocks
from validation.measured import Kernel
from validation.predictions import Value

WALLS = ("wall", "corespan")  # a whole run, of which much is not what a constant of a core decides
BLOCKS = {"qwen3_14b": 1.4, "qwen3_32b": 0.8}  # weights; of the second neither seed nor lengths are published


@dataclass(frozen=True)
class Evidence:
    """One number. `group` is what is left out together; `measured` is its natural logarithm."""

    name: str
    kind: str  # change, side, block or public
    group: str
    weight: float
    measured: float


Told = tuple[Evidence, float]  # and the logarithm of what is predicted


def of_changes(rows: Sequence[Row], runs: Mapping[Side, Measured]) -> Iterator[Told]:
    """Every row's ratio and, of less weight, its two times."""
    rows_of = Counter(row.commit for row in rows)
    for row in rows:
        if any(side not in runs for side in row.sides.values()):
            continue
        try:
            before, after = (
                quantity(row, "before", runs[row.sides["before"]]),
                quantity(row, "after", runs[row.sides["after"]]),
            )
        except NoScope:
            continue
        weight = rows_of[row.commit] ** -0.5
        yield Evidence(row.id, "change", row.commit, 2 * weight, row.change), log(after / before)
        if row.nanoseconds is not None:
            weight *= 0.25 if row.quantity in WALLS else 0.5
            yield _side(row, "before", weight, row.before * row.nanoseconds), log(before)
            yield _side(row, "after", weight, row.after * row.nanoseconds), log(after)


def _side(row: Row, which: str, weight: float, measured: float) -> Evidence:
    return Evidence(f"{row.id} {which}", "side", row.commit, weight, log(measured))


def of_blocks(tables: Mapping[str, Sequence[Kernel]], runs: Mapping[Side, Measured]) -> Iterator[Told]:
    for program in blocks.PROGRAMS:
        if program.side not in runs:
            continue
        found = blocks.compared(tables[program.key], blocks.simulated(runs[program.side]), program.other)
        for kernel, one in found.pairs:
            name = f"{program.title}: {kernel.name}"
            yield Evidence(name, "block", program.key, BLOCKS[program.key], log(kernel.mean)), log(one.mean)


def of_public(measured: Mapping[str, float], predicted: Mapping[str, Value]) -> Iterator[Told]:
    for key, value in predicted.items():
        one = value[1] / value[0] if isinstance(value, tuple) else value
        yield Evidence(key, "public", "public", 1.0, log(measured[key])), log(one)
