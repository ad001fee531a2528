"""What each single change would buy, ranked: the end-to-end time if something cost half, or nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from npuscope.analysis.table import Tabular, microseconds, percent

Kind = Literal["kernel", "dependency", "scheduler", "memory", "finding"]


@dataclass(frozen=True)
class Gain:
    """Wall times in nanoseconds with one change. `half_ns` is None where half of it means nothing."""

    kind: Kind
    what: str
    how: str  # what was changed, in words
    half_ns: int | None
    nothing_ns: int


@dataclass(frozen=True, repr=False)
class Gains(Tabular):
    """Each change alone, the one that buys most first: gains do not add up."""

    wall_ns: int  # without a change
    gains: tuple[Gain, ...]
    not_expressed: tuple[tuple[str, str], ...] = ()  # what, and why it cannot be tried
    notes: tuple[str, ...] = ()

    def frame(self) -> pl.DataFrame:
        rows = [(g.kind, g.what, g.half_ns, g.nothing_ns, self.wall_ns - g.nothing_ns) for g in self.gains]
        names = {"kind": pl.String, "what": pl.String, "at half_ns": pl.Int64, "at nothing_ns": pl.Int64}
        frame = pl.DataFrame(rows, schema={**names, "gain_ns": pl.Int64}, orient="row")
        share = pl.Series("share", [percent(round(self.share(gain), 3) + 0.0) for gain in self.gains], dtype=pl.String)
        return frame.with_columns(share)

    def share(self, gain: Gain) -> float:
        """What of the wall time it takes away."""
        return 1 - gain.nothing_ns / self.wall_ns if self.wall_ns else 0.0

    def title(self) -> str:
        return f"what if: {microseconds(self.wall_ns)} µs, and with one thing at half its cost or at none"

    def as_dict(self) -> dict[str, Any]:
        rows = [{**vars(g), "gain_ns": self.wall_ns - g.nothing_ns, "gain": self.share(g)} for g in self.gains]
        cannot = [{"what": what, "why": why} for what, why in self.not_expressed]
        return {"wall_ns": self.wall_ns, "gains": rows, "not_expressed": cannot, "notes": list(self.notes)}


def ranked(gains: Iterable[Gain]) -> tuple[Gain, ...]:
    """The one that buys most first."""
    return tuple(sorted(gains, key=lambda gain: (gain.nothing_ns, gain.kind, gain.what)))
