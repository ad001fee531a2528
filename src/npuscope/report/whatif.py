"""What changes would buy, in a capture or in a simulated run; of a capture without loading the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from npuscope.base.interval import Against
from npuscope.explain.changes import Gains, WhatIf
from npuscope.explain.diagnosis import Diagnosis
from npuscope.report.captures import together, worth
from npuscope.table.formats import estimate_text, many, percent, sentence_start
from npuscope.table.parts import Heading, In, Notes, Part, Rows, Say

GAIN_ROWS = 15
NO_MATTER = 0.001  # of the wall is not worth a row
WIDTH, PLACE, NAME = 40, 20, 9  # characters of what a row is about, and at least of file and line and of kernel in it
GAIN_MEANING = "80%: measured ratios that were predicted like these lie in there so often."
EACH_CHANGE = "Each change alone; gains do not add up."


def gains(found: Gains, diagnosis: Diagnosis) -> Iterator[Part]:
    """With the run's verdict; of a simulated run with how sure the gains are."""
    if found.regime:
        from npuscope.time.uncertainty import time_estimate
        from npuscope.time.whatif import likely_gains

    table = likely_gains(found) if found.regime else found.main_table()
    yield Say(sentence_start(found.title()), strong=True)
    yield Say(" ".join([diagnosis.verdict.sentence, *worth(diagnosis.verdict)]), strong=True)
    frame = table.frame.with_columns(pl.col("what").map_elements(brief, return_dtype=pl.String))
    large = frame.filter(pl.col("gain_ns").abs() >= NO_MATTER * found.wall_ns)
    yield Rows(replace(table, frame=large), GAIN_ROWS)
    if little := frame.height - large.height:
        others = f"{many(little, 'other')} would change less than {percent(NO_MATTER)}; --json has all."
        yield Say(others, where=In.TEXT)
    yield Say(EACH_CHANGE)
    if diagnosis.together is not None:
        yield Say(together(diagnosis.together))
    if found.regime:
        wall = time_estimate(found.wall_ns, "wall", found.regime)
        yield Say(f"As it is: {estimate_text(wall)}. {GAIN_MEANING}")
    for note in found.notes:
        yield Say(note)
    if reckoned := [f"{gain.what}: {gain.how}" for gain in found.gains if gain.kind == "finding"]:
        yield Heading("What the findings above stand for:")
        yield Notes(reckoned)
    if found.not_expressed:
        yield Heading("Not tried:")
        yield Notes([f"{what}: {why}" for what, why in found.not_expressed])


def asked(found: WhatIf, versus: Against | None = None) -> Iterator[Part]:
    """Of one change that was asked for: the time with it, between which bounds, and why so wide."""
    if versus is not None:
        from npuscope.time.uncertainty import versus_text

    first, *rest = found.title().split("\n")
    yield Say(sentence_start(first), strong=True)
    for sentence in (*rest, *([] if versus is None else [versus_text(versus)])):
        yield Say(sentence)
    yield Rows(found.main_table())


def gains_data(found: Gains, diagnosis: Diagnosis) -> dict[str, object]:
    """The contract of `npuscope whatif PROGRAM --json` (docs/reference/json.md)."""
    from npuscope.time.uncertainty import time_estimate
    from npuscope.time.whatif import likely_gains

    wall = time_estimate(found.wall_ns, "wall", found.regime)
    likely = {"gains": likely_gains(found).rows(), "wall_interval_ns": wall.as_dict()}
    return {**found.as_dict(), **likely, **diagnosis.as_dict()}


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
