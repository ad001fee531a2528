"""What a run noticed of itself: notes on how it was recorded, and findings with their lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from npuscope.analysis.table import printable
from npuscope.tile.record.model import PAST_THE_END, Finding, Recording

SHOWN = 5  # findings
GRAVE = (PAST_THE_END,)  # kinds that a reader of times should know of, too


def note_lines(recordings: Sequence[Recording]) -> list[str]:
    notes = dict.fromkeys(note for recording in recordings for note in recording.notes)
    return [f"note: {printable(note)}" for note in notes]


def finding_lines(recordings: Sequence[Recording], kinds: Iterable[str] = ()) -> list[str]:
    """A line each, of some kinds or of all."""
    wanted = tuple(kinds)
    found = [(one, f) for one in recordings for f in one.findings if not wanted or f.kind in wanted]
    lines = [_line(recording, finding) for recording, finding in found[:SHOWN]]
    if len(found) > SHOWN:
        lines.append(f"… and {len(found) - SHOWN} more findings; --json has all")
    return lines


def _line(recording: Recording, finding: Finding) -> str:
    site = recording.sites[finding.site]
    size = [f"{finding.bytes:,} B"] if finding.bytes else []
    much = ", ".join([*([f"{finding.count} times"] if finding.count > 1 else []), *size])
    told = f"{printable(finding.message)} ({much})" if much else printable(finding.message)
    return f"finding: {printable(site.file)}, line {site.line}: {told}"


def noticed_dict(recording: Recording) -> dict[str, object]:
    """`notes` and `findings` of a JSON output (docs/json.md)."""
    found = []
    for one in recording.findings:
        site = recording.sites[one.site]
        found.append(
            {
                "kind": one.kind,
                "file": site.file,
                "line": site.line,
                "message": one.message,
                "count": one.count,
                "bytes": one.bytes,
            }
        )
    return {"notes": list(recording.notes), "findings": found}
