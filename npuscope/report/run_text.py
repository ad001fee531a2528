"""What a run of a tile program did, as plain text."""

from __future__ import annotations

from npuscope.analysis.table import printable
from npuscope.report.graph_text import graph_text
from npuscope.report.noticed import finding_lines, note_lines
from npuscope.tile.graph.counts import GraphCounts
from npuscope.tile.script.run import ScriptRun


def run_text(file: str, run: ScriptRun, counts: GraphCounts) -> str:
    """The counts, then what the run noticed."""
    lines = ["", graph_text(file, run.passed, counts)]
    if len(run.recordings) > 1:
        programs = ", ".join(dict.fromkeys(recording.program for recording in run.recordings))
        lines.append(f"{len(run.recordings)} runs together, of {printable(programs)}")
    return "\n".join([*lines, *note_lines(run.recordings), *finding_lines(run.recordings)])
