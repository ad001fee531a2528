"""A row of a table of changes: two sides of a program and a quantity measured on both.

Columns: id, commit, parent, file, entry, arguments, quantity, scopes_before, scopes_after, before, after, unit,
platform, what_changed; others are not read. In file, entry and arguments `x|y` is x at the parent and y at the commit.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

NEEDED = ("id", "commit", "parent", "file", "quantity", "before", "after")
QUANTITIES = ("wall", "corespan", "span", "busy", "task", "milestone", "orch")
UNITS = ("AIC", "AIV")
NANOSECONDS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
EVERYTHING = "*"
SideName = Literal["before", "after"]


class BadRows(Exception):
    """A table that cannot be read, with its line."""


@dataclass(frozen=True)
class Side:
    """One program at one commit, as it is run."""

    commit: str
    file: str
    arguments: str
    entry: str
    platform: str


@dataclass(frozen=True)
class Row:
    """One published change."""

    id: str
    commit: str
    quantity: str
    unit: str  # AIC or AIV where only slices on those cores count, else empty
    scopes: dict[SideName, tuple[str, ...]]
    sides: dict[SideName, Side]
    before: float
    after: float
    platform: str
    what: str = ""
    nanoseconds: float | None = (
        None  # of the unit of `before` and `after`; None where it is no unit of time, or the time of more than is run
    )

    @property
    def ratio(self) -> float:
        return self.after / self.before

    @property
    def quantity_name(self) -> str:
        """As the table has it: task:AIC."""
        return f"{self.quantity}:{self.unit}" if self.unit else self.quantity

    @property
    def change(self) -> float:
        """ln(after / before): negative is faster."""
        return math.log(self.ratio)


def set_aside(commit: str) -> bool:
    """Whether nobody may look at a commit's rows while a mechanism or a constant is chosen: about a tenth of them.

    The rule was written on 18 November 2026, before the rows of changes_2.csv were worked on, and looks only at the
    commit's own number. It was a fifth (% 5 == 4) until half of these were opened to learn from their misses.
    """
    return int(commit[:8], 16) % 10 == 4


def published(folder: Path) -> list[Row]:
    """All published changes whose measured times may be seen."""
    return [row for table in ("changes.csv", "changes_2.csv") for row in read_rows(folder / table)]


def read_rows(file: Path) -> list[Row]:
    with file.open(newline="") as source:
        reader = csv.DictReader(source)
        missing = [name for name in NEEDED if name not in (reader.fieldnames or ())]
        if missing:
            raise BadRows(f"{file}: no column {', '.join(missing)}")
        rows = [_row(cells, f"{file}, line {reader.line_num}") for cells in reader]
    twice = {row.id for row in rows if sum(other.id == row.id for other in rows) > 1}
    if twice:
        raise BadRows(f"{file}: more than one row is called {', '.join(sorted(twice))}")
    return rows


def _row(cells: dict[str, str | None], place: str) -> Row:
    def cell(name: str, otherwise: str = "") -> str:
        return (cells.get(name) or "").strip() or otherwise

    quantity, _, unit = cell("quantity").partition(":")
    if quantity not in QUANTITIES or (unit and unit not in UNITS):
        known = ", ".join(QUANTITIES)
        raise BadRows(f"{place}: the quantity is '{cell('quantity')}', not one of {known} with :AIC or :AIV")
    before, after = (_time(cell(name), name, place) for name in ("before", "after"))
    platform = cell("platform", "a2a3")

    def side(which: SideName) -> Side:
        commit = cell("parent") if which == "before" else cell("commit")
        file, arguments, entry = (_of_side(cell(name), which) for name in ("file", "arguments", "entry"))
        return Side(commit, file, arguments, entry, platform)

    scopes: dict[SideName, tuple[str, ...]] = {
        "before": _names(cell("scopes_before", EVERYTHING)),
        "after": _names(cell("scopes_after", EVERYTHING)),
    }
    sides: dict[SideName, Side] = {"before": side("before"), "after": side("after")}
    named = cell("id"), cell("commit"), quantity, unit
    # measured times of more layers than the arguments run are no times of this program; their ratio is
    ns = None if "layers run as" in cell("notes") else NANOSECONDS.get(cell("unit"))
    what = cell("what_changed")
    return Row(*named, scopes, sides, before, after, platform, what, ns)


def _time(text: str, name: str, place: str) -> float:
    try:
        time = float(text)
    except ValueError:
        time = math.nan
    if not (math.isfinite(time) and time > 0):
        raise BadRows(f"{place}: {name} is '{text}', not a time")
    return time


def _of_side(text: str, which: SideName) -> str:
    first, bar, second = text.partition("|")
    return (first if which == "before" or not bar else second).strip()


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in re.split(r"[+,;|\s]+", text) if name)


@dataclass(frozen=True)
class Scope:
    """All slices of a kernel on one unit; times in nanoseconds."""

    kernel: str
    unit: str
    slices: int
    busy: int
    first: int
    last: int


@dataclass(frozen=True)
class Measured:
    """A run that ended."""

    program: str
    tasks: int
    blocks: int
    wall: int  # first dispatch to last finish
    scopes: tuple[Scope, ...]
    begin: int = 0  # the first dispatch
    orchestrated: int = 0  # from the orchestrator's first submission to its last
    seconds: float = 0.0
    findings: tuple[str, ...] = ()
    bound: str = ""  # what limits the run

    def as_dict(self) -> dict[str, object]:
        return asdict(self)

    @staticmethod
    def of(told: dict[str, object]) -> Measured:
        scopes = told.pop("scopes")
        findings = told.pop("findings", [])
        assert isinstance(scopes, list)
        assert isinstance(findings, list)
        return Measured(**told, scopes=tuple(Scope(**one) for one in scopes), findings=tuple(findings))  # type: ignore[arg-type]


class NoScope(Exception):
    """A row names a scope that the program does not have."""


def scopes_of(row: Row, which: SideName, run: Measured) -> list[Scope]:
    """What the row names, on the units that count."""
    scopes = [one for one in _chosen(run.scopes, row.scopes[which]) if row.unit in ("", one.unit)]
    if not scopes:
        raise NoScope(f"{'+'.join(row.scopes[which])} has nothing on {row.unit}")
    return scopes


def quantity(row: Row, which: SideName, run: Measured) -> float:
    """The row's quantity on one side, in nanoseconds."""
    if row.quantity == "wall":
        return run.wall
    if row.quantity == "orch":
        return run.orchestrated
    scopes = scopes_of(row, which, run)
    if row.quantity in ("corespan", "span"):
        return max(one.last for one in scopes) - min(one.first for one in scopes)
    if row.quantity == "milestone":  # the run until the scopes are through
        return max(one.last for one in scopes) - run.begin
    busy = sum(one.busy for one in scopes)
    return busy if row.quantity == "busy" else busy / sum(one.slices for one in scopes)


def _chosen(scopes: Sequence[Scope], names: Sequence[str]) -> list[Scope]:
    if EVERYTHING in names:
        return list(scopes)
    found = []
    for name in names:
        mine = [one for one in scopes if fnmatchcase(one.kernel, name)]
        if not mine:
            raise NoScope(f"no scope {name}; there are {', '.join(sorted({one.kernel for one in scopes}))}")
        found += mine
    return list(dict.fromkeys(found))
