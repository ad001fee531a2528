"""What a check can say, and all that was said together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from npuscope.trace.core import Trace

SEVERITIES = ("note", "warning")  # a note is worth knowing; a warning makes some number wrong if ignored


@dataclass(frozen=True)
class Finding:
    """One thing found: how often, an example, and what it does to the numbers."""

    id: str
    severity: str
    what: str
    count: int
    example: str
    effect: str


@dataclass(frozen=True)
class Diagnosis:
    """All findings of a capture, warnings first."""

    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> str:
        """One line."""
        warnings = [f for f in self.findings if f.severity == "warning"]
        notes = len(self.findings) - len(warnings)
        if not self.findings:
            return "sound: nothing found that would touch a number"
        if not warnings:
            return f"sound, with {notes} {_plural(notes, 'note')}: {'; '.join(f.what for f in self.findings[:2])}"
        told = "; ".join(f"{f.count:,} × {f.what}" for f in warnings[:3])
        more = f"; and {len(warnings) - 3} more" if len(warnings) > 3 else ""
        return f"{len(warnings)} {_plural(len(warnings), 'warning')}: {told}{more}"

    def as_dict(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "findings": [asdict(f) for f in self.findings]}


def describe(trace: Trace, row: int) -> str:
    lane, start, kernel = trace.slices.select("lane", "start", "kernel").row(row)
    names = trace.lanes.filter(pl.col("lane") == lane)["name"]
    return f"{kernel} on {names[0] if len(names) else lane} at {microseconds(start - trace.span[0])}"


def microseconds(nanoseconds: int) -> str:
    return f"{nanoseconds / 1000:,.3f} µs"


def _plural(count: int, word: str) -> str:
    return word if count == 1 else f"{word}s"
