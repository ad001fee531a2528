"""What each change would buy: the ranked table, how findings were reckoned, and what could not be tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from npuscope.analysis.gains import Gains
from npuscope.report.document import Heading, Notes, Part, Rows, Say

MOST = 40
WIDTH, PLACE, NAME = 40, 20, 9  # characters of what a row is about, and at least of file and line and of kernel in it
ALONE = "Each change alone; gains do not add up."


def gains(found: Gains) -> Iterator[Part]:
    table = found.heart()
    brief_names = pl.col("what").map_elements(brief, return_dtype=pl.String)
    yield Heading(found.title())
    yield Rows(replace(table, frame=table.frame.with_columns(brief_names)), MOST)
    for sentence in (ALONE, *found.notes):
        yield Say(sentence)
    if reckoned := [f"{gain.what}: {gain.how}" for gain in found.gains if gain.kind == "finding"]:
        yield Heading("Findings, as reckoned:")
        yield Notes(reckoned)
    if found.not_expressed:
        yield Heading("Not tried:")
        yield Notes([f"{what}: {why}" for what, why in found.not_expressed])


def brief(what: str) -> str:
    """A finding's id, place and kernel within WIDTH: file and kernel lose their beginnings."""
    if len(what) <= WIDTH or what.count(" ") != 2:
        return what
    id, place, kernel = what.split(" ")
    place = _end(place, max(PLACE, WIDTH - len(id) - len(kernel) - 2))
    return f"{id} {place} {_end(kernel, max(NAME, WIDTH - len(id) - len(place) - 2))}"


def _end(word: str, width: int) -> str:
    """The end of a place or of a scope's name: the line, and the number that tells scopes of one function apart."""
    return word if len(word) <= width else "…" + word[1 - width :]
