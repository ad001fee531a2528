"""What `npuscope step` prints."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.explain.step import Steps
from npuscope.table.formats import many
from npuscope.table.parts import Heading, Notes, Part, Rows


def step(name: str, found: Steps) -> Iterator[Part]:
    yield Heading(f"{name}: {found.title()}")
    yield Rows(found.tables()["parts"], len(found.ranks[0].parts))
    notes = ["parts of one level add up to the part above; the device has its own clock, so only lengths are compared"]
    if found.cut_off:
        notes.append(f"{many(found.cut_off, 'call')} without an end in the log, left out")
    if found.drops:
        notes.append(f"the log says {many(found.drops, 'time')} that it lost records")
    yield Notes(notes)
    yield Rows(found.tables()["runs"])
