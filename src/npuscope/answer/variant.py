"""A program to try: a file with its arguments and settings on a chip. Light, so that a kept result is found at once.

A variant's key is made of the program's text, its settings, the chip's constants, npuscope's own source, and the files
and variables that the program took from around it when it ran: what has been tried is not tried again, and what has
changed is.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from npuscope.base.kept_files import own_source
from npuscope.base.surroundings import Surroundings

if TYPE_CHECKING:
    from npuscope.time.measured.base import Factors


@dataclass(frozen=True)
class Footing:
    """What a capture gives variants to stand on: its factors, and the anchored run of the program that it is of."""

    factors: Factors
    wall_ns: int
    bound: str


@dataclass(frozen=True)
class Variant:
    """A file with its arguments and settings on a chip; `jitter` is the seed of the noise on its blocks."""

    name: str
    file: str
    argv: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    device: str = "ascend910b1"
    program: int | None = None
    ring_slots: int | None = None
    jitter: int | None = None
    footing: Footing | None = None

    @cached_property
    def told(self) -> str:
        """Equal for variants that are told alike; what they take from around them is known when they have run."""
        own = Path(self.file)
        chip = (self.device, _files_of_chip(self.device))
        rest = (own_source(), self.argv, self.settings, chip, self.program, self.ring_slots, self.jitter)
        footing = self.footing and (self.footing.factors.key, self.footing.wall_ns, self.footing.bound)
        return _hash(own.name, own.read_bytes(), rest, footing)

    def key(self, seen: Surroundings) -> str:
        """Equal for variants that must come out equal, where these are their surroundings."""
        return _hash(self.told, seen, seen.fingerprint(Path(self.file).parent))[:24]


def _hash(*facts: object) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _files_of_chip(name: str) -> tuple[bytes, ...]:
    """The user's own file of a chip, and all beside it, which it may inherit from; ours are npuscope's own."""
    file = Path(name)
    if not file.is_file():
        return ()
    return tuple(other.read_bytes() for other in sorted(file.parent.glob("*.toml")))
