"""The inside of one block as text and as JSON: pipes, how busy they were, who waited for whom."""

from __future__ import annotations

from typing import Any

import polars as pl

from npuscope.analysis.table import aligned, frame_lines, levels, microseconds, percent, printable
from npuscope.report.check_text import many
from npuscope.simulate.inside import Inside

WAITS = 10  # rows shown
COLUMNS = 80  # of the drawing


def pipes_text(file: str, block: Inside) -> str:
    """What `npuscope simulate --pipes` prints."""
    of = f"one of {block.blocks:,} alike of {many(block.all_blocks, 'block')}"
    memory = f"memory {block.slow:.2f}x as slow as alone on the chip" if block.slow > 1.005 else "memory as alone"
    pipes = block.pipes().with_columns(pl.col("share").map_elements(percent, return_dtype=pl.String))
    lines = [
        f"{printable(file)}: {printable(block.kernel)}, {of}: {microseconds(block.timing.duration)} µs, {memory}, "
        f"{many(len(block.lane.pipe), 'instruction')}",
        "",
        *frame_lines(pipes),
        "",
        f"how busy over time, a column is {microseconds(block.timing.duration / COLUMNS)} µs",
        *aligned([(name, levels(shares)) for name, shares in block.over_time(COLUMNS).items()], (False, False)),
    ]
    waits = block.waits()
    if waits.height:
        lines += ["", "who waited longest, and for whom (a pipe's result, its issue, a free slot)"]
        lines += frame_lines(waits, WAITS)
    return "\n".join(lines)


def pipes_dict(file: str, block: Inside) -> dict[str, Any]:
    """The contract of `npuscope simulate --pipes --json` (docs/json.md)."""
    return {
        "file": file,
        "kernel": block.kernel,
        "blocks": block.all_blocks,
        "duration_ns": block.timing.duration,
        "slow": block.slow,
        "instructions": len(block.lane.pipe),
        "pipes": block.pipes().drop("for (µs)").to_dicts(),
        "waits": block.waits().to_dicts(),
    }
