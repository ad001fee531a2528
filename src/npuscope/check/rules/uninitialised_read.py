"""Reads of GM that nobody has written: tensors of `create_tensor` without init_value, and outputs of the entry.

Element by element, in the order of the program; a task that itself writes what it reads counts as writing first. A
read of which a part was written is only a hint: rows of padding that are masked later are read on purpose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from npuscope.check.findings import Finding
from npuscope.check.races.by_line import Lines
from npuscope.check.races.conflicts import classes_of, regions_of
from npuscope.check.rule import Example, Rule
from npuscope.check.wording.region_text import region_text
from npuscope.lower.program import Program
from npuscope.tile.graph.boxes import Placement
from npuscope.tile.graph.exact import Region
from npuscope.tile.record.model import Buffer, short_name


class _Bare(NamedTuple):
    """A line that reads what nobody wrote; `partly`: something of it was written."""

    site: int
    region: Region
    partly: bool


def check(program: Program) -> Iterator[Finding]:
    recording = program.recording
    lines = Lines(recording)
    placement = lines.placement
    readers = _readers(program, placement)
    found: dict[tuple[int, str, bool], Finding] = {}
    counts: Counter[tuple[int, str, bool]] = Counter()
    for buffer in recording.buffers:
        if buffer.id in placement.parts or not starts_empty(buffer):
            continue
        known = regions_of(program).get(buffer.id, [])
        suspects = {known[n].task for n, _ in _bare(program, known)} if known else readers.get(buffer.id, ())
        if suspects:
            for bare in _by_line(program, lines, buffer, known, suspects):
                key = (bare.site, recording.tasks[bare.region.task].kernel, bare.partly)
                counts[key] += 1
                if key not in found:
                    found[key] = _finding(program, buffer, bare)
    for key, finding in found.items():
        yield replace(finding, count=counts[key])


def starts_empty(buffer: Buffer) -> bool:
    return not buffer.filled and (buffer.origin == "created" or buffer.direction == "Out")


def _readers(program: Program, placement: Placement) -> dict[int, set[int]]:
    """The tasks that read each buffer that nobody writes."""
    found: dict[int, set[int]] = {}
    for task in program.recording.tasks:
        for argument in task.arguments:
            root = placement.root(argument.buffer)
            if argument.reads and root not in regions_of(program):
                found.setdefault(root, set()).add(task.id)
    return found


def _bare(program: Program, regions: Sequence[Region]) -> list[tuple[int, bool]]:
    """Regions read of which an element was not written before, and whether another was."""
    bare: set[int] = set()
    filled: set[int] = set()
    for found in classes_of(program).of(regions):
        writer = next((regions[n].task for n in found if regions[n].mode == "write"), None)
        for n in found:
            if regions[n].reads:
                (bare if writer is None or regions[n].task < writer else filled).add(n)
    return [(n, n in filled) for n in sorted(bare)]


def _by_line(
    program: Program, lines: Lines, buffer: Buffer, known: list[Region], suspects: set[int]
) -> Iterator[_Bare]:
    """The same by the lines that read."""
    regions, sites = [], []
    for task in sorted({region.task for region in known} | suspects):
        for region, site in lines.of(task, (buffer.id,)):
            regions.append(region)
            sites.append(site)
    for n, partly in _bare(program, regions) if regions else ():
        yield _Bare(sites[n], regions[n], partly)


def _finding(program: Program, buffer: Buffer, bare: _Bare) -> Finding:
    recording = program.recording
    site, made = recording.sites[bare.site], recording.sites[buffer.site]
    task = recording.tasks[bare.region.task]
    region = region_text(buffer, bare.region.shape, bare.region.strides, bare.region.offsets.tolist())
    before = "some of it was never written before" if bare.partly else "nothing has written it before"
    fix = f"Write {buffer.name} first, or give its create_tensor an init_value."
    if buffer.origin == "parameter":
        fix = f"Declare {buffer.name} pl.InOut if its old contents are wanted, else write it first."
    return RULE.at(
        site,
        f"{short_name(task.kernel)} reads {region}, and {before}: what is there is left from something else",
        fix,
        kernel=task.kernel,
        severity="hint" if bare.partly else RULE.severity,
        also=[made],
    )


RULE = Rule(
    "uninitialised-read",
    "warning",
    "a read of GM that nobody has written",
    "Memory of create_tensor and of an output is not cleared: a read before the first write finds anything.",
    check,
    Example(
        "padded = pl.create_tensor([16, 128], dtype=pl.BF16)\n"
        "padded = pl.assemble(padded, heads, [0, 0])  # 8 rows\n"
        "tile = pl.slice(padded, [16, 128], [0, 0])",
        "padded = pl.create_tensor([16, 128], dtype=pl.BF16)\n"
        "padded = pl.assemble(padded, heads, [0, 0])  # 8 rows\n"
        "tile = pl.slice(padded, [16, 128], [0, 0], valid_shape=[8, 128])",
    ),
)
