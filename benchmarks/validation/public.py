"""Single public measurements (rows.toml) with their predictions."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from validation.measured import Pair

ROWS = Path(__file__).parent / "rows.toml"
Value = float | tuple[float, float]
MICROSECONDS = {"µs": 1.0, "ms": 1e3}


@dataclass(frozen=True)
class Row:
    """One measurement. Of a change `measured` is after over before. `decides`: what was fitted on it; `seen`: its value
    was known when its program was chosen; `beside`: another form of a row, not counted."""

    key: str
    what: str
    unit: str
    source: str
    measured: float
    pair: tuple[float, float] | None
    decides: str
    seen: bool
    beside: bool

    @property
    def change(self) -> bool:
        return self.pair is not None


@dataclass(frozen=True)
class Result:
    row: Row
    value: Value

    @property
    def predicted(self) -> float:
        return self.value[1] / self.value[0] if isinstance(self.value, tuple) else self.value

    @property
    def pair(self) -> Pair:
        return Pair(self.row.what, self.row.measured, self.predicted)

    @property
    def time(self) -> Pair | None:
        """In µs, where the row is a time."""
        factor = MICROSECONDS.get(self.row.unit)
        return Pair(self.row.what, self.row.measured * factor, self.predicted * factor) if factor else None

    @property
    def right(self) -> bool:
        """Of a change: whether it goes the way it was measured to go."""
        return (self.predicted < 1) == (self.row.measured < 1)


def rows() -> list[Row]:
    found = []
    for row in tomllib.loads(ROWS.read_text(encoding="utf-8"))["row"]:
        pair = (row["before"], row["after"]) if "before" in row else None
        measured = pair[1] / pair[0] if pair else row["measured"]
        told = (row.get("decides", ""), row.get("seen", False), row.get("beside", False))
        found.append(Row(row["key"], row["what"], row["unit"], row["source"], measured, pair, *told))
    return found
