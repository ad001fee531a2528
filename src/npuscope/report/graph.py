"""A task graph's counts as a report: tasks, blocks and work per kernel and per area; and what a run noticed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuscope.report import noticed
from npuscope.table.parts import In, Part, Rows, Say
from npuscope.tile.graph.outputs import GraphCounts

if TYPE_CHECKING:  # running scripts is not for those who only show one
    from npuscope.tile.script.run import ScriptRun

VERDICTS = {True: "PASS", False: "FAIL", None: "not checked"}
MOST, ALL = 24, 200  # kernels
FEW = 12  # kernels that `run` lists one by one


def graph(file: str, passed: bool | None, counts: GraphCounts, wide: bool = False) -> Iterator[Part]:
    """What `npuscope graph` prints."""
    yield Say(f"{file}: {counts.title()}")
    yield Say(f"golden (the numbers it should give): {VERDICTS[passed]}")
    yield from _tables(counts, wide)


def _tables(counts: GraphCounts, wide: bool) -> Iterator[Part]:
    tables = counts.tables()
    kernels = tables["kernels"]
    yield Rows(kernels, ALL if wide else MOST, wide=wide)
    if kernels.frame.height > MOST and not wide:
        yield Say("--wide shows all kernels.", where=In.TEXT)
    yield Rows(tables["areas"], wide=wide, legend=False)


_NUMBERS = {
    True: "PASS: the numbers are those of the golden, the program's own reference",
    False: "FAIL: the numbers are not those of the golden, the program's own reference",
    None: "ran; the program has no golden to compare its numbers with",
}


def run(file: str, done: ScriptRun, counts: GraphCounts) -> Iterator[Part]:
    """What `npuscope run` prints: the counts, then what the run noticed."""
    yield Say(_NUMBERS[done.passed], strong=True, kind="error" if done.passed is False else "")
    yield Say(f"run looks at the numbers only: `npuscope check {file}` tells whether it fits on chip and is safe.")
    yield Say(f"{file}: {counts.title()}")
    few = counts.kernels.height <= FEW
    yield Rows(counts.tables()["kernels" if few else "areas"])
    if not few:
        yield Say(f"`npuscope graph {file}` has this per kernel.", where=In.TEXT)
    if len(done.recordings) > 1:
        programs = ", ".join(dict.fromkeys(recording.program for recording in done.recordings))
        yield Say(f"{len(done.recordings)} runs together, of {programs}", where=In.TEXT)
    found = [(recording, notice) for recording in done.recordings for notice in recording.notices]
    for line in (*noticed.notes(done.recordings), *noticed.findings(found)):
        yield Say(line)
