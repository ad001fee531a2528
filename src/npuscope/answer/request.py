"""The question that every surface asks: a program with its arguments and settings on a chip. Light: whoever asks loads
nothing else."""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from npuscope.base.files import source_digest
from npuscope.base.frozen import dataclass
from npuscope.base.unsaved import Texts, source_bytes

if TYPE_CHECKING:
    from npuscope.check.rule import TrialPrice
    from npuscope.tile.record.model import Mode
    from npuscope.time.measured.base import Factors
    from npuscope.time.measured.observed import Observed


@dataclass(frozen=True)
class CaptureBase:
    """What a capture gives a prediction to stand on: its factors, and the anchored run of the program that it is of.

    `wall_ns` is that run's, by the capture's clock (`measured`); `bound` is the kind of what limits it.
    """

    factors: Factors
    measured: Observed
    wall_ns: float
    bound: str


@dataclass(frozen=True)
class Request:
    """`file` is a path; `name` is what the answer is called. `jitter` is the seed of the noise on its blocks.

    `program` counts the programs that a file runs. `mode`: "values" computes, where control flow depends on more than
    lengths and tables. `build`: a folder that the compiler left of the program. `texts` stand in for files of the
    program: whoever asks does so inside `unsaved(request.texts)`, as the functions that processes run do.
    `device`: a chip's name or file; without it that of the platform that the program asks for, else ascend910b1.
    `runtime`: tmr or hbg; without it the one that the program asks for, else tmr by the chip's own file.
    """

    file: str
    argv: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    device: str = ""
    program: int | None = None
    ring_slots: int | None = None
    mode: Mode = "shapes"
    jitter: int | None = None
    base: CaptureBase | None = None
    name: str = ""
    build: str = ""
    texts: Texts = ()
    runtime: str = ""
    tried: tuple[TrialPrice, ...] = ()  # what fixes of this very program gave (answer/fixes.py)
    skew: float | None = None  # nanoseconds between the launches of two ranks; None: as the chip's file says

    @cached_property
    def key(self) -> str:
        """Equal for requests that are, by the text of the program, of the chip's file and of npuscope as they are now.

        What else a program reads is not in it: whoever keeps results by it tries one of them again.
        """
        base = self.base and (self.base.factors.key, self.base.measured, self.base.wall_ns, self.base.bound)
        own = Path(self.file)
        rings = sorted((name, text) for name, text in os.environ.items() if name.startswith("PTO2_"))
        files = [own.name, source_bytes(own), *(file.read_bytes() for file in files_of_chip(self.device))]
        facts = (source_digest(), rings, files, base, replace(self, file="", name="", base=None))
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:24]


def files_of_chip(name: str) -> Iterator[Path]:
    """The user's own file of a chip and those that it inherits from, wherever they are, each before it is read; ours
    are npuscope's."""
    seen: set[Path] = set()
    file = Path(name).resolve()
    while file.is_file() and file not in seen:
        seen.add(file)
        yield file
        try:
            parent = tomllib.loads(file.read_text()).get("inherits")
        except ValueError:  # no TOML: whoever reads it says so
            break
        file = (file.parent / str(parent)).resolve()
