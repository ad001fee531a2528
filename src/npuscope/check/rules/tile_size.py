"""Matmuls so small that starting them costs more than doing them.

By the cube's cost formula a matmul takes a fixed number of cycles to start and then one (fp32: more) per fractal of
16 x 32 bytes x 16. Told where the start is more than half, and where the right operand's tensor has more to give.
Tiles too large for their space are errors of the memory plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import prod

from npuscope.check.findings import Finding, Waste
from npuscope.check.flow.dataflow import SAME
from npuscope.check.flow.places import Place, as_one, places, shown
from npuscope.check.rule import Example, Rule
from npuscope.chip.devices import PER_CYCLE
from npuscope.lower.program import Program
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile.record.model import TileType

SHARE = 0.5


def check(program: Program) -> Iterator[Finding]:
    core = program.device.core
    if not {"l0_head", "l0_cycles", "l0_cycles_fp32", "fractal", "fractal_k"} <= set(core):
        return
    head = core["l0_head"].value
    small: dict[tuple[int, str, str], list[Finding]] = defaultdict(list)
    for place in places(program):
        if place.step.op.plane != "cube":
            continue
        left, right = (place.flow.makers(place.step, operand) for operand in (1, 2))
        if not left or not right or not _has_more(place):
            continue
        work = cycles(program, left[0].result, place.step.result)
        share = head / (head + work)
        if share > SHARE:
            tiles = shown(left[0].result), shown(right[0].result)
            small[id(place.launch), *tiles].append(
                RULE.at(
                    place.site,
                    f"multiplies {tiles[0]} by {tiles[1]}: of {head + work:.0f} cycles {head:.0f} go into "
                    f"starting it ({share:.0%})",
                    "Take a larger tile of the right operand: more columns, or more of K per step.",
                    kernel=place.kernel,
                    waste=Waste(flops=round(head * _rate(program, left[0].result.dtype) * place.runs)),
                    count=place.runs,
                )
            )
    yield from map(as_one, small.values())


def cycles(program: Program, left: TileType, product: TileType) -> float:
    """Cycles of the multiply-adds alone."""
    core = program.device.core
    size = BY_NAME[left.dtype].bytes
    rows, columns = product.shape[-2:]
    depth = left.shape[-1] * left.shape[-2] // rows
    fractal, step = core["fractal"].value, core["fractal_k"].value / size
    per = core["l0_cycles_fp32" if size == 4 else "l0_cycles"].value
    return per * prod(product.shape[:-2]) * -(-rows // fractal) * -(-depth // step) * -(-columns // fractal)


def _has_more(place: Place) -> bool:
    """Whether the right operand is a part of its tensor."""
    loads = place.flow.makers(place.step, 2, SAME)
    if len(loads) != 1 or not loads[0].loads:
        return False
    (access,) = loads[0].op.accesses
    extents = place.argument(access).shape
    return any(more > here for more, here in zip(extents, access.shape, strict=False))


def _rate(program: Program, dtype: str) -> float:
    rate = program.device.cube.get(dtype.lower())
    return rate.value if rate is not None and rate.unit == PER_CYCLE else 0.0


RULE = Rule(
    "tile-size",
    "hint",
    "a matmul smaller than its start",
    "Every matmul instruction takes a fixed number of cycles before the first product; small tiles pay it often.",
    check,
    Example(
        "acc = pl.matmul_acc(acc, x[:, k0 : k0 + 16], w[k0 : k0 + 16, 0:16])",
        "acc = pl.matmul_acc(acc, x[:, k0 : k0 + 128], w[k0 : k0 + 128, 0:128])",
        "FLOPs that fit into the starts",
    ),
)
