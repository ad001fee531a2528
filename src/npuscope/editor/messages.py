"""What the language server asks of its processes and what they answer: plain data, each piece at a line of a file.
Light: the work itself is loaded in the processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from npuscope.answer.request import Request
from npuscope.base.frozen import dataclass
from npuscope.base.interval import Against, Interval
from npuscope.base.pool import Named
from npuscope.check.rule import Finding

NO_RUN = "does-not-run"  # the code of a program without a run
Place = tuple[str, int]  # a file and its line, counted from 1


@dataclass(frozen=True)
class LookJob:
    """`early` is the path of a socket for what is known before findings are; `wall_ns` and `regime` are of the save
    before, 0 where there is none."""

    request: Request
    early: str = ""
    wall_ns: float = 0.0
    regime: str = ""


@dataclass(frozen=True)
class LineCost:
    """What a line takes: its part of the time that blocks took, and on which unit most of it."""

    core_ns: float
    share: float
    unit: str
    bytes: int
    flops: int


@dataclass(frozen=True)
class KernelCost:
    """A kernel at the line that submits it: the time of its blocks, added up, and its share of all kernels'."""

    place: Place
    kernel: str
    tasks: int
    blocks: int
    run_ns: float
    share: float


@dataclass(frozen=True)
class TileRoom:
    """A tile at the line that makes it: its memory, its bytes in so many copies, and the lines between which it is
    needed."""

    kernel: str
    space: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    copies: int
    first: int
    last: int


@dataclass(frozen=True)
class Look:
    """A program as it was saved. `whole`: findings and races are there, too, not only errors. `texts` are the files
    that it was made from. `wall` is in nanoseconds, None where it has no run; `versus` holds it against the save
    before."""

    file: str
    whole: bool
    texts: Mapping[str, str]
    findings: tuple[Finding, ...] = ()
    wall: Interval | None = None
    regime: str = ""
    verdict: str = ""
    versus: Against | None = None
    lines: Mapping[Place, LineCost] = field(default_factory=dict)
    kernels: tuple[KernelCost, ...] = ()
    tiles: Mapping[Place, tuple[TileRoom, ...]] = field(default_factory=dict)


LOOK: Named[LookJob, Look] = Named("npuscope.editor.look", "look")
