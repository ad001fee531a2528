"""Loops of matmuls that wait for their own loads: `pl.range` gives no second buffer, `pl.pipeline` does.

Told where two buffers of every operand fit into Mat, from three iterations on. The cost is what the overlap can hide:
the lesser of loading and multiplying, by the chip's peak rates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby

from npuscope.lower.findings import Cost, Finding
from npuscope.lower.lint.changes import pipelined
from npuscope.lower.lint.dataflow import SAME, Flow, Step, iterations, tile_bytes
from npuscope.lower.lint.places import Place, places
from npuscope.lower.lint.rule import Rule
from npuscope.lower.program import Program

ID = "unpipelined-k"
LEAST = 3  # iterations


def check(program: Program) -> Iterator[Finding]:
    if "Mat" not in program.device.space:
        return
    loops: dict[tuple[int, int, tuple[int, ...]], list[Place]] = defaultdict(list)
    for place in places(program):
        step = place.step
        if step.op.plane == "cube" and step.loops and step.loops[-1].kind == "range":
            around = tuple(id(loop) for loop in step.loops)
            loops[id(place.launch), place.body, around].append(place)
    for steps in loops.values():
        found = _loop(steps)
        if found is not None:
            yield found


def _loop(steps: list[Place]) -> Finding | None:
    program, launch, flow = steps[0].program, steps[0].launch, steps[0].flow
    loop = steps[0].step.loops[-1]
    loads = _loads(flow, [place.step for place in steps])
    if iterations(loop) < LEAST or not loads or _writes_what_it_loads(flow, loads):
        return None
    held = max(
        sum(tile_bytes(load.result) for load in same)
        for _, same in groupby(sorted(loads, key=lambda s: s.segments), key=lambda s: s.segments)
    )
    if 2 * held + _beside(program, flow, loads) > program.device.space["Mat"].size.value:
        return None
    blocks = steps[0].runs // steps[0].step.times
    loaded = blocks * sum(tile_bytes(load.result) * load.times for load in loads)
    flops = sum(place.step.op.flops * place.runs for place in steps)
    peak = program.device.peak("cube", "bf16")
    load_bound = peak is not None and loaded / program.device.bandwidth > flops / peak
    site = program.site(loop.site)
    return Finding(
        ID,
        "warning",
        site.file,
        site.line,
        f"{iterations(loop)} steps of matmul each wait for their own loads ({held:,} bytes a step): nothing is loaded "
        "ahead",
        f"Let it load one step ahead: two buffers take {2 * held:,} of {program.device.space['Mat'].size.value:,.0f} "
        "bytes of Mat.",
        kernel=launch.kernel,
        function=site.function,
        change=pipelined(site),
        cost=Cost(flops=flops) if load_bound else Cost(bytes=loaded),
        count=blocks
        * max(step.step.times // max(step.step.loops[-1].segments[step.step.segments[-1]].count, 1) for step in steps),
    )


def _loads(flow: Flow, cubes: list[Step]) -> list[Step]:
    """What the loop loads for its matmuls, each step once."""
    found = {
        maker.number: maker
        for cube in cubes
        for operand in (1, 2)
        for maker in flow.makers(cube, operand, SAME)
        if maker.op.plane == "load" and maker.loops == cube.loops
    }
    return list(found.values())


def _writes_what_it_loads(flow: Flow, loads: list[Step]) -> bool:
    """Whether an iteration may load what the one before has stored."""
    arguments = {access.argument for load in loads for access in load.op.accesses}
    return any(
        access.argument in arguments
        for step in flow.steps
        if step.op.plane == "store" and step.loops[: len(loads[0].loops)] == loads[0].loops
        for access in step.op.accesses
    )


def _beside(program: Program, flow: Flow, loads: list[Step]) -> int:
    """Bytes of Mat that other operands of matmuls take: loaded elsewhere, or handed over by vector cores."""
    slots = int(program.device.core["ring_slots"].value) if "ring_slots" in program.device.core else 1
    mine = {load.number for load in loads}
    others: dict[int, int] = {}
    for cube in flow.steps:
        if cube.op.plane == "cube":
            for operand in (1, 2):
                for maker in flow.makers(cube, operand, SAME):
                    if maker.number not in mine and maker.op.plane in ("load", "vector"):
                        size = tile_bytes(maker.result)
                        others[maker.op.site] = size * (slots if maker.op.plane == "vector" else 1)
    return sum(others.values())


RULE = Rule(
    ID,
    "warning",
    "a loop of matmuls without a pipeline",
    "With one buffer per operand the cube idles while the next tiles are loaded, and the loads wait for the cube.",
    check,
)
