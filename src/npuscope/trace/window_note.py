"""The note of a trace's window, for formats that have a place for notes: what a trace was cut to, or a run reached."""

from __future__ import annotations

from collections.abc import Mapping

from npuscope.trace.core import Trace
from npuscope.trace.meta import Ledger

OWN = "npuscope"  # the key of our notes among others'
WINDOW = "window_ns"
LARGEST = 2**62  # nanoseconds: differences of two such times fit a column


def note_of(trace: Trace, shift: int = 0) -> dict[str, object]:
    """What to write; times are moved by `shift` as the format moves all of them."""
    if WINDOW not in trace.meta.notes:
        return {}
    return {WINDOW: [time + shift for time in trace.window_ns]}


def take_note(ledger: Ledger, note: Mapping[str, object]) -> None:
    """What was written; anything else under our name is counted as unknown."""
    for key, value in note.items():
        match value:
            case [int(start), int(end)] if key == WINDOW and -LARGEST < start <= end < LARGEST:
                ledger.notes[WINDOW] = [int(start), int(end)]
            case _:
                ledger.count_unknown("note of npuscope", key)
