"""What a simulated run says of every scope, and a row's quantity read from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase

from published_changes.rows import EVERYTHING, Row, SideName


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


def quantity(row: Row, which: SideName, run: Measured) -> float:
    """The row's quantity on one side, in nanoseconds."""
    if row.quantity == "wall":
        return run.wall
    scopes = [one for one in _chosen(run.scopes, row.scopes[which]) if row.unit in ("", one.unit)]
    if not scopes:
        raise NoScope(f"{'+'.join(row.scopes[which])} has nothing on {row.unit}")
    if row.quantity in ("corespan", "span"):
        return max(one.last for one in scopes) - min(one.first for one in scopes)
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
