"""The memory of a tile program's functions as plain text and as JSON: what is too full comes first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from npuscope.analysis.table import aligned, percent, printable, short
from npuscope.check.findings import Finding
from npuscope.check.fit import Fit
from npuscope.check.memory.usage import Usage
from npuscope.lower.memory.plan import Tenant
from npuscope.lower.program import Program
from npuscope.report.check_json import finding_dict
from npuscope.report.check_text import many
from npuscope.tile.record.names import short_name

BAR = 20  # characters of a full memory


def memory_text(file: str, device: str, fits: Sequence[Fit], tiles: bool = False) -> str:
    """All programs of a file, one after the other; with `tiles` what fills each memory."""
    lines: list[str] = []
    for fit in fits:
        functions = many(len({usage.function for usage in fit.used}), "function")
        over = len(fit.errors)
        told = f"{over} of their memories {'is' if over == 1 else 'are'} too small" if over else "everything fits"
        lines += [f"{printable(file)}: {_program(fit)} on {device}, {functions} with memory on chip: {told}", ""]
        lines += usage_lines(fit.used)
        if tiles:
            lines += [line for usage in fit.used for line in ("", *tile_lines(usage, fit))]
        lines += [line for error in fit.errors for line in ("", *_error(error))]
        lines.append("")
    return "\n".join(lines).rstrip()


def _program(fit: Fit) -> str:
    return printable(short_name(fit.program.recording.program))


def usage_lines(used: Sequence[Usage]) -> list[str]:
    """One line per function and space; those that are too full first and marked, the others in order."""
    if not used:
        return []
    rows = [["function", "space", "used", "limit", "share", ""]]
    for usage in sorted(used, key=lambda usage: usage.space.fits):
        space = usage.space
        mark = "" if space.fits else " does not fit"
        row = [usage.function, space.space, f"{space.used:,}", f"{space.limit:,}", percent(usage.share)]
        rows.append([*map(short, row), bar(usage.share) + mark])
    return aligned(rows, (False, False, True, True, True, False))


def bar(share: float) -> str:
    """A share of a memory; what is used at all shows."""
    full = min(max(round(share * BAR), 1 if share > 0 else 0), BAR)
    return "█" * full + "·" * (BAR - full)


def tile_lines(usage: Usage, fit: Fit) -> Iterator[str]:
    """The buffers of one space in order of address, and who has each from when to when."""
    space = usage.space
    bodies = sum(body.kernel == usage.body.kernel for body in fit.bodies)
    which = f", the fullest of {bodies} bodies" if bodies > 1 else ""
    yield f"{printable(usage.function)} {space.space}: {space.used:,} of {space.limit:,} bytes{which}"
    rows = [["address", "bytes", "tile", "shape", "type", "made at", "needed", "in flight"]]
    if space.reserved:
        rows.append(["0", f"{space.reserved:,}", ring(usage), "", "", "", "always", ""])
    for slot in space.slots:
        head = [f"{slot.address:,}", f"{slot.bytes:,}"]
        for tenant in slot.tenants:
            rows.append([*head, *_tenant(tenant, fit.program)])
            head = ["", ""]
    yield from aligned(rows, (True, True, False, False, False, False, True, False))
    for one in space.shallow:
        name = printable(one.value.name)
        yield f"  {name}: {one.wanted} turns are in flight, but there is room for {one.got} at once"


def _tenant(tenant: Tenant, program: Program) -> list[str]:
    value = tenant.value
    shape = "×".join(map(str, value.shape)) or "one"
    made = place_of(program, value.site)
    return [short(value.name), shape, value.dtype, short(made), needed(tenant), in_flight(tenant)]


def place_of(program: Program, site: int) -> str:
    """`layer.py:12`."""
    found = program.site(site)
    return f"{found.file.rpartition('/')[2]}:{found.line}"


def needed(tenant: Tenant) -> str:
    """From and to which instruction, counted along the body."""
    return f"{tenant.first // 2}–{tenant.last // 2}"


def in_flight(tenant: Tenant) -> str:
    """Which of the turns that are in flight at once; several where pipelined loops are nested."""
    return ", ".join(f"{turn + 1} of {depth}" for _, turn, depth in tenant.turns if depth > 1)


def ring(usage: Usage) -> str:
    """What the head of a space is reserved for."""
    rings = [ring for ring in usage.body.lowered.rings if ring.space == usage.space.space]
    return ", ".join(f"ring {ring.direction}, {ring.slots} slots of {ring.slot:,}" for ring in rings)


def _error(error: Finding) -> Iterator[str]:
    where = f"{error.file.rpartition('/')[2]}:{error.line}"
    yield printable(f"{where}: error: {error.message} [{error.id}]")
    yield printable(f"    fix: {error.fix}")
    if error.change:
        yield printable(f"    + {error.change}")


def memory_dict(file: str, device: str, fits: Sequence[Fit], tiles: bool = False) -> dict[str, Any]:
    """What `npuscope memory --json` prints (docs/json.md); `program` counts them where a file runs several."""
    return {
        "file": file,
        "device": device,
        "programs": [fit.program.recording.program for fit in fits],
        "fits": not any(fit.errors for fit in fits),
        "memory": [
            {"program": n, **_usage(usage), **({"buffers": _buffers(usage, fit.program)} if tiles else {})}
            for n, fit in enumerate(fits)
            for usage in fit.used
        ],
        "errors": [{"program": n, **finding_dict(error)} for n, fit in enumerate(fits) for error in fit.errors],
    }


def _usage(usage: Usage) -> dict[str, Any]:
    space = usage.space
    return {
        "kernel": usage.function,
        "launched_as": usage.body.kernel,
        "space": space.space,
        "used": space.used,
        "limit": space.limit,
        "ring": space.reserved,
        "fits": space.fits,
    }


def _buffers(usage: Usage, program: Program) -> list[dict[str, Any]]:
    return [
        {"address": slot.address, "bytes": slot.bytes, "tiles": [_tile(t, program) for t in slot.tenants]}
        for slot in usage.space.slots
    ]


def _tile(tenant: Tenant, program: Program) -> dict[str, Any]:
    value, site = tenant.value, program.site(tenant.value.site)
    return {
        "name": value.name,
        "shape": list(value.shape),
        "dtype": value.dtype,
        "bytes": value.bytes,
        "file": site.file,
        "line": site.line,
        "from": tenant.first // 2,
        "to": tenant.last // 2,
        "turns": [{"turn": turn, "of": depth} for _, turn, depth in tenant.turns],
    }
