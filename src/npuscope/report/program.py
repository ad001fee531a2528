"""A tile program: whether its numbers are right, its tasks and work, its memory, its lowering."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from npuscope.check.columns import ERRORS, MEMORY, error_row, place_of, table_of, tile_table, usage_row
from npuscope.lower.lowering import after_each_pass, body_text
from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import BYTES, COUNT, TEXT, capacity, many, percent, printable
from npuscope.table.parts import Heading, In, Notes, Part, Rows, Say
from npuscope.tile.record.model import short_name

if TYPE_CHECKING:  # who shows one of them need not be able to make the others
    from npuscope.check.memory_use import Usage
    from npuscope.check.run import Fit
    from npuscope.lower.program import PlannedBody, Program
    from npuscope.tile.graph.outputs import GraphCounts
    from npuscope.tile.record.model import Notice, Recording
    from npuscope.tile.script.run import ScriptRun

VERDICTS = {True: "PASS", False: "FAIL", None: "not checked"}
NUMBERS = {
    True: "PASS: the numbers are those of the golden, the program's own reference",
    False: "FAIL: the numbers are not those of the golden, the program's own reference",
    None: "ran; the program has no golden to compare its numbers with",
}
KERNELS, ALL_KERNELS = 24, 200
FEW = 12  # kernels that `run` lists one by one
FUNCTIONS = 20  # rows of memory
NOTICES = 5
SENTENCE = "people read a notice as a sentence"
NOTICED = Columns(
    "simulate.notices",
    "What a run noticed of itself.",
    Column("kind", TEXT, "what it is", only=SENTENCE),
    Column("file", TEXT, "where", only=SENTENCE),
    Column("line", COUNT, "where", only=SENTENCE),
    Column("message", TEXT, "in words", only=SENTENCE),
    Column("count", COUNT, "times met", only=SENTENCE),
    Column("bytes", BYTES, "concerned; 0 where none are", only=SENTENCE),
)


def notice_table(noticed: Iterable[tuple[Recording, Notice]]) -> Table:
    """What a run noticed, for programs."""
    rows = []
    for recording, one in noticed:
        site = recording.sites[one.site]
        rows.append((one.kind, site.file, site.line, one.message, one.count, one.bytes))
    return NOTICED.table(rows)


def noticed_lines(recordings: Sequence[Recording], noticed: Sequence[tuple[Recording, Notice]]) -> list[str]:
    """Notes on how programs were recorded, then what was noticed, a line each."""
    notes = dict.fromkeys(note for recording in recordings for note in recording.notes)
    lines = [f"note: {note}" for note in notes]
    for recording, one in noticed[:NOTICES]:
        site = recording.sites[one.site]
        much = ", ".join([f"{one.count} times"] * (one.count > 1) + [f"{one.bytes:,} B"] * (one.bytes > 0))
        lines.append(f"notice: {site.file}, line {site.line}: {one.message}{f' ({much})' if much else ''}")
    more = len(noticed) - NOTICES
    return [*lines, f"… and {many(more, 'more notice')}; --json has all"] if more > 0 else lines


def graph(file: str, passed: bool | None, counts: GraphCounts, wide: bool = False) -> Iterator[Part]:
    """What `npuscope graph` prints."""
    yield Say(f"{file}: {counts.title()}")
    yield Say(f"golden (the numbers it should give): {VERDICTS[passed]}")
    tables = counts.tables()
    kernels = tables["kernels"]
    yield Rows(kernels, ALL_KERNELS if wide else KERNELS, wide=wide)
    if kernels.frame.height > KERNELS and not wide:
        yield Say("--wide shows all kernels.", where=In.TEXT)
    yield Rows(tables["areas"], wide=wide, legend=False)


def run(file: str, done: ScriptRun, counts: GraphCounts) -> Iterator[Part]:
    """What `npuscope run` prints: the counts, then what the run noticed."""
    yield Say(NUMBERS[done.passed], strong=True, kind="error" if done.passed is False else "")
    yield Say(f"run looks at the numbers only: `npuscope check {file}` tells whether it fits on chip and is safe.")
    yield Say(f"{file}: {counts.title()}")
    few = counts.kernels.height <= FEW
    yield Rows(counts.tables()["kernels" if few else "areas"])
    if not few:
        yield Say(f"`npuscope graph {file}` has this per kernel.", where=In.TEXT)
    if len(done.recordings) > 1:
        programs = ", ".join(dict.fromkeys(recording.program for recording in done.recordings))
        yield Say(f"{len(done.recordings)} runs together, of {programs}", where=In.TEXT)
    found = [(recording, notice) for recording in done.recordings for notice in recording.notices]
    for line in noticed_lines(done.recordings, found):
        yield Say(line)


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
            yield Rows(shown, len(by_fit) if wide or tiles else FUNCTIONS, wide=wide)
            if len(by_fit) > FUNCTIONS and not (wide or tiles):
                yield Say("--wide shows all, --kernel NAME the tiles that fill it.", where=In.TEXT)
        for usage in fit.used if tiles else ():
            yield from _tiles(usage, fit, wide)
        yield Notes(fit.program.assembly_notes, "note: ")
        for error in fit.errors:
            change = f"\n    + {error.change}" if error.change else ""
            yield Heading(f"{place_of(error)}: error: {error.message} [{error.id}]\n    remedy: {error.remedy}{change}")


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


def memory_tables(fits: Sequence[Fit], tiles: bool = False) -> dict[str, Table]:
    """What JSON has of all programs; `program` counts them where a file runs several."""
    rows = []
    for n, fit in enumerate(fits):
        for usage in fit.used:
            rows.append({**usage_row(usage, n), **({"buffers": _buffers(usage, fit)} if tiles else {})})
    errors = (error_row(error, n) for n, fit in enumerate(fits) for error in fit.errors)
    return {"memory": table_of(MEMORY, rows), "errors": table_of(ERRORS, errors)}


def _buffers(usage: Usage, fit: Fit) -> list[dict[str, object]]:
    """The tiles of each buffer together."""
    buffers: dict[tuple[object, object], list[dict[str, object]]] = {}
    for row in tile_table(usage, fit.program).rows():
        buffers.setdefault((row.pop("address"), row.pop("room")), []).append(row)
    return [{"address": at, "bytes": room, "tiles": found} for (at, room), found in buffers.items()]


def lowering_text(fits: Sequence[Fit]) -> str:
    """Every body of every kernel."""
    lines = [line for fit in fits for body in fit.bodies for line in _lowering_lines(body, fit.program)]
    return "\n".join(printable(line) for line in lines) + "\n"


def _lowering_lines(body: PlannedBody, program: Program) -> Iterator[str]:
    if body in program.compiled.values():
        yield "--- the compiler's assembly"
        yield from body_text(body.lowered, program.recording).splitlines()
        return
    task = program.recording.tasks[body.task]
    before = ""
    steps = after_each_pass(program.recording, task, body.lowered.body, program.device, program.lowering)
    for step, lowered in steps:
        text = body_text(lowered, program.recording)
        if text == before:
            yield f"--- {step}: no change"
        else:
            yield f"--- {step if step == 'recorded' else f'after {step}'}"
            yield from text.splitlines()
        before = text
    yield ""
