"""A store that runs past the end of its tensor, as the run saw it."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.check.findings import Finding
from npuscope.check.rule import Example, Rule
from npuscope.lower.program import Program
from npuscope.tile.record.model import PAST_THE_END


def check(program: Program) -> Iterator[Finding]:
    recording = program.recording
    for found in recording.notices:
        if found.kind == PAST_THE_END:
            yield RULE.at(
                recording.sites[found.site],
                f"{found.message} ({found.bytes:,} B)",
                "Mend the offset, or narrow what is stored with valid_shape or a smaller slice.",
                count=found.count,
            )


RULE = Rule(
    id="past-the-end",
    severity="error",
    title="a store runs past the end of its tensor",
    why="The chip checks no bounds: what lies behind the tensor's end is overwritten, be it rows of the same tensor or "
    "another tensor. The program may run and even pass where nobody reads what was lost.",
    check=check,
    example=Example(
        "out = pl.store(pl.add(x, y), [ROWS - 8, 0], out)  # a tile of 16 rows",
        "out = pl.store(pl.add(x, y), [ROWS - 16, 0], out)",
    ),
    about="quality",
)
