"""What the compiler made of a body beside what npuscope's lowering makes of it: instructions, bytes, tiles, memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from npuscope.lower.chip import matrix, up
from npuscope.lower.model import Instruction, Items, Lowered, Repeat
from npuscope.lower.program import PlannedBody, Program
from npuscope.ops.dtypes import BY_NAME

CUBE = 16  # rows and columns that the cube multiplies at once: fewer that are valid take as long


class Difference(NamedTuple):
    """One number of a kernel that the compiler and npuscope's lowering do not agree on."""

    kernel: str
    what: str
    compiler: int
    npuscope: int


def tally(body: PlannedBody) -> Counter[str]:
    """What a block of a body does, every turn counted: instructions per pipe, bytes through GM, products by size.

    A vector core's part of a body whose tiles are split is half of it.
    """
    found: Counter[str] = Counter()
    lowered = body.lowered

    def walk(items: Items, times: int) -> None:
        for item in items:
            if isinstance(item, Repeat):
                walk(item.items, times * (1 if item.kind == "split_aiv" else item.count))
            elif item.pipe is not None and item.plane != "sync":
                for what, number in _counted(item, lowered):
                    found[what] += number * times

    walk(lowered.items, 1)
    for space in body.plan:
        found[f"bytes of {space.space}"] = space.used
    return found


def _counted(one: Instruction, lowered: Lowered) -> Iterator[tuple[str, int]]:
    yield f"instructions of {one.unit} {one.pipe}", 1
    halves = 2 if lowered.split and one.unit == "AIV" else 1
    if one.accesses and one.plane in ("load", "store"):
        number = one.result if one.result is not None else next(iter(one.reads), None)
        size = 4 if number is None else BY_NAME[lowered.values[number].dtype].bytes
        moved = sum(prod(access.shape) for access in one.accesses) * size // halves
        yield f"bytes that the {one.unit} {'loads' if one.plane == 'load' else 'stores'}", moved
    if one.plane == "cube" and one.result is not None and one.operands[1] is not None:
        m, n = (up(extent, CUBE) for extent in matrix(lowered.values[one.result].shape))
        yield f"products of {m} x {matrix(lowered.values[one.operands[1]].shape)[1]} x {n}", 1


def differences(program: Program) -> tuple[Difference, ...]:
    """All that the two do not agree on, kernel by kernel; of a kernel's bodies the first."""
    found: dict[str, list[Difference]] = {}
    for key, one in program.compiled.items():
        if one.kernel in found or program.assemblies[key].assumed:
            continue
        compiler, own = tally(one), tally(program.planned[key])
        found[one.kernel] = [
            Difference(one.kernel, what, compiler[what], own[what])
            for what in sorted(compiler.keys() | own.keys())
            if compiler[what] != own[what]
        ]
    return tuple(difference for some in found.values() for difference in some)
