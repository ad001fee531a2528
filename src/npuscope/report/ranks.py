"""Ranks explained: all of them in a table, who waits for whom, then each in a few lines."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.explain.ranks import Ranks
from npuscope.report.causes import causes
from npuscope.report.explain import headline
from npuscope.table.parts import Heading, In, Notes, Part, Rows, Say

MOST = 64  # ranks printed
BLOCKERS = 2


def ranks(path: str, name: str, found: Ranks, wide: bool = False) -> Iterator[Part]:
    """The capture at `path`, called `name` where it is posted."""
    trace, many = found.trace, f"{len(found.parts)} {found.what}"
    yield Say(f"{path}: {trace.meta.format}, {trace.slices.height:,} slices of {many}", where=In.TEXT)
    yield Heading(f"Profiling report: {name}", 1, In.POSTED)
    yield Say(f"{trace.meta.format}, {trace.slices.height:,} slices of {many}, each explained alone.", where=In.POSTED)
    yield Heading("Key finding", where=In.POSTED)
    yield from causes(found.diagnosis)
    yield Notes([found.overview, found.waits.title()])
    yield Heading(found.what.capitalize(), where=In.POSTED)
    yield Rows(found.together(), MOST, MOST, wide=wide)
    if found.waits.table.height:
        yield Heading("Who waits for whom", where=In.POSTED)
        yield Rows(found.waits.main_table(), BLOCKERS * 3, MOST)
    for part, e in zip(found.parts[:MOST], found.explained, strict=False):
        yield Heading(part.name)
        yield Notes([str(e.diagnosis.verdict), *headline(e), *e.bubbles.sentences(BLOCKERS)])
    yield Say("`--rank N` explains one of them in full.", where=In.TEXT)
