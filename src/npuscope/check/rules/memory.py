"""Memories and pipelines in them: buffer-overflow, misaligned-tile, pipeline-depth, unpipelined-k, l2-overflow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import NamedTuple

from npuscope.check.dataflow import SAME, Flow, Place, places, tile_bytes
from npuscope.check.findings import Finding, Waste
from npuscope.check.gm_traffic import Use, severity, traffic_of
from npuscope.check.memory_use import Problem, Usage, advice, problems, usages
from npuscope.check.phrases import access_site, size, tensor_name
from npuscope.check.rule import Example, Rule
from npuscope.check.source_text import pipelined
from npuscope.chip.devices import Device
from npuscope.lower.build import build
from npuscope.lower.chip import matrix
from npuscope.lower.lowering import passed
from npuscope.lower.memory_plan import Slot, SpacePlan, plan_memory
from npuscope.lower.model import Instruction, Items, Lowered, Repeat
from npuscope.lower.products import product_of
from npuscope.lower.program import KernelLaunch, PlannedBody, Program
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile.record.model import Loop, short_name
from npuscope.tile.record.walk import Step, accesses_of

MOST_TILES = 6  # that a message names


def _find_buffer_overflow(program: Program) -> Iterator[Finding]:
    return (
        _buffer_overflow_finding(program, usage) for usage in usages(program.planned.values()) if not usage.space.fits
    )


def _buffer_overflow_finding(program: Program, usage: Usage) -> Finding:
    space = usage.space
    largest = sorted(space.slots, key=lambda slot: -slot.bytes)
    lowered = usage.body.lowered
    tiles = "; ".join(_slot_text(slot, lowered, program) for slot in largest[:MOST_TILES])
    if space.reserved:
        tiles = f"the ring between cube and vector cores takes {space.reserved} B; {tiles}"
    if len(largest) > MOST_TILES:
        tiles += f"; and {len(largest) - MOST_TILES} more"
    if largest:
        site = program.site_in(lowered, largest[0].tenants[0].value.site)
    else:
        site = program.site(program.recording.tasks[usage.body.task].site)
    shallower = ", or a shallower ring: optimizations=[pl.cross_core_slot(slot_num=2)]"
    otherwise = f"Use smaller tiles{shallower if space.reserved else ', or fewer of them at once'}."
    return BUFFER_OVERFLOW.at(
        site,
        f"{usage.function} {space.space} buffer usage {space.used} > {space.limit}: {tiles}",
        advice(program, usage) or otherwise,
        usage.body.kernel,
    )


def _slot_text(slot: Slot, lowered: Lowered, program: Program) -> str:
    """`wq [512, 512] INT8 262144 B (layer.py:12)`."""
    value = slot.tenants[0].value
    site = program.site_in(lowered, value.site)
    return f"{value.name} {list(value.shape)} {value.dtype} {slot.bytes} B ({Path(site.file).name}:{site.line})"


BUFFER_OVERFLOW = Rule(
    "buffer-overflow",
    "error",
    "a kernel needs more of a memory than a core has",
    "The compiler plans all tiles that are alive at once into their memory, and refuses what does not fit.",
    _find_buffer_overflow,
    Example(
        "x = pl.add(pl.slice(a, [128, 512], [0, 0]), 1.0)  # FP32: 262144 bytes of Vec, which has 188416",
        "x = pl.add(pl.slice(a, [64, 512], [0, 0]), 1.0)",
    ),
    about="chip",
)


def _find_misaligned_tile(program: Program) -> Iterator[Finding]:
    def found(body: PlannedBody) -> Iterator[Problem]:
        yield from _products(body.lowered, program.device)
        yield from _columns(body.lowered, program.device)

    yield from problems(MISALIGNED_TILE, program, found)


def _products(lowered: Lowered, device: Device) -> Iterator[Problem]:
    step = int(device.core["fractal"].value)
    for one in lowered.instructions:
        if one.plane != "cube" or one.operands[1] is None or one.operands[2] is None or one.result is None:
            continue
        product = product_of(one, lowered.values, device)
        name = lowered.values[one.result].name
        for axis, extent in (("K", product.k), ("N", product.n)):
            if extent % step:
                message = f"{name}: {axis} of the product is {extent}, not a multiple of {step}"
                yield one.site, message, f"Pad {axis} to {-(-extent // step) * step} (valid_shape= says what is data)."


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


MISALIGNED_TILE = Rule(
    "misaligned-tile",
    "error",
    "a tile that does not fall on the chip's steps",
    "The cube multiplies blocks of 16, and a column on a vector core is a multiple of 32 bytes.",
    _find_misaligned_tile,
    Example(
        "scores = pl.matmul(q, pl.slice(k, [120, 128], [row, 0]), b_trans=True)  # N is 120",
        "scores = pl.matmul(q, pl.slice(k, [128, 128], [row, 0], valid_shape=[120, 128]), b_trans=True)",
    ),
    about="chip",
)


def _find_pipeline_depth(program: Program) -> Iterator[Finding]:
    """One finding per function and space, about the largest tile that had to give up depth."""
    if not program.device.space:
        return
    for usage in usages(program.planned.values()):
        space = usage.space
        # Left, Right and Acc are filled as the compiler sees fit; what does not fit at all is an error of its own
        if space.space not in ("Mat", "Vec") or not space.shallow or not space.fits:
            continue
        worst = max(space.shallow, key=lambda one: one.value.bytes)
        lowered = usage.body.lowered
        site = program.site_in(lowered, worst.value.site)
        others = len(space.shallow) - 1
        beside = f", and {others} more tile{'s' if others > 1 else ''} likewise" if others else ""
        tile = f"{worst.value.name} {list(worst.value.shape)} {worst.value.dtype}"
        room = (space.limit - space.reserved) // worst.wanted
        yield PIPELINE_DEPTH.at(
            site,
            f"{tile} has {worst.got} buffer{'s' if worst.got > 1 else ''} in {space.space} for {worst.wanted} turns in "
            f"flight{beside}: turns wait for each other",
            f"Make the tiles of a turn smaller (together at most {room:,} bytes of {space.space}), or ask for fewer "
            "stages.",
            kernel=usage.body.kernel,
            also=[
                program.site_in(lowered, one.value.site) for one in space.shallow if one.value.site != worst.value.site
            ],
        )


PIPELINE_DEPTH = Rule(
    "pipeline-depth",
    "hint",
    "a pipeline deeper than its buffers",
    "A stage without a buffer of its own waits for the turn before; the loop runs as if it had fewer stages.",
    _find_pipeline_depth,
    Example(
        "for k0 in pl.pipeline(0, K, 512, stage=4):  # four tiles of 192 KiB in 512 KiB of Mat",
        "for k0 in pl.pipeline(0, K, 512, stage=2):",
    ),
)


LEAST_TURNS = 3  # iterations


def _find_unpipelined_k(program: Program) -> Iterator[Finding]:
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
    loads = _loop_loads(flow, [place.step for place in steps])
    turns = loop.turns
    if turns < LEAST_TURNS or not loads or _has_a_better_one(flow, steps[0].step) or _writes_what_it_loads(flow, loads):
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
    return UNPIPELINED_K.at(
        site,
        f"{turns} turns of matmul each wait for their own loads ({loaded // (entries * turns):,} bytes a turn)",
        f"Let it load one turn ahead: Mat holds two turns' tiles ({mat.used:,} of {mat.limit:,} bytes).",
        kernel=launch.kernel,
        change=pipelined(site),
        waste=Waste(flops=flops) if load_bound else Waste(bytes=loaded),
        count=entries,
    )


def _mat_when_pipelined(program: Program, launch: KernelLaunch, body: int, loop: Loop) -> SpacePlan | None:
    """Mat as it would be with two turns of the loop in flight; None where something does not fit then."""
    lowered = build(program.recording, program.first_task(launch), body)
    lowered = replace(lowered, items=_two_stages(lowered.items, lowered.sites.index(loop.site)))
    plan = plan_memory(passed(lowered, program.device, program.lowering), program.device)
    mat = next((space for space in plan if space.space == "Mat"), None)
    return mat if all(space.fits for space in plan) else None


def _two_stages(items: Items, site: int) -> Items:
    made: list[Instruction | Repeat] = []
    for item in items:
        if isinstance(item, Repeat):
            item = replace(item, items=_two_stages(item.items, site))
            if item.site == site:
                item = replace(item, kind="pipeline", stage=2)
        made.append(item)
    return tuple(made)


def _loop_loads(flow: Flow, cubes: list[Step]) -> list[Step]:
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
        and any(one.loop.kind == "pipeline" or one.loop.turns >= LEAST_TURNS for one in step.around[depth:])
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


UNPIPELINED_K = Rule(
    "unpipelined-k",
    "warning",
    "a loop of matmuls without a pipeline",
    "With one buffer per operand the cube idles while the next tiles are loaded, and the loads wait for the cube. Told "
    "from three turns on, where the memory plan has room for two turns' tiles.",
    _find_unpipelined_k,
    Example(
        "for k0 in pl.range(128, K, 128):\n    acc = pl.matmul_acc(acc, x[:, k0 : k0 + 128], w[k0 : k0 + 128, :])",
        "for k0 in pl.pipeline(128, K, 128, stage=2):\n"
        "    acc = pl.matmul_acc(acc, x[:, k0 : k0 + 128], w[k0 : k0 + 128, :])",
        "FLOPs during which nothing is loaded, or bytes during which nothing is multiplied",
    ),
)


class ReadAgain(NamedTuple):
    """A read of a block's tiles, and the next of the same: task and block of both."""

    first: tuple[int, int]
    second: tuple[int, int]


def _find_l2_overflow(program: Program) -> Iterator[Finding]:
    l2 = program.device.memory.l2
    if l2 is None:
        return
    read: dict[int, int] = defaultdict(int)
    for task in range(len(program.recording.tasks)):
        for use in traffic_of(program).uses(task):
            read[use.buffer] += use.read
    for buffer, total in read.items():
        again = total - _buffer_bytes(program, buffer)
        if again >= l2.value and (found := _next_reader(program, buffer)) is not None:
            passed = _passed(program, found)
            if passed > l2.value:
                yield _l2_finding(program, buffer, total, again, passed)


def _buffer_bytes(program: Program, buffer: int) -> int:
    found = program.recording.buffers[buffer]
    return prod(found.shape) * BY_NAME[found.dtype].bytes


def _next_reader(program: Program, buffer: int) -> ReadAgain | None:
    """The first block that reads the tensor, and the next that reads the same tiles of it."""
    seen: dict[bytes, tuple[int, int]] = {}
    for task in traffic_of(program).touching[buffer]:
        arguments = {use.argument for use in traffic_of(program).uses(task) if use.buffer == buffer and use.read}
        for group in program.recording.tasks[task].groups:
            plan = accesses_of(program.recording.bodies[group.body])
            reads = [n for n, (_, a, _) in enumerate(plan) if a.argument in arguments and a.mode == "read"]
            for n, block in enumerate(group.blocks.tolist()):
                places = [group.offsets[k][..., min(n, group.offsets[k].shape[-1] - 1)] for k in reads]
                tiles = b"".join(place.tobytes() for place in places)
                if not seen:
                    seen[tiles] = (task, block)
                elif tiles in seen:
                    return ReadAgain(seen[tiles], (task, block))
    return None


def _passed(program: Program, again: ReadAgain) -> float:
    """Bytes that pass between two reads: of every tensor what is moved, at most the whole of it."""
    moved: dict[int, float] = defaultdict(float)
    (first, begin), (second, end) = again
    for task in range(first, second + 1):
        blocks = max(program.recording.tasks[task].blocks, 1)
        part = ((end if task == second else blocks) - (begin + 1 if task == first else 0)) / blocks
        for use in traffic_of(program).uses(task):
            moved[use.buffer] += part * (use.read + use.written)
    return sum(min(bytes_moved, _buffer_bytes(program, buffer)) for buffer, bytes_moved in moved.items())


def _l2_finding(program: Program, buffer: int, total: int, again: int, passed: float) -> Finding:
    use = max(_reads_of(program, buffer), key=lambda use: use.read)
    launch = program.launches[traffic_of(program).launch[use.task]]
    site = access_site(program, use, "read")
    name = tensor_name(program, buffer)
    assert program.device.memory.l2 is not None
    return L2_OVERFLOW.at(
        site,
        f"{short_name(launch.kernel)} reads {size(total)} of {name}, which has {size(total - again)}; about "
        f"{size(passed)} pass before the same tiles are read again, more than L2 "
        f"({size(program.device.memory.l2.value)}) can keep",
        f"Order the loops so that all that needs a tile of {name} comes together, or take more rows per tile.",
        kernel=launch.kernel,
        severity=severity(program, Waste(bytes=again)),
        waste=Waste(bytes=again),
    )


def _reads_of(program: Program, buffer: int) -> Iterator[Use]:
    for task in traffic_of(program).touching[buffer]:
        yield from (use for use in traffic_of(program).uses(task) if use.buffer == buffer)


L2_OVERFLOW = Rule(
    "l2-overflow",
    "hint",
    "a working set beyond L2",
    "What is read again soon comes from L2; after more than its size has passed it comes from memory again.",
    _find_l2_overflow,
    Example(
        "for n0 in pl.range(0, N, 256):  # every turn reads all of x, which L2 cannot keep beside the weights",
        "for n0 in pl.range(0, N, 1024):",
        "bytes read from memory again",
    ),
)
