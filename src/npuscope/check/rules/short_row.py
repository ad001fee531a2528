"""Transfers in rows shorter than a line of global memory, where the tensor has longer ones to give.

A row below the line costs as much as the line. Rows that follow each other without a gap count as one. What a kernel
wastes this way on one tensor is told once, at the line that wastes most, and only where it is a noticeable part of
all that the program moves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from npuscope.check.findings import Finding, Waste
from npuscope.check.flow.places import Place, as_one, places
from npuscope.check.rule import Example, Rule
from npuscope.lower.program import Program
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile.graph.boxes import dims
from npuscope.tile.record.model import Access

SHARE = 0.02  # of all bytes that the program moves from and to GM
LEAST = 4096  # bytes


def check(program: Program) -> Iterator[Finding]:
    if "gm_line" not in program.device.core:
        return
    line = int(program.device.core["gm_line"].value)
    moved = 0
    short: dict[tuple[int, int, bool], list[Finding]] = defaultdict(list)
    for place in places(program):
        for access in place.step.op.accesses:
            moved += place.bytes(access) * place.runs
            lost = _lost(place, access, line) if place.step.op.plane in ("load", "store") else 0
            if lost:
                short[id(place.launch), access.argument, access.mode == "read"].append(
                    _finding(place, access, line, lost)
                )
    for together in short.values():
        told = as_one(together)
        if told.waste.bytes >= max(SHARE * moved, LEAST):
            yield told


def _lost(place: Place, access: Access, line: int) -> int:
    """Bytes of lines that a step moves beside what it wants, as far as the tensor's rows could fill them."""
    size = BY_NAME[place.buffer(access).dtype].bytes
    argument = place.argument(access)
    row = size * run_length(access.shape, access.strides)
    longest = min(size * argument.shape[-1] if argument.shape and argument.strides[-1] == 1 else 0, line)
    return (longest - row) * (place.bytes(access) // row) * place.runs if row < longest else 0


def run_length(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements that lie side by side."""
    joined = dims(shape, strides)
    return joined[0][0] if joined and joined[0][1] == 1 else 1


def _finding(place: Place, access: Access, line: int, lost: int) -> Finding:
    buffer, argument = place.buffer(access), place.argument(access)
    size = BY_NAME[buffer.dtype].bytes
    moved, row = place.bytes(access), size * run_length(access.shape, access.strides)
    whole = size * argument.shape[-1]
    return RULE.at(
        place.site,
        f"{'reads' if access.mode == 'read' else 'writes'} {moved:,} bytes of {buffer.name} as "
        f"{moved // row:,} x {row} B; a line of global memory is {line} B",
        f"Make the tile wider: {min(line, whole) // size} columns of {buffer.dtype} "
        f"{'fill a line' if whole >= line else 'are a whole row'}.",
        kernel=place.kernel,
        waste=Waste(bytes=lost),
        count=place.runs,
    )


RULE = Rule(
    "short-row",
    "hint",
    "rows shorter than a line of global memory",
    "Global memory is read and written in lines; the rest of the line is paid for and thrown away. Told where that is "
    "2% of all the program moves, and where the tensor's rows are longer than the tile's.",
    check,
    Example(
        "w_tile = pl.slice(w, [128, 64], [k0, n0])  # BF16: 128 bytes of each line of 512",
        "w_tile = pl.slice(w, [128, 256], [k0, n0])",
        "bytes of lines that are paid for and thrown away",
    ),
)
