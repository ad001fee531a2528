"""Tensors that cross global memory between tasks that could be one, and halves of one computation in two tasks.

Three findings, each told once: a chain of tasks in every turn of a loop (gm-round-trip), one cube and one vector task
that hand over one to one (split-halves), and, weaker, many tasks that write a tensor in tiles and many that read it
across those tiles, so that each waits for several and uses a part of what each wrote (gm-round-trip, a hint).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from npuscope.check.findings import Cost, Finding
from npuscope.check.program import Launch, Program
from npuscope.check.rule import Rule
from npuscope.check.shared.estimate import severity
from npuscope.check.shared.fusable import Fusable, Handover, fusable
from npuscope.check.shared.told import access_site, kernel_name, lines_of, listed, many, size, tensor_name
from npuscope.check.traffic import Use


def gm_round_trips(program: Program) -> Iterator[Finding]:
    for together in _worth_it(program):
        if not _halves(together):
            yield _told(program, together, "gm-round-trip")
    yield from _across_tiles(program)


def split_halves(program: Program) -> Iterator[Finding]:
    for together in _worth_it(program):
        if _halves(together):
            yield _told(program, together, "split-halves")


def _worth_it(program: Program) -> list[list[Fusable]]:
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


def _halves(together: list[Fusable]) -> bool:
    return all(len(f.tasks) == 2 and {launch.core for launch in f.launches} == {"AIC", "AIV"} for f in together)


def _told(program: Program, together: list[Fusable], rule: str) -> Finding:
    largest = max(together, key=lambda found: (len(found.tasks), len(found.handovers)))
    names = listed(tensor_name(program, handover.buffer) for handover in _widest_first(largest))
    written, read = sum(f.written * f.times for f in together), sum(f.read * f.times for f in together)
    turns = sum(f.times for f in together)
    cost = Cost(bytes=written + read, tasks=sum((len(f.tasks) - 1) * f.times for f in together))
    crossing = {launch.core for launch in largest.launches} != {largest.launches[0].core}
    ring = program.device.rules is not None and not program.device.rules.ring_on_chip
    still = (
        " (on this chip cube and vector cores still hand tiles over through a small ring in GM, but nobody is "
        "dispatched in between)"
        if crossing and ring
        else ""
    )
    often = f" in each of {turns:,} turns" if turns > 1 else ""
    first, *others = (program.site(launch.site) for launch in largest.launches)
    if rule == "split-halves":
        what = f"the cube and the vector half of one computation are two tasks{often}"
    else:
        what = f"{len(largest.tasks)} tasks{often} hand over through GM what one could keep on chip"
    return Finding(
        id=rule,
        severity=severity(program, cost),
        file=first.file,
        line=first.line,
        function=first.function,
        kernel=largest.launches[0].kernel,
        message=f"{what}: {lines_of(program, largest.launches)} pass {names}, {size(written)} written and "
        f"{size(read)} read back{still}",
        fix=f"Put them into one region and keep {names} as tiles: {many(cost.tasks, 'task')} fewer.",
        cost=cost,
        count=turns,
        also=tuple((site.file, site.line) for site in others),
    )


def _widest_first(found: Fusable) -> list[Handover]:
    return sorted(found.handovers, key=lambda handover: -handover.written)


def _across_tiles(program: Program) -> Iterator[Finding]:
    """Tensors written in tiles by many tasks and read across them by many."""
    alike: dict[tuple[tuple[int, int], ...], list[int]] = defaultdict(list)
    for buffer, tasks in program.traffic.touching.items():
        if program.recording.buffers[buffer].origin != "parameter" and len(tasks) >= 4:
            alike[_launches_of(program, tasks)].append(buffer)
    for buffers in alike.values():
        yield from _crossings(program, buffers)


def _launches_of(program: Program, tasks: list[int]) -> tuple[tuple[int, int], ...]:
    counts: dict[int, int] = defaultdict(int)
    for task in tasks:
        counts[program.traffic.launch[task]] += 1
    return tuple(counts.items())


def _crossings(program: Program, buffers: list[int]) -> Iterator[Finding]:
    """The pairs of kernels that cross in the first of several tensors that are used alike."""
    traffic, buffer = program.traffic, buffers[0]
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
                yield _crossing(program, buffers, wrote, uses, len(parts), program.launches[launch])


def _users(program: Program, buffer: int) -> tuple[dict[int, list[Use]], dict[int, list[Use]]]:
    """Launches of which several tasks write the tensor (no atomic adds), and of which several only read it."""
    traffic = program.traffic
    writers: dict[int, list[Use]] = defaultdict(list)
    readers: dict[int, list[Use]] = defaultdict(list)
    for task in traffic.touching[buffer]:
        launch = traffic.launch[task]
        for use in traffic.uses(task):
            if (
                use.buffer == buffer
                and use.written
                and not use.read
                and use.argument not in traffic.moved[launch].added
            ):
                writers[launch].append(use)
            elif use.buffer == buffer and not use.written:
                readers[launch].append(use)
    several = [{launch: uses for launch, uses in of.items() if len(uses) > 1} for of in (writers, readers)]
    return several[0], several[1]


def _crossing(
    program: Program, buffers: list[int], writers: list[Use], readers: list[Use], waits: int, reading: Launch
) -> Finding:
    written = sum(use.written for use in writers) * len(buffers)
    read = sum(use.read for use in readers) * len(buffers)
    site = access_site(program, writers[0], "write")
    kernel = program.launches[program.traffic.launch[writers[0].task]]
    name = tensor_name(program, buffers[0])
    into = program.site(reading.site)
    return Finding(
        id="gm-round-trip",
        severity="hint",
        file=site.file,
        line=site.line,
        function=site.function,
        kernel=kernel.kernel,
        message=f"{name} goes through GM from {many(len(writers), 'task')} that write it in tiles to "
        f"{many(len(readers), 'task')} of {kernel_name(reading)} (line {into.line}) that read across them, "
        f"{size(written)} written and {size(read)} read: each waits for {waits} tasks and uses a part of each",
        fix=f"Cut both sides alike, so that the task that makes a part of {name} goes on with it, or make each side "
        "one pl.spmd launch.",
        cost=Cost(bytes=written + read),
        count=len(buffers),
        also=((into.file, into.line),),
    )


RULES = (
    Rule(
        "gm-round-trip",
        "warning",
        "tensors between tasks that could be one",
        "What one task writes to global memory and the next reads back costs both transfers, a dispatch and the wait "
        "for it; in one task it stays on chip.",
        gm_round_trips,
    ),
    Rule(
        "split-halves",
        "hint",
        "cube and vector halves in separate tasks",
        "A mixed task overlaps its cube and its vector cores tile by tile; two tasks run one after the other and pass "
        "everything through global memory.",
        split_halves,
    ),
)
