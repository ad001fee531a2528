"""What the server asks of its processes and what they answer. Light: the work itself is loaded in the processes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import field

from npuscope.answer.answer import Trouble
from npuscope.answer.request import Request
from npuscope.base.frozen import dataclass
from npuscope.base.pool import Named


@dataclass(frozen=True)
class SaveBefore:
    """The save that a version is held against: its time in nanoseconds, what limits it, and its text."""

    id: str
    name: str
    wall_ns: float
    bound: str
    sources: Mapping[str, str]
    program: str = ""  # where a file runs several, that which the time is of


@dataclass(frozen=True)
class VersionJob:
    """What to run; `id` and `name` are the version's, `early` is the path of a socket for its timeline."""

    id: str
    name: str
    request: Request
    early: str = ""
    before: SaveBefore | None = None


@dataclass(frozen=True)
class VersionResult:
    """A version: its run as the page reads it, a few words about it, or its trouble.

    `sources` is the text of what it was made from; `trace` and `diagnosis` are pickled, for who compares.
    """

    id: str
    run: bytes = b""
    wall: object = None
    verdict: str = ""
    trouble: Trouble | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    panels: bytes = b""
    trace: bytes = b""
    cpu_s: float = 0.0  # of its process until the timeline was there
    bound: str = ""  # what limits a simulated run
    diagnosis: bytes = b""  # of a simulated run, which knows more than its trace
    program: str = ""  # where a file runs several, that which the time is of
    noticed: tuple[str, ...] = ()  # what a reader of its time should know, in a sentence each
    versus: Mapping[str, object] | None = None  # the save before it: what was edited since and, of runs, the ratio

    @property
    def wall_ns(self) -> float:
        """Of a simulated run, without its interval."""
        return float(self.wall["value"]) if isinstance(self.wall, Mapping) else 0.0

    @property
    def digest(self) -> str:
        """Equal for versions of the same text."""
        return hashlib.sha256(repr(sorted(self.sources.items())).encode()).hexdigest()[:16] if self.sources else ""


@dataclass(frozen=True)
class Pair:
    """Two runs to compare."""

    names: tuple[str, str]
    both: tuple[VersionResult, VersionResult]


@dataclass(frozen=True)
class PerfettoFile:
    """A trace to write for the Perfetto UI."""

    trace: bytes
    file: str


@dataclass(frozen=True)
class WrittenIn:
    """Settings to write into the text of a program."""

    file: str
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Question:
    """What a page asks of a run: a panel that is made when it is opened, a kind of block, what a change would buy.

    `request` is a program's, which is run again if its files hold `sources`; `bound` is what limits a simulated run.
    """

    what: str
    name: str
    trace: bytes
    asked: Mapping[str, object] = field(default_factory=dict)
    request: Request | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    bound: str = ""


@dataclass(frozen=True)
class CaptureFile:
    """A capture to read under a name, beside so many that are known."""

    path: str
    name: str
    known: int


WORK = "npuscope.lab.job"
perform: Named[VersionJob, VersionResult] = Named(WORK, "perform")
compared: Named[Pair, bytes] = Named(WORK, "compared")
written: Named[PerfettoFile, str] = Named(WORK, "written")
answered: Named[Question, bytes] = Named(WORK, "answered")
reprice: Named[Question, VersionResult] = Named(WORK, "reprice")
written_in: Named[WrittenIn, dict[str, tuple[str, str]]] = Named(WORK, "written_in")
