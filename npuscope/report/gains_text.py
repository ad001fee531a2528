"""What each change would buy, for a terminal."""

from __future__ import annotations

import polars as pl

from npuscope.analysis.gains import Gains
from npuscope.analysis.table import frame_lines, printable

MOST = 40
WIDTH, PLACE, NAME = 40, 20, 9  # characters of what a row is about, and at least of file and line and of kernel in it
ALONE = "Each change alone; gains do not add up."


def brief(what: str) -> str:
    """A finding's id, place and kernel within WIDTH: file and kernel lose their beginnings."""
    if len(what) <= WIDTH or what.count(" ") != 2:
        return what
    id, place, kernel = what.split(" ")
    place = _end(place, max(PLACE, WIDTH - len(id) - len(kernel) - 2))
    return f"{id} {place} {_end(kernel, max(NAME, WIDTH - len(id) - len(place) - 2))}"


def _end(word: str, width: int) -> str:
    return word if len(word) <= width else "…" + word[1 - width :]


def gains_text(gains: Gains) -> str:
    """The ranked table, how findings were reckoned, and what could not be tried."""
    table = gains.frame().with_columns(pl.col("what").map_elements(brief, return_dtype=pl.String))
    lines = [gains.title(), *frame_lines(table, MOST), ALONE, *gains.notes]
    reckoned = [gain for gain in gains.gains if gain.kind == "finding"]
    if reckoned:
        lines += ["Findings, as reckoned:", *(f"  {gain.what}: {gain.how}" for gain in reckoned)]
    if gains.not_expressed:
        lines += ["Not tried:", *(f"  {what}: {why}" for what, why in gains.not_expressed)]
    return "\n".join(map(printable, lines))
