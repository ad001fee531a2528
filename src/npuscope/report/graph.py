"""A task graph's counts as a report: tasks, blocks and work per kernel and per area; and what a run noticed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuscope.report import noticed
from npuscope.report.document import In, Part, Rows, Say
from npuscope.tile.graph.counts import GraphCounts

if TYPE_CHECKING:  # running scripts is not for those who only show one
    from npuscope.tile.script.run import ScriptRun

VERDICTS = {True: "PASS", False: "FAIL", None: "not checked"}
MOST = 200  # kernels


def graph(file: str, passed: bool | None, counts: GraphCounts, wide: bool = False) -> Iterator[Part]:
    """What `npuscope graph` prints."""
    tables = counts.tables()
    yield Say(f"{file}: {counts.title()}")
    yield Say(f"golden: {VERDICTS[passed]}")
    yield Rows(tables["kernels"], MOST, wide=wide)
    yield Rows(tables["areas"], wide=wide)


def run(file: str, done: ScriptRun, counts: GraphCounts) -> Iterator[Part]:
    """What `npuscope run` prints: the counts, then what the run noticed."""
    yield from graph(file, done.passed, counts)
    if len(done.recordings) > 1:
        programs = ", ".join(dict.fromkeys(recording.program for recording in done.recordings))
        yield Say(f"{len(done.recordings)} runs together, of {programs}", where=In.TEXT)
    found = [(recording, notice) for recording in done.recordings for notice in recording.notices]
    for line in (*noticed.notes(done.recordings), *noticed.findings(found)):
        yield Say(line)
