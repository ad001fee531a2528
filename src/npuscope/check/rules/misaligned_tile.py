"""Tiles that do not fall on the chip's steps: products of 16, columns of whole 32 bytes."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.check.findings import Finding
from npuscope.check.memory.each_body import Problem, problems
from npuscope.check.rule import Example, Rule
from npuscope.chip.devices import Device
from npuscope.lower.chip import matrix
from npuscope.lower.model import Lowered
from npuscope.lower.products import product_of
from npuscope.lower.program import PlannedBody, Program
from npuscope.ops.dtypes import BY_NAME


def check(program: Program) -> Iterator[Finding]:
    def found(body: PlannedBody) -> Iterator[Problem]:
        yield from _products(body.lowered, program.device)
        yield from _columns(body.lowered, program.device)

    yield from problems(RULE, program, found)


def _products(lowered: Lowered, device: Device) -> Iterator[Problem]:
    step = int(device.core["fractal"].value)
    for one in lowered.instructions:
        if one.plane != "cube" or one.operands[1] is None or one.operands[2] is None or one.result is None:
            continue
        product = product_of(one, lowered.values, device)
        name = lowered.values[one.result].name
        for axis, size in (("K", product.k), ("N", product.n)):
            if size % step:
                message = f"{name}: {axis} of the product is {size}, not a multiple of {step}"
                yield one.site, message, f"Pad {axis} to {-(-size // step) * step} (valid_shape= says what is data)."


def _columns(lowered: Lowered, device: Device) -> Iterator[Problem]:
    least = int(device.core["vec_least"].value)
    for one in lowered.instructions:
        if one.result is None or one.plane not in ("load", "vector"):
            continue
        tile = lowered.values[one.result]
        rows, columns = matrix(tile.shape)
        size = BY_NAME[tile.dtype].bytes
        if tile.space == "Vec" and columns == 1 and rows > 1 and rows * size % least:
            yield (
                one.site,
                f"{tile.name} {list(tile.shape)} {tile.dtype}: a column takes {rows * size} bytes, "
                f"not a multiple of {least}",
                f"Give it a multiple of {least // size} rows.",
            )


RULE = Rule(
    "misaligned-tile",
    "error",
    "a tile that does not fall on the chip's steps",
    "The cube multiplies blocks of 16, and a column on a vector core is a multiple of 32 bytes.",
    check,
    Example(
        "scores = pl.matmul(q, pl.slice(k, [120, 128], [row, 0]), b_trans=True)  # N is 120",
        "scores = pl.matmul(q, pl.slice(k, [128, 128], [row, 0], valid_shape=[120, 128]), b_trans=True)",
    ),
    about="chip",
)
