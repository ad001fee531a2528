"""Loops of matmuls that wait for their own loads: `pl.range` gives no second buffer, `pl.pipeline` does.

Told where two buffers of every operand fit into Mat, from three iterations on. The cost is what the overlap can hide:
the lesser of loading and multiplying, by the chip's peak rates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from npuscope.check.findings import Finding, Waste
from npuscope.check.flow.dataflow import SAME, Flow, tile_bytes
from npuscope.check.flow.places import Place, places
from npuscope.check.rule import Example, Rule
from npuscope.check.source.changed_lines import pipelined
from npuscope.lower.build import build
from npuscope.lower.lowering import passed
from npuscope.lower.memory_plan import SpacePlan, plan_memory
from npuscope.lower.model import Instruction, Items, Repeat
from npuscope.lower.program import Launch, Program
from npuscope.tile.record.model import Loop
from npuscope.tile.record.walk import Step

LEAST = 3  # iterations


def check(program: Program) -> Iterator[Finding]:
    if "Mat" not in program.device.space:
        return
    loops: dict[tuple[int, int, tuple[int, ...]], list[Place]] = defaultdict(list)
    for place in places(program):
        step = place.step
        if step.op.plane == "cube" and step.around and step.around[-1].loop.kind == "range":
            loops[id(place.launch), place.body, step.loops].append(place)
    planned: dict[tuple[str, int], SpacePlan | None] = {}  # by kernel and loop: its bodies are much alike
    for steps in loops.values():
        found = _loop(steps, planned)
        if found is not None:
            yield found


def _loop(steps: list[Place], planned: dict[tuple[str, int], SpacePlan | None]) -> Finding | None:
    program, launch, flow = steps[0].program, steps[0].launch, steps[0].flow
    loop = steps[0].step.around[-1].loop
    loads = _loads(flow, [place.step for place in steps])
    turns = loop.turns
    if turns < LEAST or not loads or _has_a_better_one(flow, steps[0].step) or _writes_what_it_loads(flow, loads):
        return None
    if (launch.kernel, loop.site) not in planned:
        planned[launch.kernel, loop.site] = _mat_when_pipelined(program, launch, steps[0].body, loop)
    mat = planned[launch.kernel, loop.site]
    if mat is None:
        return None
    blocks = steps[0].runs // steps[0].step.times
    loaded = blocks * sum(tile_bytes(load.result) * load.times for load in loads)
    flops = sum(place.step.op.flops * place.runs for place in steps)
    peak = program.device.peak("cube", "bf16")
    load_bound = peak is not None and loaded / program.device.bandwidth > flops / peak
    first = steps[0].step
    entries = blocks * first.times // first.around[-1].count
    site = program.site(loop.site)
    return RULE.at(
        site,
        f"{turns} turns of matmul each wait for their own loads ({loaded // (entries * turns):,} bytes a turn)",
        f"Let it load one turn ahead: Mat holds two turns' tiles ({mat.used:,} of {mat.limit:,} bytes).",
        kernel=launch.kernel,
        change=pipelined(site),
        waste=Waste(flops=flops) if load_bound else Waste(bytes=loaded),
        count=entries,
    )


def _mat_when_pipelined(program: Program, launch: Launch, body: int, loop: Loop) -> SpacePlan | None:
    """Mat as it would be with two turns of the loop in flight; None where something does not fit then."""
    lowered = build(program.recording, program.first_task(launch), body)
    lowered = replace(lowered, items=_two_stages(lowered.items, loop.site))
    plan = plan_memory(passed(lowered, program.device, program.lowering), program.device)
    mat = next((space for space in plan.spaces if space.space == "Mat"), None)
    return mat if all(space.fits for space in plan.spaces) else None


def _two_stages(items: Items, site: int) -> Items:
    made: list[Instruction | Repeat] = []
    for item in items:
        if isinstance(item, Repeat):
            item = replace(item, items=_two_stages(item.items, site))
            if item.site == site:
                item = replace(item, kind="pipeline", stage=2)
        made.append(item)
    return tuple(made)


def _loads(flow: Flow, cubes: list[Step]) -> list[Step]:
    """What the loop loads for its matmuls, each step once."""
    found = {
        maker.number: maker
        for cube in cubes
        for operand in (1, 2)
        for maker in flow.makers(cube, operand, SAME)
        if maker.loads and maker.loops == cube.loops
    }
    return list(found.values())


def _has_a_better_one(flow: Flow, cube: Step) -> bool:
    """Whether a loop inside has matmuls too and is, or should be, the pipeline: K steps inside a loop over columns."""
    depth = len(cube.loops)
    return any(
        step.op.plane == "cube"
        and len(step.loops) > depth
        and step.loops[:depth] == cube.loops
        and any(one.loop.kind == "pipeline" or one.loop.turns >= LEAST for one in step.around[depth:])
        for step in flow.steps
    )


def _writes_what_it_loads(flow: Flow, loads: list[Step]) -> bool:
    """Whether an iteration may load what the one before has stored."""
    arguments = {access.argument for load in loads for access in load.op.accesses}
    return any(
        access.argument in arguments
        for step in flow.steps
        if step.stores and step.loops[: len(loads[0].loops)] == loads[0].loops
        for access in step.op.accesses
    )


RULE = Rule(
    "unpipelined-k",
    "warning",
    "a loop of matmuls without a pipeline",
    "With one buffer per operand the cube idles while the next tiles are loaded, and the loads wait for the cube. Told "
    "from three turns on, where the memory plan has room for two turns' tiles.",
    check,
    Example(
        "for k0 in pl.range(128, K, 128):\n    acc = pl.matmul_acc(acc, x[:, k0 : k0 + 128], w[k0 : k0 + 128, :])",
        "for k0 in pl.pipeline(128, K, 128, stage=2):\n"
        "    acc = pl.matmul_acc(acc, x[:, k0 : k0 + 128], w[k0 : k0 + 128, :])",
        "FLOPs during which nothing is loaded, or bytes during which nothing is multiplied",
    ),
)
