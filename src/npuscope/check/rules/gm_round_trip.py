"""Tensors that cross global memory between tasks that could be one.

Two findings: a chain of tasks in every turn of a loop, and, weaker, many tasks that write a tensor in tiles and many
that read it across those tiles, so that each waits for several and uses a part of what each wrote (a hint). One cube
and one vector task that hand over one to one are split-halves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from npuscope.check.findings import Finding, Waste
from npuscope.check.rule import Example, Rule
from npuscope.check.traffic.table import Use, traffic_of
from npuscope.check.wording.handed_over import are_halves, handed_over, told
from npuscope.check.wording.told import access_site, size, tensor_name
from npuscope.lower.program import Launch, Program
from npuscope.table.formats import many
from npuscope.tile.record.model import short_name


def check(program: Program) -> Iterator[Finding]:
    for together in handed_over(program):
        if not are_halves(together):
            yield told(RULE, program, together, "{tasks} tasks{often} hand over through GM what one could keep on chip")
    yield from _across_tiles(program)


def _across_tiles(program: Program) -> Iterator[Finding]:
    """Tensors written in tiles by many tasks and read across them by many."""
    alike: dict[tuple[tuple[int, int], ...], list[int]] = defaultdict(list)
    for buffer, tasks in traffic_of(program).touching.items():
        if program.recording.buffers[buffer].origin != "parameter" and len(tasks) >= 4:
            alike[_launches_of(program, tasks)].append(buffer)
    for buffers in alike.values():
        yield from _crossings(program, buffers)


def _launches_of(program: Program, tasks: list[int]) -> tuple[tuple[int, int], ...]:
    counts: dict[int, int] = defaultdict(int)
    for task in tasks:
        counts[traffic_of(program).launch[task]] += 1
    return tuple(counts.items())


def _crossings(program: Program, buffers: list[int]) -> Iterator[Finding]:
    """The pairs of kernels that cross in the first of several tensors that are used alike."""
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
                yield _crossing(program, buffers, wrote, uses, len(parts), program.launches[launch])


def _users(program: Program, buffer: int) -> tuple[dict[int, list[Use]], dict[int, list[Use]]]:
    """Launches of which several tasks write the tensor (no atomic adds), and of which several only read it."""
    traffic = traffic_of(program)
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
    kernel = program.launches[traffic_of(program).launch[writers[0].task]]
    name = tensor_name(program, buffers[0])
    into = program.site(reading.site)
    return RULE.at(
        site,
        f"{name} goes through GM from {many(len(writers), 'task')} that write it in tiles to "
        f"{many(len(readers), 'task')} of {short_name(reading.kernel)} (line {into.line}) that read across them, "
        f"{size(written)} written and {size(read)} read: each waits for {waits} tasks and uses a part of each",
        f"Cut both sides alike, so that the task that makes a part of {name} goes on with it, or make each side "
        "one pl.spmd launch.",
        kernel=kernel.kernel,
        severity="hint",
        waste=Waste(bytes=written + read),
        count=len(buffers),
        also=[into],
    )


RULE = Rule(
    "gm-round-trip",
    "warning",
    "tensors between tasks that could be one",
    "What one task writes to global memory and the next reads back costs both transfers, a dispatch and the wait "
    "for it; in one task it stays on chip.",
    check,
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
)
