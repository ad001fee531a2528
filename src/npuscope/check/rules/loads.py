"""Loads that need not be: the same memory again (shared-load), or a tile that nothing is made of (unused-load)."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from math import prod
from typing import NamedTuple

import numpy as np

from npuscope.check.dataflow import Flow, flows_of, places, shown
from npuscope.check.fusable import fusable, nothing_between, room
from npuscope.check.gm_traffic import Use, traffic_of
from npuscope.check.phrases import listed, size, tensor_name
from npuscope.check.rule import Example, Finding, Waste, rule
from npuscope.lower.program import KernelLaunch, Program
from npuscope.lower.source import read, statement_at
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile.graph.boxes import Offsets
from npuscope.tile.graph.exact import exact_accesses
from npuscope.tile.record.model import Access, Op, Site, Task, short_name
from npuscope.tile.record.walk import Counts, accesses_of

SHARE = 0.05  # of what a kernel reads: less is not worth a change
RELOADED = 0.1
TileKind = tuple[tuple[int, ...], tuple[int, ...]]  # shape and strides of a tile


@rule(
    "shared-load",
    "hint",
    "the same memory loaded again",
    "A tile that two products need can be loaded once for both, one that a loop needs every turn before the loop.",
    Example(
        "with pl.at(level=CORE):\n"
        "    k = pl.matmul(pl.slice(normed, [16, 128], [0, 0]), wk_tile)\n"
        "with pl.at(level=CORE):\n"
        "    v = pl.matmul(pl.slice(normed, [16, 128], [0, 0]), wv_tile)",
        "with pl.at(level=CORE):\n"
        "    x = pl.slice(normed, [16, 128], [0, 0])\n"
        "    k = pl.matmul(x, wk_tile)\n"
        "    v = pl.matmul(x, wv_tile)",
        "bytes loaded again",
    ),
)
def shared_load(program: Program) -> Iterator[Finding]:
    joined = {frozenset(pair) for found in fusable(program) for pair in combinations(found.launches, 2)}
    known: set[Use] = set()
    ours = [launch for launch in program.launches if program.first_task(launch).form not in ("extern", "dummy")]
    for a, b in combinations(ours, 2):
        if (a.blocks, len(a.tasks)) != (b.blocks, len(b.tasks)):
            continue
        uses = [use for use in _read_by_both(program, a, b) if use not in known]
        if not uses or not _turn_by_turn(program, a, b):
            continue
        independent = _independent(program, a.tasks[0], b.tasks[0])
        if not independent:
            fits = room(program, "Vec") * b.blocks
            uses = [use for use in uses if frozenset((a, b)) in joined and use.read <= fits]
        ends = {(a.tasks[0], b.tasks[0]), (a.tasks[-1], b.tasks[-1])}
        uses = [u for u in uses if all(_tiles(program, u.buffer, i) == _tiles(program, u.buffer, j) for i, j in ends)]
        if uses:
            known.update(uses)
            yield _shared(program, a, b, uses, independent)
    for number, launch in enumerate(program.launches):
        loads = list(_loads(program, program.first_task(launch)))
        yield from _every_turn(program, number, loads)
        yield from _for_few_columns(program, number, loads)


def _read_by_both(program: Program, a: KernelLaunch, b: KernelLaunch) -> list[Use]:
    """Arguments of the second by which it loads much of a tensor that the first only loads as well."""
    ours, theirs = (traffic_of(program).uses(launch.tasks[0]) for launch in (a, b))
    loaded = {use.buffer for use in ours if use.read and not use.written}
    much = max(SHARE * sum(use.read for use in theirs), _line(program) * b.blocks)
    return [use for use in theirs if use.buffer in loaded and not use.written and use.read >= much]


def _turn_by_turn(program: Program, a: KernelLaunch, b: KernelLaunch) -> bool:
    """Whether the n-th tasks of both stand in equal turns of equal or neighbouring loops, for all n."""
    tasks = program.recording.tasks
    return all(
        [(t.kind, t.turn) for t in tasks[i].turns] == [(t.kind, t.turn) for t in tasks[j].turns]
        for i, j in zip(a.tasks, b.tasks, strict=True)
    )


def _tiles(program: Program, buffer: int, task: int) -> dict[TileKind, bytes]:
    """What a task reads of a tensor, block by block."""
    found: dict[TileKind, list[Offsets]] = defaultdict(list)
    for touched in exact_accesses(program.recording, program.recording.tasks[task]):
        if touched.mode == "read" and touched.buffer == buffer:
            found[touched.shape, touched.strides].append(np.stack([touched.blocks, touched.offsets]))
    return {kind: np.unique(np.concatenate(places, axis=1), axis=1).tobytes() for kind, places in found.items()}


def _independent(program: Program, a: int, b: int) -> bool:
    """Whether neither task waits for the other, directly or through others."""
    wrote = {use.buffer for use in traffic_of(program).uses(a) if use.written}
    reads = any(use.read and use.buffer in wrote for use in traffic_of(program).uses(b))
    return not reads and a not in program.recording.tasks[b].deps and nothing_between(program, {a, b})


def _line(program: Program) -> float:
    """Bytes below which a transfer is not worth talking about: a line of memory."""
    return program.device.core["gm_line"].value if "gm_line" in program.device.core else 0.0


def _shared(program: Program, a: KernelLaunch, b: KernelLaunch, uses: list[Use], independent: bool) -> Finding:
    read = sum(use.read for use in uses)
    share = read / sum(use.read for use in traffic_of(program).uses(uses[0].task))
    names = listed(tensor_name(program, use.buffer) for use in uses)
    first, second = short_name(a.kernel), short_name(b.kernel)
    site, other = program.site(b.site), program.site(a.site)
    waste = Waste(bytes=read * len(b.tasks))
    part = f"{size(waste.bytes)} for the second time, {share:.0%} of what {second} reads"
    if independent:
        message = f"{first} (line {other.line}) and {second} load the same tiles of {names}: {part}"
        fix = f"Compute both in one region, so that one load of each tile of {names} serves both."
    else:
        message = f"{second} loads the tiles of {names} again that {first} (line {other.line}) had: {part}"
        fix = f"Make {first} and {second} one region and keep the tile of {names} on chip."
    return shared_load.at(site, message, fix, kernel=b.kernel, waste=waste, count=len(b.tasks), also=[other])


# --- within one kernel


class TileLoad(NamedTuple):
    """An access of a task that reads a tile of a tensor it does not write."""

    op: Op
    counts: Counts
    access: Access
    offsets: Offsets
    bytes: int  # of one tile
    times: int  # over all blocks of the task


def _loads(program: Program, task: Task) -> Iterator[TileLoad]:
    recording = program.recording
    for group in task.groups:
        plan = accesses_of(recording.bodies[group.body])
        for (op, access, counts), offsets in zip(plan, group.offsets, strict=True):
            argument = task.arguments[access.argument]
            if access.mode == "read" and op.plane != "scalar" and not argument.writes:
                kind = BY_NAME[recording.buffers[argument.buffer].dtype]
                times = prod(counts) * len(group.blocks)
                yield TileLoad(op, counts, access, offsets, kind.size(access.elements), times)


def _every_turn(program: Program, number: int, loads: list[TileLoad]) -> Iterator[Finding]:
    """Loads whose place does not change in the innermost loop around them."""
    launch = program.launches[number]
    reads = sum(traffic_of(program).moved[number].read.values())
    for load in loads:
        turns = load.counts[-1] if load.counts else 1
        again = load.bytes * (load.times - load.times // turns)
        fits = _line(program) <= load.bytes <= room(program, "Vec" if launch.core == "AIV" else "Mat")
        if turns > 1 and fits and again >= SHARE * reads and not _changes_place(load):
            name = tensor_name(program, program.first_task(launch).arguments[load.access.argument].buffer)
            yield shared_load.at(
                program.site(load.op.site),
                f"the same {size(load.bytes)} of {name} are loaded in each of {turns} turns of a loop",
                f"Load the tile of {name} once, before the loop.",
                kernel=launch.kernel,
                waste=Waste(bytes=again * len(launch.tasks)),
                count=len(launch.tasks),
            )


def _changes_place(load: TileLoad) -> bool:
    """Whether the place changes along the innermost loop: its axis is the first, if there are as many as loops."""
    if load.offsets.ndim <= len(load.counts):
        return False
    return bool(np.any(load.offsets != load.offsets[:1]))


def _for_few_columns(program: Program, number: int, loads: list[TileLoad]) -> Iterator[Finding]:
    """An operand that every block of every task loads whole, for columns that do not fill a line."""
    launch, moved = program.launches[number], traffic_of(program).moved[number]
    blocks = len(launch.tasks) * launch.blocks
    reads = sum(moved.read.values())
    if not moved.flops or blocks < 2:
        return
    rows = {load.access.argument: load.bytes // prod(load.access.shape[:-1]) for load in loads if load.bytes}
    most = max(moved.read.values())
    streamed = [argument for argument in rows if moved.read[argument] == most]
    if not streamed or rows[streamed[0]] >= _line(program) or not _part_of_a_row(program, launch, loads, streamed[0]):
        return
    for argument in rows:
        if argument in streamed or moved.read[argument] < RELOADED * reads:
            continue
        places = {_places(program, program.recording.tasks[task], argument) for task in launch.tasks}
        tensors = {place[0] for place in places if place is not None}
        if None in places or len(tensors) < len(places):
            continue
        here = [load for load in loads if load.access.argument == argument]
        whole = sum(np.unique(load.offsets).size * load.bytes for load in here) * len(tensors)
        times = moved.read[argument] * len(launch.tasks) // whole
        arguments = program.first_task(launch).arguments
        name = tensor_name(program, arguments[argument].buffer)
        others = listed(tensor_name(program, arguments[n].buffer) for n in streamed)
        if times > 1:
            yield shared_load.at(
                program.site(here[0].op.site),
                f"{name} ({size(whole / len(tensors))}) is loaded {times:,} times, once for every {rows[streamed[0]]} "
                f"bytes of the rows of {others}: {moved.read[argument] / reads:.0%} of what the kernel reads",
                f"Take wider tiles of {others}, {_line(program):.0f} bytes a row or more, to load {name} less often.",
                kernel=launch.kernel,
                waste=Waste(bytes=moved.read[argument] * len(launch.tasks) - whole),
                count=len(launch.tasks),
            )


def _part_of_a_row(program: Program, launch: KernelLaunch, loads: list[TileLoad], argument: int) -> bool:
    """Whether tiles of an argument could be wider: it has longer rows."""
    width = program.first_task(launch).arguments[argument].shape[-1]
    return all(load.access.shape[-1] < width for load in loads if load.access.argument == argument)


def _places(program: Program, task: Task, argument: int) -> tuple[int, bytes] | None:
    """Where every block of a task loads an argument's tensor; None where blocks do not do the same."""
    if len(task.groups) != 1:
        return None
    (group,) = task.groups
    found = b""
    plan = accesses_of(program.recording.bodies[group.body])
    for (_, access, _), offsets in zip(plan, group.offsets, strict=True):
        if access.argument == argument:
            if np.any(offsets != offsets[..., :1]):
                return None
            found += offsets[..., :1].tobytes()
    return task.arguments[argument].buffer, found


@rule(
    "unused-load",
    "hint",
    "a load without a use",
    "It takes time and a buffer, and often shows that something else was meant.",
    Example(
        "k_tile = pl.load(k, [0, 0], [128, 128])  # never used",
        "# leave it out",
        "bytes loaded",
    ),
)
def unused_load(program: Program) -> Iterator[Finding]:
    needed = {id(flow): _needed(flow) for flow in flows_of(program)}
    for place in places(program):
        step = place.step
        if not step.loads or step.op.result is None:
            continue
        if step.number in needed[id(place.flow)] or _read_later(place.site):
            continue
        (access,) = step.op.accesses
        yield unused_load.at(
            place.site,
            f"loads {shown(step.result)} of {place.buffer(access).name} and makes nothing of it",
            "Drop the load, or the task that it was meant for is missing something.",
            kernel=place.kernel,
            waste=Waste(bytes=place.bytes(access) * place.runs),
            count=place.runs,
        )


def _read_later(site: Site) -> bool:
    """Whether the source reads the name that the tile is given: in a branch or loop that did not run. True where the
    tile has no name of its own to look for.
    """
    statement = statement_at(site)
    if not isinstance(statement, ast.Assign) or not all(isinstance(t, ast.Name) for t in statement.targets):
        return True
    given = {target.id for target in statement.targets if isinstance(target, ast.Name)}
    source = read(site.file)
    return source is not None and any(
        isinstance(node, ast.Name) and node.id in given and isinstance(node.ctx, ast.Load) for node in source.nodes
    )


def _needed(flow: Flow) -> set[int]:
    """The steps that stores, scalars and barriers depend on, and those themselves."""
    ends = [step.number for step in flow.steps if step.op.result is None or step.op.plane in ("store", "sync")]
    return set(flow.behind(ends))
