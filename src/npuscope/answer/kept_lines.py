"""Results kept in a file of JSON lines that only ever grows, so that nothing is done twice.

One command at a time writes to a file. What is not such a file is refused and left as it is; only a last line of ours
that an interrupt cut off is taken out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Generic, Protocol, TypeVar

import msgspec

from npuscope.base.errors import BadInput, CannotWrite
from npuscope.base.file_lock import take


class Line(Protocol):
    """A result that can be kept."""

    @property
    def key(self) -> str: ...
    @property
    def is_whole(self) -> bool: ...
    def as_dict(self) -> dict[str, object]: ...


L = TypeVar("L", bound=Line)


@dataclass(frozen=True)
class Kind(Generic[L]):
    """A kind of line: its type, how each begins, and who writes them."""

    of: type[L]
    begins: bytes
    writers: str


@contextmanager
def kept(path: Path | None, kind: Kind[L]) -> Iterator[tuple[dict[str, L], Callable[[L], None]]]:
    """Results so far by key, and how to add one; without a path nothing is kept."""
    if path is None:
        yield {}, lambda one: None
        return
    if path.exists() and not path.is_file():
        raise CannotWrite("is a folder" if path.is_dir() else "is no regular file", path=path)
    with _refusing(path):
        file = path.open("a+b")
    try:
        with _refusing(path):
            if not take(file):
                told = f"another {kind.writers} is writing to it"
                raise CannotWrite(told, path=path, remedy="Wait for it, or name another file.")
            known = _read(file, path, kind)

        def add(one: L) -> None:
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


def _read(file: BinaryIO, path: Path, kind: Kind[L]) -> dict[str, L]:
    file.seek(0)
    *lines, last = file.read().split(b"\n")
    found = {}
    for number, line in enumerate(lines, 1):
        try:
            one = msgspec.json.decode(line, type=kind.of)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _not_ours(path, number, kind.writers) from error
        if not one.is_whole:
            raise _not_ours(path, number, kind.writers)
        found[one.key] = one
    if last:
        if not (last.startswith(kind.begins) or kind.begins.startswith(last)):
            raise _not_ours(path, len(lines) + 1, kind.writers)
        file.truncate(sum(map(len, lines)) + len(lines))
    return found


def _not_ours(path: Path, line: int, writers: str) -> BadInput:
    remedy = f"Name the file that an earlier {writers} wrote, or a new one."
    return BadInput(f"not a result of {writers}", path=path, line=line, remedy=remedy)
