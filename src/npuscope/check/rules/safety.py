"""Programs that may hang or give other results by chance: race, shared-line, ring-deadlock, syncall-occupancy."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from npuscope.check.dataflow import flows_of
from npuscope.check.gm_traffic import cores_of
from npuscope.check.memory_use import Problem, problems
from npuscope.check.races import Race, races
from npuscope.check.races.conflicts import order_of
from npuscope.check.races.detect import Phased, phased
from npuscope.check.rule import Example, Finding, Rule, Waste, rule
from npuscope.lower.program import PlannedBody, Program
from npuscope.lower.rings import FUNCTION, RingEntry, ScopePath, entries_of, graph_calls, limits_of
from npuscope.ops.dtypes import BY_NAME
from npuscope.ops.spec import OpRole
from npuscope.tile.graph.boxes import Offsets
from npuscope.tile.record.model import Site
from npuscope.tile.record.recorder import NAMES


def race_finding(race: Race) -> Finding:
    """A race as a finding: at the later access, with the earlier one beside it."""
    first, second = race.sides
    return RACE.at(
        Site(second.file, second.line, ""),
        f"{second.region} of {second.kernel} and {first.region} of {first.kernel}: nothing orders them; {race.why}",
        race.remedy,
        second.kernel,
        count=race.count,
        also=[Site(first.file, first.line, "")],
    )


RACE = Rule(
    "race",
    "error",
    "two accesses of global memory that nothing orders",
    "The runtime makes readers wait for writers, and writers for writers, but no writer for readers, and opt-outs "
    "silence even that. Which of the two comes first is then chance.",
    lambda program: map(race_finding, races(program)),
    Example(
        "with pl.at(level=CORE):\n"
        "    out = pl.assemble(out, pl.slice(tmp, [16, 64], [0, 0]), [0, 0])\n"
        "with pl.at(level=CORE):  # does not wait for the reader above\n"
        "    tmp = pl.assemble(tmp, tile, [0, 0])",
        "with pl.at(level=CORE) as reader:\n"
        "    out = pl.assemble(out, pl.slice(tmp, [16, 64], [0, 0]), [0, 0])\n"
        "with pl.at(level=CORE, deps=[reader]):\n"
        "    tmp = pl.assemble(tmp, tile, [0, 0])",
    ),
)


class _LineWriter(NamedTuple):
    """A block that wrote elements between two barriers at one line of the source; `lines` of GM that they lie in."""

    task: int
    block: int
    phase: int
    site: int
    lines: Offsets


@rule(
    "shared-line",
    "warning",
    "two cores write to one line of GM element by element",
    "pl.write goes through a core's cache, which writes back whole lines: neighbours' elements come back with it.",
    Example(
        "for b in pl.spmd(16):\n    pl.write(lengths, [b], n)  # 16 numbers in one line of 512 bytes",
        "for b in pl.spmd(16):\n    pl.write(lengths, [b, 0], n)  # [16, 128] INT32: a line each",
    ),
)
def shared_line(program: Program) -> Iterator[Finding]:
    if "scalar_line" not in program.device.core:
        return
    size = int(program.device.core["scalar_line"].value)
    for buffer, writers in _writers(program, size).items():
        known = set()
        for one, other in _sharing(program, writers):
            if (one.site, other.site) not in known:
                known.add((one.site, other.site))
                yield _shared_line_finding(program, buffer, one, other, size)


def _writers(program: Program, size: int) -> dict[int, list[_LineWriter]]:
    recording = program.recording

    @cache
    def scalar(body: int) -> list[tuple[int, Phased]]:
        steps = flows_of(program)[body].steps
        if not any(step.op.plane == "scalar" and step.op.accesses for step in steps):
            return []
        plan = phased(steps)
        return [(n, p) for n, p in enumerate(plan) if p.op.plane == "scalar" and p.access.mode == "write"]

    found: dict[int, list[_LineWriter]] = defaultdict(list)
    for task in recording.tasks:
        for group in task.groups:
            for n, (op, access, phase) in scalar(group.body):
                buffer = task.arguments[access.argument].buffer
                lines = group.offsets[n] * BY_NAME[recording.buffers[buffer].dtype].bytes // size
                shape = np.broadcast_shapes(lines.shape, phase.shape, (len(group.blocks),))
                where, when = np.broadcast_to(lines, shape), np.broadcast_to(phase, shape)
                for k, block in enumerate(group.blocks.tolist()):
                    for number in np.unique(when[..., k]).tolist():
                        mine = np.unique(where[..., k][when[..., k] == number])
                        found[buffer].append(_LineWriter(task.id, block, number, op.site, mine))
    return found


def _sharing(program: Program, writers: Sequence[_LineWriter]) -> Iterator[tuple[_LineWriter, _LineWriter]]:
    """Pairs that write to one line and are not ordered: for every writer the first such one before it."""
    owner = np.repeat(np.arange(len(writers)), [len(writer.lines) for writer in writers])
    lines = np.concatenate([writer.lines for writer in writers])
    together = np.lexsort((owner, lines))
    ends = np.flatnonzero(np.diff(lines[together], append=-1)) + 1
    lists = {tuple(part.tolist()) for part in np.split(owner[together], ends) if len(part) > 1}
    for numbers in sorted(lists):
        here = [writers[n] for n in numbers]
        for n, later in enumerate(here):
            before = order_of(program).before[later.task]
            for earlier in here[:n]:
                if earlier.task == later.task:
                    loose = earlier.block != later.block and earlier.phase == later.phase
                else:
                    loose = not before >> earlier.task & 1
                if loose:
                    yield earlier, later
                    break


def _shared_line_finding(program: Program, buffer: int, one: _LineWriter, other: _LineWriter, size: int) -> Finding:
    recording = program.recording
    site, first = recording.sites[other.site], recording.sites[one.site]
    kernels = [recording.tasks[writer.task].kernel for writer in (one, other)]
    name, width = recording.buffers[buffer].name, BY_NAME[recording.buffers[buffer].dtype].bytes
    who = f"blocks {one.block} and {other.block} of {kernels[1]}"
    if one.task != other.task:
        who = f"two tasks of {kernels[1]}" if kernels[0] == kernels[1] else f"{kernels[0]} and {kernels[1]}"
        who += ", which nothing orders,"
    return shared_line.at(
        site,
        f"{who} write elements of one {size}-byte line of {name} by pl.write: a core writes back the whole line, "
        "and what the other put there is lost",
        f"Keep them {size // width} elements apart, let one block write them all, or store them as a tile.",
        kernel=kernels[1],
        also=[] if first == site else [first],
    )


EXCEEDED = {  # limit of the runtime -> what is too much
    "task_window": "{total:,} tasks are submitted in one scope, {limit:,} is one too many",
    "heap": "{total:,} bytes of tensors are made in one scope, its ring has {limit:,}",
    "dep_pool": "tasks of one scope wait for {total:,} others, its ring has room for {limit:,}",
    "tensormap": "{total:,} written tensors are remembered at once, the map has room for {limit:,}",
}
ERROR = {  # what the runtime says then
    "task_window": "SCOPE_DEADLOCK",
    "heap": "HEAP_RING_DEADLOCK",
    "dep_pool": "DEP_POOL_OVERFLOW",
    "tensormap": "TENSORMAP_OVERFLOW",
}


class _Need(NamedTuple):
    """What a task or a tensor takes of one of the runtime's stores, and where it stands."""

    path: ScopePath
    amount: int
    site: int
    kernel: str


def _resident(program: Program) -> Iterator[Finding]:
    """Where the host builds the graph nothing is given back: all of it must fit."""
    tasks, runtime = program.recording.tasks, program.device.runtime
    calls = graph_calls(program)
    nodes = {task.id for call in calls.values() for task in call}
    entries = [entry for entry in entries_of(program) if not entry.is_task or entry.task not in nodes]
    longest = max(calls.values(), key=len, default=[])
    last = tasks[-1] if tasks else None
    written = sum(need.amount for need in _remembered(program, [entry for entry in entries if entry.is_task]))
    needs = [
        ("tasks, allocations and recorded graphs", "task_window", len(entries) + len(calls), last),
        ("bytes of tensors", "heap", sum(entry.bytes for entry in entries), last),
        ("written tensors to remember", "tensormap", written, last),
        ("tasks in one recorded graph", "graph_nodes", len(longest), longest[0] if longest else last),
    ]
    for what, name, needed, place in needs:
        limits = limits_of(program, name) if name in NAMES else (int(runtime[name].value),) if name in runtime else ()
        if limits and needed > limits[0] and place is not None:
            larger = f", or give the run a larger {NAMES[name]} (PTO2_{NAMES[name].upper()})" if name in NAMES else ""
            yield ring_deadlock.at(
                program.site(place.site),
                f"{needed:,} {what}: host_build_graph keeps the whole graph and has room for {limits[0]:,}",
                f"Make equal tasks blocks of one pl.spmd{larger}; or take --runtime tmr.",
                place.kernel,
            )


@rule(
    "ring-deadlock",
    "error",
    "a scope that needs more of the runtime than it can ever get",
    "A scope gives nothing back before it closes, so it must fit its ring: task slots, heap, dependencies.",
    Example(
        "for i in pl.range(20000):  # a scope may have 16384 tasks\n"
        "    with pl.at(level=CORE):\n"
        "        out = pl.assemble(out, pl.slice(x, [1, 64], [i, 0]), [i, 0])",
        "for i in pl.spmd(1250):  # one task\n"
        "    out = pl.assemble(out, pl.slice(x, [16, 64], [i * 16, 0]), [i * 16, 0])",
    ),
)
def ring_deadlock(program: Program) -> Iterator[Finding]:
    if "rings" not in program.device.runtime:
        return
    if "hosted" in program.device.runtime:
        yield from _resident(program)
        return
    entries = list(entries_of(program))
    tasks = [entry for entry in entries if entry.is_task]
    kernels = [task.kernel for task in program.recording.tasks]
    waits = Counter(dst for _, dst in program.graph.pairs)
    stores = {  # an allocation takes a task slot, too
        "task_window": [_Need(e.path, 1, e.site, kernels[e.task] if e.is_task else "") for e in entries],
        "heap": [_Need(e.path, e.bytes, e.site, "") for e in entries if e.bytes],
        "dep_pool": [_Need(e.path, waits[e.task], e.site, kernels[e.task]) for e in tasks],
    }
    for name, needs in stores.items():
        limits = limits_of(program, name)
        if limits and sum(need.amount for need in needs) >= min(limits):
            for path, held in _held(needs, len(limits) - 1).items():
                depth = 0 if path == FUNCTION and not program.recording.auto_scope else len(path)
                yield from _exceeding(program, name, held, limits[min(depth, len(limits) - 1)])
    runtime = {name: int(constant.value) for name, constant in program.device.runtime.items()}
    if "tensormap" in runtime:
        for held in _open(list(_remembered(program, tasks))).values():
            yield from _exceeding(program, "tensormap", held, runtime["tensormap"])
    deepest = max(tasks, key=lambda entry: len(entry.path), default=None)
    if deepest is not None and len(deepest.path) > runtime.get("scope_depth", len(deepest.path)):
        what = f"{len(deepest.path)} scopes are open at once, the runtime allows {runtime['scope_depth']}"
        kernel = kernels[deepest.task]
        fix = "Take loops apart, or put them into the task."
        yield ring_deadlock.at(program.site(deepest.site), what, fix, kernel)


def _exceeding(program: Program, name: str, needs: list[_Need], limit: int) -> Iterator[Finding]:
    room = limit - (name == "task_window")
    for need, used in zip(needs, accumulate(need.amount for need in needs), strict=True):
        if used > room:
            text = EXCEEDED[name].format(total=sum(need.amount for need in needs), limit=limit)
            larger = f", or give the run a larger {NAMES[name]} (PTO2_{NAMES[name].upper()})" if name in NAMES else ""
            fix = f"Split the scope: make a part of it a pl.scope() of its own or the body of a loop{larger}."
            message = f"{text}: here it waits for itself, for ever ({ERROR[name]})"
            yield ring_deadlock.at(program.site(need.site), message, fix, need.kernel)
            return


def _held(needs: list[_Need], shared: int) -> dict[ScopePath, list[_Need]]:
    """What every scope holds of its ring until it closes; those of `shared` depth and deeper are on one."""
    found: dict[ScopePath, list[_Need]] = defaultdict(list)
    for need in needs:
        found[need.path].append(need)
        for depth in range(shared, len(need.path)):
            if (around := need.path[:depth]) in found:
                found[around].append(need)
    return found


def _open(needs: list[_Need]) -> dict[ScopePath, list[_Need]]:
    """What every scope and those around it hold together."""
    by_scope: dict[ScopePath, list[_Need]] = defaultdict(list)
    for need in needs:
        by_scope[need.path].append(need)
    return {path: [n for depth in range(len(path)) for n in by_scope.get(path[: depth + 1], ())] for path in by_scope}


def _remembered(program: Program, tasks: list[RingEntry]) -> Iterator[_Need]:
    """Entries of the map of written tensors."""
    buffers, graph = program.recording.buffers, program.graph
    for entry in tasks:
        task = program.recording.tasks[entry.task]
        if not task.manual_scope:
            ways = zip(graph.directions[task.id], graph.footprints[task.id], strict=True)
            kept = sum(way in ("InOut", "OutputExisting") and not buffers[box.buffer].manual_dep for way, box in ways)
            yield _Need(entry.path, kept, task.site, task.kernel)


@rule(
    "ring-room",
    "warning",
    "a ring of the runtime that is too small to submit ahead",
    "Whoever submits waits where a ring is full: cores that could run the tasks behind it idle. Found where a larger "
    "ring makes the simulated run faster.",
    Example(
        "# PTO2_RING_TASK_WINDOW=64\nfor i in pl.parallel(4096):\n    with pl.at(level=CORE): ...",
        "# PTO2_RING_TASK_WINDOW=1024\nfor i in pl.parallel(4096):\n    with pl.at(level=CORE): ...",
    ),
    without="room",
)
def ring_room(program: Program) -> Iterator[Finding]:
    """A ring that comes round: whoever submits may have to wait for room. What it costs only a simulation knows."""
    if "rings" not in program.device.runtime or "hosted" in program.device.runtime:
        return
    entries = list(entries_of(program))
    kernels = [task.kernel for task in program.recording.tasks]
    for name in ("task_window", "heap"):
        for ring, limit in enumerate(limits_of(program, name)):
            used = 0
            for entry in (one for one in entries if one.ring == ring):
                used += 1 if name == "task_window" else entry.bytes
                if used >= limit + (name == "heap"):
                    what = "task slots" if name == "task_window" else "bytes of heap"
                    yield ring_room.at(
                        program.site(entry.site),
                        f"ring {ring} has {limit:,} {what}, which are all taken here for the first time: what is "
                        "submitted from here on waits until room is given back",
                        f"Give the run a larger {NAMES[name]} (PTO2_{NAMES[name].upper()}; npuscope simulate --rings "
                        "says how large), or close scopes earlier.",
                        kernels[entry.task],
                        waste=Waste(waits=1),
                    )
                    break


def _barriers(body: PlannedBody, program: Program) -> Iterator[Problem]:
    task = program.recording.tasks[body.task]
    for one in body.lowered.instructions:
        if not one.spec.is_a(OpRole.BARRIER) or one.attribute("mode") != "hard":
            continue
        cores = cores_of(program.device, "AIV" if one.attribute("core_type") == "aiv_only" else "AIC")
        if task.blocks != cores or not task.sync_start:
            has = f"{task.blocks} blocks" + ("" if task.sync_start else " without sync_start")
            message = f"a hard syncall waits for all {cores} cores; {task.kernel} has {has}: the device would hang"
            yield one.site, message, f'Launch pl.spmd({cores}, sync_start=True), or use mode="soft" with a workspace.'


@rule(
    "syncall-occupancy",
    "error",
    "a barrier of all cores that not all cores reach",
    "A hard syncall waits for every core of its kind: with fewer blocks, or blocks that do not start together, the "
    "device hangs.",
    Example(
        'for b in pl.spmd(16):\n    pl.system.syncall(mode="hard")',
        'for b in pl.spmd(24, sync_start=True):\n    pl.system.syncall(mode="hard")',
    ),
    about="chip",
)
def syncall_occupancy(program: Program) -> Iterator[Finding]:
    return problems(syncall_occupancy, program, _barriers)
