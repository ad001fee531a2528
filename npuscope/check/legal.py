"""What the chip cannot do, each with the line and the way that it can.

Moves without an instruction (also those that nobody wrote: an accumulator that is still read after another product
was added to it would have to be copied), types that GM does not take, tiles that do not fall on the chip's steps, and
a barrier of all cores that not all cores reach.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from npuscope.check.findings import Finding
from npuscope.check.memory import Kernel
from npuscope.check.program import Program
from npuscope.device.chip import Device, Rules
from npuscope.lower.l0_tiling import product_of
from npuscope.lower.model import Items, Lowered, Repeat, carried, instructions
from npuscope.lower.sizes import matrix
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile.record.model import Task

THROUGH_RING = "Leave the memory space out: the tile is then handed over through the ring between the cores."
OWN_ACCUMULATOR = (
    "Store the first result before the second product adds to it, or give the second an accumulator of its own "
    "(pl.matmul of the first K step, then pl.matmul_acc)."
)


def illegal(program: Program, found: tuple[Kernel, ...]) -> Iterator[Finding]:
    """Errors of every kernel; equal ones of several bodies once."""
    rules = program.device.rules
    assert rules is not None
    seen = set()
    for kernel in found:
        task = program.recording.tasks[kernel.task]
        lowered = kernel.lowered
        checks = (
            _moves(lowered, rules),
            _accumulators(lowered),
            _types(lowered, rules),
            _products(lowered, program.device),
            _tiles(lowered, program.device),
            _barriers(lowered, task, program.device),
        )
        for check in checks:
            for rule, site, message, fix in check:
                if (rule, site, message) in seen:
                    continue
                seen.add((rule, site, message))
                place = program.site(site)
                yield Finding(rule, "error", place.file, place.line, message, fix, kernel.name, place.function)


Problem = tuple[str, int, str, str]  # id, site, message, fix


def _moves(lowered: Lowered, rules: Rules) -> Iterator[Problem]:
    for one in instructions(lowered.items):
        if one.plane != "move" or one.name == "pop" or not one.reads:
            continue
        source = lowered.values[one.reads[0]]
        number = one.attribute("tile") if one.name == "push" else one.result
        if not isinstance(number, int):
            continue
        target = lowered.values[number]
        way = f"{source.space}->{target.space}"
        problem = partial(_move, one.site, source.name, way)
        if way == "Acc->Acc":
            yield problem(OWN_ACCUMULATOR)
        elif source.space == target.space or way in rules.moves:
            if way == "Acc->Mat" and not rules.ring_on_chip and target.dtype not in ("BF16", "FP16"):
                yield problem('Only BF16 or FP16 can go this way: pl.cast(…, pl.BF16, mode="rint") it first.')
        elif one.name != "push":
            yield problem(
                "Only a product writes to Acc: begin with pl.matmul." if target.space == "Acc" else THROUGH_RING
            )
        elif target.said:
            yield problem(THROUGH_RING)


def _move(site: int, name: str, way: str, fix: str) -> Problem:
    source, _, target = way.partition("->")
    return "illegal-move", site, f"{name}: the chip has no move from {source} to {target}", fix


def _accumulators(lowered: Lowered) -> Iterator[Problem]:
    """Sums in place whose old value is still needed."""
    order = list(instructions(lowered.items))
    last = {number: n for n, one in enumerate(order) for number in one.reads}
    repeated = set(_read_every_turn(lowered.items))
    for n, one in enumerate(order):
        if one.plane != "cube" or one.operands[0] is None:
            continue
        old = one.operands[0]
        if (last[old] > n and order[last[old]].result != one.result) or old in repeated:
            name = lowered.values[old].name
            yield (
                "illegal-move",
                one.site,
                f"{name} is still read after this product is added to it: that needs a copy from Acc to Acc, "
                "which the chip does not have",
                OWN_ACCUMULATOR,
            )


def _read_every_turn(items: Items) -> Iterator[int]:
    """Accumulators from before a loop that each of its turns would add to anew."""
    for item in items:
        if isinstance(item, Repeat) and item.kind != "l0":
            made = {one.result for one in instructions(item.items)} | set(carried((item,)))
            if item.count > 1:
                sums = (one.operands[0] for one in instructions(item.items) if one.plane == "cube")
                yield from (old for old in sums if old is not None and old not in made)
            yield from _read_every_turn(item.items)


def _types(lowered: Lowered, rules: Rules) -> Iterator[Problem]:
    for one in instructions(lowered.items):
        if one.plane != "store" or not one.reads:
            continue
        tile = lowered.values[one.reads[0]]
        told = ", ".join(sorted(rules.store_types)).upper()
        if tile.space == "Acc" and tile.dtype.lower() not in rules.store_types:
            yield (
                "store-type",
                one.site,
                f"{tile.name}: an accumulator cannot be stored as {tile.dtype}",
                f"Store it as one of {told}, or cast it on the vector cores first.",
            )
        if any(access.mode == "add" for access in one.accesses) and tile.dtype.lower() not in rules.atomic_types:
            told = ", ".join(sorted(rules.atomic_types)).upper()
            yield (
                "atomic-type",
                one.site,
                f"{tile.name}: global memory cannot add {tile.dtype}",
                f"Add one of {told}, or sum the parts in a task of their own.",
            )


def _products(lowered: Lowered, device: Device) -> Iterator[Problem]:
    step = int(device.core["fractal"].value)
    for one in instructions(lowered.items):
        if one.plane != "cube" or one.operands[1] is None or one.operands[2] is None or one.result is None:
            continue
        product = product_of(one, lowered.values, device)
        name = lowered.values[one.result].name
        for axis, size in (("K", product.k), ("N", product.n)):
            if size % step:
                yield (
                    "misaligned-tile",
                    one.site,
                    f"{name}: {axis} of the product is {size}, not a multiple of {step}",
                    f"Pad {axis} to {-(-size // step) * step} (valid_shape= says what is data).",
                )


def _tiles(lowered: Lowered, device: Device) -> Iterator[Problem]:
    least = int(device.core["vec_least"].value)
    for one in instructions(lowered.items):
        if one.result is None or one.plane not in ("load", "vector"):
            continue
        tile = lowered.values[one.result]
        rows, columns = matrix(tile.shape)
        size = BY_NAME[tile.dtype].bytes
        if tile.space == "Vec" and columns == 1 and rows > 1 and rows * size % least:
            need = least // size
            yield (
                "misaligned-tile",
                one.site,
                f"{tile.name} {list(tile.shape)} {tile.dtype}: a column takes {rows * size} bytes, "
                f"not a multiple of {least}",
                f"Give it a multiple of {need} rows.",
            )


def _barriers(lowered: Lowered, task: Task, device: Device) -> Iterator[Problem]:
    for one in instructions(lowered.items):
        if one.name != "syncall" or one.attribute("mode") != "hard":
            continue
        vector = one.attribute("core_type") == "aiv_only"
        cores = int((device.cores.vector if vector else device.cores.cube).value)
        if task.blocks != cores or not task.sync_start:
            has = f"{task.blocks} blocks" + ("" if task.sync_start else " without sync_start")
            yield (
                "syncall-occupancy",
                one.site,
                f"a hard syncall waits for all {cores} cores; {task.kernel} has {has}: the device would hang",
                f'Launch pl.spmd({cores}, sync_start=True), or use mode="soft" with a workspace.',
            )
