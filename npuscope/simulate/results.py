"""What came of variants, kept in a file of JSON lines that only ever grows, so that nothing is simulated twice.

One command at a time writes to a file. What is not such a file is refused and left as it is; only a last line of ours
that an interrupt cut off is taken out.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from npuscope.errors import BadInput, CannotWrite

OURS = b'{"variant": "'


@dataclass(frozen=True)
class Fullest:
    """The fullest on-chip memory of a program; above 1 a comment lets it through."""

    function: str
    space: str
    share: float


@dataclass(frozen=True)
class Outcome:
    """What came of a variant: a time, or the error that keeps it from running."""

    variant: str
    key: str
    wall_ns: int | None = None
    tasks: int | None = None
    blocks: int | None = None
    bound: str | None = None
    memory: Fullest | None = None
    error: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The contract of `rank` and `sweep --json`: what there is."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @property
    def is_whole(self) -> bool:
        if self.error is not None:
            return self.wall_ns is None
        return self.wall_ns is not None and self.wall_ns >= 0 and None not in (self.tasks, self.blocks, self.bound)


@contextmanager
def kept(path: Path | None) -> Iterator[tuple[dict[str, Outcome], Callable[[Outcome], None]]]:
    """Outcomes so far by key, and how to add one; without a path nothing is kept."""
    if path is None:
        yield {}, lambda one: None
        return
    if path.exists() and not path.is_file():
        raise CannotWrite("is a folder" if path.is_dir() else "is no regular file", path=path)
    with _refusing(path):
        file = path.open("a+b")
    try:
        with _refusing(path):
            _lock(file, path)
            known = _read(file, path)

        def add(one: Outcome) -> None:
            with _refusing(path):
                file.write(json.dumps(one.as_dict()).encode() + b"\n")
                file.flush()

        yield known, add
    finally:
        with _refusing(path):  # what could not be written is tried once more
            file.close()


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotWrite(error.strerror or str(error), path=path, remedy="Name another file for --results.") from error


def _lock(file: BinaryIO, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise CannotWrite(
            "another rank or sweep is writing to it", path=path, remedy="Wait for it, or name another file."
        ) from error


def _read(file: BinaryIO, path: Path) -> dict[str, Outcome]:
    file.seek(0)
    *lines, last = file.read().split(b"\n")
    found = {}
    for number, line in enumerate(lines, 1):
        try:
            one = msgspec.json.decode(line, type=Outcome)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _not_ours(path, number) from error
        if not one.is_whole:
            raise _not_ours(path, number)
        found[one.key] = one
    if last:
        if not (last.startswith(OURS) or OURS.startswith(last)):
            raise _not_ours(path, len(lines) + 1)
        file.truncate(sum(map(len, lines)) + len(lines))
    return found


def _not_ours(path: Path, line: int) -> BadInput:
    remedy = "Name the file that an earlier rank or sweep wrote, or a new one."
    return BadInput("not a result of rank or sweep", path=path, line=line, remedy=remedy)
