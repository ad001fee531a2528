"""What a run noticed of itself: notes on how it was recorded, and findings with their lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from npuscope.analysis.forms import BYTES, COUNT, TEXT
from npuscope.analysis.table import Column, Columns
from npuscope.tile.record.model import PAST_THE_END, Finding, Recording

SHOWN = 5  # findings
GRAVE = (PAST_THE_END,)  # kinds that a reader of times should know of, too
SENTENCE = "a finding is told as a sentence, not as a row"
NOTICED = Columns(
    "simulate.findings",
    "What a run noticed of itself.",
    (
        Column("kind", TEXT, "what it is", only=SENTENCE),
        Column("file", TEXT, "where", only=SENTENCE),
        Column("line", COUNT, "where", only=SENTENCE),
        Column("message", TEXT, "in words", only=SENTENCE),
        Column("count", COUNT, "times met", only=SENTENCE),
        Column("bytes", BYTES, "concerned; 0 where none are", only=SENTENCE),
    ),
)


def notes(recordings: Sequence[Recording]) -> list[str]:
    return [f"note: {note}" for note in dict.fromkeys(note for recording in recordings for note in recording.notes)]


def findings(recordings: Sequence[Recording], kinds: Iterable[str] = ()) -> list[str]:
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
    told = f"{finding.message} ({much})" if much else finding.message
    return f"finding: {site.file}, line {site.line}: {told}"


def noticed_dict(recording: Recording) -> dict[str, object]:
    """`notes` and `findings` of a JSON output (docs/json.md)."""
    found = []
    for one in recording.findings:
        site = recording.sites[one.site]
        told = (one.kind, site.file, site.line, one.message, one.count, one.bytes)
        found.append(dict(zip(NOTICED.keys, told, strict=True)))
    return {"notes": list(recording.notes), "findings": found}
