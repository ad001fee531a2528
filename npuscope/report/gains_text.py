"""What each change would buy, for a terminal."""

from __future__ import annotations

from npuscope.analysis.gains import Gains
from npuscope.analysis.table import frame_lines, printable

MOST = 40
ALONE = "Each change alone; gains do not add up."


def gains_text(gains: Gains) -> str:
    """The ranked table, how findings were reckoned, and what could not be tried."""
    lines = [gains.title(), *frame_lines(gains.frame(), MOST), ALONE, *gains.notes]
    reckoned = [gain for gain in gains.gains if gain.kind == "finding"]
    if reckoned:
        lines += ["Findings, as reckoned:", *(f"  {gain.what}: {gain.how}" for gain in reckoned)]
    if gains.not_expressed:
        lines += ["Not tried:", *(f"  {what}: {why}" for what, why in gains.not_expressed)]
    return "\n".join(map(printable, lines))
