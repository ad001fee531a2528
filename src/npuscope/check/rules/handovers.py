"""Tensors that cross global memory between tasks that could be one: gm-round-trip, split-halves."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from npuscope.check.fusable import Fusable, fusable
from npuscope.check.gm_traffic import Use, severity, traffic_of
from npuscope.check.phrases import access_site, lines_of, listed, size, tensor_name
from npuscope.check.rule import Example, Finding, Rule, Waste, rule
from npuscope.lower.program import KernelLaunch, Program
from npuscope.table.formats import many
from npuscope.tile.record.model import short_name


@rule(
    "gm-round-trip",
    "warning",
    "tensors between tasks that could be one",
    "What one task writes to global memory and the next reads back costs both transfers, a dispatch and the wait "
    "for it; in one task it stays on chip.",
    Example(
        "with pl.at(level=CORE):\n"
        "    scores = pl.matmul(q, k, b_trans=True, out_dtype=pl.FP32)\n"
        "with pl.at(level=CORE):\n"
        "    weights = pl.exp(scores)",
        "with pl.at(level=CORE):\n"
        "    scores = pl.matmul(q, k, b_trans=True, out_dtype=pl.FP32)\n"
        "    weights = pl.exp(scores)",
        "bytes written and read back, tasks saved",
    ),
    without="one task",
)
def gm_round_trip(program: Program) -> Iterator[Finding]:
    what = "{tasks} tasks{often} hand over through GM what one could keep on chip"
    for together in _handed_over(program):
        if not _are_halves(together):
            yield _handover_finding(gm_round_trip, program, together, what)
    traffic = traffic_of(program)
    alike: dict[tuple[tuple[int, int], ...], list[int]] = defaultdict(list)
    for buffer, tasks in traffic.touching.items():
        if program.recording.buffers[buffer].origin != "parameter" and len(tasks) >= 4:
            launches = Counter(traffic.launch[task] for task in tasks)
            alike[tuple(launches.items())].append(buffer)
    for buffers in alike.values():
        yield from _across_tiles(program, buffers)


def _across_tiles(program: Program, buffers: list[int]) -> Iterator[Finding]:
    """Tensors written in tiles by many tasks and read across them by many; of several that are used alike the first.

    Each reader waits for several tasks and uses a part of what each wrote.
    """
    traffic, buffer = traffic_of(program), buffers[0]
    writers, readers = _users(program, buffer)
    if not writers or not readers:
        return
    sources: dict[int, set[int]] = defaultdict(set)
    for edge in traffic.conflicts(traffic.touching[buffer]):
        if edge.hazard == "raw" and edge.buffer == buffer:
            sources[edge.dst].add(edge.src)
    for launch, uses in readers.items():
        makers = {traffic.launch[task] for task in sources[uses[0].task]}
        if len(makers) == 1 and makers <= writers.keys():
            wrote = writers[makers.pop()]
            parts = [use for use in wrote if use.task in sources[uses[0].task]]
            if len(parts) > 1 and 2 * uses[0].read <= sum(part.written for part in parts):
                yield _across_finding(program, buffers, wrote, uses, len(parts), program.launches[launch])


def _users(program: Program, buffer: int) -> tuple[dict[int, list[Use]], dict[int, list[Use]]]:
    """Launches of which several tasks write the tensor (no atomic adds), and of which several only read it."""
    traffic = traffic_of(program)
    writers: dict[int, list[Use]] = defaultdict(list)
    readers: dict[int, list[Use]] = defaultdict(list)
    for use in traffic.uses_of(buffer):
        launch = traffic.launch[use.task]
        if use.written and not use.read and use.argument not in traffic.moved[launch].added:
            writers[launch].append(use)
        elif not use.written:
            readers[launch].append(use)
    several = [{launch: uses for launch, uses in of.items() if len(uses) > 1} for of in (writers, readers)]
    return several[0], several[1]


def _across_finding(
    program: Program, buffers: list[int], writers: list[Use], readers: list[Use], waits: int, reading: KernelLaunch
) -> Finding:
    written = sum(use.written for use in writers) * len(buffers)
    read = sum(use.read for use in readers) * len(buffers)
    name = tensor_name(program, buffers[0])
    into = program.site(reading.site)
    return gm_round_trip.at(
        access_site(program, writers[0], "write"),
        f"{name} goes through GM from {many(len(writers), 'task')} that write it in tiles to "
        f"{many(len(readers), 'task')} of {short_name(reading.kernel)} (line {into.line}) that read across them, "
        f"{size(written)} written and {size(read)} read: each waits for {waits} tasks and uses a part of each",
        f"Cut both sides alike, so that the task that makes a part of {name} goes on with it, or make each side "
        "one pl.spmd launch.",
        kernel=program.recording.tasks[writers[0].task].kernel,
        severity="hint",
        waste=Waste(bytes=written + read),
        count=len(buffers),
        also=[into],
    )


@rule(
    "split-halves",
    "hint",
    "cube and vector halves in separate tasks",
    "A mixed task overlaps its cube and its vector cores tile by tile; two tasks run one after the other and pass "
    "everything through global memory.",
    Example(
        "with pl.at(level=CORE):\n"
        "    gate = pl.matmul(x, w, out_dtype=pl.FP32)\n"
        "with pl.at(level=CORE):\n"
        "    out = pl.assemble(out, pl.mul(gate, scale), [0, n0])",
        "with pl.at(level=CORE):\n"
        "    gate = pl.matmul(x, w, out_dtype=pl.FP32)\n"
        "    out = pl.assemble(out, pl.mul(gate, scale), [0, n0])",
        "bytes written and read back, tasks saved",
    ),
    without="one task",
)
def split_halves(program: Program) -> Iterator[Finding]:
    what = "the cube and the vector half of one computation are two tasks{often}"
    for together in _handed_over(program):
        if _are_halves(together):
            yield _handover_finding(split_halves, program, together, what)


STILL = (
    " (on this chip cube and vector cores still hand tiles over through a small ring in GM, but nobody is dispatched "
    "in between)"
)


def _handed_over(program: Program) -> list[list[Fusable]]:
    """Fusable tasks that hand over at least a line of memory per block, those of the same places together.

    Turns in which only some of the tasks of a longer chain could be joined count with that chain.
    """
    line = program.device.core["gm_line"].value if "gm_line" in program.device.core else 0
    together: dict[tuple[int, ...], list[Fusable]] = defaultdict(list)
    for found in fusable(program):
        if found.written / max(found.launches[0].blocks, 1) >= line:
            together[tuple(launch.site for launch in found.launches)].append(found)
    for places in sorted(together, key=len):
        longer = next((others for others in together if set(others) > set(places)), None)
        if longer is not None:
            together[longer] += together.pop(places)
    return list(together.values())


def _are_halves(together: list[Fusable]) -> bool:
    """Whether it is one cube and one vector task, wherever it happens."""
    return all(len(f.tasks) == 2 and {launch.core for launch in f.launches} == {"AIC", "AIV"} for f in together)


def _handover_finding(rule: Rule, program: Program, together: list[Fusable], what: str) -> Finding:
    """`what` may name {tasks} and how {often}."""
    largest = max(together, key=lambda found: (len(found.tasks), len(found.handovers)))
    widest_first = sorted(largest.handovers, key=lambda handover: -handover.written)
    names = listed(tensor_name(program, handover.buffer) for handover in widest_first)
    written, read = sum(f.written * f.times for f in together), sum(f.read * f.times for f in together)
    turns = sum(f.times for f in together)
    waste = Waste(bytes=written + read, tasks=sum((len(f.tasks) - 1) * f.times for f in together))
    crossing = len({launch.core for launch in largest.launches}) > 1
    through_gm = program.device.rules is not None and not program.device.rules.ring_on_chip
    head = what.format(tasks=len(largest.tasks), often=f" in each of {turns:,} turns" if turns > 1 else "")
    first, *others = (program.site(launch.site) for launch in largest.launches)
    return rule.at(
        first,
        f"{head}: {lines_of(program, largest.launches)} pass {names}, {size(written)} written and {size(read)} read "
        f"back{STILL if crossing and through_gm else ''}",
        f"Put them into one region and keep {names} as tiles: {many(waste.tasks, 'task')} fewer.",
        kernel=largest.launches[0].kernel,
        severity=severity(program, waste),
        waste=waste,
        count=turns,
        also=others,
    )
