"""What a run of a tile program did, as plain text."""

from __future__ import annotations

from npuscope.analysis.table import printable
from npuscope.report.graph_text import graph_text
from npuscope.tile.graph.counts import GraphCounts
from npuscope.tile.script.run import ScriptRun

SHOWN = 5  # findings


def run_text(file: str, run: ScriptRun, counts: GraphCounts) -> str:
    """The counts, then what the run noticed."""
    lines = ["", graph_text(file, run.passed, counts)]
    if len(run.recordings) > 1:
        programs = ", ".join(dict.fromkeys(recording.program for recording in run.recordings))
        lines.append(f"{len(run.recordings)} runs together, of {printable(programs)}")
    notes = dict.fromkeys(note for recording in run.recordings for note in recording.notes)
    lines += [f"note: {printable(note)}" for note in notes]
    found = [(recording, finding) for recording in run.recordings for finding in recording.findings]
    for recording, finding in found[:SHOWN]:
        site = recording.sites[finding.site]
        times = "" if finding.count == 1 else f" ({finding.count} times)"
        lines.append(f"finding: {printable(site.file)}, line {site.line}: {printable(finding.message)}{times}")
    if len(found) > SHOWN:
        lines.append(f"… and {len(found) - SHOWN} more findings; --json has all")
    return "\n".join(lines)
