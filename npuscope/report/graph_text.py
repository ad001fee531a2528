"""A task graph's counts as plain text."""

from __future__ import annotations

from npuscope.analysis.table import frame_lines, printable
from npuscope.tile.graph.counts import GraphCounts

VERDICTS = {True: "PASS", False: "FAIL", None: "not checked"}


def graph_text(file: str, passed: bool | None, counts: GraphCounts) -> str:
    """What `npuscope graph` prints."""
    lines = [f"{printable(file)}: {counts.title()}", f"golden: {VERDICTS[passed]}", ""]
    lines += frame_lines(counts.kernels, most=200)
    lines += ["", *frame_lines(counts.areas)]
    return "\n".join(lines)
