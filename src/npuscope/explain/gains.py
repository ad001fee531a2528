"""What each single change would buy, ranked: the end-to-end time if something cost half, or nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import polars as pl

from npuscope.table.columns import Column, Columns, Table, Tabular, all_rows
from npuscope.table.formats import SHARE, TEXT, TIME, duration, percent, worded

Kind = Literal["kernel", "dependency", "dispatch", "bandwidth", "finding"]
WAITS = {  # what people read of a scheduler's waits
    "FIN": "until the scheduler notices an end",
    "dispatch": "until a ready task is handed out",
    "pickup": "until a handed-out task starts",
    "submit": "until a task is submitted",
}
GAINS = Columns(
    "whatif.gains",
    "A change alone, the one that buys most first; gains do not add up.",
    (
        Column("kind", TEXT, "kernel, finding, or the kind of cause: dependency, dispatch, bandwidth"),
        Column("what", worded(WAITS), "what is changed"),
        Column("how", TEXT, "how it is changed, in words", only="too long for a row; findings' stand below the table"),
        Column(
            "half_ns",
            TIME,
            "the wall with half of it; null where half means nothing",
            scale="wall",
            title="with half",
        ),
        Column("nothing_ns", TIME, "the wall without it", scale="wall", title="without it"),
        Column("gain_ns", TIME, "what of the wall it takes away", title="saves", more_is="better"),
        Column("gain", SHARE, "the same as a share of the wall", title="share"),
    ),
)


@dataclass(frozen=True)
class OneChange:
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
    gains: tuple[OneChange, ...]
    not_expressed: tuple[tuple[str, str], ...] = ()  # what, and why it cannot be tried
    notes: tuple[str, ...] = ()

    def tables(self) -> dict[str, Table]:
        rows = [(g.kind, g.what, g.how, g.half_ns, g.nothing_ns) for g in self.gains]
        schema = {"kind": pl.String, "what": pl.String, "how": pl.String, "half_ns": pl.Int64, "nothing_ns": pl.Int64}
        frame = pl.DataFrame(rows, schema=schema, orient="row")
        gains = pl.Series("gain", [self.share(gain) for gain in self.gains], dtype=pl.Float64)
        return {
            "gains": Table(GAINS, frame.with_columns((self.wall_ns - pl.col("nothing_ns")).alias("gain_ns"), gains))
        }

    def share(self, gain: OneChange) -> float:
        """What of the wall time it takes away."""
        return 1 - gain.nothing_ns / self.wall_ns if self.wall_ns else 0.0

    def title(self) -> str:
        if not self.gains or self.gains[0].nothing_ns >= self.wall_ns:
            return f"no single change would shorten the {duration(self.wall_ns)}"
        best = self.gains[0]
        what = f"the wait {WAITS[best.what]}" if best.what in WAITS else best.what
        told = f"{duration(best.nothing_ns)} instead of {duration(self.wall_ns)} ({percent(self.share(best))} less)"
        return f"most to gain from {what}: without it {told}"

    def as_dict(self) -> dict[str, object]:
        cannot = [{"what": what, "why": why} for what, why in self.not_expressed]
        rows = all_rows(self.tables())
        return {"wall_ns": self.wall_ns, **rows, "not_expressed": cannot, "notes": list(self.notes)}


def ranked(gains: Iterable[OneChange]) -> tuple[OneChange, ...]:
    """The one that buys most first."""
    return tuple(sorted(gains, key=lambda gain: (gain.nothing_ns, gain.kind, gain.what)))
