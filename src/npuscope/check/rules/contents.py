"""What GM holds when it is read: zeros written for nothing (zero-fill), nothing at all (uninitialised-read), or what a
store past the end of another tensor left (past-the-end).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from npuscope.check.dataflow import (
    SAME,
    Flow,
    StepPlace,
    acc_of,
    flows_of,
    places,
    shown,
    sum_in_gm,
    sums,
    tile_bytes,
    zero_of,
)
from npuscope.check.gm_traffic import timeline, traffic_of
from npuscope.check.phrases import region_text
from npuscope.check.races.conflicts import Lines, classes_of, regions_of
from npuscope.check.rule import Example, Finding, Waste, rule
from npuscope.lower.program import Program
from npuscope.ops.spec import OpRole
from npuscope.tile.graph.boxes import Offsets
from npuscope.tile.graph.exact import Region
from npuscope.tile.record import model
from npuscope.tile.record.model import Buffer, short_name
from npuscope.tile.record.walk import Step

SOON = 256  # tasks
Fate = Literal["needed", "summed", "added once", "overwritten"]
FATES: tuple[Fate, ...] = get_args(Fate)  # of zeros that met several, the first counts
WAYS: dict[Fate, str] = {
    "overwritten": "that later writes replace unread",
    "summed": "that are read back only to add the first product to them",
    "added once": "that meet one atomic add each",
}
FIXES: dict[Fate, str] = {
    "overwritten": "Leave the zeros out: the tasks that follow write every element.",
    "summed": "Leave the zeros out: let the first step store its product (pl.matmul) and only later ones add.",
    "added once": "Leave the zeros out and store without atomic=: nothing else is added.",
}


@rule(
    "zero-fill",
    "warning",
    "zeros that need not be written",
    "A first product written in place of the zeros saves the tasks, the stores and the first read. Zeros that several "
    "atomic adds meet are needed: split-K tasks add in any order, and a first one that stores would have the others "
    "wait for it.",
    Example(
        "acc = pl.full([16, 64], dtype=pl.FP32, value=0.0)\n"
        "for k0 in pl.range(0, K, 128):\n"
        "    acc = pl.add(acc, pl.matmul(x[:, k0 : k0 + 128], w[k0 : k0 + 128, :]))",
        "acc = pl.matmul(x[:, 0:128], w[0:128, :], out_dtype=pl.FP32)\n"
        "for k0 in pl.range(128, K, 128):\n"
        "    acc = pl.matmul_acc(acc, x[:, k0 : k0 + 128], w[k0 : k0 + 128, :])",
        "bytes of zeros written and read, tasks that do nothing else",
    ),
    without="gone",
)
def zero_fill(program: Program) -> Iterator[Finding]:
    fates: dict[int, dict[tuple[int, int], Fate]] = {}  # by buffer, of what each body's step wrote
    together: dict[tuple[int, int], list[tuple[StepPlace, Fate]]] = defaultdict(list)
    zeros = [(place, zero) for place in places(program) if (zero := zero_of(place.flow, place.step)) is not None]
    bodies = {place.body for place, _ in zeros}
    for place, zero in zeros:
        (access,) = place.step.op.accesses
        root = traffic_of(program).placement.root(place.argument(access).buffer)
        if root not in fates:
            fates[root] = _fates(program, root, bodies)
        fate = fates[root].get((place.body, place.step.number), "needed")
        if fate != "needed":
            together[id(place.launch), zero.number].append((place, fate))
    yield from map(_written, together.values())
    yield from _on_chip(program)


def _written(written: list[tuple[StepPlace, Fate]]) -> Finding:
    place, fate = written[0]
    stores = [step for step in place.flow.steps if step.op.plane == "store"]
    only = len(stores) == len(written) and not any(s.op.plane in ("load", "cube") for s in place.flow.steps)
    tasks = len(place.launch.tasks) if only else 0
    names = {}
    waste = Waste(tasks=tasks)
    for other, way in written:
        (access,) = other.step.op.accesses
        names[other.buffer(access).name] = WAYS[way]
        waste += Waste(bytes=(2 if way == "summed" else 1) * other.bytes(access) * other.runs)
    ways = dict.fromkeys(names.values())
    which = [f"{' and '.join(n for n in names if names[n] == way)} {way}" for way in ways]
    zero = zero_of(place.flow, place.step)
    assert zero is not None
    seed = place.other(zero)
    extra = f"; {tasks} task{'s do' if tasks != 1 else ' does'} nothing else" if tasks else ""
    return zero_fill.at(
        seed.site,
        f"writes zeros to {'; and to '.join(which)}{extra}",
        FIXES[fate],
        kernel=seed.kernel,
        severity="warning" if tasks else "hint",
        waste=waste,
        count=seed.runs,
        also=[o.site for o, _ in written],
    )


def _fates(program: Program, buffer: int, bodies: set[int]) -> dict[tuple[int, int], Fate]:
    """What became of the zeros in a buffer, per body and step that wrote some; `bodies` are those that write zeros.

    Looks as far as it must: most zeros are met soon after the last of them, whatever thousand tasks come later.
    """
    tasks = traffic_of(program).touching[buffer]
    records = program.recording.tasks
    marked = [n for n, task in enumerate(tasks) if any(group.body in bodies for group in records[task].groups)]
    first, end = marked[0], marked[-1] + 1 + SOON
    while True:
        found, unmet = _followed(program, buffer, tasks[first:end], to_the_end=end >= len(tasks))
        if not unmet or end >= len(tasks):
            return found
        end += end - first


def _followed(
    program: Program, buffer: int, tasks: Sequence[int], to_the_end: bool
) -> tuple[dict[tuple[int, int], Fate], bool]:
    """What these tasks did with the zeros that they wrote, and whether some are still there."""
    touches, count = timeline(program, buffer, tasks)
    sources: list[tuple[int, int]] = []
    fates: list[set[Fate]] = []
    state = np.full(count, -1, np.int64)  # whose zeros a cell holds
    adds = np.zeros(count, np.int64)

    def met(cells: Offsets, way: Fate | None) -> None:
        """Somebody reads (way None: as values) or replaces the cells; what was added meanwhile counts first."""
        for number in np.unique(state[cells]).tolist():
            if number < 0:
                continue
            most = int(np.max(adds[cells][state[cells] == number]))
            fates[number].add("needed" if most > 1 else "added once" if most else way or "needed")

    for touch in touches:
        mode, cells = touch.access.mode, touch.cells
        flow = flows_of(program)[touch.body]
        if mode == "add":
            np.add.at(adds, cells, 1)
        elif mode == "read":
            met(cells, "summed" if _adds_to_it(flow, touch.step) else None)
        else:
            met(cells, "overwritten")
            state[cells] = -1
            adds[cells] = 0
            if zero_of(flow, touch.step) is not None:
                source = (touch.body, touch.step.number)
                if source not in sources:
                    sources.append(source)
                    fates.append(set())
                state[cells] = sources.index(source)
    unmet = np.flatnonzero(state >= 0)
    if to_the_end and len(unmet):
        met(unmet, None)
    first = [next((fate for fate in FATES if fate in fates_met), FATES[0]) for fates_met in fates]
    return dict(zip(sources, first, strict=True)), len(unmet) > 0


def _adds_to_it(flow: Flow, load: Step) -> bool:
    """Whether what a step loads is only ever the start of a sum that goes back where it came from."""
    uses = flow.uses(load, SAME)
    return bool(uses) and all(
        use.op.spec.is_a(OpRole.SUM)
        and any((held := sum_in_gm(flow, use, acc)) is not None and held[0] is load for acc in range(len(use.operands)))
        for use in uses
    )


def _on_chip(program: Program) -> Iterator[Finding]:
    for place in places(program):
        step, flow = place.step, place.flow
        acc = 0 if step.op.plane == "cube" and step.operands[0].makers else acc_of(flow, step)
        if acc is None or (step.op.plane != "cube" and not sums(flow, step, acc)):
            continue
        seeds = (maker for maker in flow.makers(step, acc, SAME) if maker.number in flow.zeros)
        for seed in map(place.other, seeds):
            yield zero_fill.at(
                seed.site,
                f"starts a sum of products {shown(seed.step.result)} from zeros",
                "Let the first step be pl.matmul, which needs no start.",
                kernel=seed.kernel,
                severity="hint",
                waste=Waste(bytes=tile_bytes(seed.step.result) * seed.runs),
                count=seed.runs,
                also=[place.site],
            )


@rule(
    "uninitialised-read",
    "warning",
    "a read of GM that nobody has written",
    "Memory of create_tensor and of an output is not cleared: a read before the first write finds anything.",
    Example(
        "padded = pl.create_tensor([16, 128], dtype=pl.BF16)\n"
        "padded = pl.assemble(padded, heads, [0, 0])  # 8 rows\n"
        "tile = pl.slice(padded, [16, 128], [0, 0])",
        "padded = pl.create_tensor([16, 128], dtype=pl.BF16)\n"
        "padded = pl.assemble(padded, heads, [0, 0])  # 8 rows\n"
        "tile = pl.slice(padded, [16, 128], [0, 0], valid_shape=[8, 128])",
    ),
)
def uninitialised_read(program: Program) -> Iterator[Finding]:
    recording, written = program.recording, regions_of(program)
    lines = Lines(recording)
    placement = lines.placement
    readers: dict[int, set[int]] = defaultdict(set)  # of each buffer that nobody writes
    for task in recording.tasks:
        for root in (placement.root(argument.buffer) for argument in task.arguments if argument.reads):
            if root not in written:
                readers[root].add(task.id)
    found: dict[tuple[int, str, bool], Finding] = {}
    counts: Counter[tuple[int, str, bool]] = Counter()
    for buffer in recording.buffers:
        starts_empty = not buffer.filled and (buffer.origin == "created" or buffer.direction == "Out")
        if buffer.id in placement.parts or not starts_empty:
            continue
        known = written.get(buffer.id, [])
        suspects = {known[n].task for n, _ in _unwritten(program, known)} if known else readers[buffer.id]
        tasks = sorted({region.task for region in known} | suspects) if suspects else []
        touched = [pair for task in tasks for pair in lines.of(task, (buffer.id,))]
        for n, partly in _unwritten(program, [region for region, _ in touched]) if touched else ():
            region, site = touched[n]
            key = (site, recording.tasks[region.task].kernel, partly)
            counts[key] += 1
            if key not in found:
                found[key] = _unwritten_finding(program, buffer, region, site, partly)
    for key, finding in found.items():
        yield replace(finding, count=counts[key])


def _unwritten(program: Program, regions: Sequence[Region]) -> list[tuple[int, bool]]:
    """Regions read of which an element was not written before, and whether another was."""
    unwritten: set[int] = set()
    filled: set[int] = set()
    for found in classes_of(program).of(regions):
        writer = next((regions[n].task for n in found if regions[n].mode == "write"), None)
        for n in found:
            if regions[n].reads:
                (unwritten if writer is None or regions[n].task < writer else filled).add(n)
    return [(n, n in filled) for n in sorted(unwritten)]


def _unwritten_finding(program: Program, buffer: Buffer, region: Region, site: int, partly: bool) -> Finding:
    kernel = program.recording.tasks[region.task].kernel
    place = region_text(buffer, region.shape, region.strides, region.offsets.tolist())
    before = "some of it was never written before" if partly else "nothing has written it before"
    fix = f"Write {buffer.name} first, or give its create_tensor an init_value."
    if buffer.origin == "parameter":
        fix = f"Declare {buffer.name} pl.InOut if its old contents are wanted, else write it first."
    return uninitialised_read.at(
        program.site(site),
        f"{short_name(kernel)} reads {place}, and {before}: what is there is left from something else",
        fix,
        kernel=kernel,
        severity="hint" if partly else uninitialised_read.severity,
        also=[program.site(buffer.site)],
    )


@rule(
    "past-the-end",
    "error",
    "a store runs past the end of its tensor",
    "The chip checks no bounds: what lies behind the tensor's end is overwritten, be it rows of the same tensor or "
    "another tensor. The program may run and even pass where nobody reads what was lost.",
    Example(
        "out = pl.store(pl.add(x, y), [ROWS - 8, 0], out)  # a tile of 16 rows",
        "out = pl.store(pl.add(x, y), [ROWS - 16, 0], out)",
    ),
    about="quality",
)
def past_the_end(program: Program) -> Iterator[Finding]:
    recording = program.recording
    for found in recording.notices:
        if found.kind == model.PAST_THE_END:
            yield past_the_end.at(
                recording.sites[found.site],
                f"{found.message} ({found.bytes:,} B)",
                "Mend the offset, or narrow what is stored with valid_shape or a smaller slice.",
                count=found.count,
            )
