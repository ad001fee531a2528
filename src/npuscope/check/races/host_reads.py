"""Races of the orchestration's own reads: it waits for the writers that the runtime knows, and for no others.

A task of a manual scope, or a tensor with `manual_dep=True`, leaves nothing behind that the read could wait for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from npuscope.check.races.between_tasks import meeting
from npuscope.check.races.by_line import Lines
from npuscope.check.races.conflicts import regions_of
from npuscope.check.races.model import Race, Side, side_of, text_of
from npuscope.check.races.order import order_of
from npuscope.check.wording.region_text import named
from npuscope.lower.program import Program
from npuscope.tile.graph.boxes import Box, dims, offsets_meet
from npuscope.tile.graph.exact import Region
from npuscope.tile.record.model import short_name

HOST = "orchestration"


def host_races(program: Program) -> Iterator[Race]:
    """One race per writing line, reading line and name of the buffer."""
    recording = program.recording
    if not recording.host_reads:
        return
    lines = Lines(recording)
    found: dict[tuple[str, int, int, str], tuple[Race, int]] = {}
    for read, done in zip(recording.host_reads, order_of(program).read, strict=True):
        place = lines.placement.footprint(Box(read.buffer, read.offset, (1,), (1,)))
        element = Region(-1, "read", place.buffer, place.shape, place.strides, np.array([place.offset]))
        loose = [
            r for r in regions_of(program).get(place.buffer, ()) if r.task < read.before_task and not done >> r.task & 1
        ]
        for task in dict.fromkeys(region.task for region in loose if region.writes and _has(region, element)):
            writes = lines.of(task, (place.buffer,))
            region, site = next((r, site) for r, site in writes if r.writes and _has(r, element))
            kernel, name = recording.tasks[task].kernel, recording.buffers[place.buffer].name
            race = _race(program, meeting([region], [element], "raw")[0], site, element, read.site)
            known, count = found.get((kernel, site, read.site, name), (race, 0))
            found[kernel, site, read.site, name] = known, count + 1
    for race, count in found.values():
        yield replace(race, count=count)


def _has(region: Region, element: Region) -> bool:
    axes, wanted = dims(region.shape, region.strides), int(element.offsets[0])
    return any(offsets_meet(wanted - place, axes, ()) for place in region.offsets.tolist())


def _race(program: Program, written: Region, site: int, element: Region, read_site: int) -> Race:
    recording = program.recording
    task, buffer = recording.tasks[written.task], named(program, written.buffer)
    kernel = short_name(task.kernel)
    here, launch = recording.sites[read_site], recording.sites[task.site]
    reading = Side(-1, HOST, here.file, here.line, (here.file, here.line), text_of(program, element))
    sides = (side_of(program, task, site, written), reading)
    hidden = f"{buffer.name} is manual_dep=True" if buffer.manual_dep else f"{kernel} is in a manual scope"
    if not task.manual_scope and not buffer.manual_dep:
        hidden = f"{kernel} takes {buffer.name} as no_dep"
    why = f"the orchestration waits for the writers that the runtime knows, and {hidden}"
    place = f"{Path(launch.file).name}:{launch.line}"
    fix = f"read the element inside a task with deps= on {kernel} ({place}), or let the runtime track that write"
    return Race("raw", buffer.name, sides, 1, why, fix)
