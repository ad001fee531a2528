"""The memory of a tile program's functions: what is too full comes first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from npuscope.check.columns import ERRORS, MEMORY, error_row, place_of, table_of, tile_table, usage_row
from npuscope.check.fit import Fit
from npuscope.check.memory_use import Usage
from npuscope.table.formats import capacity, many, percent
from npuscope.table.parts import Heading, In, Notes, Part, Rows, Say
from npuscope.tile.record.model import short_name

MOST = 20  # rows of text


def memory(file: str, device: str, fits: Sequence[Fit], tiles: bool = False, wide: bool = False) -> Iterator[Part]:
    """All programs of a file, one after the other; with `tiles` what fills each memory."""
    for fit in fits:
        functions = many(len({usage.function for usage in fit.used}), "function")
        yield Say(_headline(fit), strong=True, kind="error" if fit.errors else "")
        yield Say(f"{file}: {program_name(fit)} on {device}, {functions} with memory on chip")
        if fit.used:
            by_fit = sorted(fit.used, key=lambda usage: -usage.share)
            table = table_of(MEMORY, map(usage_row, by_fit))
            shown = table if fit.errors else replace(table, frame=table.frame.drop("fits"))
            yield Rows(shown, len(by_fit) if wide or tiles else MOST, wide=wide)
            if len(by_fit) > MOST and not (wide or tiles):
                yield Say("--wide shows all, --kernel NAME the tiles that fill it.", where=In.TEXT)
        for usage in fit.used if tiles else ():
            yield from _tiles(usage, fit, wide)
        for error in fit.errors:
            change = f"\n    + {error.change}" if error.change else ""
            yield Heading(f"{place_of(error)}: error: {error.message} [{error.id}]\n    fix: {error.fix}{change}")


def _headline(fit: Fit) -> str:
    """Whether it fits, and where it is tightest."""
    if not fit.used:
        return "Fits: no function keeps anything in memory on chip"
    fullest = max(fit.used, key=lambda usage: usage.share)
    where = f"{fullest.space.space} {percent(fullest.share)} ({fullest.function})"
    over = len(fit.errors)
    if not over:
        return f"Fits: the fullest memory is {where}"
    return f"does not fit: {over} {'memory is' if over == 1 else 'memories are'} too small, worst {where}"


def program_name(fit: Fit) -> str:
    return short_name(fit.program.recording.program)


def _tiles(usage: Usage, fit: Fit, wide: bool) -> Iterator[Part]:
    """The buffers of one space in order of address, and who has each from when to when."""
    space = usage.space
    bodies = sum(body.kernel == usage.body.kernel for body in fit.bodies)
    which = f", the fullest of {bodies} bodies" if bodies > 1 else ""
    yield Heading(f"{usage.function} {space.space}: {capacity(space.used)} of {capacity(space.limit)}{which}")
    if space.reserved:
        yield Heading(f"  at its head, always: {ring(usage)}")
    table = tile_table(usage, fit.program)
    yield Rows(table, table.frame.height, wide=wide)
    yield Notes(shallow(usage))


def ring(usage: Usage) -> str:
    """What the head of a space is reserved for."""
    rings = [ring for ring in usage.body.lowered.rings if ring.space == usage.space.space]
    return ", ".join(f"ring {ring.direction}, {ring.slots} slots of {capacity(ring.slot)}" for ring in rings)


def shallow(usage: Usage) -> list[str]:
    """Tiles with less room than turns in flight."""
    return [
        f"{one.value.name}: {one.wanted} turns are in flight, but there is room for {one.got} at once"
        for one in usage.space.shallow
    ]


def memory_dict(file: str, device: str, fits: Sequence[Fit], tiles: bool = False) -> dict[str, object]:
    """What `npuscope memory --json` prints (reference/json.md); `program` counts them where a file runs several."""
    used = [(n, fit, usage) for n, fit in enumerate(fits) for usage in fit.used]
    rows = ({**usage_row(usage, n), **_buffers(usage, fit, tiles)} for n, fit, usage in used)
    errors = (error_row(error, n) for n, fit in enumerate(fits) for error in fit.errors)
    return {
        "file": file,
        "device": device,
        "programs": [fit.program.recording.program for fit in fits],
        "fits": not any(fit.errors for fit in fits),
        "memory": table_of(MEMORY, rows).rows(),
        "errors": table_of(ERRORS, errors).rows(),
    }


def _buffers(usage: Usage, fit: Fit, tiles: bool) -> dict[str, object]:
    """The tiles of each buffer together."""
    if not tiles:
        return {}
    buffers: dict[tuple[object, object], list[dict[str, object]]] = {}
    for row in tile_table(usage, fit.program).rows():
        buffers.setdefault((row.pop("address"), row.pop("room")), []).append(row)
    return {"buffers": [{"address": at, "bytes": room, "tiles": found} for (at, room), found in buffers.items()]}
