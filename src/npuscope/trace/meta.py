"""What a capture says of itself, and the account of everything its reader did to it.

The account balances: `records` read = slices + samples of counters + `merged` + `dropped`. `marked` and `repaired`
count what is kept and flagged, or kept and mended. `unknown` counts what the reader has no meaning for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

Counts = Mapping[str, int]

# reasons that several readers count under, or that the doctor looks for
BELOW_NANOSECOND = "time with digits below a nanosecond rounded"
NEGATIVE = "negative duration set to zero"
BACKWARDS = "end before start, duration set to zero"
NO_DURATION = "slice without a duration given zero"
NEVER_ENDED = "slice never ended, closed at the last event"
OUT_OF_ORDER = "trace point out of order, sorted"
NEVER_CLOSED = "slice never closed"
UNSCHEDULED = "task without dispatch and finish"
UNRECORDED = "dispatch and finish of a task no core recorded"
NOT_UTF8 = "byte that is not UTF-8 replaced"
ZERO_DURATIONS = (NEGATIVE, BACKWARDS, NO_DURATION)
LONGEST_NAME = 80  # characters of an unknown thing's name
CUT_OFF = (NEVER_CLOSED, UNSCHEDULED, UNRECORDED)


@dataclass(frozen=True)
class Meta:
    """The fifth table of a Trace."""

    format: str
    files: tuple[str, ...] = ()
    device: str | None = None
    clock: str | None = None
    records: int = 0  # records of the source: rows, events, trace points, samples of counters
    merged: Counts = field(default_factory=dict)  # reason -> records that became part of a slice, lane or edge
    dropped: Counts = field(default_factory=dict)  # reason -> records that left no slice and no sample
    marked: Counts = field(default_factory=dict)  # reason -> slices kept and flagged
    repaired: Counts = field(default_factory=dict)  # reason -> slices kept with a mended value
    unknown: Counts = field(default_factory=dict)  # keys, columns, tables, categories without a meaning here -> entries
    notes: Mapping[str, Any] = field(default_factory=dict)  # facts of the capture, JSON-able

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    def all_notes(self) -> list[Mapping[str, Any]]:
        """The notes, and those of every capture that went into this trace."""
        parts = self.notes.get("parts", {})
        return [self.notes, *(parts.values() if isinstance(parts, Mapping) else ())]


def account_of(meta: Meta) -> Counts:
    """What the account adds up to."""
    return {"records": meta.records, "merged": sum(meta.merged.values()), "dropped": sum(meta.dropped.values())}


def combine(metas: Mapping[str, Meta], format: str, *, records_merged: Counts | None = None, **notes: Any) -> Meta:
    """The meta of a trace made of several captures, whose own notes stay under `parts` by name."""
    several = list(metas.values())
    devices = list(dict.fromkeys(meta.device for meta in several if meta.device))
    clocks = {meta.clock for meta in several}
    return Meta(
        format=format,
        files=tuple(file for meta in several for file in meta.files),
        device=", ".join(devices) or None,
        clock=clocks.pop() if len(clocks) == 1 else "several",
        records=sum(meta.records for meta in several),
        merged=add_counts(*(meta.merged for meta in several), records_merged or {}),
        dropped=add_counts(*(meta.dropped for meta in several)),
        marked=add_counts(*(meta.marked for meta in several)),
        repaired=add_counts(*(meta.repaired for meta in several)),
        unknown=add_counts(*(meta.unknown for meta in several)),
        notes={"parts": {name: dict(meta.notes) for name, meta in metas.items()}, **notes},
    )


class Ledger:
    """The running account a reader keeps; `close` turns it into a Meta."""

    def __init__(self) -> None:
        self.records = 0
        self.merged: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.marked: Counter[str] = Counter()
        self.repaired: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.notes: dict[str, Any] = {}

    def count_unknown(self, what: str, name: object, entries: int = 1) -> None:
        """Something the reader has no meaning for, told by what it is and its name."""
        self.unknown[f"{what} '{str(name)[:LONGEST_NAME]}'"] += entries

    def close(
        self, format: str, files: tuple[str, ...], *, device: str | None = None, clock: str | None = None
    ) -> Meta:
        return Meta(
            format=format,
            files=files,
            device=device,
            clock=clock,
            records=self.records,
            merged=_nonzero(self.merged),
            dropped=_nonzero(self.dropped),
            marked=_nonzero(self.marked),
            repaired=_nonzero(self.repaired),
            unknown=_nonzero(self.unknown),
            notes=self.notes,
        )


def _nonzero(counts: Counter[str]) -> dict[str, int]:
    return {reason: int(n) for reason, n in counts.items() if n}


def add_counts(*counts: Counts) -> dict[str, int]:
    """Counts of several captures, reason by reason."""
    total: dict[str, int] = {}
    for count in counts:
        for reason, n in count.items():
            total[reason] = total.get(reason, 0) + n
    return total
