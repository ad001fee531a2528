"""The inside of one block as a report: pipes, how busy they were, who waited for whom."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.explain.diagnosis import Diagnosis
from npuscope.table.columns import all_rows
from npuscope.table.formats import duration, levels, many
from npuscope.table.parts import Heading, Notes, Part, Rows, Say
from npuscope.table.text import aligned
from npuscope.time.inside import Inside

WAITS = 10  # rows shown
COLUMNS = 80  # of the drawing


def pipes(file: str, block: Inside, found: Diagnosis) -> Iterator[Part]:
    """What `npuscope simulate --pipes` prints."""
    of = f"one of {block.blocks:,} alike of {many(block.all_blocks, 'block')}"
    memory = f"memory {block.slow:.2f}x as slow as alone on the chip" if block.slow > 1.005 else "memory as alone"
    tables = block.tables()
    yield Say(
        f"{file}: {block.kernel}, {of}: {duration(block.timing.duration)}, {memory}, "
        f"{many(len(block.lane.pipe), 'instruction')}"
    )
    yield Say(found.verdict.sentence, strong=True)
    yield Notes([*found.verdict.evidence, found.verdict.remedy])
    yield Rows(tables["pipes"])
    drawn = aligned([(name, levels(shares)) for name, shares in block.over_time(COLUMNS).items()], (False, False))
    yield Heading(f"how busy over time, a column is {duration(block.timing.duration / COLUMNS)}")
    yield Say("\n".join(drawn))
    if tables["waits"].frame.height:
        yield Heading("who waited longest, and for whom (a pipe's result, its issue, a free slot)")
        yield Rows(tables["waits"], WAITS)


def pipes_dict(file: str, block: Inside, found: Diagnosis) -> dict[str, object]:
    """The contract of `npuscope simulate --pipes --json` (docs/reference/json.md)."""
    return {
        "file": file,
        "kernel": block.kernel,
        **found.as_dict(),
        "blocks": block.all_blocks,
        "duration_ns": block.timing.duration,
        "slow": block.slow,
        "instructions": len(block.lane.pipe),
        **all_rows(block.tables()),
    }
