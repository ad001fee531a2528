"""What a run noticed of itself: notes on how it was recorded, and findings with their lines."""

from __future__ import annotations

from collections.abc import Sequence

from npuscope.table.columns import Column, Columns
from npuscope.table.formats import BYTES, COUNT, TEXT
from npuscope.tile.record.model import Notice, Recording

SHOWN = 5  # findings
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


def findings(found: Sequence[tuple[Recording, Notice]]) -> list[str]:
    """A line each."""
    lines = [_line(recording, notice) for recording, notice in found[:SHOWN]]
    if len(found) > SHOWN:
        lines.append(f"… and {len(found) - SHOWN} more findings; --json has all")
    return lines


def _line(recording: Recording, notice: Notice) -> str:
    site = recording.sites[notice.site]
    size = [f"{notice.bytes:,} B"] if notice.bytes else []
    much = ", ".join([*([f"{notice.count} times"] if notice.count > 1 else []), *size])
    told = f"{notice.message} ({much})" if much else notice.message
    return f"finding: {site.file}, line {site.line}: {told}"


def noticed_dict(recording: Recording, notices: Sequence[Notice]) -> dict[str, object]:
    """`notes` and `findings` of a JSON output (docs/reference/json.md)."""
    found = []
    for one in notices:
        site = recording.sites[one.site]
        told = (one.kind, site.file, site.line, one.message, one.count, one.bytes)
        found.append(dict(zip(NOTICED.keys, told, strict=True)))
    return {"notes": list(recording.notes), "findings": found}
