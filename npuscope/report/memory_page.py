"""The memory of a tile program's functions as one offline page: address against lifetime, tile by tile."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from npuscope.analysis.table import printable
from npuscope.check.fit import Fit
from npuscope.check.memory.usage import Usage
from npuscope.device.chip import Device
from npuscope.lower.memory.line import Line, line_of
from npuscope.lower.memory.plan import Slot, Tenant
from npuscope.lower.program import PlannedBody, Program
from npuscope.report.memory_text import in_flight, place_of, ring
from npuscope.report.scripted_page import scripted_page
from npuscope.tile.record.names import short_name

MODULES = ("format", "colors", "table", "theme", "memory_map", "memory")  # each after its imports
LONGEST = 120  # characters of a line of source


def memory_page(file: str, device: Device, fits: Sequence[Fit]) -> str:
    """The page of one script: all functions of each program it ran."""
    name = file.rpartition("/")[2]
    data = {
        "title": f"Memory of {name}",
        "subtitle": f"{device.title}, {device.name}",
        "programs": [_program(fit) for fit in fits],
    }
    return scripted_page(MODULES, data, "`npuscope memory` prints the same as text.")


@dataclass
class _Bodies:
    """The lines of instructions that a page shows, each once."""

    program: Program
    lines: list[dict[str, Any]] = field(default_factory=list)
    known: dict[int, int] = field(default_factory=dict)  # id of a Kernel -> its line

    def of(self, body: PlannedBody) -> int:
        if id(body) not in self.known:
            self.known[id(body)] = len(self.lines)
            self.lines.append(self._line(line_of(body.lowered)))
        return self.known[id(body)]

    def _line(self, line: Line) -> dict[str, Any]:
        places = [None if one is None else [one.name, place_of(self.program, one.site)] for one in line.places]
        loops = [
            {
                "start": span.start,
                "end": span.end,
                "depth": span.depth,
                "told": f"{span.loop.count:,} × {span.loop.kind}"
                + (f", {span.loop.stage} in flight" if span.loop.stage > 1 else ""),
            }
            for span in line.loops
        ]
        return {"places": places, "loops": loops}


def _program(fit: Fit) -> dict[str, Any]:
    bodies = _Bodies(fit.program)
    functions: dict[str, list[dict[str, Any]]] = {}
    for usage in fit.used:
        functions.setdefault(usage.function, []).append(_space(usage, fit, bodies))
    return {
        "name": short_name(fit.program.recording.program),
        "functions": [{"name": name, "spaces": spaces} for name, spaces in functions.items()],
        "bodies": bodies.lines,
        "errors": [
            {"place": f"{error.file.rpartition('/')[2]}:{error.line}", "message": error.message, "fix": error.fix}
            for error in fit.errors
        ],
    }


def _space(usage: Usage, fit: Fit, bodies: _Bodies) -> dict[str, Any]:
    space = usage.space
    shallow = [f"{one.value.name}: {one.wanted} turns are in flight, room for {one.got}" for one in space.shallow]
    return {
        "space": space.space,
        "core": "cube core" if space.unit == "AIC" else "vector core",
        "used": space.used,
        "limit": space.limit,
        "reserved": space.reserved,
        "ring": ring(usage),
        "bodies": sum(body.kernel == usage.body.kernel for body in fit.bodies),
        "body": bodies.of(usage.body),
        "tiles": [_tile(slot, tenant, fit.program) for slot in space.slots for tenant in slot.tenants],
        "shallow": shallow,
    }


def _tile(slot: Slot, tenant: Tenant, program: Program) -> dict[str, Any]:
    value, site = tenant.value, program.site(tenant.value.site)
    copies = 1
    for _, _, depth in tenant.turns:
        copies *= depth
    return {
        "storage": value.storage,
        "name": value.name,
        "shape": list(value.shape),
        "dtype": value.dtype,
        "bytes": value.bytes,
        "address": slot.address,
        "room": slot.bytes,
        "place": place_of(program, value.site),
        "source": printable(linecache.getline(site.file, site.line).strip())[:LONGEST],
        "first": tenant.first,
        "last": tenant.last,
        "flight": in_flight(tenant),
        "copies": copies,
    }
