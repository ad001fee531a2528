"""The memory of a tile program's functions, for the panel of that name: address against lifetime, tile by tile."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from npuscope.check.columns import MEMORY, place_of, table_of, tile_table, usage_row
from npuscope.check.memory_use import Usage
from npuscope.check.run import Fit
from npuscope.lab.payload.files import program_files
from npuscope.lower.memory_plan import Tenant
from npuscope.lower.model import Lowered, line_of
from npuscope.lower.program import PlannedBody, Program
from npuscope.report.program import program_name, ring, shallow
from npuscope.table.formats import printable

LONGEST = 120  # characters of a line of source


def memory(fits: Sequence[Fit]) -> dict[str, object]:
    """All functions of each program that a script ran."""
    return {
        "columns": table_of(MEMORY, (usage_row(usage) for fit in fits for usage in fit.used)).heads(),
        "programs": [_program(fit) for fit in fits],
    }


@dataclass
class _Bodies:
    """The lines of instructions that a page shows, each once."""

    program: Program
    lines: list[dict[str, object]] = field(default_factory=list)
    known: dict[int, int] = field(default_factory=dict)  # id of a body -> its line

    def of(self, body: PlannedBody) -> int:
        if id(body) not in self.known:
            self.known[id(body)] = len(self.lines)
            self.lines.append(self._line(body.lowered))
        return self.known[id(body)]

    def _line(self, lowered: Lowered) -> dict[str, object]:
        line, spans = line_of(lowered)
        places = [
            None if one is None else [one.name, place_of(self.program.site_in(lowered, one.site))] for one in line
        ]
        loops = [
            {
                "start": span.start,
                "end": span.end,
                "depth": span.depth,
                "text": f"{span.loop.count:,} × {span.loop.kind}"
                + (f", {span.loop.stage} in flight" if span.loop.stage > 1 else ""),
            }
            for span in spans
        ]
        return {"places": places, "loops": loops}


def _program(fit: Fit) -> dict[str, object]:
    bodies = _Bodies(fit.program)
    functions: dict[str, list[dict[str, object]]] = {}
    names = program_files(fit.program.recording)
    for usage in fit.used:
        functions.setdefault(usage.function, []).append(_space(usage, fit, bodies, names))
    return {
        "name": program_name(fit),
        "functions": [{"name": name, "spaces": spaces} for name, spaces in functions.items()],
        "bodies": bodies.lines,
        "errors": [
            {"place": place_of(error), "message": error.message, "remedy": error.remedy} for error in fit.errors
        ],
    }


def _space(usage: Usage, fit: Fit, bodies: _Bodies, names: dict[str, str]) -> dict[str, object]:
    space, table = usage.space, tile_table(usage, fit.program)
    keys = [one.column.name for one in table.shown()]  # the others would say where the file lies
    tenants = [tenant for slot in space.slots for tenant in slot.tenants]
    return {
        "row": usage_row(usage),
        "columns": table.heads(),
        "space": space.space,
        "core": "cube core" if space.unit == "AIC" else "vector core",
        "used": space.used,
        "limit": space.limit,
        "reserved": space.reserved,
        "ring": ring(usage),
        "bodies": sum(body.kernel == usage.body.kernel for body in fit.bodies),
        "body": bodies.of(usage.body),
        "tiles": [
            {**{key: row[key] for key in keys}, **_drawn(tenant, usage.body.lowered, fit.program, names)}
            for row, tenant in zip(table.rows(), tenants, strict=True)
        ],
        "shallow": shallow(usage),
    }


def _drawn(tenant: Tenant, lowered: Lowered, program: Program, names: dict[str, str]) -> dict[str, object]:
    """What a tile has in the map and not in the table."""
    site = program.site_in(lowered, tenant.value.site)
    return {
        "storage": tenant.value.storage,
        "source": printable(linecache.getline(site.file, site.line).strip())[:LONGEST],
        "file": names[site.file],
        "line": site.line,
        "first": tenant.first,
        "last": tenant.last,
        "copies": prod(depth for _, _, depth in tenant.turns),
    }
