"""What a check can say, and all that was said together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import polars as pl

from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import COUNT, TEXT, many, moment
from npuscope.trace.core import Trace

PARAGRAPH = "a finding is told as a paragraph, not as a row"
FINDINGS = Columns(
    "doctor.findings",
    "One thing found, warnings first.",
    (
        Column("id", TEXT, "as docs/howto/captures.md lists them", only=PARAGRAPH),
        Column("severity", TEXT, "warning or note", only=PARAGRAPH),
        Column("what", TEXT, "was found", only=PARAGRAPH),
        Column("count", COUNT, "how often", only=PARAGRAPH),
        Column("effect", TEXT, "on the numbers", only=PARAGRAPH),
        Column("example", TEXT, "one of them", only=PARAGRAPH),
    ),
)
Severity = Literal["warning", "note"]  # a warning makes some number wrong if ignored; a note is worth knowing


@dataclass(frozen=True)
class Symptom:
    """One thing found: how often, what it does to the numbers, and an example."""

    id: str
    severity: Severity
    what: str
    count: int
    effect: str
    example: str = ""


@dataclass(frozen=True)
class Symptoms:
    """All findings of a capture, warnings first."""

    findings: tuple[Symptom, ...]

    @property
    def verdict(self) -> str:
        """One line."""
        warnings = [f for f in self.findings if f.severity == "warning"]
        if not self.findings:
            return "sound: nothing found that would touch a number"
        if not warnings:
            notes = "; ".join(f.what for f in self.findings[:2])
            return f"sound, with {many(len(self.findings), 'note')}: {notes}"
        told = "; ".join(f"{f.count:,} × {f.what}" for f in warnings[:3])
        more = f"; and {len(warnings) - 3} more" if len(warnings) > 3 else ""
        return f"{many(len(warnings), 'warning')}: {told}{more}"

    def table(self) -> Table:
        return Table(FINDINGS, pl.DataFrame([asdict(f) for f in self.findings], infer_schema_length=None))

    def as_dict(self) -> dict[str, object]:
        return {"verdict": self.verdict, "findings": self.table().rows()}


def describe(trace: Trace, row: int) -> str:
    """A slice in words: its kernel, lane, and time since the trace began."""
    lane, start, kernel = trace.slices.select("lane", "start", "kernel").row(row)
    names = trace.lanes.filter(pl.col("lane") == lane)["name"]
    return f"{kernel} on {names[0] if len(names) else lane} at {moment(start - trace.span[0])}"
