"""What a capture says of itself, and the account of everything its reader did to it.

The account balances: `records` read = slices + `merged` + `dropped`. `marked` and `repaired` count
slices that are kept and flagged, or kept and mended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Counts = Mapping[str, int]


@dataclass(frozen=True)
class Meta:
    """The fourth table of a Trace."""

    format: str
    files: tuple[str, ...] = ()
    device: str | None = None
    clock: str | None = None
    records: int = 0  # records of the source: rows, events, trace points
    merged: Counts = field(default_factory=dict)  # reason -> records that became part of a slice, lane or edge
    dropped: Counts = field(default_factory=dict)  # reason -> records that left no slice
    marked: Counts = field(default_factory=dict)  # reason -> slices kept and flagged
    repaired: Counts = field(default_factory=dict)  # reason -> slices kept with a mended value
    notes: Mapping[str, Any] = field(default_factory=dict)  # facts of the capture, JSON-able

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {
            k: dict(v) if isinstance(v, Mapping) else list(v) if isinstance(v, tuple) else v for k, v in plain.items()
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Meta:
        """The inverse of `as_dict`; unknown keys are ignored so that newer files stay readable."""
        known = {k: v for k, v in data.items() if k in Meta.__dataclass_fields__}
        return Meta(**{**known, "files": tuple(known.get("files", ()))})


class Ledger:
    """The running account a reader keeps; `close` turns it into a Meta."""

    def __init__(self) -> None:
        self.records = 0
        self.merged: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.marked: Counter[str] = Counter()
        self.repaired: Counter[str] = Counter()
        self.notes: dict[str, Any] = {}

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
