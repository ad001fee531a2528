"""Memories and pipelines in them: buffer-overflow, overlapping-tiles, misaligned-tile, pipeline-depth, unpipelined-k,
l2-overflow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path

from npuscope.check.dataflow import SAME, Flow, StepPlace, places, tile_bytes
from npuscope.check.gm_traffic import severity, traffic_of
from npuscope.check.memory_use import Problem, advice, problems, usages
from npuscope.check.phrases import access_site, size, tensor_name
from npuscope.check.rule import Example, Finding, Waste, rule
from npuscope.check.source_text import pipelined
from npuscope.chip.devices import load, names
from npuscope.lower.build import build
from npuscope.lower.chip import matrix
from npuscope.lower.lowering import passed
from npuscope.lower.memory_plan import SpacePlan, plan_memory
from npuscope.lower.model import Items, Repeat
from npuscope.lower.products import product_of
from npuscope.lower.program import KernelLaunch, PlannedBody, Program
from npuscope.ops.dtypes import BY_NAME
from npuscope.table.formats import many
from npuscope.tile.record.model import Loop, short_name
from npuscope.tile.record.walk import Step, accesses_of

MOST_TILES = 6  # that a message names


@rule(
    "buffer-overflow",
    "error",
    "a kernel needs more of a memory than a core has",
    "The compiler plans all tiles that are alive at once into their memory, and refuses what does not fit.",
    Example(
        "x = pl.add(pl.slice(a, [128, 512], [0, 0]), 1.0)  # FP32: 262144 bytes of Vec, which has 188416",
        "x = pl.add(pl.slice(a, [64, 512], [0, 0]), 1.0)",
    ),
    about="chip",
)
def buffer_overflow(program: Program) -> Iterator[Finding]:
    for usage in usages(program.in_memory.values()):
        space = usage.space
        if space.fits:
            continue
        site = program.site(program.recording.tasks[usage.body.task].site)
        tiles = [f"the ring between cube and vector cores takes {space.reserved} B"] if space.reserved else []
        largest = sorted(space.slots, key=lambda slot: -slot.bytes)
        for slot in reversed(largest[:MOST_TILES]):
            value = slot.tenants[0].value
            site = program.site_in(usage.body.lowered, value.site)  # of the largest in the end
            place = f"{Path(site.file).name}:{site.line}"
            tiles.insert(
                bool(space.reserved), f"{value.name} {list(value.shape)} {value.dtype} {slot.bytes} B ({place})"
            )
        tiles += [f"and {len(largest) - MOST_TILES} more"] if len(largest) > MOST_TILES else []
        shallower = ", or a shallower ring: optimizations=[pl.cross_core_slot(slot_num=2)]"
        otherwise = f"Use smaller tiles{shallower if space.reserved else ', or fewer of them at once'}."
        yield buffer_overflow.at(
            site,
            f"{usage.function} {space.space} buffer usage {space.used} > {space.limit}: {'; '.join(tiles)}",
            (otherwise if program.compiled else advice(program, usage) or otherwise) + _larger_chip(space),
            usage.body.kernel,
        )


def _larger_chip(space: SpacePlan) -> str:
    """The first chip whose memory would hold it: programs written for one chip are often tried on another first."""
    for name in names():
        larger = load(name).space.get(space.space)
        if larger is not None and larger.size.value >= space.used:
            return f" Was it written for {name}? Its {space.space} has {int(larger.size.value)} (--device {name})."
    return ""


@rule(
    "overlapping-tiles",
    "error",
    "the compiler gave two tiles that are alive at once the same bytes",
    "What is read afterwards is the other tile: the numbers are wrong. Only a build folder shows it (check FOLDER).",
    Example(
        "y = pl.add(x, 1.0)  # y lies in the bytes of w, which a product reads later",
        "w = pl.load(weights, [0, 0], [16, 64])  # read again after y",
    ),
    about="quality",
)
def overlapping_tiles(program: Program) -> Iterator[Finding]:
    for one in program.assemblies.values():
        for old, new, line in one.clobbered:
            yield overlapping_tiles.at(
                program.site_in(one.lowered, line),
                f"{new} is written over {old}, which is read again afterwards",
                "Report it with the .pto file to the compiler's authors; until then read the tile again.",
                one.kernel,
            )


def _misaligned(body: PlannedBody, program: Program) -> Iterator[Problem]:
    lowered = body.lowered
    step, least = (int(program.device.core[name].value) for name in ("fractal", "vec_least"))
    for one in lowered.instructions:
        if one.plane == "cube" and None not in one.operands[1:3] and one.result is not None:
            product = product_of(one, lowered.values, program.device)
            for axis, extent in (("K", product.k), ("N", product.n)):
                if extent % step:
                    name, whole = lowered.values[one.result].name, -(-extent // step) * step
                    message = f"{name}: {axis} of the product is {extent}, not a multiple of {step}"
                    yield one.site, message, f"Pad {axis} to {whole} (valid_shape= says what is data)."
    for one in lowered.instructions:
        if one.plane in ("load", "vector") and one.result is not None:
            tile = lowered.values[one.result]
            rows, columns = matrix(tile.shape)
            width = BY_NAME[tile.dtype].bytes
            if tile.space == "Vec" and columns == 1 and rows > 1 and rows * width % least:
                what = f"{tile.name} {list(tile.shape)} {tile.dtype}: a column takes {rows * width} bytes"
                yield one.site, f"{what}, not a multiple of {least}", f"Give it a multiple of {least // width} rows."


@rule(
    "misaligned-tile",
    "error",
    "a tile that does not fall on the chip's steps",
    "The cube multiplies blocks of 16, and a column on a vector core is a multiple of 32 bytes.",
    Example(
        "scores = pl.matmul(q, pl.slice(k, [120, 128], [row, 0]), b_trans=True)  # N is 120",
        "scores = pl.matmul(q, pl.slice(k, [128, 128], [row, 0], valid_shape=[120, 128]), b_trans=True)",
    ),
    about="chip",
)
def misaligned_tile(program: Program) -> Iterator[Finding]:
    return problems(misaligned_tile, program, _misaligned)


@rule(
    "pipeline-depth",
    "hint",
    "a pipeline deeper than its buffers",
    "A stage without a buffer of its own waits for the turn before; the loop runs as if it had fewer stages.",
    Example(
        "for k0 in pl.pipeline(0, K, 512, stage=4):  # four tiles of 192 KiB in 512 KiB of Mat",
        "for k0 in pl.pipeline(0, K, 512, stage=2):",
    ),
)
def pipeline_depth(program: Program) -> Iterator[Finding]:
    """One finding per function and space, about the largest tile that had to give up depth."""
    for usage in usages(program.planned.values()):
        space = usage.space
        # Left, Right and Acc are filled as the compiler sees fit; what does not fit at all is an error of its own
        if space.space not in ("Mat", "Vec") or not space.shallow or not space.fits:
            continue
        worst = max(space.shallow, key=lambda one: one.value.bytes)
        sites = {one: program.site_in(usage.body.lowered, one.value.site) for one in space.shallow}
        others = len(space.shallow) - 1
        beside = f", and {many(others, 'more tile')} likewise" if others else ""
        tile = f"{worst.value.name} {list(worst.value.shape)} {worst.value.dtype}"
        room = (space.limit - space.reserved) // worst.wanted
        yield pipeline_depth.at(
            sites[worst],
            f"{tile} has {many(worst.got, 'buffer')} in {space.space} for {worst.wanted} turns in flight{beside}: "
            "turns wait for each other",
            f"Make the tiles of a turn smaller (together at most {room:,} bytes of {space.space}), or ask for fewer "
            "stages.",
            kernel=usage.body.kernel,
            also=[site for one, site in sites.items() if one.value.site != worst.value.site],
        )


LEAST_TURNS = 3


@rule(
    "unpipelined-k",
    "warning",
    "a loop of matmuls without a pipeline",
    "With one buffer per operand the cube idles while the next tiles are loaded, and the loads wait for the cube. "
    "Reported from three turns on, where the memory plan has room for two turns' tiles.",
    Example(
        "for k0 in pl.range(128, K, 128):\n    acc = pl.matmul_acc(acc, x[:, k0 : k0 + 128], w[k0 : k0 + 128, :])",
        "for k0 in pl.pipeline(128, K, 128, stage=2):\n"
        "    acc = pl.matmul_acc(acc, x[:, k0 : k0 + 128], w[k0 : k0 + 128, :])",
        "FLOPs during which nothing is loaded, or bytes during which nothing is multiplied",
    ),
    without="hidden",
)
def unpipelined_k(program: Program) -> Iterator[Finding]:
    if "Mat" not in program.device.space:
        return
    loops: dict[tuple[int, int, tuple[int, ...]], list[StepPlace]] = defaultdict(list)
    for place in places(program):
        step = place.step
        if step.op.plane == "cube" and step.around and step.around[-1].loop.kind == "range":
            loops[id(place.launch), place.body, step.loops].append(place)
    planned: dict[tuple[str, int], SpacePlan | None] = {}  # by kernel and loop: its bodies are much alike
    for steps in loops.values():
        launch, flow, first = steps[0].launch, steps[0].flow, steps[0].step
        loop = first.around[-1].loop
        loads = _loop_loads(flow, [place.step for place in steps])
        if (
            loop.turns < LEAST_TURNS
            or not loads
            or _has_a_better_one(flow, first)
            or _stores_what_it_loads(flow, loads)
        ):
            continue
        if (launch.kernel, loop.site) not in planned:
            planned[launch.kernel, loop.site] = _mat_when_pipelined(program, launch, steps[0].body, loop)
        if (mat := planned[launch.kernel, loop.site]) is None:
            continue
        blocks = steps[0].runs // first.times
        loaded = blocks * sum(tile_bytes(load.result) * load.times for load in loads)
        flops = sum(place.step.op.flops * place.runs for place in steps)
        peak = program.device.peak("cube", "bf16")
        load_bound = peak is not None and loaded / program.device.reached_bandwidth > flops / peak
        entries = blocks * first.times // first.around[-1].count
        each = f"{loaded // (entries * loop.turns):,} bytes a turn"
        site = program.site(loop.site)
        yield unpipelined_k.at(
            site,
            f"{loop.turns} turns of matmul each wait for their own loads ({each})",
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
    def changed(loop: Repeat) -> Repeat:
        loop = replace(loop, items=_two_stages(loop.items, site))
        return replace(loop, kind="pipeline", stage=2) if loop.site == site else loop

    return tuple(changed(item) if isinstance(item, Repeat) else item for item in items)


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


def _stores_what_it_loads(flow: Flow, loads: list[Step]) -> bool:
    """Whether an iteration may load what the one before has stored."""
    arguments = {access.argument for load in loads for access in load.op.accesses}
    return any(
        access.argument in arguments
        for step in flow.steps
        if step.stores and step.loops[: len(loads[0].loops)] == loads[0].loops
        for access in step.op.accesses
    )


Block = tuple[int, int]  # task, block


@rule(
    "l2-overflow",
    "hint",
    "a working set beyond L2",
    "What is read again soon comes from L2; after more than its size has passed it comes from memory again.",
    Example(
        "for n0 in pl.range(0, N, 256):  # every turn reads all of x, which L2 cannot keep beside the weights",
        "for n0 in pl.range(0, N, 1024):",
        "bytes read from memory again",
    ),
)
def l2_overflow(program: Program) -> Iterator[Finding]:
    l2 = program.device.memory.l2
    if l2 is None:
        return
    traffic = traffic_of(program)
    for buffer in traffic.touching:
        uses = traffic.uses_of(buffer)
        total = sum(use.read for use in uses)
        again = total - _buffer_bytes(program, buffer)
        if again < l2.value or (reads := _read_twice(program, buffer)) is None:
            continue
        between = _moved_between(program, *reads)
        if between > l2.value:
            use = max(uses, key=lambda use: use.read)
            kernel, name = program.launches[traffic.launch[use.task]].kernel, tensor_name(program, buffer)
            yield l2_overflow.at(
                access_site(program, use, "read"),
                f"{short_name(kernel)} reads {size(total)} of {name}, which has {size(total - again)}; about "
                f"{size(between)} pass before the same tiles are read again, more than L2 ({size(l2.value)}) can keep",
                f"Order the loops so that all that needs a tile of {name} comes together, or take more rows per tile.",
                kernel=kernel,
                severity=severity(program, Waste(bytes=again)),
                waste=Waste(bytes=again),
            )


def _buffer_bytes(program: Program, buffer: int) -> int:
    found = program.recording.buffers[buffer]
    return BY_NAME[found.dtype].size(prod(found.shape))


def _read_twice(program: Program, buffer: int) -> tuple[Block, Block] | None:
    """The first block that reads the tensor, and the next that reads the same tiles of it."""
    first: dict[bytes, Block] = {}
    for task in traffic_of(program).touching[buffer]:
        arguments = {use.argument for use in traffic_of(program).uses_of(buffer, [task]) if use.read}
        for group in program.recording.tasks[task].groups:
            plan = accesses_of(program.recording.bodies[group.body])
            reads = [n for n, (_, a, _) in enumerate(plan) if a.argument in arguments and a.mode == "read"]
            for n, block in enumerate(group.blocks.tolist()):
                places = [group.offsets[k][..., min(n, group.offsets[k].shape[-1] - 1)] for k in reads]
                tiles = b"".join(place.tobytes() for place in places)
                if not first:
                    first[tiles] = (task, block)
                elif tiles in first:
                    return first[tiles], (task, block)
    return None


def _moved_between(program: Program, one: Block, other: Block) -> float:
    """Bytes that pass between two reads: of every tensor what is moved, at most the whole of it."""
    moved: dict[int, float] = defaultdict(float)
    (first, begin), (second, end) = one, other
    for task in range(first, second + 1):
        blocks = max(program.recording.tasks[task].blocks, 1)
        part = ((end if task == second else blocks) - (begin + 1 if task == first else 0)) / blocks
        for use in traffic_of(program).uses(task):
            moved[use.buffer] += part * (use.read + use.written)
    return sum(min(bytes_moved, _buffer_bytes(program, buffer)) for buffer, bytes_moved in moved.items())
